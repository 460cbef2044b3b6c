"""What a forecast of numbers was off of late, and how much of that helps to know.

There are two means of recent errors, over some eight labels and over some 64. A share of one of them is added to the
forecast: the share that would have been best of late, by least squares and at most all of it, of the mean that has
gained more by that; neither where that gain is within its standard error. So a forecast follows a level that moves or
jumps, and stays as it is where errors tell nothing of the next one.

state, from `at` on: N_DRIFT numbers, for each mean of errors itself, its products with the next errors, its squares,
what it gained, and the squares of that; all but the first have no unit.
"""

from __future__ import annotations

import math

from amf._kernel import index, inlined

_PER_MEAN = index(5)
_PRODUCTS, _SQUARES, _GAIN, _SQUARED_GAINS = (index(place) for place in range(1, 5))
_RATES = (1.0 / 8.0, 1.0 / 64.0)
"""What an error moves each mean by."""
N_DRIFT = 2 * int(_PER_MEAN)
MEANS = tuple(range(0, N_DRIFT, int(_PER_MEAN)))
SQUARES = tuple(mean + int(place) for mean in MEANS for place in (_SQUARES, _SQUARED_GAINS))
"""Places of the means themselves, and of what is never negative."""
FURTHEST_ERROR = 64.0
"""Usual errors that one counts at most in the means."""
MOST_OF_DRIFT = 1e12
"""More than the sums without a unit can be."""

_KEPT = 1.0 - 1.0 / 512.0
"""What is left of the sums at the next label."""
_SMALLEST = 1e-300


@inlined
def drift_of(state, at):
    """What is to be added to the next forecast."""
    drift, most = 0.0, 0.0
    for mean in range(at, at + index(N_DRIFT), _PER_MEAN):
        surely = state[mean + _GAIN] - math.sqrt(state[mean + _SQUARED_GAINS])
        if surely > most:
            drift, most = _best_share(state, mean) * state[mean], surely
    return drift


@inlined
def follow_drift(error, usual, weight, state, at):
    """Follow one error of the forecast without drift. usual: the usual squared error. weight: of the squared one."""
    furthest = FURTHEST_ERROR * math.sqrt(usual)
    for r in range(index(2)):
        mean = at + r * _PER_MEAN
        # Usual errors may become smaller sooner than their mean, and no sum is to grow by that.
        drift = min(max(state[mean], -furthest), furthest)
        rest = error - _best_share(state, mean) * drift
        gain = weight * (error * error - rest * rest)
        state[mean + _GAIN] = _KEPT * state[mean + _GAIN] + gain
        state[mean + _SQUARED_GAINS] = _KEPT * state[mean + _SQUARED_GAINS] + gain * gain
        state[mean + _PRODUCTS] = _KEPT * state[mean + _PRODUCTS] + weight * drift * error
        state[mean + _SQUARES] = _KEPT * state[mean + _SQUARES] + weight * drift * drift
        state[mean] = drift + _RATES[r] * (min(max(error, -furthest), furthest) - drift)


@inlined
def _best_share(state, mean):
    return min(max(state[mean + _PRODUCTS] / max(state[mean + _SQUARES], _SMALLEST), 0.0), 1.0)
