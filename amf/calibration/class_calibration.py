"""Class probabilities of a forest, made of what its trees say, by how such forecasts did on the forest's own past.

A mean over trees is too modest where trees are right in different ways, and believes noise. So it is one of 31 experts:

    forecast(k) ~ prior(k) ** (1 - g) * mean(k) ** g

where `prior` are the class frequencies so far, `mean` is a power mean over trees of exponent 1, 1/2 or 1/4 (the smaller
the exponent, the more counts a tree that all but excludes a class), and the sharpness g is a quarter, a half, ..., two,
three or four. One more expert is the prior itself, g = 0. Of a class that is rare the plain mean, of exponent 1, may
tell most: there no share of the uniform distribution drowns what single trees say of it. The forest forecasts the
mixture of all experts with fixed shares [1]: the weights follow Bayes' rule, and with each label all experts share a
small part of them, so that another one can lead after a change. Its log-loss exceeds that of the best expert by at most
log(31) and the shares, 0.0005 a label, and that of a sequence of experts by about log(31 / 0.0005) for each change
between them.

Classes come and go, and counts in the nodes of a tree stay: after a shift of their frequencies all of this is wrong by
a factor for each class. So a second mixture has a bias for each, added to its logarithm and followed by Newton's steps
on the log-loss of late, with the curvature of each class alone (vector scaling [2] without the scales). The forecast is
the mixture of the two, by fixed shares again: where there is no shift that costs a tenth of a nat, and 0.0001 a label.

What is a sum of effects of single features a linear model knows sooner: four of them stand above (class_stacking.py).

Powers take square roots and products alone, so that their bits are those of IEEE arithmetic. All of it is state of the
forest and changes with labelled rows only, one after the other.

state: float64 (40 + 3 K + ...,): the weights of the experts, their sum 1; the recent losses (losses.py); the weight of
the mixture without biases, and those of what is below each linear model; of each class its count, to which a label adds
1 and every further one takes away the ten thousandth part, its bias, and the curvature of the loss by it; then the
linear model that is solved for, and the others.

[1] M. Herbster and M. Warmuth, Tracking the best expert, Machine Learning 32, 1998.
[2] C. Guo, G. Pleiss, Y. Sun and K. Weinberger, On calibration of modern neural networks, ICML 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from amf.calibration import linear_models, logistic
from amf.calibration.class_stacking import (
    FIRST_UNSTACKED,
    N_LAYERS,
    Layers,
    are_models_sound,
    follow_stack,
    models_with_another_class,
    models_with_features,
    stack,
    weigh_first,
)
from amf.calibration.growth import grown
from amf.calibration.losses import N_LOSSES, are_sound, remember_losses
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import log, usual_exp

_N_MEANS = 3  # the plain one, which is what a forecast without calibration is, and those of exponents 1/2 and 1/4
_N_EXPERTS = index(31)
_FINE = index(25)  # those of a sharpness up to 2, which are quarters; the last ones are whole numbers
_LOSSES = _N_EXPERTS
_UNBIASED = _LOSSES + index(N_LOSSES)
_UNSTACKED = _UNBIASED + index(1)
_CLASSES = _UNSTACKED + N_LAYERS
_BIAS, _CURVATURE, _PER_CLASS = index(1), index(2), index(3)

_LARGEST_LOSS = 1e3  # of the smallest probability that a float64 can hold it is 745
_SMALLEST_PROBABILITY = 5e-324
_SHARE = 5e-4
"""What each label moves of the weights to all experts."""
_UNIFORM_SHARE = 1e-2
"""Of the uniform distribution in a tree's forecast, before a mean of small exponent: no tree may exclude a class."""
_PRIOR_SHARE = 1e-3
"""Of the prior in a mean over trees: one unexpected label must not cost the forest all of its weight."""
_LEAST_CREDITED = 1e-6
"""Probability that a label is given at least where the loss of a single tree is asked for."""
_KEPT = 1.0 - 1e-4
"""What is left of a class count at the next label."""
_MOST_COUNTED = 1.1 / (1.0 - _KEPT)
_FIRST_OF_PRIOR = 0.2
"""Weight of the prior among the experts before there is a label."""
_LESS_FOR_A_QUARTER = 0.75
"""Of the weight of an expert before there is a label, what one has that is a quarter further from a sharpness of 1."""
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


def _first_weights() -> list[float]:
    """Weights of the experts before there is a label: of forests that know little the sharpest ones are often wrong."""
    quarters = (quarter for quarter in (*range(1, 9), 12, 16) for _ in range(_N_MEANS))
    weights = [_LESS_FOR_A_QUARTER ** abs(quarter - 4) for quarter in quarters]
    return [_FIRST_OF_PRIOR, *((1.0 - _FIRST_OF_PRIOR) / sum(weights) * weight for weight in weights)]


_FIRST_WEIGHTS = _first_weights()


def fresh_state(n_classes: int) -> NDArray[np.float64]:
    """State of a forest that has learned nothing."""
    state = np.zeros(int(_CLASSES))
    state[: int(_N_EXPERTS)] = _FIRST_WEIGHTS
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
    weights, classes = state[: int(_N_EXPERTS)].tolist(), state[int(_CLASSES) : end].tolist()
    sums_to_one = all(weight >= 0.0 for weight in weights) and abs(sum(weights) - 1.0) < 1e-9
    counts, biases, curvatures = (classes[place :: int(_PER_CLASS)] for place in range(int(_PER_CLASS)))
    counted = all(0.0 <= count <= _MOST_COUNTED for count in counts)
    mixed = all(0.0 <= weight <= 1.0 for weight in state[int(_UNBIASED) : int(_CLASSES)].tolist())
    biased = all(abs(bias) <= _LARGEST_BIAS for bias in biases)
    curved = all(_FIRMNESS <= curvature <= _LARGEST_CURVATURE for curvature in curvatures)
    stacked = are_models_sound(state[end:], n_classes, n_features)
    lost = are_sound(losses_of(state), _LARGEST_LOSS)
    return sums_to_one and counted and mixed and biased and curved and stacked and lost


@called
def calibrate(x, forecasts, labels, labelled, state, raw, calibrated):
    """Fill raw (mean over trees) and calibrated, both float64 (n, >= K), and learn from the labels, row by row.

    x: float64 (n, d), NaN where missing. forecasts: float64 (n_trees, n, K). labels: int64 (n,) numbers of classes.
    Where `state` is empty, both are the mean over trees.
    """
    n_classes = index(forecasts.shape[2])
    means, prior = np.empty((_N_MEANS, n_classes)), np.empty(n_classes)
    experts, shares = np.empty((n_classes, _N_EXPERTS)), np.empty(_N_EXPERTS)
    mixture, biased, counted = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes, np.bool_)
    models = state[min(_CLASSES + _PER_CLASS * n_classes, index(state.shape[0])) :]
    begin = linear_models.begins(models, n_classes, index(x.shape[1]))
    solved, linear = models[:begin], models[begin:]
    entered = np.empty(linear_models.N_MODELS * linear_models.n_features_in(linear, n_classes, index(x.shape[1])))
    said, row = np.empty((N_LAYERS + index(1), n_classes)), np.empty(logistic.n_used(entered) + index(1))
    layers = Layers(said, np.empty((N_LAYERS, n_classes)), np.empty((N_LAYERS, n_classes)), row)
    for i in range(index(raw.shape[0])):
        _means_over_trees(forecasts, i, means)
        for k in range(n_classes):
            raw[i, k] = calibrated[i, k] = means[0, k]
        if state.shape[0] == 0:
            continue
        _prior_of(state, prior)
        _ask_experts(means, prior, experts, shares)
        for e in range(_N_EXPERTS):
            shares[e] = state[e] / shares[e]
        total, of_biased = 0.0, 0.0
        for k in range(n_classes):
            mixture[k] = 0.0
            for e in range(_N_EXPERTS):
                mixture[k] += shares[e] * experts[k, e]
            total += mixture[k]
        for k in range(n_classes):
            # The weights of the experts add up to 1 but for rounding, and a single class has probability 1.
            mixture[k] /= total
            biased[k] = mixture[k] * usual_exp(state[_CLASSES + _PER_CLASS * k + _BIAS])
        for k in range(n_classes):
            of_biased += biased[k]
        of_counted = 0.0
        for k in range(n_classes):
            biased[k] /= of_biased
            said[0, k] = biased[k] + state[_UNBIASED] * (mixture[k] - biased[k])
            counted[k] = state[_CLASSES + _PER_CLASS * k] > 0.0
            of_counted += said[0, k] if counted[k] else 0.0
        linear_models.enter(x, i, linear, n_classes, entered)
        stack(counted, of_counted, entered, linear, solved, state, _UNSTACKED, layers)
        for k in range(n_classes):
            calibrated[i, k] = said[N_LAYERS, k]
        if labelled[i]:
            label = index(labels[i])
            # No forecast could know a class without a count, so the first label of a new class judges nothing.
            if state[_CLASSES + _PER_CLASS * label] > 0.0:
                # Of trees that rule the label out the loss is infinite.
                by_trees = max(means[0, label], _SMALLEST_PROBABILITY)
                by_labels = _share_of(label, n_classes, state)
                remember_losses(-log(calibrated[i, label]), -log(by_trees), -log(by_labels), state, _LOSSES)
                _judge_experts(label, mixture[label], experts, shares, state)
                weigh_first(_UNBIASED, _BIAS_SHARE, mixture[label], said[0, label], state)
                _follow_biases(label, biased, state)
                follow_stack(label, counted, entered, linear, solved, state, _UNSTACKED, layers)
            linear_models.note_features(x, i, linear, n_classes)
            _count(label, n_classes, state)


@inlined
def _means_over_trees(forecasts, i, means):
    """Fill means (3, K): the plain mean over trees, always added in their order, and those of exponents 1/2 and 1/4."""
    n_trees, n_classes = index(forecasts.shape[0]), index(forecasts.shape[2])
    uniform = _UNIFORM_SHARE / n_classes
    for k in range(n_classes):
        means[0, k] = means[1, k] = means[2, k] = 0.0
    for tree in range(n_trees):
        for k in range(n_classes):
            forecast = forecasts[tree, i, k]
            root = math.sqrt((1.0 - _UNIFORM_SHARE) * forecast + uniform)
            means[0, k] += forecast
            means[1, k] += root
            means[2, k] += math.sqrt(root)
    of_roots, of_fourth_roots = 0.0, 0.0
    for k in range(n_classes):
        means[0, k] /= n_trees
        means[1, k] *= means[1, k]
        means[2, k] *= means[2, k]
        means[2, k] *= means[2, k]
        of_roots += means[1, k]
        of_fourth_roots += means[2, k]
    for k in range(n_classes):
        means[1, k] /= of_roots
        means[2, k] /= of_fourth_roots


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
def _ask_experts(means, prior, experts, totals):
    """Fill experts (K, experts) with their forecasts up to a factor, and totals (experts,) with their sums."""
    for e in range(_N_EXPERTS):
        totals[e] = 0.0
    for k in range(index(prior.shape[0])):
        powers = prior[k], prior[k], prior[k]
        steps = _step(means[0, k], prior[k]), _step(means[1, k], prior[k]), _step(means[2, k], prior[k])
        experts[k, 0] = prior[k]
        for e in range(index(1), _N_EXPERTS, index(_N_MEANS)):
            for _ in range(index(1) if e < _FINE else index(4)):
                powers = powers[0] * steps[0], powers[1] * steps[1], powers[2] * steps[2]
            experts[k, e], experts[k, e + index(1)], experts[k, e + index(2)] = powers
        for e in range(_N_EXPERTS):
            totals[e] += experts[k, e]


@inlined
def _step(mean, prior):
    """Fourth root of how many times more likely than by the prior a class is by a mean over trees."""
    return math.sqrt(math.sqrt((mean + _PRIOR_SHARE * (prior - mean)) / prior))


@inlined
def _judge_experts(label, mixture, experts, shares, state):
    """Weigh the experts by one label, to which their mixture gave this probability."""
    for e in range(_N_EXPERTS):
        weight = shares[e] * experts[label, e] / mixture
        state[e] = weight + _SHARE * (1.0 / _N_EXPERTS - weight)


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
