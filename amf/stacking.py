"""A linear model on top of a forest: of the features, and of what the forest says as one feature more.

A tree cuts one feature at a time, and learns a sum of many effects slowly: on such labels a linear model is far better
with few samples, while it is of no use on others. So there is one whose last feature is the forest's own forecast
(stacking [1]); with weight 1 there and 0 everywhere else it is the forest, and so it begins. How much of it goes into
the forecast follows from what both said of earlier labels (class_calibration.py, number_calibration.py).

A feature enters as its distance from its mean in mean absolute deviations, both of late, three of them at most; one
that is missing or has never moved enters as 0. First values are soon forgotten, be they outliers, and later ones count
64 deviations at most, but for the first move after a long rest. Values are taken from the first one on: an offset
changes nothing.

Weights take steps along the gradient of the loss, those of one output of one length: the root of the sum of the squared
gradients of late divides them (AdaGrad [2], with one sum for all features of an output).

All of it is state of the forest and changes with labelled rows only, one after the other.

state: float64 (2 + 2 K + d (4 + K),), K outputs and d features: the weight of the forest's forecast and the sum of the
squares of its gradients; of each output the like sum and the intercept; of each feature the number of its values, those
before it first moved being one, the first of them, its mean less that, its mean absolute deviation, and its weight for
each output.

[1] D. Wolpert, Stacked generalization, Neural Networks 5, 1992.
[2] J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods, JMLR 12, 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from amf._kernel import index, inlined, kernel

TRUST = index(0)
"""Place of the weight of the forest's forecast."""
_TRUST_SQUARES, _OUTPUTS, _PER_OUTPUT = index(1), index(2), index(2)
_SQUARES, _INTERCEPT = index(0), index(1)
_VALUES, _FIRST, _MEAN, _DEVIATION, _WEIGHTS = (index(place) for place in range(5))

_FURTHEST = 3.0
"""Deviations from its mean that a feature enters as at most."""
_FURTHEST_COUNTED = 64.0
"""Deviations that a value counts at most where mean and deviation follow it."""
_FEW = 3.0
"""Values after which the deviation is known well enough for that, and begins to be a mean of several: the n-th value
moves both by 3 / n, so that the first ones count the least."""
_MOST_VALUES = 1500.0
"""Values that count as so many, which move mean and deviation by 1 / 500."""
_RESTED = 2.0**-150
"""Of a move, a deviation that is the rest of one: the feature has been the same for tens of thousands of values."""
_FARTHEST = 2.0**600
"""By which a mean moves at most, and the largest deviation, so that sums stay finite."""
_STEP, _TRUST_STEP = 0.6, 0.3
"""Of a step the length, before roots of sums of squares divide it: of the weights, and of that of the forecast."""
_FIRST_SQUARES, _FIRST_TRUST_SQUARES = 2.0, 1.0
"""What is added to sums of squared gradients, and never forgotten: no first step, nor one after a rest, is a leap."""
_SQUARES_KEPT = 1.0 - 1.0 / 5000.0
"""What is left of a sum of squared gradients at the next label."""
MOST_UNITS = 4.0
"""What an error is at most."""
_MOST_TRUST = 2.0
_LARGEST_GRADIENT = 1e3
"""Of the weight of the forest's forecast, which has no other bound where labels are numbers."""
_LARGEST_SQUARES = 1e6
"""More than the sum of squared gradients of an output can be, for each feature: errors are at most MOST_UNITS."""
_LARGEST_TRUST_SQUARES = 1e10
_MOST_STEPS = 2.0**53
"""Each of which is less than a unit."""


def fresh_state(n_outputs: int, n_features: int = 0) -> NDArray[np.float64]:
    """State that has seen nothing, and says what the forest says."""
    of_outputs, of_features = int(_PER_OUTPUT) * n_outputs, (int(_WEIGHTS) + n_outputs) * n_features
    state = np.zeros(int(_OUTPUTS) + of_outputs + of_features)
    state[int(TRUST)] = 1.0
    return state


def with_features(
    state: NDArray[np.float64], n_outputs: int, n_features: int, like: Sequence[int | None]
) -> NDArray[np.float64]:
    """A state that ends with this one, of so many features, with more of them, one for each entry of `like`: None, of
    which nothing was seen yet, or the place of another one: it was 0 wherever that one had a value."""
    stride = int(_WEIGHTS) + n_outputs
    longer = np.append(state, np.zeros(len(like) * stride))
    values = longer[len(state) - n_features * stride + int(_VALUES) :: stride]
    for feature, sibling in enumerate(like, n_features):
        if sibling is not None:
            values[feature] = min(values[sibling], 1.0)
    return longer


def with_outputs(state: NDArray[np.float64], n_outputs: int, n_more: int) -> NDArray[np.float64]:
    """State with so many outputs beside these."""
    start = int(_OUTPUTS + _PER_OUTPUT * index(n_outputs))
    features = state[start:].reshape(-1, int(_WEIGHTS) + n_outputs)
    wider = np.pad(features, ((0, 0), (0, n_more)))
    return np.concatenate((state[:start], np.zeros(n_more * int(_PER_OUTPUT)), wider.ravel()))


def is_sound(state: NDArray[np.float64], n_outputs: int, n_features: int, largest_unit: float) -> bool:
    """Whether labels could have left this state. largest_unit: of those in `follow_errors`."""
    return bool(_is_in_range(state, index(n_outputs), index(n_features), _MOST_STEPS * largest_unit))


@kernel
def _is_in_range(state, n_outputs, n_features, largest_weight):
    # Comparisons are so put that NaN fails them.
    sound = 0.0 <= state[TRUST] <= _MOST_TRUST and 0.0 <= state[_TRUST_SQUARES] <= _LARGEST_TRUST_SQUARES
    for k in range(n_outputs):
        at = _OUTPUTS + _PER_OUTPUT * k
        sound &= 0.0 <= state[at + _SQUARES] <= _LARGEST_SQUARES * (n_features + 1.0)
        sound &= abs(state[at + _INTERCEPT]) <= largest_weight
    start, stride = _OUTPUTS + _PER_OUTPUT * n_outputs, _WEIGHTS + n_outputs
    for j in range(n_features):
        at = start + stride * j
        sound &= 0.0 <= state[at + _VALUES] <= _MOST_VALUES and 0.0 <= state[at + _DEVIATION] <= _FARTHEST
        sound &= abs(state[at + _FIRST]) < np.inf and abs(state[at + _MEAN]) < np.inf
        for k in range(n_outputs):
            sound &= abs(state[at + _WEIGHTS + k]) <= largest_weight
    return sound


@inlined
def n_features_of(state, n_outputs):
    """How many features a state has, be it empty."""
    if state.shape[0] == 0:
        return index(0)
    return (index(state.shape[0]) - _OUTPUTS - _PER_OUTPUT * n_outputs) // (_WEIGHTS + n_outputs)


@inlined
def enter(x, i, state, n_outputs, entered):
    """Fill entered (d,) with what the features of row i enter as; returns the sum of their squares, and 1."""
    start, stride = _OUTPUTS + _PER_OUTPUT * n_outputs, _WEIGHTS + n_outputs
    squares = 1.0
    for j in range(index(entered.shape[0])):
        at = start + stride * j
        value, deviation = x[i, j], state[at + _DEVIATION]
        entered[j] = 0.0
        if value == value and deviation > 0.0:
            beside = value - state[at + _FIRST] - state[at + _MEAN]
            entered[j] = min(max(beside / deviation, -_FURTHEST), _FURTHEST)
        squares += entered[j] * entered[j]
    return squares


@inlined
def respond(entered, state, n_outputs, response):
    """Fill response (K,) with what the features add up to, for each output."""
    start, stride = _OUTPUTS + _PER_OUTPUT * n_outputs, _WEIGHTS + n_outputs
    for k in range(n_outputs):
        response[k] = state[_OUTPUTS + _PER_OUTPUT * k + _INTERCEPT]
    for j in range(index(entered.shape[0])):
        at = start + stride * j + _WEIGHTS
        for k in range(n_outputs):
            response[k] += state[at + k] * entered[j]


@inlined
def follow_errors(errors, unit, entered, squares, state, n_outputs):
    """Move the weights by one label. errors: (K,), by how many units each output is too small, from
    -MOST_UNITS to MOST_UNITS; left as steps.

    squares: what `enter` returned.
    """
    start, stride = _OUTPUTS + _PER_OUTPUT * n_outputs, _WEIGHTS + n_outputs
    for k in range(n_outputs):
        at, error = _OUTPUTS + _PER_OUTPUT * k, errors[k]
        state[at + _SQUARES] = _SQUARES_KEPT * state[at + _SQUARES] + error * error * squares
        errors[k] = _STEP * unit * error / math.sqrt(_FIRST_SQUARES + state[at + _SQUARES])
        state[at + _INTERCEPT] += errors[k]
    for j in range(index(entered.shape[0])):
        at = start + stride * j + _WEIGHTS
        for k in range(n_outputs):
            state[at + k] += errors[k] * entered[j]


@inlined
def follow_trust(gradient, state):
    """Move the weight of the forest's forecast along the gradient of the loss, which has no unit."""
    gradient = min(max(gradient, -_LARGEST_GRADIENT), _LARGEST_GRADIENT)
    state[_TRUST_SQUARES] = _SQUARES_KEPT * state[_TRUST_SQUARES] + gradient * gradient
    trust = state[TRUST] - _TRUST_STEP * gradient / math.sqrt(_FIRST_TRUST_SQUARES + state[_TRUST_SQUARES])
    state[TRUST] = min(max(trust, 0.0), _MOST_TRUST)


@inlined
def note_features(x, i, state, n_outputs):
    """Note what the features of a labelled row are like."""
    start, stride = _OUTPUTS + _PER_OUTPUT * n_outputs, _WEIGHTS + n_outputs
    for j in range(n_features_of(state, n_outputs)):
        at = start + stride * j
        value = x[i, j]
        if value == value:
            seen, deviation = state[at + _VALUES], state[at + _DEVIATION]
            if seen == 0.0:
                state[at + _VALUES], state[at + _FIRST] = 1.0, value
            beside = value - state[at + _FIRST] - state[at + _MEAN]
            if seen > 1.0 or beside != 0.0:
                seen = min(seen + 1.0, _MOST_VALUES)
                most = _FARTHEST
                if seen > _FEW and deviation > _RESTED * abs(beside):
                    most = min(_FURTHEST_COUNTED * deviation, _FARTHEST)
                beside, rate = min(max(beside, -most), most), min(_FEW / seen, 1.0)
                state[at + _VALUES] = seen
                state[at + _MEAN] += rate * beside
                state[at + _DEVIATION] += rate * (abs(beside) - deviation)
