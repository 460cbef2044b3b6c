"""How much of a correction a forecast of numbers takes on, by what that would have been worth of late.

The share that would have been best, by least squares, and at most all of it; nothing where what it gained is within its
standard error.

state, from `at` on: N_CORRECTION numbers without a unit, sums over labels of which older ones count less: of the
products of the correction with the error that it is to correct, of its squares, of what it gained and of the squares of
that.
"""

from __future__ import annotations

import math

from amf.jit.decorators import index, inlined

N_CORRECTION = 4
_PRODUCTS, _SQUARES, _GAIN, _SQUARED_GAINS = (index(place) for place in range(N_CORRECTION))
NEVER_NEGATIVE = (int(_SQUARES), int(_SQUARED_GAINS))
"""Places of what is never negative."""
LARGEST_SUM = 1e12
"""More than the sums can be."""

_KEPT = 1.0 - 1.0 / 512.0
"""What is left of the sums at the next label."""
_MARGIN = 1.0 + 1e-9
"""Of a standard error: that of a single gain is the gain itself, but for rounding, and no gain is sure by that."""
_ROUNDING = 1e-20
"""Of a squared error, the square of a correction that is rounding alone."""
_SMALLEST = 1e-300


@inlined
def sure_gain(state, at):
    """What the correction surely gained, less than 0 where it is not sure that it did."""
    return state[at + _GAIN] - _MARGIN * math.sqrt(state[at + _SQUARED_GAINS])


@inlined
def best_share(state, at):
    """The share of the correction that would have been best."""
    return min(max(state[at + _PRODUCTS] / max(state[at + _SQUARES], _SMALLEST), 0.0), 1.0)


@inlined
def judge_correction(correction, error, weight, state, at):
    """Follow one error of the forecast without this correction. weight: of the squared error."""
    # What is rounding beside the error would tell as much of the best share as any other correction.
    correction = correction if correction * correction > _ROUNDING * error * error else 0.0
    rest = error - best_share(state, at) * correction
    gain = weight * (error * error - rest * rest)
    state[at + _GAIN] = _KEPT * state[at + _GAIN] + gain
    state[at + _SQUARED_GAINS] = _KEPT * state[at + _SQUARED_GAINS] + gain * gain
    state[at + _PRODUCTS] = _KEPT * state[at + _PRODUCTS] + weight * correction * error
    state[at + _SQUARES] = _KEPT * state[at + _SQUARES] + weight * correction * correction
