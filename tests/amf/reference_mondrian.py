"""A slow, readable original Mondrian Forest ([MF]): the oracle that its kernels are compared with.

A tree draws its Mondrian to the end of the lifetime, sample by sample, as ReferenceTree does with `split_pure`. What a
forecast sees of it ends where [MF] has a leaf: at a node that has no children, whose labels all agree, or that has
fewer than `min_samples_split` of them. Customers and tables are counted anew from the labels of the leaves for each
forecast, and posteriors go down the tree as [MF] Eq. 5.5 writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from reference import Node, ReferenceForest, ReferenceTree, extensions, lane_sum
from reference_regression import RegressionTree


@dataclass(frozen=True)
class Step:
    """A node on the path of a sample as a forecast sees it. `leaves`: probability that the sample branches off here,
    given that it comes this far, at rate `rate`; `age`: time between birth and split of the node."""

    node: Node
    age: float
    rate: float
    is_leaf: bool

    @property
    def leaves(self) -> float:
        return -math.expm1(-self.rate * self.age) if self.rate > 0 else 0.0


class Shown:
    """What forecasts see of a tree that is split for every sample."""

    min_samples_split = 2
    pausing = True

    def agrees(self, node: Node) -> bool:
        """Whether all labels of the node agree."""
        return np.count_nonzero(node.counts) <= 1

    def is_shown_leaf(self, node: Node) -> bool:
        return node.is_leaf or node.n < self.min_samples_split or (self.pausing and self.agrees(node))

    def shown_leaves(self) -> list[Node]:
        """The leaves that forecasts see, from left to right."""

        def below(node: Node) -> list[Node]:
            return [node] if self.is_shown_leaf(node) else below(node.left) + below(node.right)

        return [] if self.root is None else below(self.root)

    def steps(self, x: np.ndarray) -> Iterator[Step]:
        """The path of `x`, (n_features,) float32, from the root."""
        node, birth = self.root, 0.0
        while True:
            rate, is_leaf = lane_sum(extensions(node, x, self.weights)), self.is_shown_leaf(node)
            yield Step(node, (self.lifetime if is_leaf else node.time) - birth, rate, is_leaf)
            if is_leaf:
                return
            birth, node = node.time, node.child_of(x)

    def depths(self, x: np.ndarray) -> tuple[float, float]:
        """Mean depths of `x` and of the node whose labels its forecast is made of."""
        depth = shown = 0.0
        remaining = 1.0
        for k, step in enumerate(self.steps(np.asarray(x, np.float32))):
            depth += remaining * step.leaves * (k + 1)
            shown += remaining * step.leaves * k
            remaining *= 1.0 - step.leaves
            last = k
        return depth + remaining * last, shown + remaining * last


class MondrianTree(Shown, ReferenceTree):
    """One tree of classes. discount: None for 10 times the number of features in which samples differed."""

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        n_classes: int,
        *,
        smoothing: str = "ikn",
        discount: float | None = None,
        min_samples_split: int = 2,
        split_pure: bool = False,
        lifetime: float | None = None,
        **options: object,
    ) -> None:
        lifetime = math.inf if lifetime is None else lifetime
        super().__init__(seed_word, n_features, n_classes, split_pure=True, lifetime=lifetime, **options)
        self.ikn, self.discount = smoothing == "ikn", discount
        self.min_samples_split, self.pausing = min_samples_split, not split_pure

    @property
    def gamma(self) -> float:
        return self.discount or 10.0 * max(np.count_nonzero(self.root.lo < self.root.hi), 1)

    def customers(self, node: Node) -> np.ndarray:
        """c of [MF], counted from the leaves upwards."""
        if self.is_shown_leaf(node):
            return node.counts
        return np.minimum(self.customers(node.left), 1) + np.minimum(self.customers(node.right), 1)

    def posterior(self, step: Step, above: np.ndarray) -> np.ndarray:
        """G of the node, from that of its parent ([MF] Eq. 5.5)."""
        c = self.customers(step.node)
        tables, d = np.minimum(c, 1), math.exp(-self.gamma * step.age)
        return (c - d * tables + d * tables.sum() * above) / c.sum()

    def mean_discount(self, step: Step) -> float:
        """Mean of exp(-gamma t) over the time t of the branching, an exponential one before the node's split."""
        return step.rate / (step.rate + self.gamma) * -math.expm1(-(step.rate + self.gamma) * step.age) / step.leaves

    def branched(self, step: Step, above: np.ndarray, discount: float) -> np.ndarray:
        """The posterior of the node that a sample makes which branches off."""
        tables = np.minimum(self.customers(step.node), 1)
        return (1.0 - discount) * tables / tables.sum() + discount * above

    def predict(self, x: np.ndarray) -> np.ndarray:
        """[MF] Alg. 5.8."""
        above = np.full(self.n_classes, 1 / self.n_classes)
        if self.root is None:
            return above
        total, remaining = np.zeros(self.n_classes), 1.0
        for step in self.steps(np.asarray(x, np.float32)):
            frequencies = step.node.counts / step.node.n
            if step.leaves > 0:
                branched = self.branched(step, above, self.mean_discount(step)) if self.ikn else frequencies
                total += remaining * step.leaves * branched
                remaining *= 1.0 - step.leaves
            above = self.posterior(step, above) if self.ikn else frequencies
        return total + remaining * above


class MondrianNumberTree(Shown, RegressionTree):
    """One tree of numbers."""

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        *,
        min_samples_split: int = 2,
        split_pure: bool = False,
        lifetime: float | None = None,
        **options: object,
    ) -> None:
        lifetime = math.inf if lifetime is None else lifetime
        super().__init__(seed_word, n_features, split_pure=True, lifetime=lifetime, **options)
        self.min_samples_split, self.pausing = min_samples_split, not split_pure

    def agrees(self, node: Node) -> bool:
        return node.counts.m2 == 0.0

    def predict_mean(self, x: np.ndarray) -> float:
        total, remaining = 0.0, 1.0
        for step in self.steps(np.asarray(x, np.float32)):
            total += remaining * step.leaves * step.node.counts.mean
            remaining *= 1.0 - step.leaves
        return total + remaining * step.node.counts.mean


class MondrianForest(ReferenceForest):
    """Independent trees; the forecast is their mean."""

    kind = MondrianTree


def drawn_at_once(
    x: np.ndarray, y: np.ndarray, lifetime: float, rng: np.random.Generator, birth: float = 0.0
) -> list[np.ndarray]:
    """[MF] Alg. 5.2 with pausing: the labels in each leaf of a Mondrian that is drawn on all samples together."""
    sides = x.max(axis=0) - x.min(axis=0)
    if len(np.unique(y)) == 1 or sides.sum() == 0:
        return [y]
    time = birth + rng.exponential(1 / sides.sum())
    if time >= lifetime:
        return [y]
    j = rng.choice(len(sides), p=sides / sides.sum())
    left = x[:, j] <= rng.uniform(x[:, j].min(), x[:, j].max())
    return [leaf for side in (left, ~left) for leaf in drawn_at_once(x[side], y[side], lifetime, rng, time)]


def samples(n, d, k, seed=0, missing=0.1, per_unit=4):
    """Samples on a grid, so that ties and duplicates occur, the first of them at 0; -1 is no label."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(-8, 8, (n, d)) / per_unit).astype(np.float32)
    points[rng.random((n, d)) < missing] = np.nan
    points[0] = 0.0
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, k, n), np.nan_to_num(points[:, 0]) > 0).astype(int)
    labels[rng.random(n) < 0.1] = -1
    labels[0] = 0
    return points, labels
