"""A slow, readable adaptive forest of classes: trees of reference.py, with feature weights and background trees.

It says what adaptation.py promises: what each step down a tree gains, how gains become weights, which tree replaces
which. Sums are plain Python, so that weights are compared up to rounding, but births and roles exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from reference import ReferenceTree, SplitMix64

LARGEST_LOG = math.log(64.0)


@dataclass
class Place:
    """A tree with its history. births: labelled samples before its first one."""

    tree: ReferenceTree
    active: bool
    asked: bool = True
    birth: int = 0
    losses: list[float] = field(default_factory=list)

    def loss(self, review_every: int) -> float:
        """Mean loss, the older ones for less."""
        kept = 1.0 - 1.0 / (6.0 * review_every)
        weights = kept ** np.arange(len(self.losses))[::-1]
        return float(weights @ self.losses) / max(float(weights.sum()), 1.0)


class AdaptiveForest:
    """Labels are 0 .. n_classes - 1; all features vary, and their scales have no weights."""

    def __init__(
        self, seed: int, n_trees: int, n_features: int, n_classes: int, background: float, every: int, **options: Any
    ) -> None:
        words, n_active = SplitMix64(seed), n_trees - int(background * n_trees)
        self.new = lambda word: ReferenceTree(word, n_features, n_classes, **options)
        self.places = [Place(self.new(words.next()), active=number < n_active) for number in range(n_trees)]
        self.every, self.n_samples, self.n_swaps = every, 0, 0
        self.weights = np.ones(n_features)
        self.gains, self.steps = np.zeros(n_features), np.zeros(n_features)
        self.new_gains, self.new_steps = np.zeros(n_features), np.zeros(n_features)

    def asked(self) -> list[ReferenceTree]:
        return [place.tree for place in self.places if place.asked]

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.mean([tree.predict(x) for tree in self.asked()], axis=0)

    def learn(self, x: np.ndarray, y: int) -> None:
        for place in self.places:
            place.losses.append(-math.log(min(max(place.tree.predict(x)[y], 1e-6), 1.0)))
            self.note_gains(place.tree, x, y)
            place.tree.weights = self.weights.astype(np.float32)
            place.tree.learn(x, y)
        self.n_samples += 1
        if self.n_samples % self.every == 0:
            self.weigh_features()
            self.replace_trees()

    def note_gains(self, tree: ReferenceTree, x: np.ndarray, y: int) -> None:
        """What each split on the way of the sample made of the forecast of its label."""
        path = list(tree.path(x)) if tree.root is not None else []
        for (parent, _), (child, reach) in pairwise(path):
            gain = math.log(tree.forecast(child)[y] / tree.forecast(parent)[y])
            self.new_gains[parent.feature] += reach * min(max(gain, -LARGEST_LOG), LARGEST_LOG)
            self.new_steps[parent.feature] += reach

    def weigh_features(self) -> None:
        self.gains, self.steps = 0.97 * self.gains + self.new_gains, 0.97 * self.steps + self.new_steps
        self.new_gains, self.new_steps = np.zeros_like(self.gains), np.zeros_like(self.gains)
        prior = 30.0 * len(self.places)
        mean = np.maximum(self.gains, 0.0).sum() / self.steps.sum() if self.steps.any() else 0.0
        told = (np.maximum(self.gains + prior * mean, 0.0) / (self.steps + prior)) ** 0.25
        shares = told * told.size / told.sum() if told.sum() > 0.0 else np.ones_like(told)
        self.weights = 0.05 + 0.95 * shares

    def replace_trees(self) -> None:
        for place in self.places:
            if self.may_be_judged(place) and place.loss(self.every) < self.mean_of_active():
                worst = max((each for each in self.places if each.active), key=lambda each: each.loss(self.every))
                place.active = True
                worst.tree, worst.active, worst.birth = self.new(worst.tree.rng.word), False, self.n_samples
                worst.losses = []
                self.n_swaps += 1
        for place in self.places:
            near = place.loss(self.every) <= 1.3 * self.mean_of_active()
            place.asked = place.active or (self.may_be_judged(place) and near)

    def may_be_judged(self, place: Place) -> bool:
        """Of those in the background; the first ones are as old as the active ones."""
        is_old = place.birth == 0 or self.n_samples - place.birth >= 2 * self.every
        return not place.active and is_old

    def mean_of_active(self) -> float:
        return float(np.mean([place.loss(self.every) for place in self.places if place.active]))
