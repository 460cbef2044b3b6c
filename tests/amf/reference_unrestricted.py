"""A slow, readable unrestricted AMF on [0, 1]^d ([AMF] Alg. 1-3): every cell of the partition is a node of its own.

The infinite partition is a fixed object. A cell is a closed box of float32 numbers. Its word is that of the tree plus a
hash of each of its 2 d bounds; it seeds a SplitMix64 stream of three numbers: the uniform behind the exponential time
that the cell lasts, the one that picks the feature of its cut, the one that places the cut. The root is [0, 1]^d. A cut
at s in feature j leaves [lo_j, s] to the left and, since there is no float32 between, [next float32 after s, hi_j] to
the right: neither is ever empty, so that a cell shrinks with each cut, and any two float32 points separate. Cells that
MAX_CUTS cuts have made are not cut any more: points that are together there, extremely close, count as one. That is a
property of the partition and not of the order in which points come.

A learned tree is the part of the partition that separates the points seen: a leaf holds at most one distinct point.
When a second one arrives its cell is cut until they part. In each cut the side of the old point inherits what the cell
has learned, its counts and its weight, as if it had been there all along; the other side is fresh, with weight 1. That
changes no averaged weight: w = w/2 + (w * 1)/2. So the extended tree predicts what the infinite one would, and with
`charge_first` each forecast of a label is the factor by which its sample changes the root's averaged weight.

The prior of a cell, where that is its parent's forecast, is the forecast of the nearest cell above that holds more
samples: a chain of cells with the same samples is one node of the forecaster. Otherwise the forecast down a chain would
forget its prior, twice as surely with each cut that separates nothing. A forecast thus depends on the cell, on those
above, and on the samples; what a cell inherits is exactly what it would have been charged, since until then it and its
parent held the same samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from parts import log1p
from reference import (
    GOLDEN_GAMMA,
    UINT64_MASK,
    Node,
    ReferenceForest,
    ReferenceTree,
    SplitMix64,
    cut_in_gap,
    mix,
    pick_feature,
)

MAX_CUTS = 10_000


class Cut(NamedTuple):
    """What happens to a cell: it lasts for `duration`, then is cut."""

    duration: float
    feature: int
    threshold: np.float32


def word_of(lo: np.ndarray, hi: np.ndarray, tree_word: int) -> int:
    """The word of a cell: no two cells of a partition have the same bounds."""
    word = tree_word
    for place, bound in enumerate(np.concatenate([lo, hi]), 1):
        word += mix((int(bound.view(np.uint32)) + place * GOLDEN_GAMMA) & UINT64_MASK)
    return word & UINT64_MASK


def cut_of(lo: np.ndarray, hi: np.ndarray, tree_word: int) -> Cut:
    """The cut of a cell, a function of its bounds and of the word of its tree; of a single point: never."""
    rng = SplitMix64(word_of(lo, hi, tree_word))
    sides = [float(b) - float(a) for a, b in zip(lo, hi, strict=True)]
    size = 0.0
    for side in sides:
        size += side
    if size == 0.0:
        return Cut(math.inf, -1, np.float32(0))
    duration = -log1p(-rng.uniform()) / size
    feature = pick_feature(sides, rng.uniform() * size)
    return Cut(duration, feature, cut_in_gap(lo[feature], hi[feature], rng.uniform()))


Box = tuple[np.ndarray, np.ndarray]


def halves(lo: np.ndarray, hi: np.ndarray, cut: Cut) -> tuple[Box, Box]:
    """The boxes (lo, hi) that a cut leaves of a cell."""
    left_hi, right_lo = hi.copy(), lo.copy()
    left_hi[cut.feature], right_lo[cut.feature] = cut.threshold, np.nextafter(cut.threshold, np.float32(np.inf))
    return (lo, left_hi), (right_lo, hi)


@dataclass(eq=False)
class Cell(Node):
    """A node that covers its whole box, made by `n_cuts` cuts. `point`: what a leaf holds."""

    n_cuts: int = 0
    point: np.ndarray | None = None

    @property
    def birth(self) -> float:
        return 0.0 if self.parent is None else self.parent.time

    @property
    def is_held(self) -> bool:
        """Whether a sample, or one that is being predicted, lies in the cell."""
        return self.n > 0 or self.point is not None

    @property
    def branches(self) -> bool:
        return not self.is_leaf and self.left.is_held and self.right.is_held

    def inherit(self, other: Cell) -> None:
        """Take over what the cell above has learned."""
        self.counts, self.lw, self.lwb, self.point = other.counts.copy(), other.lw, other.lwb, other.point

    def cut(self, tree_word: int) -> None:
        """Replace this leaf by two; the side of its point inherits."""
        cut = cut_of(self.lo, self.hi, tree_word)
        self.time, self.feature, self.threshold = self.birth + cut.duration, cut.feature, cut.threshold
        self.left, self.right = (
            Cell(lo, hi, np.zeros_like(self.counts), parent=self, n_cuts=self.n_cuts + 1)
            for lo, hi in halves(self.lo, self.hi, cut)
        )
        if self.point is not None:
            self.child_of(self.point).inherit(self)
            self.point = None


class UnrestrictedTree(ReferenceTree):
    """One tree; `learn`, `predict`, `path`, `prunings` as of a ReferenceTree, whose options it takes as they apply."""

    def __init__(self, seed_word: int, n_features: int, n_classes: int, **options: object) -> None:
        super().__init__(seed_word, n_features, n_classes, **options)
        zero, one = np.zeros(n_features, np.float32), np.ones(n_features, np.float32)
        self.root: Cell = Cell(zero, one, np.zeros(n_classes, np.int64))

    def forecast(self, node: Cell | None, above: np.ndarray | None = None) -> np.ndarray:
        """Next above it, with the prior "parent", is the cell that holds more samples: `above` is not asked."""
        if node is None or self.prior == "dirichlet":
            return super().forecast(node)
        strength = self.smoothing * np.count_nonzero(node.counts) ** 2
        above = self.forecast(next((cell for cell in node.lineage() if cell.n > node.n), None))
        return above if strength == 0.0 else self.mixed(node, strength, above)

    def leaf(self, x: np.ndarray) -> Cell:
        node = self.root
        while not node.is_leaf:
            node = node.child_of(x)
        return node

    def insert(self, x: np.ndarray, y: int = -1) -> Cell:
        """Cut until `x` is alone in its leaf, which is returned, or with samples that count as the same point."""
        if x.shape != (self.n_features,) or not ((x >= 0) & (x <= 1)).all():
            raise ValueError(f"a sample has {self.n_features} numbers from 0 to 1, not {x}")
        leaf = self.leaf(x)
        while leaf.point is not None and (leaf.point != x).any() and leaf.n_cuts < MAX_CUTS:
            leaf.cut(self.rng.word)
            leaf = leaf.child_of(x)
        if leaf.point is None:
            leaf.point = x
        return leaf

    @contextmanager
    def extended(self, x: np.ndarray) -> Iterator[None]:
        """The tree with a leaf for `x` ([AMF] Alg. 3 line 2), for as long as it is needed."""
        leaf = self.leaf(x)
        point = leaf.point
        self.insert(x)
        try:
            yield
        finally:
            leaf.left = leaf.right = None
            leaf.point, leaf.time, leaf.feature, leaf.threshold = point, math.inf, -1, 0.0

    def predict(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, dtype=np.float32)
        with self.extended(x):
            return super().predict(x)

    def branchings(self) -> list[Cell]:
        """The leaves that are held and the cells with samples on both sides of their cut, in order."""
        return [cell for cell in self.nodes() if cell.branches or (cell.is_leaf and cell.is_held)]

    def weighted_depth(self, x: np.ndarray) -> float:
        """Posterior mean over prunings of the number of cuts above the end of `x` that separate samples, or `x`."""
        x = np.asarray(x, dtype=np.float32)
        with self.extended(x):
            mean, depth = 0.0, 0
            for cell, reach in self.path(x):
                mean += reach * cell.stop_probability * depth
                depth += cell.branches
            return mean

    def depth(self, x: np.ndarray) -> int:
        """Number of cuts above the leaf of `x` that separate samples, or `x`."""
        x = np.asarray(x, dtype=np.float32)
        with self.extended(x):
            return sum(cell.branches for cell, _ in self.path(x))


class UnrestrictedForest(ReferenceForest):
    """Independent trees, each with a partition of its own; the forecast is their mean."""

    kind = UnrestrictedTree


def cells_at(tree_word: int, n_features: int, lifetime: float) -> list[Box]:
    """The cells (lo, hi) of a partition at a time: a Mondrian of [0, 1]^d ([AMF] Alg. 1 up to that lifetime)."""
    found = []
    waiting = [((np.zeros(n_features, np.float32), np.ones(n_features, np.float32)), 0.0)]
    while waiting:
        box, birth = waiting.pop()
        cut = cut_of(*box, tree_word)
        end = birth + cut.duration
        if end > lifetime:
            found.append(box)
        else:
            waiting += [(half, end) for half in halves(*box, cut)]
    return found
