"""A slow, readable calibration of class probabilities: experts made of what the trees say, mixed with fixed shares.

An expert bends the prior, the class frequencies so far, towards what the trees say together, with a sharpness g:

    expert(k) ~ prior(k)**(1 - g) * says(k)**g,    says = (1 - PRIOR_SHARE) * mean + PRIOR_SHARE * prior

where mean is the plain mean over the trees, or a power mean of forecasts in which UNIFORM_SHARE of the uniform one is
mixed. The forest says the mean of the experts, each weighted by how well it foretold the labels so far (Bayes), except
that each label gives SHARE of all weights back to everybody (Herbster and Warmuth 1998). Beside this mean of experts
stands the same with a bias for each class, added to its logarithm, and what both say together is their mean, weighted
in the same way. Beside that stands what a linear model makes of it and of the features (reference_stacking.py), and the
mean of the two, weighted in the same way; beside that what a second one makes of it and of the squares of the features,
and a third one of splines of them, and the means, weighted in the same way; and at last one that is solved for. Powers
are `**` here, where the kernels take square roots and products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from reference import ReferenceForest
from reference_stacking import NO_FEATURES, LinearModel, Solved

SHARE = 5e-4
UNIFORM_SHARE = 0.01
PRIOR_SHARE = 0.001
KEPT = 1 - 1e-4
BIAS_SHARE = 2e-4
STACK_SHARE = 1e-4
FIRMNESS = 40.0
HORIZON = 1000


class Expert(NamedTuple):
    """A power mean over trees and how much is made of it; with sharpness 0 it is the prior, whatever the exponent."""

    exponent: float
    sharpness: float


SHARPNESS = (*(g / 4 for g in range(1, 9)), 3.0, 4.0)
EXPERTS = [Expert(1.0, 0.0), *(Expert(exponent, g) for exponent in (1.0, 0.5, 0.25) for g in SHARPNESS)]


@dataclass
class RecentLosses:
    """Means of the losses of three forecasts in which a loss counts the less the older it is."""

    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    weight: float = 0.0

    def add(self, *losses: float) -> None:
        kept = 1 - 1 / HORIZON
        self.sums = [kept * total + loss for total, loss in zip(self.sums, losses, strict=True)]
        self.weight = kept * self.weight + 1

    def means(self) -> list[float]:
        return [total / self.weight if self.weight else math.nan for total in self.sums]


def normed(values: np.ndarray) -> np.ndarray:
    return values / values.sum()


def power_mean(said: np.ndarray, exponent: float) -> np.ndarray:
    """Of what trees said, (n_trees, K): a distribution (K,)."""
    if exponent == 1.0:
        return said.mean(axis=0)
    mixed = (1 - UNIFORM_SHARE) * said + UNIFORM_SHARE / said.shape[1]
    return normed((mixed**exponent).mean(axis=0) ** (1 / exponent))


def first_weight(expert: Expert) -> float:
    """Beside those of the others, before there is a label: a quarter less for each quarter of sharpness beside 1."""
    return 0.75 ** (4 * abs(expert.sharpness - 1)) if expert.sharpness else 0.0


@dataclass
class Bias:
    """What is added to the logarithm of a class, by Newton's steps on the log-loss with an old curvature counting less
    (1 / e after 500 labels), beside FIRMNESS that never does."""

    value: float = 0.0
    curvature: float = 0.0

    def learn(self, probability: float, *, came: bool) -> None:
        self.curvature = (1 - 1 / 500) * self.curvature + probability * (1 - probability)
        self.value = min(max(self.value + (came - probability) / (FIRMNESS + self.curvature), -10.0), 10.0)


@dataclass
class Stack:
    """A linear model of the features and of what is below it, and the weight of what is below it beside the model. Of
    classes that were never counted it knows nothing."""

    linear: LinearModel
    below: float

    def shares(self, said: np.ndarray, x: np.ndarray, counted: np.ndarray) -> np.ndarray:
        """Of each class, of all that were counted."""
        odds = self.linear.trust * self.logarithms(said) + self.linear.response(x)
        odds[~counted] = -math.inf
        return normed(np.exp(odds - odds.max()))

    def logarithms(self, said: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(said, 1e-4 / len(said)))

    def forecast(self, said: np.ndarray, x: np.ndarray, counted: np.ndarray) -> np.ndarray:
        if not counted.any():
            return said
        by_model = np.where(counted, said[counted].sum() * self.shares(said, x, counted), said)
        return self.below * said + (1 - self.below) * by_model

    def learn(self, said: np.ndarray, label: int, x: np.ndarray, counted: np.ndarray) -> None:
        errors = (np.arange(len(said)) == label) - self.shares(said, x, counted)
        share = said[label] / self.forecast(said, x, counted)[label]
        self.below = (1 - STACK_SHARE) * self.below * share + STACK_SHARE / 2
        self.linear.learn(x, errors, float(-errors @ self.logarithms(said)), curvature=0.25)


class SolvedStack(Stack):
    """The same with a model that is solved for, and by itself."""

    linear: Solved

    def forecast(self, said: np.ndarray, x: np.ndarray, counted: np.ndarray) -> np.ndarray:
        return super().forecast(said, x, counted) if len(x) else said

    def learn(self, said: np.ndarray, label: int, x: np.ndarray, counted: np.ndarray) -> None:
        if len(x):
            share = said[label] / self.forecast(said, x, counted)[label]
            self.below = (1 - STACK_SHARE) * self.below * share + STACK_SHARE / 2
            self.linear.solve(x, label, self.shares(said, x, counted), counted)


class ReferenceCalibration:
    """Of one forest. `said`: what its trees say of a sample, (n_trees, K) probabilities of the classes known so far."""

    def __init__(self, n_classes: int, n_features: int = 0) -> None:
        self.counts = [0.0] * n_classes
        total = sum(map(first_weight, EXPERTS))
        # A fifth is the prior's.
        self.weights = {each: 0.8 * first_weight(each) / total if each.sharpness else 0.2 for each in EXPERTS}
        self.biases = [Bias() for _ in range(n_classes)]
        self.unbiased = 0.9
        self.stacks = [
            Stack(LinearModel(n_classes, n_features), 0.5),
            Stack(LinearModel(n_classes, n_features, "square"), 0.9),
            Stack(LinearModel(n_classes, n_features, "spline"), 0.95),
            SolvedStack(Solved(n_classes, n_features), 0.95),
        ]
        self.losses = RecentLosses()

    def prior(self) -> np.ndarray:
        """The class frequencies so far, old labels counting less: by Krichevsky and Trofimov."""
        return normed(np.array(self.counts) + 0.5)

    def experts(self, said: np.ndarray) -> dict[Expert, np.ndarray]:
        """What each one says, (K,)."""
        prior = self.prior()
        says = {
            exponent: (1 - PRIOR_SHARE) * power_mean(said, exponent) + PRIOR_SHARE * prior
            for exponent in {each.exponent for each in EXPERTS}
        }
        return {each: normed(prior ** (1 - each.sharpness) * says[each.exponent] ** each.sharpness) for each in EXPERTS}

    def forecast(self, said: np.ndarray, x: np.ndarray = NO_FEATURES) -> np.ndarray:
        """What the forest says, (K,); nothing while no class is known."""
        if not self.counts:
            return np.zeros(0)
        forecast = self.without_linear(self.mean_of(self.experts(said)))
        for stack in self.stacks:
            forecast = stack.forecast(forecast, x, self.counted())
        return forecast

    def counted(self) -> np.ndarray:
        """Which classes there was a label of."""
        return np.array(self.counts) > 0

    def without_linear(self, mean: np.ndarray) -> np.ndarray:
        return self.unbiased * mean + (1 - self.unbiased) * self.biased(mean)

    def mean_of(self, experts: dict[Expert, np.ndarray]) -> np.ndarray:
        return sum(weight * experts[expert] for expert, weight in self.weights.items())

    def biased(self, mean: np.ndarray) -> np.ndarray:
        return normed(mean * np.exp([bias.value for bias in self.biases]))

    def learn(self, said: np.ndarray, label: int, x: np.ndarray = NO_FEATURES) -> None:
        """Follow one label, of which the trees had said this; of a class that is new with its column."""
        if label == len(self.counts):
            self.counts.append(0.0)
            self.biases.append(Bias())
            for stack in self.stacks:
                stack.linear.add_output()
        if self.counts[label] > 0:  # of another class no expert can have known
            # They are asked once: this is what takes the time of all tests against the reference.
            experts = self.experts(said)
            mean = self.mean_of(experts)
            both, biased = self.without_linear(mean), self.biased(mean)
            came = [count + 0.5 for count in self.counts if count > 0]
            by_labels = (self.counts[label] + 0.5) / sum(came)
            for expert, weight in self.weights.items():
                posterior = weight * experts[expert][label] / mean[label]
                self.weights[expert] = (1 - SHARE) * posterior + SHARE / len(EXPERTS)
            self.unbiased = (1 - BIAS_SHARE) * self.unbiased * mean[label] / both[label] + BIAS_SHARE / 2
            for k, bias in enumerate(self.biases):
                bias.learn(biased[k], came=k == label)
            below = both
            for stack in self.stacks:
                above = stack.forecast(below, x, self.counted())
                stack.learn(below, label, x, self.counted())
                below = above
            self.losses.add(*(-math.log(p) for p in (below[label], said[:, label].mean(), by_labels)))
        for stack in self.stacks:
            stack.linear.note(x)
        self.counts = [KEPT * count for count in self.counts]
        self.counts[label] += 1


class CalibratedForest:
    """A forest of reference trees and the calibration of what they say."""

    def __init__(self, forest: ReferenceForest) -> None:
        self.trees = forest.trees
        self.calibration = ReferenceCalibration(forest.n_classes, forest.trees[0].n_features)

    def said(self, x: np.ndarray) -> np.ndarray:
        """(n_trees, K)"""
        return np.array([tree.predict(x) for tree in self.trees])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.calibration.forecast(self.said(x), x)

    def learn(self, x: np.ndarray, y: int) -> None:
        if y == -1:
            return
        self.calibration.learn(self.said(x), y, x)
        for tree in self.trees:
            tree.learn(x, y)

    def predict_learn(self, points: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row by row the forecast before learning, and the plain mean over trees: (n, K at the end), 0 as padding."""
        rows = []
        for x, label in zip(points, labels, strict=True):
            rows.append((self.predict(x), self.said(x).mean(axis=0)))
            self.learn(x, int(label))
        n_classes = len(self.calibration.counts)
        calibrated, raw = (
            [np.pad(row, (0, n_classes - len(row))) for row in column] for column in zip(*rows, strict=True)
        )
        return np.array(calibrated), np.array(raw)
