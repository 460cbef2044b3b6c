"""Ridge regression of labels that are numbers on rows of numbers, on moments that follow the stream.

A linear model that learns by steps (linear_models.py) is a long time on its way where features are many or of one
another's kind; the least squares of all rows so far are known at once. Rows are weighed as in the blend, so that no
label counts as more than some usual errors, and each takes away the thousandth part of all before it. Where errors have
fallen to a 32nd of what they were among the first 2,000, so have the weights of what was learned then: a first label
that is an outlier would decide for ten thousands of rows. Means and moments are followed about the means [1], from the
first value of a feature on, so that no offset drowns what varies; no value counts more than so many standard
deviations. Weights are penalised by as much as so many rows would tell of them (`Penalty`), in units of the deviation
of a column, and by less where the model explains nearly all (`_unexplained`). A value that is missing is the mean. That
of a column is of the rows that have a value there, and so is its deviation: a column that comes late, or is seldom
there, would else be about its first value for a long time. Where a label is forecast none is further from the mean than
one of the rows so far can be: of as many as n rows weigh, the root of n deviations.

The weights are solved for now and then (solving.py): so a row costs d^2 / 2 products. Rows are those of the features,
of more than 256 the first 256, or of features and their products (products.py). The state of 64 features takes 18 kB,
that of 256 takes 270 kB, about what else is known of so many features.

Where labels are of another level, unit or rule than they were, a model that knows them as they were is worse than the
median of the last ones. So where it has lost twice as much as that, all rows so far are worth no more than one, and
it begins anew.

state, of d columns: float64 (8 + 5 d + d (d + 1) / 2,): the weight of all rows, the number of labels, that after which
the weights are solved for next, the first label, the mean of all less this one, the most that a squared error was, but
for what has been forgotten with it, and what the model and the median of labels have lost of late; of each column its
weight, how far a value counts, the mean, the weight of the rows that have a value there, and the moment with the label;
then those of the columns among themselves, the lower triangle row by row. What comes of later columns stands behind
that of the others in each part.

[1] B. Welford, Note on a method for calculating corrected sums of squares and products, Technometrics 4, 1962.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration import linear_models
from amf.calibration.cholesky import factorise, solve
from amf.calibration.solving import LATEST_DUE, MOST_LABELS, next_due
from amf.jit.decorators import called, index, inlined, kernel

_WEIGHT, _LABELS, _DUE, _FIRST, _LEVEL, _MOST_USUAL, _LOST, _LOST_BY_LABELS, _SLOPES = map(index, range(9))
_N_OWN = int(_SLOPES)
_FURTHEST, _MEAN, _SEEN, _WITH_LABEL = (index(row) for row in range(1, 5))
"""Rows of the state behind the slopes, of one number for each column."""
_N_ROWS = 5
_KEPT = 1.0 - 1.0 / 1000.0
"""What is left of all weights at the next label."""


class Penalty(NamedTuple):
    """Of a weight for each deviation of a column."""

    rows: float
    least_deviation: float
    """That of a column counts as: where rows have a unit, one that is hardly ever off its mean is penalised more."""


MOST_FEATURES = 256
"""That are used, the first ones. Others are known by steps alone (linear_models.py): of a sum of 70 effects of which 64
are used the error stays a quarter larger, however many labels there were."""
OF_FEATURES = Penalty(rows=0.3, least_deviation=0.0)
_FURTHEST_LEARNED = 64.0
"""Standard deviations from the mean that a value is taken as at most where a label is learned."""
_FEW = 8.0
"""Labels after which there are standard deviations that bound values."""
_FARTHEST = 2.0**400
"""From its first value a value counts at most, so that moments stay finite."""
_MOST_FALLEN = 1024.0
"""Of a squared error, by how much it may fall and rows weigh as they did."""
_YOUNG = 2000.0
"""Labels after which no fall tells of the first ones any more, but of a stream that rests."""
_LOST_KEPT = 1.0 - 1.0 / 256.0
"""What is left of a loss at the next label."""
_MOST_LOST = 4.0
"""Losses of labels alone, in the mean, that one of the model counts at most: no row decides by itself."""
_TOO_MUCH = 2.0
"""Of what labels alone have lost, by which a model is of another time."""
_SETTLED = 64.0
"""Rows, and one for each column that has had a value, that weigh before a model is judged: one of few is often off."""
_LEFT = 1.0
"""Rows that all rows so far are worth where a model begins anew: what columns are like it still knows."""
_LEAST_SEEN = 1e-100
"""Weight of the rows with a value, below which nothing is known of a column any more."""
_LEAST_DEVIATION = 1e-140
"""Of which the square is no rounding to 0."""
_LARGEST_MOMENT = 2.0**820
"""More than the squares of the farthest values add up to, times their weights, and of labels within LARGEST_NUMBER."""
_LARGEST_WEIGHT = 2.0**300
"""Of one for each deviation: more than those of labels within LARGEST_NUMBER can be."""


def n_numbers(n_columns: int) -> int:
    """Of the state of so many columns; 0 where there are none."""
    return _parts(n_columns)[-1] if n_columns else 0


def _parts(n_columns: int) -> list[int]:
    """Where the parts of the state begin, each of which grows at its end, and where the last one ends."""
    rows = [_N_OWN + row * n_columns for row in range(_N_ROWS + 1)]
    return [0, *rows, rows[-1] + n_columns * (n_columns + 1) // 2]


def with_columns(state: NDArray[np.float64], n_columns: int, n_now: int) -> NDArray[np.float64]:
    """A state of `n_columns` with the numbers of `n_now`, of which those that are new were never seen."""
    grown = np.zeros(n_numbers(n_now))
    if grown.size and state.size:
        for (start, stop), at in zip(pairwise(_parts(n_columns)), _parts(n_now), strict=False):
            grown[at : at + stop - start] = state[start:stop]
    return grown


def is_sound(state: NDArray[np.float64], n_columns: int) -> bool:
    """Whether labels could have left this state, be it empty."""
    return not state.size or bool(_is_in_range(state, index(n_columns)))


@kernel
def _is_in_range(state, n_columns):
    # Comparisons are so put that NaN fails them.
    sound = 0.0 <= state[_WEIGHT] <= 2.0 / (1.0 - _KEPT) and 0.0 <= state[_LABELS] <= MOST_LABELS
    sound &= 0.0 <= state[_DUE] <= LATEST_DUE
    sound &= 0.0 <= state[_MOST_USUAL] < np.inf
    sound &= 0.0 <= state[_LOST] < np.inf and 0.0 <= state[_LOST_BY_LABELS] < np.inf
    sound &= abs(state[_FIRST]) <= _LARGEST_WEIGHT and abs(state[_LEVEL]) <= _LARGEST_WEIGHT
    for j in range(n_columns):
        at = _SLOPES + j
        furthest, mean = state[at + _FURTHEST * n_columns], state[at + _MEAN * n_columns]
        sound &= 0.0 <= furthest < np.inf and abs(mean) <= _FARTHEST
        sound &= abs(state[at]) * furthest <= 2.0 * _LARGEST_WEIGHT * math.sqrt(2.0 / (1.0 - _KEPT))
        sound &= 0.0 <= state[at + _SEEN * n_columns] <= 2.0 / (1.0 - _KEPT)
        sound &= abs(state[at + _WITH_LABEL * n_columns]) <= _LARGEST_MOMENT
        sound &= state[_moments_of(j, n_columns) + j] >= 0.0
    for moment in state[_moments_of(index(0), n_columns) :]:
        sound &= abs(moment) <= _LARGEST_MOMENT
    return sound


@inlined
def _moments_of(j, n_columns):
    """Where the moments of a column with those before it, and with itself, begin."""
    return _SLOPES + index(_N_ROWS) * n_columns + j * (j + index(1)) // index(2)


@inlined
def end_of(n_columns):
    """`n_numbers` of columns, in kernels."""
    return _moments_of(n_columns, n_columns)


@inlined
def fill_features(x, i, linear, row):
    """Fill row, float64 (columns,), with the first features of row i less their first values, NaN where one is missing.
    linear: the state of the linear models, which know the first values."""
    for j in range(index(row.shape[0])):
        beside = x[i, j] - linear_models.first_of(j, linear, index(1), index(x.shape[1]))
        row[j] = min(max(beside, -_FARTHEST), _FARTHEST) if beside == beside else np.nan


@inlined
def _beside_mean(row, j, state, n_columns):
    """How far a value is from the mean of its column; 0 where it is missing."""
    value = row[j]
    return value - state[_SLOPES + _MEAN * n_columns + j] if value == value else 0.0


@inlined
def respond(row, state):
    """The label of a row; NaN where nothing is known of any. row: float64 (columns,), NaN where a value is missing."""
    if state.shape[0] == 0 or state[_WEIGHT] == 0.0:
        return np.nan
    n_columns, response = index(row.shape[0]), state[_FIRST] + state[_LEVEL]
    for j in range(n_columns):
        response += _effect(row, j, state, n_columns)
    return response


@inlined
def _effect(row, j, state, n_columns):
    """What a column adds to the label of a row."""
    slope, furthest = state[_SLOPES + j], state[_SLOPES + _FURTHEST * n_columns + j]
    return slope * min(max(_beside_mean(row, j, state, n_columns), -furthest), furthest)


@inlined
def fill_effects(row, state):
    """Replace the columns of a row by what each adds to its label."""
    for j in range(index(row.shape[0])):
        row[j] = _effect(row, j, state, index(row.shape[0]))


@inlined
def follow(row, response, label, weight, usual, centre, penalty, state):
    """Follow one label, and tell whether the model begins anew with it.

    row: as for `respond`, which gave the response; used up. weight: of the row, 1 at most. usual: squared error.
    centre: the median of labels before it.
    """
    if state.shape[0] == 0:
        return False
    n_columns = index(row.shape[0])
    begins_anew = _is_of_another_time(response, label, centre, state, n_columns)
    if begins_anew:
        _begin_anew(state, n_columns)
    _weigh_by_errors(usual, state, n_columns)
    if state[_LABELS] == 0.0:
        state[_FIRST] = label
    state[_WEIGHT] = _KEPT * state[_WEIGHT] + weight
    if state[_WEIGHT] == 0.0:
        return begins_anew  # beside what is usual the label is infinite
    state[_LABELS] += 1.0
    new = weight / state[_WEIGHT]  # the part of all weights that this row has
    of_label = label - state[_FIRST] - state[_LEVEL]
    state[_LEVEL] += new * of_label
    of_label *= math.sqrt(weight * (1.0 - new))
    for j in range(n_columns):
        at, moments = _SLOPES + j, _moments_of(j, n_columns)
        off, seen, had = _beside_mean(row, j, state, n_columns), at + _SEEN * n_columns, row[j] == row[j]
        if state[_LABELS] > _FEW and state[moments + j] > 0.0 and state[seen] > _LEAST_SEEN:
            most = _FURTHEST_LEARNED * math.sqrt(state[moments + j] / state[seen])
            off = min(max(off, -most), most)
        state[seen] = _KEPT * state[seen] + (weight if had else 0.0)
        of_column = weight / state[seen] if had and state[seen] > 0.0 else 0.0
        state[at + _MEAN * n_columns] += of_column * off
        off *= math.sqrt(weight * (1.0 - of_column))
        row[j] = off
        state[at + _WITH_LABEL * n_columns] = _KEPT * state[at + _WITH_LABEL * n_columns] + off * of_label
        for k in range(j + index(1)):
            state[moments + k] = _KEPT * state[moments + k] + off * row[k]
    if state[_LABELS] >= state[_DUE]:
        _solve(state, n_columns, penalty.rows * _unexplained(state, n_columns), penalty.least_deviation)
        state[_DUE] = next_due(state[_LABELS])
    return begins_anew


@inlined
def _weigh_by_errors(usual, state, n_columns):
    """Have all rows so far weigh less where errors were much larger."""
    most = state[_MOST_USUAL] = max(state[_MOST_USUAL], usual)
    if state[_LABELS] < _YOUNG and 0.0 < _MOST_FALLEN * usual < most:
        state[_MOST_USUAL] = _MOST_FALLEN * usual
        _keep(_MOST_FALLEN * usual / most, state, n_columns)


@inlined
def _keep(share, state, n_columns):
    """Have all rows so far weigh this share of what they did."""
    state[_WEIGHT] *= share
    for at in range(_SLOPES + _SEEN * n_columns, index(state.shape[0])):
        state[at] *= share


@inlined
def _is_of_another_time(response, label, centre, state, n_columns):
    """Take in what the model and the labels alone lost by one label: whether it is the model that surely lost more."""
    if state[_WEIGHT] == 0.0:
        return False
    by_labels = state[_LOST_BY_LABELS] = _LOST_KEPT * state[_LOST_BY_LABELS] + abs(label - centre)
    most = _MOST_LOST * (1.0 - _LOST_KEPT) * by_labels
    state[_LOST] = _LOST_KEPT * state[_LOST] + min(abs(label - response), most)
    return state[_LOST] > _TOO_MUCH * by_labels and _is_settled(state, n_columns)


@inlined
def _is_settled(state, n_columns):
    """Whether enough rows weigh to judge the model. A column that has never had a value is as if it were not there."""
    needed = _SETTLED
    for j in range(n_columns):
        if state[_SLOPES + _SEEN * n_columns + j] > 0.0:
            needed += 1.0
    return state[_WEIGHT] > needed


@inlined
def _begin_anew(state, n_columns):
    """Have all rows so far count as one."""
    state[_LOST] = state[_LOST_BY_LABELS] = state[_MOST_USUAL] = 0.0
    _keep(_LEFT / state[_WEIGHT], state, n_columns)
    state[_LABELS] = state[_DUE] = _LEFT


@inlined
def _unexplained(state, n_columns):
    """The share of the squared loss of the labels alone that the model has of late; all of it while it is young.

    The smaller that is, the larger are weights that the rows are proof of: where two columns are nearly equal, their
    difference may explain everything, of which the whole penalty would leave little.
    """
    by_labels = state[_LOST_BY_LABELS]
    if by_labels == 0.0 or not _is_settled(state, n_columns):
        return 1.0
    share = min(state[_LOST] / by_labels, 1.0)
    return share * share


@called
def _solve(state, n_columns, rows, least_deviation):
    """Solve for the weights, as they are where each feature has a deviation of 1, with a penalty of so many rows."""
    total = state[_WEIGHT]
    upper, deviations, solution = np.empty((n_columns, n_columns)), np.empty(n_columns), np.empty(n_columns)
    for j in range(n_columns):
        own, seen = state[_moments_of(j, n_columns) + j], state[_SLOPES + _SEEN * n_columns + j]
        deviation = math.sqrt(min(own / seen, _LARGEST_MOMENT)) if seen > _LEAST_SEEN else 0.0
        deviations[j] = max(deviation, least_deviation) if deviation >= _LEAST_DEVIATION else 0.0
    for j in range(n_columns):
        # A column that does not vary tells nothing, and none of the others anything of it.
        varies, moments = deviations[j] > 0.0, _moments_of(j, n_columns)
        solution[j] = state[_SLOPES + _WITH_LABEL * n_columns + j] / total / deviations[j] if varies else 0.0
        for k in range(j):
            together = varies and deviations[k] > 0.0
            upper[k, j] = state[moments + k] / total / deviations[j] / deviations[k] if together else 0.0
        own = state[moments + j] / total / deviations[j] / deviations[j] if varies else 1.0
        upper[j, j] = own + rows / total
    factorise(upper)
    solve(upper, solution)
    for j in range(n_columns):
        is_weight = deviations[j] > 0.0 and abs(solution[j]) <= _LARGEST_WEIGHT
        state[_SLOPES + j] = solution[j] / deviations[j] if is_weight else 0.0
        state[_SLOPES + _FURTHEST * n_columns + j] = math.sqrt(state[_SLOPES + _SEEN * n_columns + j]) * deviations[j]
