"""The factor by which variances are the squares of spreads, so that the sum of all squared errors is that of theirs.

state, from `at` on: the logarithm of the factor, and the typical squared spread.
"""

from __future__ import annotations

from amf.jit.decorators import index, inlined
from amf.jit.elementary import exp

_SLOWEST = 1.0 / 512.0
"""What one row of typical spread moves the logarithm of the factor by, for each variance that it is off."""
_MOST_TYPICAL = 16.0
"""Typical squared spreads that one counts at most."""
_LARGEST_QUOTIENT, _LARGEST_MOVE, LARGEST_FACTOR = 2.0**40, 1.0, 10.0
"""Of a squared error and its variance; of logarithms, by how much one row moves that of the factor, and how far it
goes."""


@inlined
def follow_variance(error, variance, n, state, at):
    """Follow one squared error, beside a squared spread, after n of them: a row counts as its own spread does.

    A step has no unit and a bound, and few rows are much more than typical, so that an outlier is forgotten soon.
    """
    if variance == 0.0:
        return
    typical = at + index(1)
    if state[typical] == 0.0:
        state[typical] = variance
    gain = max(2.0 / (n + 20.0), _SLOWEST)
    most = _MOST_TYPICAL * state[typical]
    weight = min(variance, most) / state[typical]
    # The bound of the quotient is none of the step, but an infinite one times a weight of 0 would be no number.
    surplus = min(error / variance * exp(-state[at]), _LARGEST_QUOTIENT) - 1.0
    factor = state[at] + min(gain * weight * surplus, _LARGEST_MOVE)
    state[at] = min(max(factor, -LARGEST_FACTOR), LARGEST_FACTOR)
    state[typical] += gain * (min(variance, most) - state[typical])
