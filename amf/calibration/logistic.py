"""Multinomial logistic regression of classes on the features, on moments that follow the stream.

Linear models that learn by steps (linear_models.py) are a long time on their way where features are of one another's
kind, as a price and the one before it, and where a class is rare: what differs there is a small part of what the
features say. Newton's method on the log-loss knows such directions at once. Around weights w_k of each class k it is a
least-squares problem with curvatures and working responses [1]; here each label adds its own, with the weights of its
time, and takes away the thousandth part of all before it:

    A <- A + h u u',    b_k <- b_k + (h w_k u + c_k (1{label = k} - p_k)) u,    (A + penalty) w_k = b_k

u: 1 and the features as they enter the linear models, none further than three deviations from its mean; p: what the
weights say of the classes that were counted. One matrix serves all classes, of which h is the curvature together, sum
p (1 - p); where the label was given less, 1 - p(label) in its place: a label that comes as a surprise moves the weights
by a step of its own size, and not by a leap. c_k makes up for a class of which the curvature is a small part of h, by
eight times at most. Weights are penalised as by four rows of curvature 1, the intercept by next to nothing.

The weights are solved for now and then (solving.py). Of more than 64 features the first 64 are used.

state, of K classes and d features that are used: float64 (3 + K + 2 K (1 + d) + (1 + d) (2 + d) / 2,): the number of
labels, that after which the weights are solved for next, the curvature of all; that of each class; the weights, a row
for each class, the intercept first; the b in such rows; the lower triangle of A row by row.

[1] P. McCullagh and J. Nelder, Generalized linear models, 1989, section 2.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amf.calibration.cholesky import factorise, solve
from amf.calibration.linear_models import n_entered, padded, sum_of_products
from amf.calibration.solving import LATEST_DUE, MOST_LABELS, next_due
from amf.jit.decorators import called, index, inlined, kernel

_LABELS, _DUE, _TOTAL, _OF_CLASSES = index(0), index(1), index(2), index(3)
_N_OWN = int(_OF_CLASSES)
MOST_FEATURES = 64
"""That are used, the first ones: of more a hundred columns of noise cost more than the others are worth."""
_KEPT = 1.0 - 1.0 / 1000.0
"""What is left of all moments at the next label."""
_PENALTY, _PENALTY_OF_INTERCEPT = 4.0, 1e-3
_LEAST_CURVATURE = 1e-4
"""Of the log-loss by a class, however sure the forecast is."""
_MOST_FOR_RARE = 8.0
"""By how much the error of a class counts more whose curvature is a small part of all."""
_LARGEST_WEIGHT = 1e3
_LARGEST_MOMENT, _LARGEST_RESPONSE = 1e8, 1e12
"""More than A and b can add up to."""


def n_numbers(n_classes: int, n_features: int) -> int:
    """Of the state of so many classes and features; 0 where there are no features."""
    n_rows = _n_columns(n_features)
    return _N_OWN + n_classes * (1 + 2 * n_rows) + n_rows * (n_rows + 1) // 2 if n_features else 0


def _n_columns(n_features: int) -> int:
    """Numbers in a row of the weights."""
    return 1 + min(n_features, MOST_FEATURES)


def grown(state: NDArray[np.float64], before: tuple[int, int], now: tuple[int, int]) -> NDArray[np.float64]:
    """A state with the numbers of (classes, features) as they are now, of which those that are new were never seen."""
    (n_classes, n_features), (n_now, _) = before, now
    if not state.size or not n_numbers(*now):
        return np.zeros(n_numbers(*now))
    n_columns, columns_now = _n_columns(n_features), _n_columns(now[1])
    of_weights = _N_OWN + n_classes
    of_moments = of_weights + 2 * n_classes * n_columns
    rows = state[of_weights:of_moments].reshape(2, n_classes, n_columns)
    n_triangle = columns_now * (columns_now + 1) // 2
    return np.concatenate(
        (
            padded(state[:of_weights], (_N_OWN + n_now,)),
            padded(rows, (2, n_now, columns_now)).ravel(),
            padded(state[of_moments:], (n_triangle,)),
        )
    )


def is_sound(state: NDArray[np.float64], n_classes: int, n_features: int) -> bool:
    """Whether labels could have left this state, be it empty."""
    return not state.size or bool(_is_in_range(state, index(n_classes), index(_n_columns(n_features))))


@kernel
def _is_in_range(state, n_classes, n_columns):
    # Comparisons are so put that NaN fails them.
    sound = 0.0 <= state[_LABELS] <= MOST_LABELS and 0.0 <= state[_DUE] <= LATEST_DUE
    for at in range(_TOTAL, _OF_CLASSES + n_classes):
        sound &= 0.0 <= state[at] <= _LARGEST_MOMENT
    of_weights, of_responses = _OF_CLASSES + n_classes, n_classes * n_columns
    for at in range(of_weights, of_weights + of_responses):
        sound &= abs(state[at]) <= _LARGEST_WEIGHT
        sound &= abs(state[at + of_responses]) <= _LARGEST_RESPONSE
    start = of_weights + index(2) * of_responses
    for moment in state[start:]:
        sound &= abs(moment) <= _LARGEST_MOMENT
    for j in range(n_columns):
        sound &= state[_triangle_at(j, start) + j] >= 0.0
    return sound


@inlined
def _triangle_at(j, start):
    """Where a row of a lower triangle begins that begins at `start`."""
    return start + j * (j + index(1)) // index(2)


@inlined
def n_used(entered):
    """How many features are used of those that have entered the linear models."""
    return min(n_entered(entered), index(MOST_FEATURES))


@inlined
def respond(entered, state, responses):
    """Fill responses (K,) with what the features add up to for each class."""
    n_classes, n_features = index(responses.shape[0]), n_used(entered)
    for k in range(n_classes):
        at = _OF_CLASSES + n_classes + k * (n_features + index(1))
        responses[k] = state[at] + sum_of_products(state, at + index(1), entered, index(0), n_features)


@inlined
def weight_at(j, k, n_classes, n_features):
    """Where the weight stands of a feature for a class."""
    return _OF_CLASSES + n_classes + k * (n_features + index(1)) + index(1) + j


@inlined
def add_effects(entered, state, effects):
    """Add to effects (d, K) what each feature adds to the responses."""
    n_classes, n_features = index(effects.shape[1]), n_used(entered)
    for k in range(n_classes):
        for j in range(n_features):
            effects[j, k] += state[weight_at(j, k, n_classes, n_features)] * entered[j]


@inlined
def follow(label, entered, counted, responses, said, state, row):
    """Follow one label. responses: of `respond`. said: the probabilities that follow from them, of the classes that
    were counted. row: (1 + features that are used,), to work in."""
    n_classes, n_columns = index(said.shape[0]), n_used(entered) + index(1)
    curvature, n_counted = 0.0, 0.0
    for k in range(n_classes):
        if counted[k]:
            of_class = max(said[k] * (1.0 - said[k]), _LEAST_CURVATURE)
            curvature += of_class
            n_counted += 1.0
            state[_OF_CLASSES + k] = _KEPT * state[_OF_CLASSES + k] + of_class
    curvature = max(curvature, 1.0 - said[label])
    state[_TOTAL] = _KEPT * state[_TOTAL] + curvature
    row[0] = 1.0
    for j in range(index(1), n_columns):
        row[j] = entered[j - index(1)]
    at = _OF_CLASSES + n_classes + n_classes * n_columns
    for k in range(n_classes):
        if counted[k]:
            rarity = state[_TOTAL] / state[_OF_CLASSES + k] * (n_counted - 1.0) / n_counted
            error = (1.0 if k == label else 0.0) - said[k]
            response = curvature * responses[k] + min(rarity, _MOST_FOR_RARE) * error
            for j in range(n_columns):
                state[at + j] = _KEPT * state[at + j] + response * row[j]
        at += n_columns
    start = at
    for j in range(n_columns):
        at, factor = _triangle_at(j, start), curvature * row[j]
        for k in range(j + index(1)):
            state[at + k] = _KEPT * state[at + k] + factor * row[k]
    state[_LABELS] += 1.0
    if state[_LABELS] >= state[_DUE]:
        _solve(state, n_classes, n_columns)
        state[_DUE] = next_due(state[_LABELS])


@called
def _solve(state, n_classes, n_columns):
    """Solve for the weights."""
    upper, solution = np.empty((n_columns, n_columns)), np.empty(n_columns)
    weights = _OF_CLASSES + n_classes
    responses = weights + n_classes * n_columns
    start = responses + n_classes * n_columns
    for j in range(n_columns):
        at = _triangle_at(j, start)
        for k in range(j):
            upper[k, j] = state[at + k]
        upper[j, j] = state[at + j] + (_PENALTY if j else _PENALTY_OF_INTERCEPT)
    factorise(upper)
    for k in range(n_classes):
        for j in range(n_columns):
            solution[j] = state[responses + k * n_columns + j]
        solve(upper, solution)
        for j in range(n_columns):
            bounded = min(max(solution[j], -_LARGEST_WEIGHT), _LARGEST_WEIGHT)
            state[weights + k * n_columns + j] = bounded if solution[j] == solution[j] else 0.0
