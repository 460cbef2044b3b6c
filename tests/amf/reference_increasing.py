"""Slow, readable Mondrian forests with increasing lifetime ([rates]): the oracles that their kernels are compared with.

A tree draws its Mondrian without end, sample by sample, as ReferenceTree does with `split_pure`. Its leaves at a time
are the nodes at which a sample arrives that passes all earlier splits. On the cube nothing is grown: for each forecast
the cell of the sample at the lifetime is cut out of the cube anew, and all samples so far are asked whether they lie in
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from reference import Node, ReferenceTree, SplitMix64
from reference_regression import RegressionTree
from reference_unrestricted import Box, cut_of, halves


class Shown:
    """The leaves of a tree at the lifetime that belongs to the samples it has learned.

    exponent: None for 1 / (features in which samples differed + 2).
    """

    first = 1.0
    exponent: float | None = None

    @property
    def lifetime_now(self) -> float:
        varied = np.count_nonzero(self.root.lo < self.root.hi)
        return self.first * self.root.n ** (1 / (varied + 2) if self.exponent is None else self.exponent)

    @property
    def grows_until(self) -> float:
        """No split is drawn that would never be shown."""
        return self.first if self.exponent == 0.0 else math.inf

    def leaf(self, x: np.ndarray) -> tuple[Node, int]:
        """The leaf of `x` (n_features,), and its depth."""
        x, node, depth = np.asarray(x, np.float32), self.root, 0
        while not node.is_leaf and node.time < self.lifetime_now:
            node, depth = node.child_of(x), depth + 1
        return node, depth


class IncreasingTree(Shown, ReferenceTree):
    """One tree of classes."""

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        n_classes: int,
        *,
        lifetime: float = 1.0,
        lifetime_exponent: float | None = None,
        combine: str = "average",
    ) -> None:
        self.first, self.exponent, self.votes = lifetime, lifetime_exponent, combine == "vote"
        super().__init__(seed_word, n_features, n_classes, split_pure=True, lifetime=self.grows_until)

    def predict(self, x: np.ndarray) -> np.ndarray:
        if self.root is None:
            return np.full(self.n_classes, 1 / self.n_classes)
        leaf, _ = self.leaf(x)
        if self.votes:
            return np.eye(self.n_classes)[np.argmax(leaf.counts)]
        return leaf.counts / leaf.n


class IncreasingNumberTree(Shown, RegressionTree):
    """One tree of numbers."""

    def __init__(
        self, seed_word: int, n_features: int, *, lifetime: float = 1.0, lifetime_exponent: float | None = None
    ) -> None:
        self.first, self.exponent = lifetime, lifetime_exponent
        super().__init__(seed_word, n_features, split_pure=True, lifetime=self.grows_until)

    def predict_mean(self, x: np.ndarray) -> float:
        return self.leaf(x)[0].counts.mean


class CubeTree:
    """One tree on [0, 1]^d. Labels are numbers; `says` makes a forecast of those in a cell."""

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        *,
        lifetime: float = 1.0,
        lifetime_exponent: float | None = None,
        empty_cells: str = "parent",
    ) -> None:
        self.word, self.n_features, self.first, self.inherits = seed_word, n_features, lifetime, empty_cells == "parent"
        self.exponent = 1 / (n_features + 2) if lifetime_exponent is None else lifetime_exponent
        self.points, self.labels = np.empty((0, n_features), np.float32), np.empty(0)

    def learn(self, x: np.ndarray, y: float) -> None:
        self.points, self.labels = np.vstack([self.points, np.float32(x)]), np.append(self.labels, y)

    def cells(self, x: np.ndarray) -> Iterator[Box]:
        """The cells of `x` from the cube to that at the lifetime, each cut from the one before."""
        lifetime = self.first * len(self.labels) ** self.exponent
        box, time = (np.zeros(self.n_features, np.float32), np.ones(self.n_features, np.float32)), 0.0
        while True:
            yield box
            cut = cut_of(*box, self.word)
            time += cut.duration
            if time >= lifetime:
                return
            box = halves(*box, cut)[int(x[cut.feature] > cut.threshold)]

    def labels_in(self, box: Box) -> np.ndarray:
        return self.labels[((box[0] <= self.points) & (self.points <= box[1])).all(axis=1)]

    def labels_at(self, x: np.ndarray) -> np.ndarray:
        """What the forecast for `x` is made of; nothing where an empty cell says 0."""
        found = [self.labels_in(box) for box in self.cells(np.float32(x))]
        return next(labels for labels in reversed(found) if len(labels)) if self.inherits else found[-1]

    def depth(self, x: np.ndarray) -> int:
        """Cuts above the cell of `x` that part samples, or `x` from all of them."""
        sizes = [len(self.labels_in(box)) for box in self.cells(np.float32(x))]
        return sum(size > below for size, below in pairwise(sizes))


def words_of(seed: int, n_estimators: int) -> list[int]:
    """Seed words of the trees of a forest."""
    words = SplitMix64(seed)
    return [words.next() for _ in range(n_estimators)]
