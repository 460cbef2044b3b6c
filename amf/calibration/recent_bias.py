"""What a forecast of numbers was off of late, and where labels are, and how much of that helps to know.

There are three means of recent errors, over some two labels, over eight and over 64, and three levels: the last label,
and means of some eight and 64 labels. A share of one of these errors, or of the way to one of these levels, is added to
the forecast (corrections.py), of that which has gained most by that. So a forecast follows a level that moves or jumps,
be it that features tell more than the level or nothing, and stays as it is where neither predicts the next label.

state, from `at` on: N_DRIFT numbers, each mean of errors and behind it what it is worth; then each level, likewise.
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
_RATES_OF_LEVELS = (1.0, 1.0 / 8.0, 1.0 / 64.0)
"""What a label moves each level by."""
_N_MEANS, _N_LEVELS = index(len(_RATES)), index(len(_RATES_OF_LEVELS))
N_DRIFT = int(_N_MEANS + _N_LEVELS) * int(_PER_MEAN)
MEANS = tuple(range(0, N_DRIFT, int(_PER_MEAN)))
SQUARES = tuple(mean + int(_WORTH) + place for mean in MEANS for place in NEVER_NEGATIVE)
"""Places of the means themselves, and of what is never negative."""
FURTHEST_ERROR = 64.0
"""Usual errors that one counts at most in the means."""
MOST_OF_DRIFT = LARGEST_SUM
"""More than what is no mean can be."""


@inlined
def _correction(r, forecast, furthest, state, at):
    """What the r-th of the means of errors and of the levels would add to a forecast, were all of it taken."""
    number = state[at + r * _PER_MEAN]
    # Usual errors may become smaller sooner than their mean, and no sum is to grow by that.
    return min(max(number if r < _N_MEANS else number - forecast, -furthest), furthest)


@inlined
def drift_of(forecast, usual, state, at):
    """What is to be added to the next forecast. usual: the usual squared error."""
    drift, most, furthest = 0.0, 0.0, FURTHEST_ERROR * math.sqrt(usual)
    for r in range(_N_MEANS + _N_LEVELS):
        worth = at + r * _PER_MEAN + _WORTH
        surely = sure_gain(state, worth)
        if surely > most:
            drift, most = best_share(state, worth) * _correction(r, forecast, furthest, state, at), surely
    return drift


@inlined
def follow_drift(forecast, error, usual, weight, state, at):
    """Follow one error of the forecast without drift. usual: the usual squared error. weight: of the squared one."""
    furthest = FURTHEST_ERROR * math.sqrt(usual)
    for r in range(_N_MEANS + _N_LEVELS):
        correction, mean = _correction(r, forecast, furthest, state, at), at + r * _PER_MEAN
        judge_correction(correction, error, weight, state, mean + _WORTH)
        if r < _N_MEANS:
            state[mean] = correction + _RATES[r] * (min(max(error, -furthest), furthest) - correction)


@inlined
def follow_levels(label, n_before, state, at):
    """Take one label into the levels. n_before: how many labels came before it."""
    for r in range(_N_LEVELS):
        level = at + (_N_MEANS + r) * _PER_MEAN
        state[level] = label if n_before == 0.0 else state[level] + _RATES_OF_LEVELS[r] * (label - state[level])
