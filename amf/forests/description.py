"""What a forest looks like and what its forecasts rest on, as means over the samples that it has learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.calibration.losses import Losses
from amf.inputs.labels import Label
from amf.kernels.survey import Found

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
    """What one look at each node finds, means over trees."""

    usage: NDArray[np.float64]
    mean_depth: float
    mean_weighted_depth: float
    max_depth: int
    n_leaves: int
    lifetimes: NDArray[np.float64]

    @classmethod
    def of(cls, look: Callable[..., None], asked: NDArray[np.bool_], n_features: int) -> Survey:
        """What `look`, (asked, found), finds in the trees that are asked (survey.py)."""
        found = Found(np.zeros(n_features), np.zeros(3), np.zeros(2), np.zeros(asked.size))
        look(asked, found)
        (depth, weighted, largest), (grown, n_leaves) = found.depths.tolist(), found.counts.tolist()
        n_trees, grown = max(int(np.count_nonzero(asked)), 1), max(grown, 1.0)
        means = found.usage / grown, depth / n_trees, weighted / grown
        return cls(*means, int(largest), int(n_leaves), found.lifetimes)
