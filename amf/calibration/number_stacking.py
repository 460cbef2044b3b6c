"""What the linear models (linear_models.py), and above them ridge regression (ridge.py) on the features, and then on
their products as well (products.py), add to a regression forest's mean: as much of each as surely helped of late.

No model moves a forecast out of the last 2,048 to 4,096 labels, nor further out than it is: where many features are far
from usual at once, as of sensors that drop out, all of their effects would add up. The forecast below a model enters it
as its distance from where labels usually are, which is followed as the mean of a feature is: no outlier of a label
moves it far, nor a first one for long.

state, from `at` on: of each model what its difference to the forecast below is worth (corrections.py), then the scale
of labels, as of a feature (scale.py), and their extremes: the least label of the block of labels that is not
full yet, and of the one before it, then the greatest ones. These are exact: ones that decay would leave out what labels
come back to again and again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration import linear_models, products, ridge, scale
from amf.calibration.corrections import N_CORRECTION, NEVER_NEGATIVE, best_share, judge_correction, sure_gain
from amf.calibration.recent_bias import FURTHEST_ERROR
from amf.calibration.solving import n_affordable
from amf.jit.decorators import called, index, inlined

_SOLVED = linear_models.N_MODELS
"""The first of the models that are solved for."""
N_SOLVED = index(2)
N_LAYERS = _SOLVED + N_SOLVED
WORTHS = range(int(N_LAYERS) * N_CORRECTION)
"""Places of what models are worth."""
NEITHER_IS_NEGATIVE = (
    *(model + place for model in range(0, len(WORTHS), N_CORRECTION) for place in NEVER_NEGATIVE),
    *(len(WORTHS) + place for place in scale.NEVER_NEGATIVE),
)
"""Places of what is never negative."""
_SCALE, _EXTREMES = index(len(WORTHS)), index(len(WORTHS) + scale.N_SCALE)
_BEFORE, _GREATEST, _N_EXTREMES = index(1), index(2), 4
"""Behind an extreme that of the block before; behind the least ones the greatest ones."""
N_STACKED = int(_EXTREMES) + _N_EXTREMES
_BLOCK = 2048.0
"""Labels: of some hundred the extremes are no limits, and next ones are often beyond them."""


class Models(NamedTuple):
    """The models of a forest: their states, and room for a row, float64. What `stack` fills `follow_stack` reads."""

    of_features: Any
    """States of those that are solved for; empty where one has no room."""
    of_products: Any
    linear: Any
    """State of the linear models."""
    row: Any
    """Columns of those that are solved for, NaN where a value is missing."""
    terms: Any
    entered: Any
    """What features enter the linear models as."""
    solved: Any
    """(N_SOLVED,), what the models say that are solved for, NaN where one knows nothing."""
    said: Any
    """(N_LAYERS + 1,), the mean below each model, the lowest one first, and above the last one."""
    by_model: Any
    """(N_LAYERS,), what each model says by itself."""
    corrections: Any
    """(N_LAYERS,), how far each would move the mean below it."""
    response: Any
    """(1,), to work in."""


def fresh_models() -> NDArray[np.float64]:
    """State of models that have learned nothing: of those that are solved for, then of the linear models."""
    return linear_models.fresh_state(1)


def n_of_features(n_features: int, max_bytes: int) -> int:
    """How many numbers there are of features; none where they would take too much of the `max_bytes` of a forest."""
    of_linear = linear_models.n_of_features(1, n_features, max_bytes)
    return sum(map(ridge.n_numbers, _affordable(n_features, max_bytes))) + of_linear


def _widths(n_features: int) -> tuple[int, int]:
    """Columns of the models that are solved for."""
    return min(n_features, ridge.MOST_FEATURES), products.n_terms(n_features)


def _affordable(n_features: int, max_bytes: int) -> tuple[int, int]:
    """Columns of the models that are solved for; none of one that would take too much of the bytes of a forest, nor of
    the one above it."""
    has_splines = linear_models.has_splines(1, n_features, max_bytes)
    plain, curved = _widths(n_features)
    if not n_affordable(ridge.n_numbers(plain), has_splines, max_bytes):
        return 0, 0
    return plain, curved if n_affordable(ridge.n_numbers(curved), has_splines, max_bytes) else 0


def models_with_features(
    models: NDArray[np.float64], n_features: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """Their state, of so many features, with more of them, one for each entry of `like` (linear_models.py)."""
    parts, at = [], 0
    before, now = _affordable(n_features, max_bytes), _affordable(n_features + len(like), max_bytes)
    for n_columns, n_now in zip(before, now, strict=True):
        end = at + ridge.n_numbers(n_columns)
        parts.append(ridge.with_columns(models[at:end], n_columns, n_now))
        at = end
    return np.concatenate((*parts, linear_models.with_features(models[at:], 1, n_features, like, max_bytes)))


def are_models_sound(models: NDArray[np.float64], n_features: int, largest_unit: float) -> bool:
    """Whether labels could have left this state. largest_unit: of those in `follow_stack`."""
    begin = max(len(models) - linear_models.n_numbers(1, n_features), 0)
    plain, curved = _widths(n_features)
    middle = min(begin, ridge.n_numbers(plain))
    solved = ridge.is_sound(models[:middle], plain) and ridge.is_sound(models[middle:begin], curved)
    return solved and linear_models.is_sound(models[begin:], 1, n_features, largest_unit)


@called
def models_of(state, n_features):
    """The models whose states these are, be there none, of so many features."""
    n_plain = min(n_features, index(ridge.MOST_FEATURES))
    begin = linear_models.begins(state, index(1), n_features)
    middle = min(begin, ridge.end_of(n_plain))
    of_features, of_products, linear = state[:middle], state[middle:begin], state[begin:]
    row = np.empty(n_plain if middle else index(0))
    terms = np.empty(products.n_terms_of(n_features) if middle < begin else index(0))
    entered = np.empty(linear_models.N_MODELS * linear_models.n_features_in(linear, index(1), n_features))
    said, by_model, corrections = np.empty(N_LAYERS + index(1)), np.empty(N_LAYERS), np.empty(N_LAYERS)
    solved, response = np.empty(N_SOLVED), np.empty(1)
    return Models(of_features, of_products, linear, row, terms, entered, solved, said, by_model, corrections, response)


@inlined
def stack(x, i, below, usual, state, at, models):
    """Have the models say what they do of row i of x: the mean below the lowest one is `below`.

    usual: squared error of the trees.
    """
    said, by_model, linear, entered, solved = models.said, models.by_model, models.linear, models.entered, models.solved
    linear_models.enter(x, i, linear, index(1), entered)
    ridge.fill_features(x, i, linear, models.row)
    products.fill_terms(x, i, entered, models.terms)
    solved[0] = ridge.respond(models.row, models.of_features)
    solved[1] = ridge.respond(models.terms, models.of_products)
    least, greatest = _extremes_of(state, at + _EXTREMES)
    said[0], furthest = below, FURTHEST_ERROR * math.sqrt(usual)
    centre = scale.mean_of(state, at + _SCALE)
    for model in range(N_LAYERS):
        if model < _SOLVED:
            linear_models.respond(model, entered, linear, index(1), models.response)
            trusted = linear_models.trust(model, linear, index(1)) * (said[model] - centre)
            by_model[model] = centre + trusted + models.response[0]
        else:
            alone = solved[model - _SOLVED]
            by_model[model] = alone if alone == alone else said[model]
        bounded = min(max(by_model[model], min(said[model], least)), max(said[model], greatest))
        correction = models.corrections[model] = min(max(bounded - said[model], -furthest), furthest)
        said[model + index(1)] = said[model] + _share_of(model, state, at) * correction


@inlined
def _share_of(model, state, at):
    """The share of its correction that a model adds."""
    worth = at + index(N_CORRECTION) * model
    return best_share(state, worth) if sure_gain(state, worth) > 0.0 else 0.0


@inlined
def explain_stack(state, at, models, moves, moved):
    """Turn what features moved of the mean below the lowest model into what they moved of that above the last one,
    after `stack`. moved: (d, 1). moves: the like, used up.

    A model says what it trusts of the mean below it, and what features add to that. Where it is held back by bounds,
    or is worth a share, that much of what it says takes the place of what is below it.
    """
    said, by_model = models.said, models.by_model
    for model in range(N_LAYERS):
        trust = linear_models.trust(model, models.linear, index(1)) if model < _SOLVED else 0.0
        for j in range(index(moved.shape[0])):
            moves[j, 0] = trust * moved[j, 0]
        if model < _SOLVED:
            linear_models.add_effects(model, models.entered, models.linear, moves)
        elif model == _SOLVED:
            ridge.fill_effects(models.row, models.of_features)
            for j in range(index(models.row.shape[0])):
                moves[j, 0] += models.row[j]
        else:
            ridge.fill_effects(models.terms, models.of_products)
            products.share_out(models.terms, moves)
        whole = by_model[model] - said[model]
        share = _share_of(model, state, at) * models.corrections[model] / whole if whole != 0.0 else 0.0
        for j in range(index(moved.shape[0])):
            moved[j, 0] += share * (moves[j, 0] - moved[j, 0])


@inlined
def follow_stack(label, weight, usual, state, at, models):
    """Follow one label of the row of `stack` with the models that take steps. weight: of a squared error."""
    said, errors, linear = models.said, models.response, models.linear
    centre, unit = scale.mean_of(state, at + _SCALE), math.sqrt(usual)
    for model in range(N_LAYERS):
        correction, worth = models.corrections[model], at + index(N_CORRECTION) * model
        judge_correction(correction, label - said[model], weight, state, worth)
        if model < _SOLVED:
            error = (label - models.by_model[model]) / unit
            errors[0] = min(max(error, -linear_models.MOST_UNITS), linear_models.MOST_UNITS)
            linear_models.follow_trust(model, -errors[0] * (said[model] - centre) / unit, linear, index(1))
            linear_models.follow_errors(model, errors, unit, 1.0, models.entered, linear, index(1))


@inlined
def follow_row(x, i, label, weight, usual, centre, state, at, models):
    """Note the features of row i of x, and follow its label, after `stack`, with both models that are solved for.

    centre: the median of labels before it.
    """
    linear, row, terms, solved = models.linear, models.row, models.terms, models.solved
    linear_models.note_features(x, i, linear, index(1))
    ridge.fill_features(x, i, linear, row)  # once more, where this row has the first value of a feature
    if ridge.follow(row, solved[0], label, weight, usual, centre, ridge.OF_FEATURES, models.of_features):
        _forget_worth(_SOLVED, state, at)
    if ridge.follow(terms, solved[1], label, weight, usual, centre, products.PENALTY, models.of_products):
        _forget_worth(_SOLVED + index(1), state, at)


@inlined
def _forget_worth(model, state, at):
    """Have a model that begins anew show anew what it is worth."""
    worth = at + index(N_CORRECTION) * model
    for place in range(worth, worth + index(N_CORRECTION)):
        state[place] = 0.0


@inlined
def note_label(label, n_before, state, at):
    """Note where labels are. n_before: how many came before this one."""
    _follow_extremes(label, n_before, state, at + _EXTREMES)
    scale.note(label, state, at + _SCALE, index(1))


@inlined
def _extremes_of(state, at):
    """The least and the greatest of the labels of the last two blocks."""
    greatest = at + _GREATEST
    return min(state[at], state[at + _BEFORE]), max(state[greatest], state[greatest + _BEFORE])


@inlined
def _follow_extremes(label, n_before, state, at):
    """Take one label into the extremes of its block."""
    greatest = at + _GREATEST
    if n_before == 0.0:
        state[at] = state[at + _BEFORE] = state[greatest] = state[greatest + _BEFORE] = label
    elif n_before % _BLOCK == 0.0:
        state[at + _BEFORE], state[greatest + _BEFORE] = state[at], state[greatest]
        state[at] = state[greatest] = label
    state[at] = min(state[at], label)
    state[greatest] = max(state[greatest], label)
