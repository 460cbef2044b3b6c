"""What linear models add to the class probabilities of a forest, one above the other, each mixed with what is below it.

What is a sum of effects of single features a linear model knows sooner. So the forecast is mixed, by fixed shares, with
multinomial logistic regression on the features and the forecast's own logarithms, what comes of that with one on the
squares of the features, and then with one on splines of them (linear_models.py), and at last with one that is solved
for (logistic.py). Of a class that was never counted these know nothing, and leave it what it had.

state, from `at` on: of each model the weight of what is below it. The models have states of their own: those of all
stand side by side, first that of the one that is solved for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration import linear_models, logistic
from amf.calibration.moves import to_moves, to_scores
from amf.calibration.solving import n_affordable
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import usual_exp, usual_log

_SOLVED = linear_models.N_MODELS
"""The last of the models."""
N_LAYERS = _SOLVED + index(1)
FIRST_UNSTACKED = (0.5, 0.9, 0.95, 0.95)
"""Weight of what is below each model before there is a label."""
_STACK_SHARE = 5e-5
"""What each label moves of the weight of the one to the other."""
_LEAST_PROBABILITY = 1e-4
"""Over the number of classes: of smaller probabilities linear models take the logarithm of this."""
_LARGEST_CURVATURE = 0.25
"""Of a log-loss by one logarithm of odds: p (1 - p)."""
_LEAST_KNOWN = 1e-200
"""Smaller probabilities are none to what features move."""
_HALF_OF_VARIANCE = 0.75
"""Of a feature as it enters, where its values are normal."""
_SMALLEST_LOGARITHM = -700.0
"""Of a probability of a linear model."""


class Models(NamedTuple):
    """The models of a forest: their states, and room for a row, float64. What `stack` fills `follow_stack` reads."""

    solved: Any
    """State of the one that is solved for; empty where it has no room."""
    linear: Any
    """State of the others."""
    entered: Any
    """What features enter them as."""
    row: Any
    """(1 + features that the last one uses,), to work in."""
    counted: Any
    """bool (K,), of which class there was a label; filled by who calls `stack`."""
    said: Any
    """(N_LAYERS + 1, K), below each model, the lowest one first, and above the last one; the first of it is filled by
    who calls `stack`."""
    logarithms: Any
    """(N_LAYERS, K), those of what is below; of the model that is solved for what the features add up to."""
    by_model: Any
    """(N_LAYERS, K), what each model says by itself of the classes that were counted. Used up by `follow_stack`."""


def n_of_features(n_classes: int, n_features: int, max_bytes: int) -> int:
    """How many numbers there are of features; none where they would take too much of the `max_bytes` of a forest."""
    of_linear = linear_models.n_of_features(n_classes, n_features, max_bytes)
    return _n_of_solved(n_classes, n_features, max_bytes) + of_linear


def _n_of_solved(n_classes: int, n_features: int, max_bytes: int) -> int:
    """How many of these are of the model that is solved for."""
    has_splines = linear_models.has_splines(n_classes, n_features, max_bytes)
    return n_affordable(logistic.n_numbers(n_classes, n_features), has_splines, max_bytes)


def models_with_another_class(
    models: NDArray[np.float64], n_classes: int, n_features: int, max_bytes: int
) -> NDArray[np.float64]:
    """Their state with one more class, of which there was no label yet. max_bytes: of the forest."""
    begin, of_solved = _n_of_solved(n_classes, n_features, max_bytes), models[:0]
    if _n_of_solved(n_classes + 1, n_features, max_bytes):
        of_solved = logistic.grown(models[:begin], (n_classes, n_features), (n_classes + 1, n_features))
    return np.append(of_solved, linear_models.with_outputs(models[begin:], n_classes, 1, n_features, max_bytes))


def models_with_features(
    models: NDArray[np.float64], n_classes: int, n_features: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """Their state, of so many features, with more of them, one for each entry of `like` (linear_models.py)."""
    begin, of_solved = _n_of_solved(n_classes, n_features, max_bytes), models[:0]
    n_now = n_features + len(like)
    if _n_of_solved(n_classes, n_now, max_bytes):
        of_solved = logistic.grown(models[:begin], (n_classes, n_features), (n_classes, n_now))
    linear = linear_models.with_features(models[begin:], n_classes, n_features, like, max_bytes)
    return np.append(of_solved, linear)


def are_models_sound(models: NDArray[np.float64], n_classes: int, n_features: int) -> bool:
    """Whether labels could have left this state."""
    begin = max(len(models) - linear_models.n_numbers(n_classes, n_features), 0)
    solved = logistic.is_sound(models[:begin], n_classes, n_features)
    return solved and linear_models.is_sound(models[begin:], n_classes, n_features, 1.0)


@called
def models_of(state, n_classes, n_features):
    """The models whose states these are, be there none, of so many classes and features."""
    begin = linear_models.begins(state, n_classes, n_features)
    solved, linear = state[:begin], state[begin:]
    entered = np.empty(linear_models.N_MODELS * linear_models.n_features_in(linear, n_classes, n_features))
    row, counted = np.empty(logistic.n_used(entered) + index(1)), np.empty(n_classes, np.bool_)
    said, by_model = np.empty((N_LAYERS + index(1), n_classes)), np.empty((N_LAYERS, n_classes))
    return Models(solved, linear, entered, row, counted, said, np.empty((N_LAYERS, n_classes)), by_model)


@inlined
def _n_layers(solved):
    """How many models there are: the last one may be left away."""
    return N_LAYERS if index(solved.shape[0]) else _SOLVED


@inlined
def _of_counted(models):
    """Sum of what is below the lowest model over the classes that were counted."""
    total = 0.0
    for k in range(index(models.counted.shape[0])):
        total += models.said[0, k] if models.counted[k] else 0.0
    return total


@inlined
def stack(x, i, state, at, models):
    """Have the models say what they do of row i of x."""
    said, counted, n_layers = models.said, models.counted, _n_layers(models.solved)
    n_classes, of_counted = index(said.shape[1]), _of_counted(models)
    linear_models.enter(x, i, models.linear, n_classes, models.entered)
    for model in range(n_layers):
        logarithms, by_model = models.logarithms[model], models.by_model[model]
        if model < _SOLVED:
            _say(said[model], counted, model, models.entered, models.linear, logarithms, by_model)
        else:
            _say_solved(counted, models.entered, models.solved, logarithms, by_model)
        for k in range(n_classes):
            share = of_counted * by_model[k] if counted[k] else said[model, k]
            said[model + index(1), k] = share + state[at + model] * (said[model, k] - share)
    if n_layers < N_LAYERS:
        for k in range(n_classes):
            said[N_LAYERS, k] = said[n_layers, k]


@inlined
def explain_stack(state, at, models, prior, scores, moved):
    """Turn what features moved of the forecast below the lowest model, from `prior` on, into what they moved of that
    above the last one, after `stack`. moved: (d, K). scores: the like, used up.

    A model says what it trusts of the logarithms below it, and what features add to these; and so far as it is mixed
    with what is below it, it moves the forecast as the two do.
    """
    said, of_counted = models.said, _of_counted(models)
    for model in range(_n_layers(models.solved)):
        if model < _SOLVED:
            to_scores(moved, said[model], prior, scores)
            _scale(linear_models.trust(model, models.linear, index(said.shape[1])), scores)
            linear_models.add_effects(model, models.entered, models.linear, scores)
        else:
            _scale(0.0, scores)
            logistic.add_effects(models.entered, models.solved, scores)
        shares = models.by_model[model]
        for k in range(index(shares.shape[0])):
            shares[k] *= of_counted
        to_moves(scores, shares, prior, models.logarithms[model])
        for j in range(index(moved.shape[0])):
            for k in range(index(shares.shape[0])):
                moved[j, k] = scores[j, k] + state[at + model] * (moved[j, k] - scores[j, k])
    if index(models.solved.shape[0]):
        to_scores(moved, said[N_LAYERS], prior, moved)
        _begin_at_prior(models, prior, moved, models.by_model[_SOLVED], models.logarithms[_SOLVED])
        to_moves(moved, said[N_LAYERS], prior, models.logarithms[_SOLVED])


@inlined
def _begin_at_prior(models, prior, scores, rest, spreads):
    """Share out to features by how much a usual row is off the prior.

    Models begin at a usual row, and where features tell much the mean over rows of what they say is off what they say
    of that: of a rare class most rows are less likely than its frequency. By half of the variance of the logarithm at
    most, to which a feature adds the square of its weight. rest, spreads: (K,), to work in.
    """
    solved, n_used = models.solved, logistic.n_used(models.entered)
    n_classes, n_features, mean = index(rest.shape[0]), index(scores.shape[0]), 0.0
    said = models.said[N_LAYERS]
    for k in range(n_classes):
        spreads[k] = 0.0
        rest[k] = usual_log(said[k] / prior[k]) if min(said[k], prior[k]) > _LEAST_KNOWN else 0.0
        for j in range(n_features):
            rest[k] -= scores[j, k]
        mean += prior[k] * rest[k]
    for j in range(n_used):
        of_all = _mean_weight(j, prior, solved, n_used)
        for k in range(n_classes):
            spreads[k] += _spread(j, k, of_all, solved, n_classes, n_used)
    for k in range(n_classes):
        rest[k] = min(max(rest[k] - mean, -spreads[k]), spreads[k])
    for j in range(n_used):
        of_all = _mean_weight(j, prior, solved, n_used)
        for k in range(n_classes):
            if spreads[k] > 0.0:
                scores[j, k] += rest[k] * _spread(j, k, of_all, solved, n_classes, n_used) / spreads[k]


@inlined
def _mean_weight(j, prior, solved, n_used):
    """That of a feature in the model that is solved for, over the classes as often as they are."""
    n_classes, mean = index(prior.shape[0]), 0.0
    for k in range(n_classes):
        mean += prior[k] * solved[logistic.weight_at(j, k, n_classes, n_used)]
    return mean


@inlined
def _spread(j, k, of_all, solved, n_classes, n_used):
    """Half of the variance that a feature adds to the logarithm of a class beside the others."""
    weight = solved[logistic.weight_at(j, k, n_classes, n_used)] - of_all
    return _HALF_OF_VARIANCE * weight * weight


@inlined
def _scale(factor, scores):
    for j in range(index(scores.shape[0])):
        for k in range(index(scores.shape[1])):
            scores[j, k] *= factor


@inlined
def follow_stack(label, state, at, models):
    """Follow one label of the row of `stack`."""
    said, counted, entered = models.said, models.counted, models.entered
    for model in range(_n_layers(models.solved)):
        logarithms, by_model = models.logarithms[model], models.by_model[model]
        weigh_first(at + model, _STACK_SHARE, said[model, label], said[model + index(1), label], state)
        if model < _SOLVED:
            _follow(label, model, logarithms, by_model, entered, models.linear)
        else:
            logistic.follow(label, entered, counted, logarithms, by_model, models.solved, models.row)


@inlined
def weigh_first(at, share, first, both, state):
    """Weigh the first of two mixtures, at this place of the state, by one label, to which it and both gave so much."""
    weight = min(state[at] * first / both, 1.0)
    state[at] = weight + share * (1.0 - 2.0 * weight)


@inlined
def _say(said, counted, model, entered, linear, logarithms, stacked):
    """Fill stacked (K,) with what a linear model makes of `said`, of the classes that were counted alone, and
    logarithms (K,) with those of `said`."""
    n_classes = index(said.shape[0])
    linear_models.respond(model, entered, linear, n_classes, stacked)
    trust, least = linear_models.trust(model, linear, n_classes), _LEAST_PROBABILITY / n_classes
    # Loops of their own: several logarithms at a time, but sums and maxima in their order.
    for k in range(n_classes):
        logarithms[k] = usual_log(max(said[k], least))
    for k in range(n_classes):
        stacked[k] += trust * logarithms[k]
    _to_probabilities(counted, stacked)


@inlined
def _say_solved(counted, entered, solved, responses, stacked):
    """Fill stacked (K,) with what the model that is solved for says of the classes that were counted, and responses
    (K,) with what that follows from."""
    logistic.respond(entered, solved, responses)
    for k in range(index(stacked.shape[0])):
        stacked[k] = responses[k]
    _to_probabilities(counted, stacked)


@inlined
def _to_probabilities(counted, stacked):
    """Replace logarithms of odds by probabilities, of the classes that were counted alone."""
    n_classes, largest, total = index(stacked.shape[0]), -np.inf, 0.0
    for k in range(n_classes):
        largest = max(largest, stacked[k]) if counted[k] else largest
    for k in range(n_classes):
        odds = usual_exp(min(max(stacked[k] - largest, _SMALLEST_LOGARITHM), 0.0))
        stacked[k] = odds if counted[k] else 0.0
    for k in range(n_classes):
        total += stacked[k]
    for k in range(n_classes):
        stacked[k] /= max(total, 1.0)  # the odds of the likeliest class, where there is one


@inlined
def _follow(label, model, logarithms, stacked, entered, linear):
    """Move a linear model by one label, to which it gave these probabilities; they are its steps afterwards."""
    n_classes, gradient = index(stacked.shape[0]), 0.0
    for k in range(n_classes):
        stacked[k] = (1.0 if k == label else 0.0) - stacked[k]
        gradient -= stacked[k] * logarithms[k]
    linear_models.follow_trust(model, gradient, linear, n_classes)
    linear_models.follow_errors(model, stacked, 1.0, _LARGEST_CURVATURE, entered, linear, n_classes)
