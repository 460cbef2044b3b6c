"""What a forest looks like and what its forecasts rest on, as means over the samples that it has learned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration.losses import Losses
from amf.inputs.labels import Label
from amf.jit.decorators import index, kernel
from amf.kernels.aggregation import LARGEST_ODDS, stop_probability
from amf.memory.arena import CHILD, COUNT, FEATURE, ODDS, ROOT, Arena, chunk_end, row_of

Role = Literal["active", "standing-by", "silent"]


class TreeStanding(NamedTuple):
    """How a tree of a forest that adapts stands beside the others (tree_roles.py)."""

    role: Role
    """Forecasts are made of the active trees and of those that stand by; silent ones are young, or too far behind, or
    wait while others are tried."""
    age: int
    """Labelled samples since it began, or began anew."""
    loss: float | None
    """Recent mean loss of its own forecasts: log-loss, or squared error of numbers; None before there was any."""


class Adaptation(NamedTuple):
    """How a forest that adapts has changed with its samples (adaptation/)."""

    n_forecasting: int
    """Trees that forecasts are made of; the others are young, too far behind, or wait while others are tried."""
    n_swaps: int
    """How often a tree was replaced by one of the background."""
    feature_weights: tuple[float, ...]
    """Of each feature in the rate of cuts, 1 in the mean of those that vary, 0 for those that do not."""
    trees: tuple[TreeStanding, ...]

    def __str__(self) -> str:
        return f"{self.n_forecasting} trees forecast, {self.n_swaps} were replaced so far"


@dataclass(frozen=True, slots=True)
class Description:
    """A forest in numbers."""

    n_trees: int
    n_samples: int
    """Labelled samples learned."""
    n_features: int
    n_nodes: int
    """Over all trees."""
    n_leaves: int
    mean_depth: float
    """Depth of the leaf of a learned sample, mean over samples and trees."""
    max_depth: int
    mean_weighted_depth: float
    """Depth at which the averaged prunings end for a learned sample, mean over samples and trees."""
    nbytes: int
    """Memory held by the forest's arrays."""
    classes: tuple[Label, ...] | None
    """None where labels are numbers."""
    losses: Losses | None
    """Recent mean losses (losses.py): is the forest better than knowing the labels alone? None without calibration."""
    adaptation: Adaptation | None = None
    """None where a forest does not adapt."""

    def __str__(self) -> str:
        learned = f"{self.n_trees} trees that learned {self.n_samples:,} samples of {self.n_features} features"
        size = f"{self.n_nodes:,} nodes ({self.n_leaves:,} leaves) in {self.nbytes / 1e6:.1f} MB"
        leaf, cut = f"{self.mean_depth:.1f} in the mean, {self.max_depth} at most", f"{self.mean_weighted_depth:.1f}"
        classes = "" if self.classes is None else f"; classes {', '.join(map(str, self.classes))}"
        losses = "" if self.losses is None else f"; {self.losses}"
        changes = "" if self.adaptation is None else f"; {self.adaptation}"
        return f"{learned}; {size}; depth {leaf}, weighted {cut}{classes}{losses}{changes}"


class Survey(NamedTuple):
    """What one pass over all nodes finds, means over trees."""

    usage: NDArray[np.float64]
    max_depth: int
    mean_weighted_depth: float
    n_leaves: int


def survey(trees: Iterable[NDArray[np.int32]], n_features: int) -> Survey:
    """Look at every node of the trees once, given by their heads (arena.py); CHILD counts from 0 at the root.

    usage: float64 (d,), for each feature the share of the learned samples' posterior that goes on at a split on it,
    (samples below the split / samples) * P(the pruning reaches it and goes on), summed over its splits.
    """
    usage = np.zeros(n_features)
    totals = np.zeros(3)
    grown = 0
    for heads in trees:
        if heads.size:
            grown += 1
            flat = heads.reshape(-1)
            _visit(flat, flat.view(np.float64), heads.shape[1], usage, totals)
    means = totals / max(grown, 1)
    return Survey(usage / max(grown, 1), int(totals[0]), float(means[1]), int(totals[2]))


def end_at(heads: NDArray[np.int32], hides: NDArray[np.bool_]) -> None:
    """Let forecasts end at the nodes (n,) that hide what is below them: `survey` takes them for leaves.

    heads: (n, words) of a tree, which are changed.
    """
    heads.view(np.float64)[hides & (heads[:, CHILD] > 0), ODDS] = LARGEST_ODDS


def mean_depth(arena: Arena) -> float:
    """Depth of the leaf of a learned sample, mean over samples and trees; 0 before the first sample.

    A sample is one deeper for every split that it has passed, so no way down a tree needs to be walked.
    """
    return float(_mean_depth(arena.ints, arena.used, index(arena.layout.head)))


@kernel
def _visit(ints, reals, words, usage, totals):
    """Add one tree: its usage, and to totals the largest depth, the mean weighted depth, the leaves."""
    samples = max(ints[COUNT], 1)
    nodes, depths, reaches = [0], [0], [1.0]
    while len(nodes) > 0:
        here, depth, reach = nodes.pop() * words, depths.pop(), reaches.pop()
        child, share = ints[here + CHILD], ints[here + COUNT] / samples
        if child == 0:
            totals[0] = max(totals[0], depth)
            totals[2] += 1
            continue
        goes_on = reach * (1.0 - stop_probability(reals[here // 2 + ODDS]))
        usage[ints[here + FEATURE]] += share * goes_on
        totals[1] += share * goes_on
        for side in range(2):
            nodes.append(child + side)
            depths.append(depth + 1)
            reaches.append(goes_on)


@kernel
def _mean_depth(ints, used, words):
    n_trees, depth = index(used.shape[0]), 0.0
    for tree in range(n_trees):
        number, passed = ROOT, 0
        while number < used[tree]:
            stop, row = chunk_end(number, used[tree]), row_of(number, tree, n_trees)
            for here in range(row * words, (row + stop - number) * words, words):
                if ints[here + CHILD] != 0:
                    passed += ints[here + COUNT]
            number = stop
        if passed > 0:
            depth += passed / ints[row_of(ROOT, tree, n_trees) * words + COUNT]
    return depth / n_trees
