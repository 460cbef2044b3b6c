"""A slow, readable Aggregated Mondrian Forest classifier: the oracle that the compiled kernels are compared with.

Two layers, of two different exactnesses:

* The structure (boxes, cuts, split times, counts, random draws) follows the contract of the kernels operation by
  operation, float32 where they use float32, so that trees are compared bit for bit.
* The aggregation keeps, as the paper does, the log weight `lw` and the log averaged weight `lwb` of each node, where
  the kernels keep one number, the odds of stopping. Forecasts are therefore compared up to rounding.

`average_over_prunings` knows neither recursion nor odds: it is the definition of the average, for small trees.
Paper: Mourtada, Gaiffas, Scornet, "AMF: Aggregated Mondrian Forests for Online Learning", Algorithms 3 to 6, log-loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from parts import log1p

N_LANES = 8
UNIFORM_SHARE = 1e-4
UINT64_MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finaliser of SplitMix64: a bijection of the 64-bit words."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & UINT64_MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & UINT64_MASK
    return z ^ (z >> 31)


class SplitMix64:
    """A generator whose whole state is one 64-bit word."""

    def __init__(self, word: int) -> None:
        self.word = word & UINT64_MASK

    def next(self) -> int:
        self.word = (self.word + GOLDEN_GAMMA) & UINT64_MASK
        return mix(self.word)

    def uniform(self) -> float:
        """The upper 53 bits of the next word, as a float64 in [0, 1)."""
        return (self.next() >> 11) * 2.0**-53


@dataclass(eq=False)
class Node:
    """One node; a leaf has no children, `feature` -1 and `time` inf. The box is float32, NaN where nothing was seen."""

    lo: np.ndarray
    hi: np.ndarray
    counts: np.ndarray
    lw: float = 0.0
    lwb: float = 0.0
    time: float = math.inf
    feature: int = -1
    threshold: float = 0.0
    parent: Node | None = None
    left: Node | None = None
    right: Node | None = None

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @property
    def is_leaf(self) -> bool:
        return self.left is None

    @property
    def stop_probability(self) -> float:
        """Posterior probability that a pruning stops here, given that it comes this far."""
        return 1.0 if self.is_leaf else 0.5 * math.exp(self.lw - self.lwb)

    def lineage(self) -> Iterator[Node]:
        """This node, its parent, and so on up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def child_of(self, x: np.ndarray) -> Node:
        """The child on the side of `x`; where the value is missing, the child that has seen more samples, ties left."""
        value = x[self.feature]
        goes_left = self.left.n >= self.right.n if np.isnan(value) else value <= self.threshold
        return self.left if goes_left else self.right

    def widen(self, x: np.ndarray) -> None:
        """Extend the box by `x`, in place; a missing value leaves its bounds, the first finite one sets them."""
        for j, value in enumerate(x):
            if np.isnan(value):
                continue
            if np.isnan(self.lo[j]):
                self.lo[j] = self.hi[j] = value
            self.lo[j] = min(self.lo[j], value)
            self.hi[j] = max(self.hi[j], value)

    def refresh(self) -> None:
        """Recompute the averaged weight from this node's weight and its children's averaged weights."""
        if self.is_leaf:
            self.lwb = self.lw
        else:
            self.lwb = float(np.logaddexp(self.lw, self.left.lwb + self.right.lwb)) - math.log(2)


def extensions(node: Node, x: np.ndarray, weights: np.ndarray) -> list[np.float32]:
    """How far `x` lies outside the box in each feature, times the weight of the feature, in float32."""
    result = []
    with np.errstate(over="ignore"):
        for value, lo, hi, weight in zip(x, node.lo, node.hi, weights, strict=True):
            beyond = np.float32(0)
            if value > hi:
                beyond = value - hi
            elif value < lo:
                beyond = lo - value
            result.append(weight * beyond)
    return result


def lane_sum(terms: list[np.float32]) -> float:
    """Sum in the order of eight float32 lanes, which is part of the contract: another order gives other bits."""
    lanes = [np.float32(0)] * N_LANES
    with np.errstate(over="ignore"):
        for j, term in enumerate(terms):
            lanes[j % N_LANES] += term
        l0, l1, l2, l3, l4, l5, l6, l7 = lanes
        return float(((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)))


def pick_feature(terms: list[np.float32], target: float) -> int:
    """The first feature at which the running float64 sum of the positive terms exceeds `target`, else the last one."""
    total = 0.0
    chosen = -1
    for j, term in enumerate(terms):
        if term > 0:
            chosen = j
            total += float(term)
            if total > target:
                break
    return chosen


def cut_in_gap(lower: np.float32, upper: np.float32, u: float) -> np.float32:
    """A float32 threshold with lower <= threshold < upper, uniform up to rounding."""
    threshold = np.float32(float(lower) + u * (float(upper) - float(lower)))
    return np.nextafter(upper, np.float32(-np.inf)) if threshold >= upper else threshold


class ReferenceTree:
    """One tree. Labels are 0 .. n_classes - 1; the label `n_classes` makes a new class; -1 means no label.

    Parameters: `prior` says what a node forecasts beside its own counts: "dirichlet" adds `dirichlet` to each
    count, "parent" adds the forecast of its current parent, in which UNIFORM_SHARE of the uniform one is mixed
    (above the root there is but that), with the weight smoothing * m^2, m being the number of different labels it
    has seen. Without `charge_first` the first sample of a node costs it nothing. With `split_pure` a leaf splits
    even if it has seen one label only; without, if it was born, by the split of its parent, before purity / number
    of features in which the samples of the tree differed. An inner node that gives its label at least `pause` is
    not split for a sample. No node splits at `lifetime` or later. `weights` (float32, one per feature, all ones by
    default) may be assigned anew between samples. With fewer than two free slots below `max_nodes` the tree stops
    splitting.
    """

    def __init__(
        self,
        seed_word: int,
        n_features: int,
        n_classes: int,
        *,
        prior: Literal["dirichlet", "parent"] = "dirichlet",
        dirichlet: float = 0.5,
        smoothing: float = 1.5,
        charge_first: bool = False,
        split_pure: bool = False,
        purity: float = 16.0,
        pause: float = 0.7,
        lifetime: float = math.inf,
        weights: np.ndarray | None = None,
        max_nodes: int | None = None,
    ) -> None:
        self.rng = SplitMix64(seed_word)
        self.n_features = n_features
        self.n_classes = n_classes
        self.prior = prior
        self.dirichlet = dirichlet
        self.smoothing = smoothing
        self.charge_first = charge_first
        self.split_pure = split_pure
        self.purity = purity
        self.pause = math.inf if split_pure else pause
        self.lifetime = lifetime
        self.weights = np.asarray(np.ones(n_features) if weights is None else weights, dtype=np.float32)
        self.max_nodes = math.inf if max_nodes is None else max_nodes
        self.n_nodes = 0
        self.root: Node | None = None

    # What the tree says.

    def forecast(self, node: Node | None, above: np.ndarray | None = None) -> np.ndarray:
        """What `node` alone forecasts, (K,) float64; above the root, None: uniform.

        above: what its parent forecasts, where that is at hand: without, all nodes up to the root are asked anew.
        """
        if node is None:
            return np.full(self.n_classes, 1 / self.n_classes)
        if self.prior == "dirichlet":
            return (node.counts + self.dirichlet) / (node.n + self.dirichlet * self.n_classes)
        strength = self.smoothing * np.count_nonzero(node.counts) ** 2
        above = self.forecast(node.parent) if above is None else above
        return above if strength == 0.0 else self.mixed(node, strength, above)

    def mixed(self, node: Node, strength: float, above: np.ndarray) -> np.ndarray:
        """The counts of a node with what the one above it forecasts: with the prior "parent"."""
        prior = (1 - UNIFORM_SHARE) * above + UNIFORM_SHARE / self.n_classes
        return (node.counts + strength * prior) / (node.n + strength)

    def path(self, x: np.ndarray) -> Iterator[tuple[Node, float]]:
        """The nodes on the way of `x` from the root, each with the probability that a pruning comes that far."""
        x = np.asarray(x, dtype=np.float32)
        node, reach = self.root, 1.0
        while node is not None:
            yield node, reach
            reach *= 1.0 - node.stop_probability
            node = None if node.is_leaf else node.child_of(x)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities at `x`, (K,) float64, from the tree as it is; K = 0 classes known: empty."""
        if self.root is None:
            return self.forecast(None) if self.n_classes else np.zeros(0)
        total, said = np.zeros(self.n_classes), None
        for node, reach in self.path(x):
            said = self.forecast(node, said)
            total += reach * node.stop_probability * said
        return total

    def weighted_depth(self, x: np.ndarray) -> float:
        """Posterior mean over prunings of the depth at which `x` ends (root = 0)."""
        return sum(reach for node, reach in self.path(x) if node is not self.root)

    # How the tree learns.

    def learn(self, x: np.ndarray, y: int) -> None:
        """Learn one sample: `x` (n_features,) with NaN where missing, and its label; -1 changes nothing."""
        if y == -1:
            return
        if not 0 <= y <= self.n_classes:
            raise ValueError(f"label {y} is not -1, a known class or the next new one ({self.n_classes})")
        if y == self.n_classes:
            self.add_class()
        self.count(self.insert(np.asarray(x, dtype=np.float32), y), y)

    def add_class(self) -> None:
        self.n_classes += 1
        for node in self.nodes():
            node.counts = np.append(node.counts, 0)

    def insert(self, x: np.ndarray, y: int) -> Node:
        """Make room for `x` without counting `y`, and return its leaf; averaged weights are up to date afterwards."""
        if x.shape != (self.n_features,):
            raise ValueError(f"a sample has shape ({self.n_features},), not {x.shape}")
        if self.root is None:
            self.root = self.fresh_leaf(x)
            return self.root
        # One exponential variable is spent along the whole path: the first arrival of the process whose rate at a
        # node is D from the node's birth to its split. By memorylessness this has the law of a new draw per node.
        budget = -log1p(-self.rng.uniform())
        birth = 0.0
        node = self.root
        pure_until = self.purity / max(np.count_nonzero(node.lo < node.hi), 1)
        while True:
            terms = extensions(node, x, self.weights)
            rate, until = lane_sum(terms), min(node.time, self.lifetime)
            if rate > 0 and self.n_nodes + 2 <= self.max_nodes:
                if node.is_leaf:
                    may_split = self.split_pure or birth < pure_until or node.counts[y] < node.n
                else:
                    may_split = self.split_pure or self.forecast(node)[y] < self.pause
                if may_split:
                    hazard = rate * (until - birth)
                    if budget < hazard:
                        return self.split_above(node, x, min(birth + budget / rate, until), terms, rate)
                    budget -= hazard
            node.widen(x)
            if node.is_leaf:
                return node
            birth = until
            node = node.child_of(x)

    def fresh_leaf(self, x: np.ndarray) -> Node:
        self.n_nodes += 1
        return Node(lo=x.copy(), hi=x.copy(), counts=np.zeros(self.n_classes, dtype=np.int64))

    def split_above(self, node: Node, x: np.ndarray, time: float, terms: list[np.float32], rate: float) -> Node:
        """Put a new parent over `node`, its other child a fresh leaf for `x`, which is returned."""
        j = pick_feature(terms, self.rng.uniform() * rate)
        is_above = x[j] > node.hi[j]
        lower, upper = (node.hi[j], x[j]) if is_above else (x[j], node.lo[j])
        threshold = cut_in_gap(lower, upper, self.rng.uniform())

        leaf = self.fresh_leaf(x)
        left, right = (node, leaf) if is_above else (leaf, node)
        up = Node(node.lo.copy(), node.hi.copy(), node.counts.copy(), lw=node.lw, time=time, feature=j)
        up.threshold, up.left, up.right, up.parent = threshold, left, right, node.parent
        up.widen(x)
        self.n_nodes += 1

        if node.parent is None:
            self.root = up
        elif node.parent.left is node:
            node.parent.left = up
        else:
            node.parent.right = up
        node.parent = leaf.parent = up
        for ancestor in up.lineage():
            ancestor.refresh()
        return leaf

    def count(self, leaf: Node, y: int) -> None:
        """Charge each node from the root to `leaf` its loss for `y`, with the old counts, then count the label."""
        lineage, said = list(leaf.lineage()), None
        for node in reversed(lineage):
            said = self.forecast(node, said)
            if node.n > 0 or self.charge_first:
                node.lw += math.log(said[y])
        for node in lineage:
            node.counts[y] += 1
            node.refresh()

    # The tree as a whole.

    def nodes(self) -> list[Node]:
        """All nodes in order (left subtree, node, right subtree)."""

        def in_order(node: Node | None) -> Iterator[Node]:
            if node is not None:
                yield from in_order(node.left)
                yield node
                yield from in_order(node.right)

        return list(in_order(self.root))

    def prunings(self) -> list[tuple[Node, ...]]:
        """All prunings, each given by the nodes at which it stops, from left to right."""

        def below(node: Node) -> list[tuple[Node, ...]]:
            stops_here = [(node,)]
            if node.is_leaf:
                return stops_here
            return stops_here + [left + right for left in below(node.left) for right in below(node.right)]

        return [] if self.root is None else below(self.root)


class PruningAverage(NamedTuple):
    """`log_weight` = log of the sum of prior times weight; `forecast` (K,) and `depth` = posterior means at one x."""

    log_weight: float
    forecast: np.ndarray
    depth: float


def log_prior(pruning: tuple[Node, ...]) -> float:
    """log 2^-(nodes of the pruning that are not leaves of the tree): those are the places where a coin was tossed."""
    inner = len(pruning) - 1
    return -math.log(2) * (inner + sum(not stop.is_leaf for stop in pruning))


def average_over_prunings(tree: ReferenceTree, x: np.ndarray) -> PruningAverage:
    """The definition of the aggregation, by enumeration: for trees of up to about eight leaves."""
    prunings = tree.prunings()
    log_weights = np.array([log_prior(p) + sum(stop.lw for stop in p) for p in prunings])
    log_weight = float(np.logaddexp.reduce(log_weights))
    posterior = np.exp(log_weights - log_weight)
    on_path = {id(node) for node, _ in tree.path(x)}
    stops = [next(node for node in pruning if id(node) in on_path) for pruning in prunings]
    forecast = sum(p * tree.forecast(stop) for p, stop in zip(posterior, stops, strict=True))
    depth = sum(p * (len(list(stop.lineage())) - 1) for p, stop in zip(posterior, stops, strict=True))
    return PruningAverage(log_weight, forecast, float(depth))


class ReferenceForest:
    """`n_estimators` independent trees; the forecast is their mean, summed in the order of the trees."""

    kind = ReferenceTree

    def __init__(self, seed: int, n_estimators: int, n_features: int, n_classes: int, **options: object) -> None:
        words = SplitMix64(seed)
        self.trees = [self.kind(words.next(), n_features, n_classes, **options) for _ in range(n_estimators)]

    @property
    def n_classes(self) -> int:
        return self.trees[0].n_classes

    def predict(self, x: np.ndarray) -> np.ndarray:
        return sum(tree.predict(x) for tree in self.trees) / len(self.trees)

    def weighted_depth(self, x: np.ndarray) -> float:
        return sum(tree.weighted_depth(x) for tree in self.trees) / len(self.trees)

    def learn(self, x: np.ndarray, y: int) -> None:
        for tree in self.trees:
            tree.learn(x, y)

    def predict_learn(self, points: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Row by row the forecast before learning: (n, K at the end) float64, 0 for a class not known in that row."""
        rows = []
        for x, label in zip(points, labels, strict=True):
            rows.append(self.predict(x))
            self.learn(x, int(label))
        return np.array([np.pad(row, (0, self.n_classes - len(row))) for row in rows])
