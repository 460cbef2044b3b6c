"""How much of a correction a forecast of numbers takes on, by what that would have been worth of late.

The share that would have been best, by least squares, and at most all of it; nothing where what it gained is within its
standard error, or where over the last labels it has surely lost: what it gained before a change it no longer does.

state, from `at` on: N_CORRECTION numbers without a unit, sums over labels of which older ones count less: of the
products of the correction with the error that it is to correct, of its squares, of what it gained and of the squares of
that, over some 512 labels; and the last two over some 16.
"""

from __future__ import annotations

import math

from amf.jit.decorators import index, inlined

N_CORRECTION = 6
_PRODUCTS, _SQUARES, _GAIN, _SQUARED_GAINS, _LATE_GAIN, _SQUARED_LATE_GAINS = map(index, range(N_CORRECTION))
NEVER_NEGATIVE = (int(_SQUARES), int(_SQUARED_GAINS), int(_SQUARED_LATE_GAINS))
"""Places of what is never negative."""
LARGEST_SUM = 1e12
"""More than the sums can be."""

_KEPT = 1.0 - 1.0 / 512.0
"""What is left of the sums at the next label."""
_KEPT_OF_LATE = 1.0 - 1.0 / 16.0
"""The same of those over the last labels."""
_MARGIN = 1.0 + 1e-9
"""Of a standard error: that of a single gain is the gain itself, but for rounding, and no gain is sure by that."""
_ROUNDING = 1e-20
"""Of a squared error, the square of a correction that is rounding alone."""
_SMALLEST = 1e-300


@inlined
def sure_gain(state, at):
    """What the correction surely gained, less than 0 where it is not sure that it did, or does still."""
    if state[at + _LATE_GAIN] < -_MARGIN * math.sqrt(state[at + _SQUARED_LATE_GAINS]):
        return -1.0
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
    state[at + _LATE_GAIN] = _KEPT_OF_LATE * state[at + _LATE_GAIN] + gain
    state[at + _SQUARED_LATE_GAINS] = _KEPT_OF_LATE * state[at + _SQUARED_LATE_GAINS] + gain * gain
    state[at + _PRODUCTS] = _KEPT * state[at + _PRODUCTS] + weight * correction * error
    state[at + _SQUARES] = _KEPT * state[at + _SQUARES] + weight * correction * correction
