"""The forecast of a regression forest, made of what its trees say, by what came true of its earlier forecasts.

The mean is the least-squares blend, over the forest's own past, of the aggregate over prunings, the mean of the leaves
and the mean of the labels alone: on pure noise the last of them wins, on a series without noise the leaves, on most
data the aggregate. Old rows and labels count less, so that a change is followed, and a row on which the aggregate errs
by far more than it did of late counts as some usual ones at most: else one label of a thousand times the others would
decide for good. What that blend was off of late is added to it as far as that helps (recent_bias.py). So is what a
linear model of the features and of this mean says beside it, then one of their squares, one of splines of them, and at
last ridge regression on the features, and on their products: effects that add up they know sooner (number_stacking.py).

The spread is that of the mixture over prunings and trees, between an eighth and 128 of the usual errors: where labels
are exact a cell soon seems sure to the last digit, and an outlier is in the spread of all cells for long. Stretched
below and above by factors that follow the labels which fell outside of the 5 % and the 95 % quantile (adaptive
conformal inference), it makes these what they are called. Where six labels in a row are outside, labels are not what
they were of late, as behind a rest of a sensor: each further one widens a side that was narrowed by e, as far as trees
say at most, and the usual error is that of the long run at least. Stretched by one more factor, that of the squared
errors over the squared spreads, it is the standard deviation, which no quantiles tell: of a label that is 1 on 2 % of
rows and else 0, both are 0. The median, which of skewed labels is not their mean, is the one of three that has lost
least of late, where an error counts as it is: one that follows the labels above and below it, in units of the spread;
the mean, moved by the median of its errors; and the median of the labels alone. The last two an outlier leaves as they
are, while the spread that it blows up is no unit any more. Where an outlier is in the very cells of a sample it decides
on mean and spread: there the median is that of the labels. At last mean, median and quantiles stay where labels are, on
each side where that is better (label_bounds.py): a count is not negative. What is learned goes by the numbers without
these bounds.

All are state of the forest and change with labelled rows only, one row after the other.

state: float64. Sums over past rows with a = aggregate - leaf, r = mean of labels - leaf, g = label - leaf; mean and
number of labels; logarithms of the stretches, the number of labels that they have followed, how many in a row were
outside, and the median less the mean; the usual squared error of the aggregate, and that of the long run; the absolute
errors of the three medians, of late; the median of the labels alone and that of the mean's errors, each with how far
one is from it; the logarithm of the factor of the variance, and the typical squared spread; the drift of the blend
(recent_bias.py); the extremes of labels, and what they are worth (label_bounds.py); what these models are worth
(number_stacking.py); the recent losses (losses.py); then both ridge regressions (ridge.py) and the linear models, of
one output (linear_models.py), where they have room.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from amf.calibration.corrections import LARGEST_SUM
from amf.calibration.interface import Calibration
from amf.calibration.label_bounds import N_BOUNDS, N_ENDS, N_LOST, N_SHARES, bounds_of, follow_bounds, note_end
from amf.calibration.losses import N_LOSSES, are_sound, remember_losses
from amf.calibration.number_stacking import (
    N_LAYERS,
    N_STACKED,
    NEITHER_IS_NEGATIVE,
    WORTHS,
    are_models_sound,
    explain_stack,
    follow_row,
    follow_stack,
    fresh_models,
    models_of,
    models_with_features,
    note_label,
    stack,
)
from amf.calibration.recent_bias import FURTHEST_ERROR, MEANS, MOST_OF_DRIFT, N_DRIFT, SQUARES, drift_of, follow_drift
from amf.calibration.running_median import follow_median
from amf.calibration.variance_factor import LARGEST_FACTOR, follow_variance
from amf.inputs.scalars import LARGEST_NUMBER
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import exp, square
from amf.statistics.number_means import mean_over_trees

MEAN, LOWER, UPPER, MEDIAN, STD = range(5)
"""What the forest says of a sample: its mean, its quantiles of 5 % and 95 %, its median, and its standard deviation."""
N_OUTPUTS = 5

_BLENDED = 1.0 - 1.0 / 2048.0
"""What is left at the next label of the sums that the blend follows from."""
_MOST_IN_MEAN = 1024.0
"""Labels after which one counts 1 / e in the mean of the labels alone."""
_MOST_USUAL = 16.0
"""Usual squared errors that one counts at most, in the blend and in what is usual."""
_LEAST_SPREAD = 1.0 / 64.0
"""Of the usual squared error, the square of the spread where trees are sure."""
_FAR_OUT = 16384.0
"""Usual squared errors that the square of a spread counts at most, and a squared error where variances are learned."""
_BLOWN_UP = 1024.0
"""Usual squared errors beyond which the square of a spread is no measure of labels."""
_FASTEST_USUAL = 1.0 / 32.0
"""What a squared error moves the usual one by."""
_SLOWEST_LASTING = 1.0 / 16384.0
"""What it moves that of the long run by in the end."""
_MOST_MISSED = 6.0
"""Labels in a row outside of the quantiles that are no chance: one in a million, where a tenth of all is outside."""
_ROUNDING = 1e-18
"""Of the square of a number, that of a difference which rounding has a part in."""
_NOTHING = 1e-10
"""Of that, the square of a difference which is nothing else."""
_SMALLEST = 1e-300
_TAIL = 0.05
TAIL_QUANTILE = 1.6448536269514722
"""Of a normal distribution at 95 %, in standard deviations."""
_SLOWEST_MEDIAN = 0.02
"""Of a spread, twice what one label moves the median by in the end."""
_REMEMBERED = 1.0 - 1.0 / 64.0
"""What is left of the error of a median at the next label."""
_LARGEST_STRETCH = 5.0
_MOST_LABELS = 2.0**53
_LARGEST_PRODUCT = (4.0 * LARGEST_NUMBER) ** 2
"""Of two differences between numbers."""
_MOST_OF_BLEND, _MOST_OF_ERRORS = 4.0 / _ROUNDING / (1.0 - _BLENDED), 32.0 * LARGEST_NUMBER / (1.0 - _REMEMBERED)
_MOST_OF_NUMBERS = 16.0 * LARGEST_NUMBER


def _within(most: float) -> tuple[float, float]:
    return -most, most


def _up_to(most: float) -> tuple[float, float]:
    return 0.0, most


def _ranges(most: list[float], never_negative: Collection[int]) -> list[tuple[float, float]]:
    return [_up_to(value) if place in never_negative else _within(value) for place, value in enumerate(most)]


_FIELDS = {
    "aa": _up_to(_MOST_OF_BLEND), "ar": _within(_MOST_OF_BLEND), "rr": _up_to(_MOST_OF_BLEND),
    "ag": _within(_MOST_OF_BLEND), "rg": _within(_MOST_OF_BLEND), "mean": _within(1.1 * LARGEST_NUMBER),
    "labels": _up_to(_MOST_LABELS), "down": _within(_LARGEST_STRETCH), "up": _within(_LARGEST_STRETCH),
    "followed": _up_to(_MOST_LABELS), "missed": _up_to(_MOST_LABELS), "middle": _within(_LARGEST_STRETCH),
    "usual": _up_to(_LARGEST_PRODUCT), "lasting": _up_to(_LARGEST_PRODUCT),
    "of_median": _up_to(_MOST_OF_ERRORS), "of_mean": _up_to(_MOST_OF_ERRORS), "of_labels": _up_to(_MOST_OF_ERRORS),
    "centre": _within(_MOST_OF_NUMBERS), "off_centre": _up_to(_MOST_OF_NUMBERS),
    "error": _within(_MOST_OF_NUMBERS), "off_error": _up_to(_MOST_OF_NUMBERS),
    "variance_factor": _within(LARGEST_FACTOR), "typical": _up_to(2.0 * _LARGEST_PRODUCT),
}  # fmt: skip
"""The numbers of a state in their order, each with the least and the most that it can be; blocks of others follow."""
_OF_DRIFT = [8.0 * FURTHEST_ERROR * LARGEST_NUMBER if place in MEANS else MOST_OF_DRIFT for place in range(N_DRIFT)]
_OF_BOUNDS = [_MOST_OF_NUMBERS] * N_ENDS + [1e9 * LARGEST_NUMBER] * N_LOST + [1.0] * N_SHARES
_OF_STACK = [LARGEST_SUM if place in WORTHS else _MOST_OF_NUMBERS for place in range(N_STACKED)]
_RANGES = [
    *_FIELDS.values(),
    *_ranges(_OF_DRIFT, SQUARES),
    *_ranges(_OF_BOUNDS, range(N_ENDS, N_BOUNDS)),
    *_ranges(_OF_STACK, NEITHER_IS_NEGATIVE),
]
"""What each number of a state can be, but for the losses and the linear models."""


def _at(*names: str) -> Iterator[int]:
    """Where these stand."""
    return map(list(_FIELDS).index, names)


_AA, _AR, _RR, _AG, _RG, _MEAN, _LABELS = _at("aa", "ar", "rr", "ag", "rg", "mean", "labels")
_DOWN, _UP, _FOLLOWED, _MISSED, _MIDDLE = _at("down", "up", "followed", "missed", "middle")
_USUAL, _LASTING = _at("usual", "lasting")
_OF_MEDIAN, _OF_MEAN, _OF_LABELS = _at("of_median", "of_mean", "of_labels")
_CENTRE, _ERROR, _VARIANCE_FACTOR = map(index, _at("centre", "error", "variance_factor"))
"""Behind the first two, which are medians, stand the deviations from them, behind the last one what is typical."""
_DRIFT, _BOUNDS = index(len(_FIELDS)), index(len(_FIELDS) + N_DRIFT)
_STACKED = _BOUNDS + index(N_BOUNDS)
_LOSSES = _STACKED + index(N_STACKED)
_MODELS = _LOSSES + index(N_LOSSES)


def fresh_state() -> NDArray[np.float64]:
    """State of a forest that has learned nothing."""
    return np.append(np.zeros(int(_MODELS)), fresh_models())


def with_features(
    state: NDArray[np.float64], n_features: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """A state of so many features with more of them, one for each entry of `like` (linear_models.py)."""
    models = models_with_features(state[int(_MODELS) :], n_features, like, max_bytes)
    return np.append(state[: int(_MODELS)], models)


def losses_of(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of the state that holds the recent losses: a view."""
    return state[int(_LOSSES) : int(_MODELS)]


def is_sound(state: NDArray[np.float64], n_features: int) -> bool:
    """Whether labels within LARGEST_NUMBER could have left this state, be it empty."""
    if state.shape[0] == 0:
        return True
    numbers = state[: int(_LOSSES)].tolist()
    in_range = all(least <= number <= most for number, (least, most) in zip(numbers, _RANGES, strict=True))
    in_range &= numbers[int(_LABELS)] >= 1.0 or not any(numbers)
    stacked = are_models_sound(state[int(_MODELS) :], n_features, math.sqrt(_LARGEST_PRODUCT))
    return in_range and stacked and are_sound(losses_of(state), _LARGEST_PRODUCT)


@called
def calibrate(x, forecasts, labels, labelled, state, raw, calibrated):
    """Fill raw (of the trees alone) and calibrated, both float64 (n, N_OUTPUTS), and learn from the labels, row by row.

    x: float64 (n, d), NaN where missing. forecasts: float64 (n_trees, n, N_OUTPUTS), of which three numbers are used.
    labels: float64 (n,). Where `state` is empty both are the same.
    """
    models = models_of(state[min(_MODELS, index(state.shape[0])) :], index(x.shape[1]))
    for i in range(index(raw.shape[0])):
        aggregate, leaf, spread = mean_over_trees(forecasts, i)
        _say_plainly(aggregate, spread, raw, i)
        _say_plainly(aggregate, spread, calibrated, i)
        if state.shape[0] == 0:
            continue
        spread = _bounded(spread, state)
        blend = _blend(aggregate, leaf, state)
        followed = blend + drift_of(state, _DRIFT)
        stack(x, i, followed, state[_USUAL], state, _STACKED, models)
        mean = models.said[N_LAYERS]
        lowest = mean - TAIL_QUANTILE * spread * exp(state[_DOWN])
        highest = mean + TAIL_QUANTILE * spread * exp(state[_UP])
        median = min(max(mean + spread * state[_MIDDLE], lowest), highest)
        likeliest = _likeliest_median(median, mean, spread, state)
        low, high = min(lowest, likeliest), max(highest, likeliest)
        least, greatest = bounds_of(_TAIL, state, _BOUNDS)
        calibrated[i, MEAN] = published = min(max(mean, least), greatest)
        calibrated[i, MEDIAN] = min(max(likeliest, least), greatest)
        calibrated[i, LOWER] = lowest = min(max(low, least), greatest)
        calibrated[i, UPPER] = highest = min(max(high, least), greatest)
        calibrated[i, STD] = _standard_deviation(published - lowest, highest - published, spread, state)
        if labelled[i]:
            label, counts = labels[i], 1.0
            if mean == mean:
                remember_losses(
                    square(published - label), square(aggregate - label), square(state[_MEAN] - label), state, _LOSSES
                )
                if not _is_blown_up(spread, state):
                    _judge_medians(median, mean, label, state)
                if spread > 0.0:
                    error = min(square(label - mean), _FAR_OUT * state[_USUAL])
                    follow_variance(error, square(spread), state[_FOLLOWED], state, _VARIANCE_FACTOR)
                    _follow(label, low, median, high, state)
                    follow_bounds(label, low, high, _TAIL, state, _BOUNDS)
                if state[_USUAL] > 0.0:
                    weight = 1.0 / max(_MOST_USUAL * state[_USUAL] + square(label - blend), _SMALLEST)
                    counts = min(_MOST_USUAL * state[_USUAL] * weight, 1.0)
                    follow_drift(label - blend, state[_USUAL], weight, state, _DRIFT)
                    follow_stack(label, weight, state[_USUAL], state, _STACKED, models)
                _remember(aggregate, leaf, label, state)
                follow_median(label - mean, state, _ERROR)
            centre = state[_CENTRE]
            _follow_labels(label, state)
            follow_row(x, i, label, counts, state[_USUAL], centre, state, _STACKED, models)


@called
def explain(x, forecasts, state, prior, features):
    """Turn what features moved of the trees' aggregate into what they moved of the mean that is published.

    x, forecasts, state: as for `calibrate`. features: float64 (n, d, 1). The mean of labels none of them has moved.
    """
    if state.shape[0] == 0:
        return
    models, moves = models_of(state[_MODELS:], index(x.shape[1])), np.empty(features.shape[1:])
    for i in range(index(x.shape[0])):
        aggregate, leaf, _ = mean_over_trees(forecasts, i)
        followed = _blend(aggregate, leaf, state) + drift_of(state, _DRIFT)
        stack(x, i, followed, state[_USUAL], state, _STACKED, models)
        _, of_labels = _weights_of_blend(state)
        for j in range(index(x.shape[1])):
            features[i, j, 0] *= 1.0 - of_labels
        explain_stack(state, _STACKED, models, moves, features[i])


CALIBRATION = Calibration(calibrate, explain)


@inlined
def _say_plainly(aggregate, spread, outputs, i):
    """Fill outputs[i], float64 (N_OUTPUTS,), with what the trees alone say: a normal distribution."""
    outputs[i, MEAN] = outputs[i, MEDIAN] = aggregate
    outputs[i, LOWER] = aggregate - TAIL_QUANTILE * spread
    outputs[i, UPPER] = aggregate + TAIL_QUANTILE * spread
    outputs[i, STD] = spread


@inlined
def _judge_medians(median, mean, label, state):
    """Take the errors of the three medians into what they have lost of late."""
    state[_OF_MEDIAN] = _REMEMBERED * state[_OF_MEDIAN] + abs(label - median)
    state[_OF_MEAN] = _REMEMBERED * state[_OF_MEAN] + abs(label - (mean + state[_ERROR]))
    state[_OF_LABELS] = _REMEMBERED * state[_OF_LABELS] + abs(label - state[_CENTRE])


@inlined
def _follow_labels(label, state):
    """Take a label into all that is known of labels alone: their median, extremes, number and mean."""
    if state[_LABELS] == 0.0:
        state[_CENTRE] = label
    follow_median(label, state, _CENTRE)
    note_end(label, state[_LABELS], state, _BOUNDS)
    note_label(label, state[_LABELS], state, _STACKED)
    state[_LABELS] += 1.0
    state[_MEAN] += (label - state[_MEAN]) / min(state[_LABELS], _MOST_IN_MEAN)


@inlined
def _weights_of_blend(state):
    """Those of the aggregate and of the mean of labels beside the leaf that would have been best of late."""
    # Sums that differ by rounding alone say nothing: the plain aggregate stands, or a blend of two.
    alpha, beta = 1.0, 0.0
    if state[_AA] > 1e-12 * state[_RR]:
        ratio = state[_AR] / state[_AA]
        rest = state[_RR] - ratio * state[_AR]
        if rest > 1e-6 * state[_RR]:
            beta = min(max((state[_RG] - ratio * state[_AG]) / rest, -0.5), 1.0)
        # The best one beside that beta: on noise the two are nearly one, and a bound of one is no bound of the other.
        alpha = min(max((state[_AG] - beta * state[_AR]) / state[_AA], -1.0), 1.0)
    return alpha, beta


@inlined
def _blend(aggregate, leaf, state):
    """Leaf + alpha (aggregate - leaf) + beta (mean of labels - leaf)."""
    alpha, beta = _weights_of_blend(state)
    return leaf + alpha * (aggregate - leaf) + beta * (state[_MEAN] - leaf)


@inlined
def _remember(aggregate, leaf, label, state):
    """Take a row into the sums of the blend. They have no unit, since its weight is one over squares."""
    a, r, g, error = aggregate - leaf, state[_MEAN] - leaf, label - leaf, square(label - aggregate)
    # An error that no limit bounds would weigh as much as all others, and no row may tell of rounding alone.
    rounding = _ROUNDING * (square(aggregate) + square(leaf) + square(state[_MEAN]))
    weight = 1.0 / max(_MOST_USUAL * state[_USUAL] + error + rounding, _SMALLEST)
    nothing = _NOTHING * rounding
    a, r = a if a * a > nothing else 0.0, r if r * r > nothing else 0.0
    state[_AA] = _BLENDED * state[_AA] + weight * a * a
    state[_AR] = _BLENDED * state[_AR] + weight * a * r
    state[_RR] = _BLENDED * state[_RR] + weight * r * r
    state[_AG] = _BLENDED * state[_AG] + weight * a * g
    state[_RG] = _BLENDED * state[_RG] + weight * r * g
    if state[_USUAL] == 0.0:
        state[_USUAL] = state[_LASTING] = error
        return
    counted = min(error, _MOST_USUAL * state[_USUAL])
    state[_LASTING] += max(1.0 / state[_LABELS], _SLOWEST_LASTING) * (counted - state[_LASTING])
    state[_USUAL] += _FASTEST_USUAL * (counted - state[_USUAL])
    if state[_MISSED] >= _MOST_MISSED:
        state[_USUAL] = max(state[_USUAL], state[_LASTING])


@inlined
def _follow(label, lowest, median, highest, state):
    """Follow one label: a miss widens its side, a hit narrows both a little, so that a twentieth misses each.

    The median moves towards the label, so that half of them fall on each side of it. Where many miss in a row the
    labels are others: each of them undoes some of what hits have narrowed on its side.
    """
    n = state[_FOLLOWED] + 20.0
    gain, step = max(20.0 / n, _TAIL), max(5.0 / n, _SLOWEST_MEDIAN)
    under = 1.0 if label < lowest else 0.0
    over = 1.0 if label > highest else 0.0
    side = 0.5 if label > median else -0.5 if label < median else 0.0
    state[_DOWN] = min(max(state[_DOWN] + gain * (under - _TAIL), -_LARGEST_STRETCH), _LARGEST_STRETCH)
    state[_UP] = min(max(state[_UP] + gain * (over - _TAIL), -_LARGEST_STRETCH), _LARGEST_STRETCH)
    state[_MIDDLE] = min(max(state[_MIDDLE] + step * side, -_LARGEST_STRETCH), _LARGEST_STRETCH)
    state[_FOLLOWED] += 1.0
    state[_MISSED] = state[_MISSED] + 1.0 if under + over > 0.0 else 0.0
    if state[_MISSED] >= _MOST_MISSED:
        # One unit for each miss, and no jump: what is too wide narrows by a 400th of one with each label only.
        state[_DOWN] = max(state[_DOWN], min(state[_DOWN] + under, 0.0))
        state[_UP] = max(state[_UP], min(state[_UP] + over, 0.0))


@inlined
def _bounded(spread, state):
    """What trees say of the spread, within bounds that follow from the usual error once there is one."""
    usual = state[_USUAL]
    if usual == 0.0:
        return spread
    return math.sqrt(min(square(spread), _FAR_OUT * usual) + _LEAST_SPREAD * usual)


@inlined
def _standard_deviation(below, above, spread, state):
    """The spread times its factor, and as much at least as quantiles this far from the mean imply: a twentieth of the
    labels is beyond each."""
    implied = math.sqrt(_TAIL * (square(below) + square(above)))
    return max(spread * exp(0.5 * state[_VARIANCE_FACTOR]), implied)


@inlined
def _is_blown_up(spread, state):
    """Whether a spread is far beyond any usual error, as where an outlier is in the cells of the sample."""
    return square(spread) > _BLOWN_UP * state[_USUAL]


@inlined
def _likeliest_median(median, mean, spread, state):
    """Of the three medians the one that has lost least of late."""
    if _is_blown_up(spread, state) or state[_OF_LABELS] < min(state[_OF_MEDIAN], state[_OF_MEAN]):
        return state[_CENTRE]
    return mean + state[_ERROR] if state[_OF_MEAN] < state[_OF_MEDIAN] else median
