"""What a forecast of numbers was off of late, and how much of that helps to know.

There are three means of recent errors, over some two labels, over eight and over 64. A share of one of them
is added to the forecast (corrections.py), of that which has gained most by that. So a forecast follows a level that
moves or jumps, and stays as it is where errors do not predict the next one.

state, from `at` on: N_DRIFT numbers, each mean of errors and behind it what it is worth.
"""

from __future__ import annotations

import math

from amf.calibration.corrections import (
    LARGEST_SUM,
    N_CORRECTION,
    NEVER_NEGATIVE,
    best_share,
    judge_correction,
    sure_gain,
)
from amf.jit.decorators import index, inlined

_WORTH, _PER_MEAN = index(1), index(1 + N_CORRECTION)
_RATES = (1.0 / 2.0, 1.0 / 8.0, 1.0 / 64.0)
"""What an error moves each mean by."""
N_DRIFT = len(_RATES) * int(_PER_MEAN)
MEANS = tuple(range(0, N_DRIFT, int(_PER_MEAN)))
SQUARES = tuple(mean + int(_WORTH) + place for mean in MEANS for place in NEVER_NEGATIVE)
"""Places of the means themselves, and of what is never negative."""
FURTHEST_ERROR = 64.0
"""Usual errors that one counts at most in the means."""
MOST_OF_DRIFT = LARGEST_SUM
"""More than what is no mean can be."""


@inlined
def drift_of(state, at):
    """What is to be added to the next forecast."""
    drift, most = 0.0, 0.0
    for mean in range(at, at + index(N_DRIFT), _PER_MEAN):
        surely = sure_gain(state, mean + _WORTH)
        if surely > most:
            drift, most = best_share(state, mean + _WORTH) * state[mean], surely
    return drift


@inlined
def follow_drift(error, usual, weight, state, at):
    """Follow one error of the forecast without drift. usual: the usual squared error. weight: of the squared one."""
    furthest = FURTHEST_ERROR * math.sqrt(usual)
    for r in range(index(len(_RATES))):
        mean = at + r * _PER_MEAN
        # Usual errors may become smaller sooner than their mean, and no sum is to grow by that.
        drift = min(max(state[mean], -furthest), furthest)
        judge_correction(drift, error, weight, state, mean + _WORTH)
        state[mean] = drift + _RATES[r] * (min(max(error, -furthest), furthest) - drift)
