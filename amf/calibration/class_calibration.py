"""Class probabilities of a forest, made of what its trees say, by how such forecasts did on the forest's own past.

A mean over trees is too modest where trees are right in different ways, and believes noise. So it is one of 31 experts,
and the forest forecasts their mixture (experts.py).

Classes come and go, and counts in the nodes of a tree stay: after a shift of their frequencies all of this is wrong by
a factor for each class. So a second mixture has a bias for each, added to its logarithm and followed by Newton's steps
on the log-loss of late, with the curvature of each class alone (vector scaling [1] without the scales). The forecast is
the mixture of the two, by fixed shares again: where there is no shift that costs a tenth of a nat, and 0.0001 a label.

What is a sum of effects of single features a linear model knows sooner: four of them stand above (class_stacking.py).

All of it is state of the forest and changes with labelled rows only, one after the other.

state: float64 (40 + 3 K + ...,): the weights of the experts, their sum 1; the recent losses (losses.py); the weight of
the mixture without biases, and those of what is below each linear model; of each class its count, to which a label adds
1 and every further one takes away the ten thousandth part, its bias, and the curvature of the loss by it; then the
linear model that is solved for, and the others.

[1] C. Guo, G. Pleiss, Y. Sun and K. Weinberger, On calibration of modern neural networks, ICML 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration import linear_models
from amf.calibration.class_stacking import (
    FIRST_UNSTACKED,
    N_LAYERS,
    are_models_sound,
    explain_stack,
    follow_stack,
    models_of,
    models_with_another_class,
    models_with_features,
    stack,
    weigh_first,
)
from amf.calibration.experts import (
    FIRST_WEIGHTS,
    N_EXPERTS,
    N_MEANS,
    PRIOR_SHARE,
    ask_experts,
    judge_experts,
    means_over_trees,
    sharpness_of,
)
from amf.calibration.growth import grown
from amf.calibration.interface import Calibration
from amf.calibration.losses import N_LOSSES, are_sound, remember_losses
from amf.calibration.moves import to_moves, to_scores
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import log, usual_exp

_LOSSES = N_EXPERTS
_UNBIASED = _LOSSES + index(N_LOSSES)
_UNSTACKED = _UNBIASED + index(1)
_CLASSES = _UNSTACKED + N_LAYERS
_BIAS, _CURVATURE, _PER_CLASS = index(1), index(2), index(3)

_LARGEST_LOSS = 1e3  # of the smallest probability that a float64 can hold it is 745
_SMALLEST_PROBABILITY = 5e-324
_LEAST_CREDITED = 1e-6
"""Probability that a label is given at least where the loss of a single tree is asked for."""
_KEPT = 1.0 - 1e-4
"""What is left of a class count at the next label."""
_MOST_COUNTED = 1.1 / (1.0 - _KEPT)
_FIRST_UNBIASED = 0.9
"""Weight of the mixture without biases before there is a label."""
_BIAS_SHARE = 1e-4
"""What each label moves of the weights of the two mixtures to both."""
_CURVATURE_KEPT = 1.0 - 1.0 / 500.0
"""What is left of what labels said of a curvature at the next one."""
_FIRMNESS = 40.0
"""Curvature without labels: so much of it no bias forgets. With less, those of rare classes are noise."""
_LARGEST_BIAS = 10.0
_LARGEST_CURVATURE = 1.1 * (_FIRMNESS + 0.25 / (1.0 - _CURVATURE_KEPT))


def fresh_state(n_classes: int) -> NDArray[np.float64]:
    """State of a forest that has learned nothing."""
    state = np.zeros(int(_CLASSES))
    state[: int(N_EXPERTS)] = FIRST_WEIGHTS
    state[int(_UNBIASED) : int(_CLASSES)] = _FIRST_UNBIASED, *FIRST_UNSTACKED
    return np.concatenate((state, _of_new_classes(n_classes), linear_models.fresh_state(n_classes)))


def with_another_class(
    state: NDArray[np.float64], n_classes: int, n_features: int, max_bytes: int
) -> NDArray[np.float64]:
    """State with one more class, of which there was no label yet. max_bytes: of the forest."""
    return grown(_with_another_class, state, n_classes, n_features, max_bytes)


def _with_another_class(
    state: NDArray[np.float64], n_classes: int, n_features: int, max_bytes: int
) -> NDArray[np.float64]:
    end = _end_of_classes(n_classes)
    models = models_with_another_class(state[end:], n_classes, n_features, max_bytes)
    return np.concatenate((state[:end], _of_new_classes(1), models))


def with_features(
    state: NDArray[np.float64], n_classes: int, n_features: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """A state of so many features with more of them, one for each entry of `like` (linear_models.py)."""
    end = _end_of_classes(n_classes)
    return np.append(state[:end], models_with_features(state[end:], n_classes, n_features, like, max_bytes))


def _of_new_classes(n: int) -> NDArray[np.float64]:
    """The numbers of so many classes that were never counted."""
    of_classes = np.zeros((n, int(_PER_CLASS)))
    of_classes[:, int(_CURVATURE)] = _FIRMNESS
    return of_classes.ravel()


def losses_of(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of the state that holds the recent losses: a view."""
    return state[int(_LOSSES) : int(_UNBIASED)]


def _end_of_classes(n_classes: int) -> int:
    """Where the linear models begin."""
    return int(_CLASSES) + n_classes * int(_PER_CLASS)


def is_sound(state: NDArray[np.float64], n_classes: int, n_features: int) -> bool:
    """Whether labels could have left this state, be it empty."""
    if state.shape[0] == 0:
        return True
    end = _end_of_classes(n_classes)
    # Most states have few numbers, of which numpy would take longer to make arrays than Python to look at them.
    weights, classes = state[: int(N_EXPERTS)].tolist(), state[int(_CLASSES) : end].tolist()
    sums_to_one = all(weight >= 0.0 for weight in weights) and abs(sum(weights) - 1.0) < 1e-9
    counts, biases, curvatures = (classes[place :: int(_PER_CLASS)] for place in range(int(_PER_CLASS)))
    counted = all(0.0 <= count <= _MOST_COUNTED for count in counts)
    mixed = all(0.0 <= weight <= 1.0 for weight in state[int(_UNBIASED) : int(_CLASSES)].tolist())
    biased = all(abs(bias) <= _LARGEST_BIAS for bias in biases)
    curved = all(_FIRMNESS <= curvature <= _LARGEST_CURVATURE for curvature in curvatures)
    stacked = are_models_sound(state[end:], n_classes, n_features)
    lost = are_sound(losses_of(state), _LARGEST_LOSS)
    return sums_to_one and counted and mixed and biased and curved and stacked and lost


class _Room(NamedTuple):
    """Room for what is known of a row, float64: filled by `_forecast`, read by what follows its label."""

    means: Any
    """(3, K), over trees: the plain one, and those of exponents 1/2 and 1/4."""
    prior: Any
    """(K,), the class frequencies."""
    experts: Any
    """(K, experts), their forecasts up to a factor."""
    shares: Any
    """(experts,), their weights over these factors."""
    mixture: Any
    """(K,), of the experts."""
    biased: Any
    """(K,), the same with the biases."""


@called
def _room_for(n_classes):
    experts, shares = np.empty((n_classes, N_EXPERTS)), np.empty(N_EXPERTS)
    means, prior = np.empty((N_MEANS, n_classes)), np.empty(n_classes)
    return _Room(means, prior, experts, shares, np.empty(n_classes), np.empty(n_classes))


@called
def calibrate(x, forecasts, labels, labelled, state, raw, calibrated):
    """Fill raw (mean over trees) and calibrated, both float64 (n, >= K), and learn from the labels, row by row.

    x: float64 (n, d), NaN where missing. forecasts: float64 (n_trees, n, K). labels: int64 (n,) numbers of classes.
    Where `state` is empty, both are the mean over trees.
    """
    n_classes, n_features = index(forecasts.shape[2]), index(x.shape[1])
    room, models = _room_for(n_classes), models_of(state[_models_at(state, n_classes) :], n_classes, n_features)
    for i in range(index(raw.shape[0])):
        means_over_trees(forecasts, i, room.means)
        for k in range(n_classes):
            raw[i, k] = calibrated[i, k] = room.means[0, k]
        if state.shape[0] == 0:
            continue
        _forecast(state, room, models)
        stack(x, i, state, _UNSTACKED, models)
        for k in range(n_classes):
            calibrated[i, k] = models.said[N_LAYERS, k]
        if labelled[i]:
            label = index(labels[i])
            # No forecast could know a class without a count, so the first label of a new class judges nothing.
            if state[_CLASSES + _PER_CLASS * label] > 0.0:
                # Of trees that rule the label out the loss is infinite.
                by_trees = max(room.means[0, label], _SMALLEST_PROBABILITY)
                by_labels = _share_of(label, n_classes, state)
                remember_losses(-log(calibrated[i, label]), -log(by_trees), -log(by_labels), state, _LOSSES)
                judge_experts(label, room.mixture[label], room.experts, room.shares, state)
                weigh_first(_UNBIASED, _BIAS_SHARE, room.mixture[label], models.said[0, label], state)
                _follow_biases(label, room.biased, state)
                follow_stack(label, state, _UNSTACKED, models)
            linear_models.note_features(x, i, models.linear, n_classes)
            _count(label, n_classes, state)


@called
def explain(x, forecasts, state, prior, features):
    """Turn what features moved of the mean over trees into what they moved of the forecast that is published.

    x, forecasts, state: as for `calibrate`; nothing is learned. prior: float64 (n, K). features: float64 (n, d, K).
    The experts sharpen the mean, and with it what each feature moved; what they make of frequencies, and biases, no
    feature has moved.
    """
    if state.shape[0] == 0:
        return
    n_classes, n_features = index(forecasts.shape[2]), index(x.shape[1])
    room, models = _room_for(n_classes), models_of(state[_models_at(state, n_classes) :], n_classes, n_features)
    scores, sharpness = np.empty(features.shape[1:]), sharpness_of(state)
    for i in range(index(x.shape[0])):
        means_over_trees(forecasts, i, room.means)
        _forecast(state, room, models)
        stack(x, i, state, _UNSTACKED, models)
        for k in range(n_classes):  # as experts take it, which never is 0
            room.means[0, k] += PRIOR_SHARE * (prior[i, k] - room.means[0, k])
        to_scores(features[i], room.means[0], prior[i], scores)
        for j in range(n_features):
            for k in range(n_classes):
                features[i, j, k] = sharpness * (1.0 - PRIOR_SHARE) * scores[j, k]
        to_moves(features[i], models.said[0], prior[i], room.biased)
        explain_stack(state, _UNSTACKED, models, prior[i], scores, features[i])


CALIBRATION = Calibration(calibrate, explain)


@inlined
def _models_at(state, n_classes):
    """Where the states of the linear models begin; at the end of a state that is empty."""
    return min(_CLASSES + _PER_CLASS * n_classes, index(state.shape[0]))


@inlined
def _forecast(state, room, models):
    """Fill the room for a row whose means over trees are there, and what is below the lowest linear model."""
    experts, shares, mixture, biased = room.experts, room.shares, room.mixture, room.biased
    said, counted, n_classes = models.said, models.counted, index(mixture.shape[0])
    _prior_of(state, room.prior)
    ask_experts(room.means, room.prior, experts, shares)
    for e in range(N_EXPERTS):
        shares[e] = state[e] / shares[e]
    total, of_biased = 0.0, 0.0
    for k in range(n_classes):
        mixture[k] = 0.0
        for e in range(N_EXPERTS):
            mixture[k] += shares[e] * experts[k, e]
        total += mixture[k]
    for k in range(n_classes):
        # The weights of the experts add up to 1 but for rounding, and a single class has probability 1.
        mixture[k] /= total
        biased[k] = mixture[k] * usual_exp(state[_CLASSES + _PER_CLASS * k + _BIAS])
    for k in range(n_classes):
        of_biased += biased[k]
    for k in range(n_classes):
        biased[k] /= of_biased
        said[0, k] = biased[k] + state[_UNBIASED] * (mixture[k] - biased[k])
        counted[k] = state[_CLASSES + _PER_CLASS * k] > 0.0


@inlined
def _prior_of(state, prior):
    """Fill prior (K,): the class frequencies, by Krichevsky and Trofimov."""
    total = 0.0
    for k in range(index(prior.shape[0])):
        prior[k] = state[_CLASSES + _PER_CLASS * k] + 0.5
        total += prior[k]
    for k in range(index(prior.shape[0])):
        prior[k] /= total


@inlined
def _share_of(label, n_classes, state):
    """The frequency of a class among those that came: the forecast of the labels alone, which know no others."""
    total = 0.0
    for count in state[_CLASSES : _CLASSES + _PER_CLASS * n_classes : _PER_CLASS]:
        if count > 0.0:
            total += count + 0.5
    return (state[_CLASSES + _PER_CLASS * label] + 0.5) / total


@inlined
def _follow_biases(label, biased, state):
    """Move the bias of each class by one label, to which they gave these probabilities."""
    for k in range(index(biased.shape[0])):
        at = _CLASSES + _PER_CLASS * k
        probability = biased[k]
        curvature = _FIRMNESS + _CURVATURE_KEPT * (state[at + _CURVATURE] - _FIRMNESS)
        state[at + _CURVATURE] = curvature = curvature + probability * (1.0 - probability)
        bias = state[at + _BIAS] + ((1.0 if k == label else 0.0) - probability) / curvature
        state[at + _BIAS] = min(max(bias, -_LARGEST_BIAS), _LARGEST_BIAS)


@inlined
def _count(label, n_classes, state):
    """Count one label."""
    for at in range(_CLASSES, _CLASSES + _PER_CLASS * n_classes, _PER_CLASS):
        state[at] *= _KEPT
    state[_CLASSES + _PER_CLASS * label] += 1.0


@inlined
def loss_of_class(forecasts, tree, i, label):
    """Log-loss of what one tree says of a row."""
    return -log(min(max(forecasts[tree, i, label], _LEAST_CREDITED), 1.0))
