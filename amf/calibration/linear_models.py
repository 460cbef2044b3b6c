"""Linear models on top of a forest: of the features, and of what the forest says as one feature more.

A tree cuts one feature at a time, and learns a sum of many effects slowly: on such labels a linear model is far better
with few samples, while it is of no use on others. So there is one whose last feature is the forest's own forecast
(stacking [1]); with weight 1 there and 0 everywhere else it is the forest, and so it begins. On top of that stands a
second one, of the squares of the features: of many effects to which it does not matter on which side of the usual a
value lies, a tree learns as slowly, and the first model nothing. And on top of that one a third, of a linear spline of
each feature (an additive model [2]): effects may have any shape. How much of each goes into the forecast follows from
what it said of earlier labels, beside what is below it (class_calibration.py, number_calibration.py).

A feature enters as its distance from its mean in mean absolute deviations of late (scale.py), three of them at most,
and as the square of that, less a constant, which is its mean of normal values; a spline by its place among twelve
knots, which is shared by the two beside it. One that is missing or has never moved enters as 0, and has no place.

Weights take steps along the gradient of the loss, those of one output of one length: the root of the sum of the squared
gradients of late divides them (AdaGrad [3], with one sum for all features of an output). No step goes further than to
where the gradient of a loss of the largest curvature would be 0 for this label: while sums are small, as in the unit of
a first label that was an outlier, steps would go to and fro, and grow.

All of it is state of the forest and changes with labelled rows only, one after the other.

state: float64 (3 (2 + 2 K) + (5 + 14 K) d,), of K outputs and d features: of each model the weight of the forecast
below it and the sum of the squares of its gradients, and of each output the like sum and the intercept; then rows of d:
of all features the numbers of values, those before one first moved being one, the first of them, the means less these,
the mean absolute deviations, the last values; for each of the first two models, for each output, the weights; and of
each feature, of each knot, those of all outputs. Where memory is too small for splines the last 12 K d are not there,
and where it is for the others none of the features.

[1] D. Wolpert, Stacked generalization, Neural Networks 5, 1992.
[2] T. Hastie and R. Tibshirani, Generalized additive models, Statistical Science 1, 1986.
[3] J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods, JMLR 12, 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from amf.calibration.scale import DEVIATION, FARTHEST, FIRST, LAST, MEAN, MOST_VALUES, N_SCALE, VALUES, note
from amf.jit.decorators import index, inlined, kernel

N_MODELS = index(3)
"""One of the features, on top of it one of their squares, and one of their splines."""
_SPLINES = index(2)
"""The last one; the others have a weight for each feature."""
_N_KNOTS = index(12)
_OFTEN = (0.057, 0.147, 0.313, 0.553, 0.808, 0.977, 0.977, 0.808, 0.553, 0.313, 0.147, 0.057)
"""How often values lie by each knot, where they are normal: their deviation is 5 / 4 of the mean absolute one."""
_NOWHERE = -1.0
"""Place of a value that is not known."""
_TRUST, _TRUST_SQUARES, _OUTPUTS, _PER_OUTPUT = index(0), index(1), index(2), index(2)
_SQUARES, _INTERCEPT = index(0), index(1)
_WEIGHTS = index(N_SCALE)

_FURTHEST = 3.0
"""Deviations from its mean that a feature enters as at most."""
_MEAN_SQUARE = 1.5
"""What the square of a feature enters less: of normal values its mean is pi / 2, but for what is cut off."""
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
"""Of the weight of the forecast below, which has no other bound where labels are numbers."""
_LARGEST_SQUARES = 1e7
"""More than the sum of squared gradients of an output can be, for each feature: errors are at most MOST_UNITS."""
_LARGEST_TRUST_SQUARES = 1e10
OF_MEMORY = 8
"""Of a forest's bytes one in so many may be for what is known of features, else there are no splines, or linear models
of none."""
_MOST_STEPS = 2.0**53
"""Each of which is less than a unit."""


def fresh_state(n_outputs: int) -> NDArray[np.float64]:
    """State that has seen nothing, not even a feature, and says what the forest says."""
    models = np.zeros((int(N_MODELS), int(_OUTPUTS + _PER_OUTPUT * n_outputs)))
    models[:, int(_TRUST)] = 1.0
    return models.ravel()


def n_numbers(n_outputs: int, n_features: int) -> int:
    """Of a state of so many features that is not too large."""
    return int(N_MODELS) * int(_OUTPUTS + _PER_OUTPUT * n_outputs) + _n_of_each(n_outputs) * n_features


def n_of_features(n_outputs: int, n_features: int, max_bytes: int) -> int:
    """How many numbers there are of features: those of splines, or all of them, would take too much of the `max_bytes`
    of a forest."""
    each = _n_of_each(n_outputs), _n_rows(n_outputs)
    return next((n * n_features for n in each if 8 * OF_MEMORY * n * n_features <= max_bytes), 0)


def has_splines(n_outputs: int, n_features: int, max_bytes: int) -> bool:
    """Whether there are numbers of splines among those of features."""
    return n_of_features(n_outputs, n_features, max_bytes) > _n_rows(n_outputs) * n_features


def _n_rows(n_outputs: int) -> int:
    """How many numbers there are of each feature, but for those of its spline."""
    return N_SCALE + int(_SPLINES) * n_outputs


def _n_of_each(n_outputs: int) -> int:
    """How many numbers there are of each feature."""
    return _n_rows(n_outputs) + int(_N_KNOTS) * n_outputs


def with_features(
    state: NDArray[np.float64], n_outputs: int, n_features: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """A state that ends with this one, of so many features, with more of them, one for each entry of `like`: None, of
    which nothing was seen yet, or the place of another one: it was 0 wherever that one had a value."""
    at, n_now = len(state) - n_of_features(n_outputs, n_features, max_bytes), n_features + len(like)
    before = state[:at]
    if not n_of_features(n_outputs, n_now, max_bytes):
        return before
    end = at + _n_rows(n_outputs) * n_features
    rows = state[at:end].reshape(_n_rows(n_outputs), n_features)
    wider, splines = padded(rows, (_n_rows(n_outputs), n_now)), state[:0]
    values = wider[int(VALUES)]
    for feature, sibling in enumerate(like, n_features):
        if sibling is not None:
            values[feature] = min(values[sibling], 1.0)
    if has_splines(n_outputs, n_now, max_bytes):
        splines = padded(state[end:], (int(_N_KNOTS) * n_outputs * n_now,))
    return np.concatenate((before, wider.ravel(), splines))


def with_outputs(
    state: NDArray[np.float64], n_outputs: int, n_more: int, n_features: int, max_bytes: int
) -> NDArray[np.float64]:
    """State of so many features with so many outputs beside these."""
    n_models, n_now = int(N_MODELS), n_outputs + n_more
    at = n_numbers(n_outputs, 0)
    models, rows = state[:at].reshape(n_models, -1), state[at:]
    more_models = padded(models, (n_models, int(_OUTPUTS + _PER_OUTPUT * n_now))).ravel()
    if not n_of_features(n_now, n_features, max_bytes):
        return more_models
    scales, weights, splines = np.split(rows, (N_SCALE * n_features, _n_rows(n_outputs) * n_features))
    n_plain, n_knots = int(_SPLINES), int(_N_KNOTS) * n_features
    more_weights = padded(weights.reshape(n_plain, n_outputs, n_features), (n_plain, n_now, n_features))
    more_splines = splines[:0]
    if has_splines(n_now, n_features, max_bytes):
        more_splines = padded(splines.reshape(n_knots, n_outputs), (n_knots, n_now)).ravel()
    return np.concatenate((more_models, scales, more_weights.ravel(), more_splines))


def padded(array: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """A copy of this shape, zero beyond the array: what numpy's own `pad` takes ten times as long for."""
    copy = np.zeros(shape)
    copy[tuple(map(slice, array.shape))] = array
    return copy


def is_sound(state: NDArray[np.float64], n_outputs: int, n_features: int, largest_unit: float) -> bool:
    """Whether labels could have left this state. largest_unit: of those in `follow_errors`."""
    return bool(_is_in_range(state, index(n_outputs), index(n_features), _MOST_STEPS * largest_unit))


@kernel
def _is_in_range(state, n_outputs, n_features, largest_weight):
    # Comparisons are so put that NaN fails them.
    sound, n_features = True, n_features_in(state, n_outputs, n_features)
    for model in range(N_MODELS):
        at = _model_at(model, n_outputs)
        sound &= 0.0 <= state[at + _TRUST] <= _MOST_TRUST
        sound &= 0.0 <= state[at + _TRUST_SQUARES] <= _LARGEST_TRUST_SQUARES
        for k in range(n_outputs):
            of_output = at + _OUTPUTS + _PER_OUTPUT * k
            sound &= 0.0 <= state[of_output + _SQUARES] <= _LARGEST_SQUARES * (n_features + 1.0)
            sound &= abs(state[of_output + _INTERCEPT]) <= largest_weight
    start = _model_at(N_MODELS, n_outputs)
    for j in range(start, start + n_features):
        sound &= 0.0 <= state[j + VALUES * n_features] <= MOST_VALUES
        sound &= abs(state[j + FIRST * n_features]) < np.inf and abs(state[j + LAST * n_features]) < np.inf
        sound &= abs(state[j + MEAN * n_features]) < np.inf
        sound &= 0.0 <= state[j + DEVIATION * n_features] <= FARTHEST
    for at in range(_weights_at(index(0), index(0), n_outputs, n_features), index(state.shape[0])):
        sound &= abs(state[at]) <= largest_weight
    return sound


@inlined
def _model_at(model, n_outputs):
    """Where what belongs to one model alone begins, but for its weights; behind all models begin the rows."""
    return model * (_OUTPUTS + _PER_OUTPUT * n_outputs)


@inlined
def _weights_at(model, output, n_outputs, n_features):
    """Where the weights of all features begin of one output of a model."""
    return _model_at(N_MODELS, n_outputs) + (_WEIGHTS + model * n_outputs + output) * n_features


@inlined
def _knot_at(feature, knot, n_outputs, n_features):
    """Where the weights of all outputs begin of a knot of a feature."""
    splines = _weights_at(_SPLINES, index(0), n_outputs, n_features)
    return splines + (feature * _N_KNOTS + knot) * n_outputs


@inlined
def _size_with_splines(n_outputs, n_features):
    """Numbers of a state of so many features that has splines."""
    return _knot_at(n_features, index(0), n_outputs, n_features)


@inlined
def begins(models, n_outputs, n_features):
    """Where a state begins, be it empty, that ends an array: before one with splines may stand what needs it."""
    size, with_splines = index(models.shape[0]), _size_with_splines(n_outputs, n_features)
    return size - with_splines if size >= with_splines else index(0)


@inlined
def n_features_in(state, n_outputs, n_features):
    """How many features a state has, be it empty: these, or none."""
    return n_features if index(state.shape[0]) > _model_at(N_MODELS, n_outputs) else index(0)


@inlined
def first_of(j, state, n_outputs, n_features):
    """The first value of a feature, 0 before there was one."""
    return state[_model_at(N_MODELS, n_outputs) + FIRST * n_features + j]


@inlined
def n_entered(entered):
    """How many features have entered."""
    return index(entered.shape[0]) // N_MODELS


@inlined
def enter(x, i, state, n_outputs, entered):
    """Fill entered (N_MODELS * d,) with what the features of row i enter each model as."""
    n_features, start = n_entered(entered), _model_at(N_MODELS, n_outputs)
    for j in range(n_features):
        at = start + j
        value, deviation = x[i, j], state[at + DEVIATION * n_features]
        beside = value - state[at + FIRST * n_features] - state[at + MEAN * n_features]
        beside = min(max(beside / deviation, -_FURTHEST), _FURTHEST)
        is_known = value == value and deviation > 0.0
        entered[j] = beside if is_known else 0.0
        entered[n_features + j] = beside * beside - _MEAN_SQUARE if is_known else 0.0
        place = (beside + _FURTHEST) * ((_N_KNOTS - 1.0) / (2.0 * _FURTHEST))
        entered[_SPLINES * n_features + j] = place if is_known else _NOWHERE


@inlined
def sum_of_products(a, a_at, b, b_at, n):
    """Of n numbers each, from these places on. In four sums: none of them waits for the one before."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    fours = n - n % index(4)
    for j in range(index(0), fours, index(4)):
        first += a[a_at + j] * b[b_at + j]
        second += a[a_at + j + index(1)] * b[b_at + j + index(1)]
        third += a[a_at + j + index(2)] * b[b_at + j + index(2)]
        fourth += a[a_at + j + index(3)] * b[b_at + j + index(3)]
    # The last ones go into the sums as well in which they would be before others: to which nothing is added.
    if fours < n:
        first += a[a_at + fours] * b[b_at + fours]
    if fours + index(1) < n:
        second += a[a_at + fours + index(1)] * b[b_at + fours + index(1)]
    if fours + index(2) < n:
        third += a[a_at + fours + index(2)] * b[b_at + fours + index(2)]
    return (first + second) + (third + fourth)


@inlined
def trust(model, state, n_outputs):
    """The weight that a model gives to the forecast below it."""
    return state[_model_at(model, n_outputs) + _TRUST]


@inlined
def respond(model, entered, state, n_outputs, response):
    """Fill response (K,) with what the features add up to in a model, for each output."""
    n_features, of_outputs = n_entered(entered), _model_at(model, n_outputs) + _OUTPUTS
    for k in range(n_outputs):
        response[k] = state[of_outputs + _PER_OUTPUT * k + _INTERCEPT]
        if model < _SPLINES:
            at = _weights_at(model, k, n_outputs, n_features)
            response[k] += sum_of_products(state, at, entered, model * n_features, n_features)
    for j in range(_n_splines(model, entered, state, n_outputs)):
        knot, of_next = _between(j, entered)
        if of_next >= 0.0:
            at = _knot_at(j, knot, n_outputs, n_features)
            for k in range(n_outputs):
                first, second = state[at + k], state[at + n_outputs + k]
                response[k] += first + of_next * (second - first)


@inlined
def add_effects(model, entered, state, effects):
    """Add to effects (d, K) what each feature adds to the response of a model for each output, but for what its spline
    does in the mean."""
    n_outputs, n_features = index(effects.shape[1]), n_entered(entered)
    for j in range(n_features if model < _SPLINES else index(0)):
        for k in range(n_outputs):
            weight = state[_weights_at(model, k, n_outputs, n_features) + j]
            effects[j, k] += weight * entered[model * n_features + j]
    for j in range(_n_splines(model, entered, state, n_outputs)):
        knot, of_next = _between(j, entered)
        at = _knot_at(j, knot, n_outputs, n_features)
        for k in range(n_outputs):
            first, second = state[at + k], state[at + n_outputs + k]
            here = first + of_next * (second - first) if of_next >= 0.0 else 0.0
            effects[j, k] += here - _mean_of_spline(j, k, state, n_outputs, n_features)


@inlined
def _mean_of_spline(feature, output, state, n_outputs, n_features):
    """What the spline of a feature says in the mean over values, of the knots by which there were any."""
    total, often = 0.0, 0.0
    for knot in range(_N_KNOTS):
        weight = state[_knot_at(feature, knot, n_outputs, n_features) + output]
        if weight != 0.0:
            total += _OFTEN[knot] * weight
            often += _OFTEN[knot]
    return total / often if often > 0.0 else 0.0


@inlined
def _n_splines(model, entered, state, n_outputs):
    """How many features have a spline in a model: all or none of them."""
    n_features = n_entered(entered)
    has_any = model == _SPLINES and index(state.shape[0]) == _size_with_splines(n_outputs, n_features)
    return n_features if has_any else index(0)


@inlined
def _between(j, entered):
    """The knot at or below the place of a feature, and the share of the next one; below 0 where there is no place."""
    place = entered[_SPLINES * n_entered(entered) + j]
    knot = min(index(max(place, 0.0)), _N_KNOTS - index(2))
    return knot, place - knot


@inlined
def _sum_of_squares(model, entered, state, n_outputs):
    """Of what features enter a model as."""
    n_features = n_entered(entered)
    if model < _SPLINES:
        return sum_of_products(entered, model * n_features, entered, model * n_features, n_features)
    squares = 0.0
    for j in range(_n_splines(model, entered, state, n_outputs)):
        _, of_next = _between(j, entered)
        squares += of_next * of_next + (1.0 - of_next) * (1.0 - of_next) if of_next >= 0.0 else 0.0
    return squares


@inlined
def follow_errors(model, errors, unit, curvature, entered, state, n_outputs):
    """Move the weights of a model by one label. errors: (K,), by how many units each output is too small, from
    -MOST_UNITS to MOST_UNITS; left as steps. curvature: of the loss by an output at most, whose unit is that."""
    n_features, of_outputs = n_entered(entered), _model_at(model, n_outputs) + _OUTPUTS
    squares = 1.0 + _sum_of_squares(model, entered, state, n_outputs)
    for k in range(n_outputs):
        at, error = of_outputs + _PER_OUTPUT * k, errors[k]
        state[at + _SQUARES] = _SQUARES_KEPT * state[at + _SQUARES] + error * error * squares
        rate = min(_STEP / math.sqrt(_FIRST_SQUARES + state[at + _SQUARES]), 1.0 / (curvature * squares))
        errors[k] = rate * unit * error
        state[at + _INTERCEPT] += errors[k]
    for k in range(n_outputs if model < _SPLINES else index(0)):
        at, step = _weights_at(model, k, n_outputs, n_features), errors[k]
        for j in range(n_features):
            state[at + j] += step * entered[model * n_features + j]
    for j in range(_n_splines(model, entered, state, n_outputs)):
        knot, of_next = _between(j, entered)
        if of_next >= 0.0:
            at = _knot_at(j, knot, n_outputs, n_features)
            for k in range(n_outputs):
                state[at + k] += (1.0 - of_next) * errors[k]
                state[at + n_outputs + k] += of_next * errors[k]


@inlined
def follow_trust(model, gradient, state, n_outputs):
    """Move the weight of the forecast below a model along the gradient of the loss, which has no unit."""
    at, gradient = _model_at(model, n_outputs), min(max(gradient, -_LARGEST_GRADIENT), _LARGEST_GRADIENT)
    state[at + _TRUST_SQUARES] = _SQUARES_KEPT * state[at + _TRUST_SQUARES] + gradient * gradient
    moved = state[at + _TRUST] - _TRUST_STEP * gradient / math.sqrt(_FIRST_TRUST_SQUARES + state[at + _TRUST_SQUARES])
    state[at + _TRUST] = min(max(moved, 0.0), _MOST_TRUST)


@inlined
def note_features(x, i, state, n_outputs):
    """Note what the features of a labelled row are like."""
    n_features, start = n_features_in(state, n_outputs, index(x.shape[1])), _model_at(N_MODELS, n_outputs)
    for j in range(n_features):
        note(x[i, j], state, start + j, n_features)
