"""A slow, readable AMF regressor: the trees of reference.py with labels that are numbers ([AMF] Eq. 4, Alg. 3-6).

A node forecasts the mean of its labels. What it is charged for a label decides how much it weighs, loss = ...

    "student"   minus the log of a Student density with 3 degrees of freedom about the mean, whose variance is shrunk to
                that of the parent. It needs no bound, and units and zero of the labels do not matter. The first sample
                of a fresh leaf pays half the way from that density of its parent, at the label, to its peak.
    "square"    (mean - y)**2 / (8 bound**2), as in the paper; the mean of no label is 0.

                Both mean and y count as the end of [-bound, bound] where they are beyond it.

With `charge_first` the first sample pays in full: the density that the parent gave to it, or y**2 / (8 bound**2).
What a forest makes of its trees is in reference_number_calibration.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from reference import Node, ReferenceTree, SplitMix64
from reference_calibration import RecentLosses
from reference_number_calibration import Blend, Drift, Outlook, Quantiles, Ridge, Stack, Surface
from reference_stacking import SHAPES, LinearModel

PARENT_LABELS = 3
SMALLEST_SHARE = 1e-60


@dataclass
class Labels:
    """Number, mean and sum of squared deviations of the labels of a node, where ReferenceTree has its class counts."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    def add(self, y: float) -> None:
        """Welford's update."""
        self.n += 1
        delta = y - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (y - self.mean)

    def copy(self) -> Labels:
        return Labels(self.n, self.mean, self.m2)

    def sum(self) -> int:
        return self.n

    def __getitem__(self, y: float) -> int:
        """How many labels equal `y`, as far as pausing asks: all or not all."""
        return self.n if self.m2 == 0.0 and self.mean == y else 0


class Mean(float):
    """A forecast. A single number has no probability, so that inner nodes never pause for a label."""

    def __getitem__(self, y: float) -> float:
        return 0.0


class RegressionTree(ReferenceTree):
    """One tree; labels are finite floats, NaN means no label."""

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        *,
        loss: Literal["student", "square"] = "student",
        bound: float | None = None,
        **options: object,
    ) -> None:
        super().__init__(seed_word, n_features, n_classes=1, **options)
        self.loss = loss
        self.bound = bound

    def fresh_leaf(self, x: np.ndarray) -> Node:
        self.n_nodes += 1
        return Node(lo=x.copy(), hi=x.copy(), counts=Labels())

    def forecast(self, node: Node | None, above: Mean | None = None) -> Mean:
        """What `node` alone forecasts; above the root, None: nothing is known."""
        return Mean(math.nan if node is None else node.counts.mean)

    def variance(self, node: Node) -> float:
        """Of a label at `node`: its parent's variance counts like that of three more labels."""
        if node.parent is None:
            return node.counts.m2 / max(node.n - 1, 1)
        return (node.counts.m2 + PARENT_LABELS * self.variance(node.parent)) / (node.n + PARENT_LABELS)

    def outlook(self, x: np.ndarray) -> Outlook | None:
        """None before the first label."""
        if self.root is None:
            return None
        origin = self.forecast(self.root)
        stops = [(reach * node.stop_probability, node) for node, reach in self.path(x)]
        mean = sum(share * (self.forecast(node) - origin) for share, node in stops)
        variance = sum(
            share * (self.variance(node) + (self.forecast(node) - origin - mean) ** 2) for share, node in stops
        )
        return Outlook(origin, mean, self.forecast(stops[-1][1]) - origin, variance)

    def student_share(self, node: Node, y: float) -> float:
        """Between 0 (far away) and 1/3 (at the peak); the density is its square over sqrt(variance)."""
        variance = self.variance(node)
        return max(variance / (3 * variance + (y - self.forecast(node)) ** 2), SMALLEST_SHARE)

    def log_forecast(self, node: Node, y: float) -> float:
        """Log of what `node` gives to `y`, before it counts it; up to a constant of the whole tree."""
        if self.loss == "square":
            pays = node.n > 0 or self.charge_first
            return -((self.within(self.forecast(node)) - self.within(y)) ** 2) / (8 * self.bound**2) if pays else 0.0
        if node.n == 0:
            return 0.0 if node.parent is None else self.log_first_forecast(node.parent, y)
        if self.variance(node) == 0:
            return 0.0
        return 2 * math.log(self.student_share(node, y)) - math.log(self.variance(node)) / 2

    def within(self, y: float) -> float:
        """The number of [-bound, bound] that is next to `y`."""
        return min(max(y, -self.bound), self.bound)

    def log_first_forecast(self, parent: Node, y: float) -> float:
        """What a fresh leaf under `parent` gives to its first label."""
        if self.charge_first or self.variance(parent) == 0:
            return self.log_forecast(parent, y)
        return math.log(self.student_share(parent, y) / 3) - math.log(self.variance(parent)) / 2

    def learn(self, x: np.ndarray, y: float) -> None:
        if not math.isnan(y):
            self.count(self.insert(np.asarray(x, dtype=np.float32), y), y)

    def count(self, leaf: Node, y: float) -> None:
        # From the leaf up: what a node gives to the label depends on its ancestors, which must not have counted it.
        for node in leaf.lineage():
            node.lw += self.log_forecast(node, y)
            node.counts.add(y)
            node.refresh()


class Forecast(NamedTuple):
    """Of a forest at one sample: mean, mean before calibration, standard deviation, and quantiles 0.05, 0.5, 0.95."""

    mean: float
    raw_mean: float
    std: float
    quantiles: tuple[float, float, float]


class RegressionForest:
    """`n_estimators` independent trees. Without `calibration` the forecast is the mean of their averages over prunings,
    and the spread that of their mixture."""

    def __init__(
        self, seed: int, n_estimators: int, n_features: int, *, calibration: bool = True, **options: object
    ) -> None:
        words = SplitMix64(seed)
        self.trees = [RegressionTree(words.next(), n_features, **options) for _ in range(n_estimators)]
        self.calibration = calibration
        self.blend, self.drift, self.quantiles, self.losses = Blend(), Drift(), Quantiles(), RecentLosses()
        linear, bounds = [LinearModel(1, n_features, each) for each in SHAPES], self.quantiles.bounds
        solved = [Ridge(bounds, n_features=n_features), Surface(bounds, n_features=n_features)]
        self.stacks = [*(Stack(bounds, linear=model) for model in linear), *solved]

    def outlook(self, x: np.ndarray) -> Outlook | None:
        """Of the mixture of all trees; their origins are the same number."""
        said = [tree.outlook(x) for tree in self.trees]
        if said[0] is None:
            return None
        mean, leaf, variance = (sum(column) / len(said) for column in list(zip(*said, strict=True))[1:])
        between = sum((one.mean - mean) ** 2 for one in said) / len(said)
        return Outlook(said[0].origin, mean, leaf, variance + between)

    def centre(self, outlook: Outlook, x: np.ndarray) -> float:
        if not self.calibration:
            return outlook.origin + outlook.mean
        return self.below_stacks(outlook, x)[-1]

    def below_stacks(self, outlook: Outlook, x: np.ndarray) -> list[float]:
        """What is below each model, and at last what is above all of them."""
        said = [self.without_linear(outlook)]
        for stack in self.stacks:
            said.append(stack.forecast(x, said[-1], self.blend.usual))
        return said

    def without_linear(self, outlook: Outlook) -> float:
        return self.blend.forecast(outlook) + self.drift.forecast()

    def scale(self, outlook: Outlook) -> float:
        """Within bounds that follow from the usual error, however sure or unsure the trees are."""
        if not self.calibration or self.blend.usual == 0:
            return math.sqrt(outlook.variance)
        return math.sqrt(min(outlook.variance, 2**14 * self.blend.usual) + self.blend.usual / 64)

    def predict(self, x: np.ndarray) -> Forecast:
        outlook = self.outlook(x)
        if outlook is None:
            return Forecast(math.nan, math.nan, math.nan, (math.nan, math.nan, math.nan))
        mean, scale = self.centre(outlook, x), self.scale(outlook)
        usual = self.blend.usual if self.calibration else math.inf
        three, std = self.quantiles.three(mean, scale, usual), self.quantiles.std(mean, scale, usual)
        return Forecast(self.quantiles.bounds.apply(mean), outlook.origin + outlook.mean, std, three)

    def weighted_depth(self, x: np.ndarray) -> float:
        return sum(tree.weighted_depth(x) for tree in self.trees) / len(self.trees)

    def learn(self, x: np.ndarray, y: float) -> None:
        if math.isnan(y):
            return
        outlook, share = self.outlook(x), 1.0
        if outlook is not None and self.calibration:
            centre, blend, usual = self.centre(outlook, x), self.blend.forecast(outlook), self.blend.usual
            forecasts = self.quantiles.bounds.apply(centre), outlook.origin + outlook.mean, self.blend.mean
            self.losses.add(*((forecast - y) ** 2 for forecast in forecasts))
            self.quantiles.learn(centre, self.scale(outlook), y, usual)
            if usual > 0:
                weight = 1 / (16 * usual + (y - blend) ** 2)
                share = 16 * usual * weight
                for stack, below in zip(self.stacks, self.below_stacks(outlook, x), strict=False):
                    stack.learn(x, below, y, usual, weight)
            self.drift.learn(y - blend, usual)
            self.blend.learn(outlook, y, self.quantiles.missed)
        usual, median = self.blend.usual if self.calibration else 0.0, self.quantiles.labels.centre
        for stack in self.stacks:
            stack.note(x, y, share, usual, median)
        self.quantiles.labels.learn(y)
        self.quantiles.bounds.labels.append(y)
        self.blend.count(y)
        for tree in self.trees:
            tree.learn(x, y)

    def predict_learn(self, points: np.ndarray, labels: np.ndarray) -> list[Forecast]:
        """Row by row the forecast before learning."""
        forecasts = []
        for x, y in zip(points, labels, strict=True):
            forecasts.append(self.predict(x))
            self.learn(x, float(y))
        return forecasts
