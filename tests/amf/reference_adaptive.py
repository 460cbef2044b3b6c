"""A slow, readable adaptive forest of classes: trees of reference.py, with feature weights and background trees.

It says what adaptation.py promises: what each step down a tree gains, what each feature tells alone, how both become
weights, when trees rehearse, and which tree replaces which. Sums are plain Python, so that weights are compared up to
rounding, but births and roles exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from reference import ReferenceTree, SplitMix64

LARGEST_LOG = math.log(64.0)


def bins_of(values: list[float], x: np.ndarray) -> np.ndarray:
    """The bins of x, of a feature that has had these values: its quartiles are those of some of its moves."""
    moves = [pair for pair in pairwise(values) if pair[0] != pair[1]]
    stride = 1
    while len(moves) > 16 * stride:
        stride *= 2
    some = sorted(value for pair in moves[::stride] for value in pair)
    bounds = [0.0, 0.0, 0.0]
    if some:
        bounds = [(some[max(at - 1, 0)] + some[at]) / 2.0 for at in (k * len(some) // 4 for k in (1, 2, 3))]
    return np.sum([x > bound for bound in bounds], axis=0)


def gain_of(table: np.ndarray) -> float:
    """What a feature gains by itself, of counts (bins, classes)."""
    n = max(table.sum(), 1.0)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / n
    there = table > 0.0
    ratio = 2.0 * float(np.sum(table[there] * np.log(table[there] / expected[there])))
    bins, classes = (np.count_nonzero(table.sum(axis=axis) > 0.0) for axis in (1, 0))
    freedom = max(bins - 1, 0) * max(classes - 1, 0)
    return max(ratio - freedom - 3.0 * math.sqrt(2.0 * freedom), 0.0) / (2.0 * n)


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
    """Labels are 0 .. n_classes - 1; the scales of features have no weights."""

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
        self.samples: list[tuple[np.ndarray, int]] = []
        self.tables = np.zeros((n_features, 4, n_classes))
        self.known: list[list[float]] = [[] for _ in range(n_features)]
        """Values of each feature at the last review, of which the bounds of its bins are made."""

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
        self.count(x, y)
        self.samples.append((x, y))
        self.n_samples += 1
        if self.n_samples % self.every == 0:
            self.known = [list(values) for values in (np.array([row for row, _ in self.samples]).T).tolist()]
            n_reviews = self.n_samples // self.every
            rehearses = self.n_samples <= 512 and n_reviews & (n_reviews - 1) == 0
            if rehearses:
                self.tables[:] = 0.0
                for sample in self.samples:
                    self.count(*sample)
            self.weigh_features()
            self.tables *= 0.97
            if rehearses:
                self.rehearse()
            else:
                self.replace_trees()

    def count(self, x: np.ndarray, y: int) -> None:
        for j, values in enumerate(self.known):
            self.tables[j, int(bins_of(values, x[j : j + 1])[0]), y] += 1.0

    def rehearse(self) -> None:
        """All trees learn all samples once more."""
        for place in self.places:
            place.tree, place.birth, place.losses = self.new(place.tree.rng.word), 0, []
            place.asked = True
            place.tree.weights = self.weights.astype(np.float32)
            for sample in self.samples:
                place.tree.learn(*sample)

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
        varied = np.array([len({*values}) > 1 for values in self.known])
        by_splits = varied * (np.maximum(self.gains, 0.0) / (self.steps + prior)) ** 0.25
        alone = varied * np.array([gain_of(table) for table in self.tables]) ** 0.25
        found = [gains / gains.sum() for gains in (alone, by_splits) if gains.sum() > 0.0]
        self.weights = np.ones_like(self.gains)
        if found:
            self.weights[varied] = (0.05 + 0.95 * varied.sum() * np.mean(found, axis=0))[varied]

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
