"""What the linear models (linear_models.py) add to a regression forest's mean: as much of each as surely helped of
late.

No model moves a forecast out of the last 2,048 to 4,096 labels, nor further out than it is: where many features are far
from usual at once, as of sensors that drop out, all of their effects would add up. The forecast below a model enters it
as its distance from where labels usually are, which is followed as the mean of a feature is: no outlier of a label
moves it far, nor a first one for long.

state, from `at` on: of each model what its difference to the forecast below is worth (corrections.py), then the scale
of labels, as of a feature (linear_models.py), and their extremes (label_bounds.py).
"""

from __future__ import annotations

import math

from amf.calibration import linear_models
from amf.calibration.corrections import N_CORRECTION, NEVER_NEGATIVE, best_share, judge_correction, sure_gain
from amf.calibration.label_bounds import N_EXTREMES, extremes_of, follow_extremes
from amf.calibration.recent_bias import FURTHEST_ERROR
from amf.jit.decorators import index, inlined

WORTHS = range(int(linear_models.N_MODELS) * N_CORRECTION)
"""Places of what models are worth."""
NEITHER_IS_NEGATIVE = (
    *(model + place for model in range(0, len(WORTHS), N_CORRECTION) for place in NEVER_NEGATIVE),
    *(len(WORTHS) + place for place in linear_models.SCALE_NEVER_NEGATIVE),
)
"""Places of what is never negative."""
_SCALE, _EXTREMES = index(len(WORTHS)), index(len(WORTHS) + linear_models.N_SCALE)
N_STACKED = int(_EXTREMES) + N_EXTREMES
_BLOCK = 2048.0
"""Labels: of some hundred the extremes are no limits, and next ones are often beyond them."""


@inlined
def stack(below, usual, entered, state, at, linear, said, by_linear, corrections, response):
    """Fill said (models + 1,) with the mean below each model, the first of which is `below`, and above the last one,
    by_linear (models,) with what these say by themselves, and corrections (models,) with how far they would move it.

    usual: squared error of the trees. response: float64 (1,), to work in.
    """
    least, greatest = extremes_of(state, at + _EXTREMES)
    said[0], furthest = below, FURTHEST_ERROR * math.sqrt(usual)
    centre = linear_models.mean_of(state, at + _SCALE)
    for model in range(linear_models.N_MODELS):
        linear_models.respond(model, entered, linear, index(1), response)
        trusted = linear_models.trust(model, linear, index(1)) * (said[model] - centre)
        by_linear[model] = centre + trusted + response[0]
        worth = at + index(N_CORRECTION) * model
        share = best_share(state, worth) if sure_gain(state, worth) > 0.0 else 0.0
        bounded = min(max(by_linear[model], min(said[model], least)), max(said[model], greatest))
        corrections[model] = min(max(bounded - said[model], -furthest), furthest)
        said[model + index(1)] = said[model] + share * corrections[model]


@inlined
def follow_stack(label, weight, usual, entered, state, at, linear, said, by_linear, corrections, errors):
    """Follow one label, to which `stack` gave this. weight: of a squared error. errors: float64 (1,), to work in."""
    centre, unit = linear_models.mean_of(state, at + _SCALE), math.sqrt(usual)
    for model in range(linear_models.N_MODELS):
        judge_correction(corrections[model], label - said[model], weight, state, at + index(N_CORRECTION) * model)
        error = (label - by_linear[model]) / unit
        errors[0] = min(max(error, -linear_models.MOST_UNITS), linear_models.MOST_UNITS)
        linear_models.follow_trust(model, -errors[0] * (said[model] - centre) / unit, linear, index(1))
        linear_models.follow_errors(model, errors, unit, 1.0, entered, linear, index(1))


@inlined
def note_label(label, n_before, state, at):
    """Note where labels are. n_before: how many came before this one."""
    follow_extremes(label, n_before, state, at + _EXTREMES, _BLOCK)
    linear_models.note(label, state, at + _SCALE, index(1))
