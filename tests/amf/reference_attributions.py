"""What features moved of a forecast that is published, slowly and readably, of what they moved of the trees' mean.

Of classes between probabilities and logarithms, by logarithmic means: whatever features add to the logarithms of
probabilities, they move these from the prior on by shares of the whole way. What a feature adds to a linear model is by
how much less it says where the feature is missing, or of a spline, where it is usual.
"""

from __future__ import annotations

import math

import numpy as np
from reference_calibration import PRIOR_SHARE, ReferenceCalibration, SolvedStack
from reference_number_calibration import Ridge, Stack, Surface
from reference_regression import RegressionForest
from reference_stacking import LinearModel


def effects(linear: LinearModel, x: np.ndarray) -> np.ndarray:
    """What each feature adds to each output, (d, K)."""
    added = []
    for j in range(len(x)):
        missing = x.astype(float)
        missing[j] = math.nan
        added.append(linear.response(x) - linear.response(missing))
        if linear.shape == "spline":
            knots = linear.weights[:, 12 * j : 12 * j + 12]
            often = np.where(knots != 0, np.exp(-0.5 * (np.linspace(-3, 3, 12) / 1.2533) ** 2).round(3), 0)
            added[-1] -= (often * knots).sum(axis=1) / np.maximum(often.sum(axis=1), 1e-9)
    return np.array(added)


def logarithmic_means(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return np.array([(p - q) / math.log1p((p - q) / q) if 0 < p != q else p for p, q in pairs])


def scores_of(moved: np.ndarray, probabilities: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return moved / logarithmic_means(probabilities, prior)


def moves_of(scores: np.ndarray, probabilities: np.ndarray, prior: np.ndarray) -> np.ndarray:
    means = logarithmic_means(probabilities, prior)
    return means * (scores - (scores @ means)[:, None] / means.sum())


def moves_of_classes(
    calibration: ReferenceCalibration, said: np.ndarray, x: np.ndarray, prior: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """(d, K). said: (n_trees, K). moved: (d, K), of the mean over trees."""
    counted, below = calibration.counted(), calibration.without_linear(calibration.mean_of(calibration.experts(said)))
    sharpness = sum(weight * expert.sharpness for expert, weight in calibration.weights.items())
    mean = (1 - PRIOR_SHARE) * said.mean(axis=0) + PRIOR_SHARE * prior
    moved = moves_of(sharpness * scores_of((1 - PRIOR_SHARE) * moved, mean, prior), below, prior)
    for stack in calibration.stacks:
        scores = effects(stack.linear, x)
        if not isinstance(stack, SolvedStack):
            scores += stack.linear.trust * scores_of(moved, below, prior)
        by_model = below[counted].sum() * stack.shares(below, x, counted)
        moved = stack.below * moved + (1 - stack.below) * moves_of(scores, by_model, prior)
        below = stack.forecast(below, x, counted)
    return moves_of(begun_at_prior(scores_of(moved, below, prior), below, prior, calibration), below, prior)


def begun_at_prior(
    scores: np.ndarray, said: np.ndarray, prior: np.ndarray, calibration: ReferenceCalibration
) -> np.ndarray:
    """The rest of the way from the prior is shared out by the squares of weights, 3/4 of these at most."""
    rest = np.log(said / prior) - scores.sum(axis=0)
    rest -= prior @ rest
    weights = calibration.stacks[-1].linear.weights[:, :-1].T
    spreads = 0.75 * (weights - (weights @ prior)[:, None]) ** 2
    whole = spreads.sum(axis=0)
    return scores + np.clip(rest, -whole, whole) * spreads / np.maximum(whole, 1e-300)


def moves_of_numbers(forest: RegressionForest, x: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """(d,). moved: (d,), of the mean over trees."""
    outlook = forest.outlook(x)
    assert outlook is not None
    _, of_labels = forest.blend.weights()
    moved = (1 - of_labels) * moved
    for stack, below in zip(forest.stacks, forest.below_stacks(outlook, x), strict=False):
        by_model = np.zeros_like(moved)
        if isinstance(stack, Stack):
            by_model = stack.linear.trust * moved + effects(stack.linear, x)[:, 0]
        elif isinstance(stack, Ridge):
            added = stack.slopes * np.clip(stack.off(x), -stack.furthest, stack.furthest)
            by_model[: stack.n_features] += added[: stack.n_features]
            if isinstance(stack, Surface):
                pairs = [(j, k) for j in range(stack.n_features) for k in range(j + 1)]
                for (j, k), product in zip(pairs, added[stack.n_features :], strict=True):
                    by_model[[j, k] if j != k else [j]] += product / 2 if j != k else product
        whole = stack.by_model(x, below) - below
        if whole and stack.worth.sure_gain > 0:
            share = stack.worth.share * stack.correction(x, below, forest.blend.usual) / whole
            moved = moved + share * (by_model - moved)
    return moved
