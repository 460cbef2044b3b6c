"""The BSP forests against their readable reference, and both against the laws of a BSP-Tree process."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from laws import PAIRS, SIGMAS, are_as_frequent, have_like_sizes
from reference import SplitMix64
from reference_bsp import BSPTree, LiteralTree, drawn_at_once
from trees import nodes_of

import amf
from amf.geometry.planes import OFFSET, SECOND, SLOPE
from amf.memory.arena import CHILD, COUNT, FEATURE, TIME

RAW = {"scaling": "none", "calibration": False}


class Tree:
    """One tree of a forest by its columns; points and rows are centred as the forest does it."""

    def __init__(self, forest, number: int) -> None:
        heads, boxes = nodes_of(forest, number)
        reals, cut = heads.view(np.float64), heads.shape[1] - 6
        self.child, self.count, self.time = heads[:, CHILD], heads[:, COUNT], reals[:, TIME]
        self.first, self.second = heads[:, FEATURE], heads[:, cut + int(SECOND)]
        self.slope, self.offset = reals[:, cut // 2 + int(SLOPE)], reals[:, cut // 2 + int(OFFSET)]
        self.point = boxes[:, 0, : forest.n_features].astype(float)

    def path(self, x) -> list[int]:
        path = [0]
        while child := int(self.child[path[-1]]):
            row = path[-1]
            place = x[self.first[row]] + self.slope[row] * x[self.second[row]]
            path.append(child + int(place > self.offset[row]))
        return path

    def leaf(self, x, budget: float) -> int:
        """The node that holds a point at a time."""
        return next(row for row in self.path(x) if self.time[row] >= budget)

    def below(self, row: int) -> list[int]:
        """Rows of the leaves below a node."""
        child = int(self.child[row])
        return [leaf for side in (0, 1) for leaf in self.below(child + side)] if child else [row]


def centred(forest, x):
    """Samples as the trees of a forest see them."""
    return (x - forest._scaling.origin).astype(np.float32).astype(float)


def trees_of(forest) -> list[Tree]:
    return [Tree(forest, number) for number in range(forest.params.n_estimators)]


def samples(n, d, seed=0, missing=0.0):
    """Samples on a grid, so that ties and duplicates occur, the first of them at 0; -1 is no label."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(-8, 8, (n, d)) / 4).astype(np.float32)
    points[::2] += rng.normal(0, 0.1, points[::2].shape).astype(np.float32)
    points[rng.random((n, d)) < missing] = np.nan
    points[0] = 0.0
    labels = (np.nan_to_num(points[:, 0]) > 0).astype(int)
    labels[0] = 0
    return points, labels


def same_structure(tree: Tree, node, row=0):
    """One tree of a forest and that of the reference, from a node down."""
    assert tree.count[row] == len(node.labels)
    assert (tree.child[row] == 0) == (node.children is None)
    if node.children is None:
        np.testing.assert_array_equal(tree.point[row], node.point)
        return
    assert (tree.first[row], tree.second[row]) == node.cut[:2]
    found = tree.slope[row], tree.offset[row], tree.time[row]
    assert found == pytest.approx((*node.cut[2:], node.time), rel=1e-6, abs=1e-9)
    for side in (0, 1):
        same_structure(tree, node.children[side], tree.child[row] + side)


# The forests against the reference.


@pytest.mark.parametrize(
    ("d", "missing"),
    [
        (1, 0.2),
        (2, 0.0),
        *(pytest.param(*shape, marks=pytest.mark.full) for shape in [(1, 0.0), (3, 0.0), (3, 0.2), (5, 0.4)]),
    ],
)
def test_the_classifier_equals_the_reference(d, missing):
    points, labels = samples(60, d, seed=d, missing=missing)
    choice = {"rate_scale": 2.0, "min_samples_split": 3}
    forest = amf.BSPForestClassifier(2, seed=11, classes=[0, 1], **RAW, **choice)
    words = SplitMix64(11)
    trees = [BSPTree(words.next(), d) for _ in range(2)]
    got = forest.prequential(points, labels).probabilities
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        if row:
            varied = max(sum(len({*column[~np.isnan(column)]}) > 1 for column in points_seen(trees[0]).T), 1)
            budget = 2.0 * row ** (1 / (varied + 2))
            leaves = [tree.shown(x, budget, 3).labels for tree in trees]
            expected = np.mean([np.bincount(leaf, minlength=2) / len(leaf) for leaf in leaves], axis=0)
            np.testing.assert_allclose(got[row], expected, rtol=1e-12)
        for tree in trees:
            tree.learn(x, int(label))
    for tree, other in zip(trees_of(forest), trees, strict=True):
        same_structure(tree, other.root)


def points_seen(tree):
    return np.array(tree.root.points())


def test_the_regressor_says_the_means_of_the_leaves_that_the_reference_sees():
    points, labels = samples(50, 3, seed=4)
    forest = amf.BSPForestRegressor(2, seed=3, lifetime=0.3, lifetime_exponent=0.0, rate_scale=1.0, **RAW)
    words = SplitMix64(3)
    trees = [BSPTree(words.next(), 3) for _ in range(2)]
    got = forest.prequential(points, labels).mean
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        if row:
            assert got[row] == pytest.approx(np.mean([np.mean(tree.shown(x, 0.3, 4).labels) for tree in trees]))
        for tree in trees:
            tree.learn(x, int(label))


def test_votes_are_shares_of_the_trees():
    points, labels = samples(200, 2, seed=8)
    averages, votes = (
        amf.BSPForestClassifier(5, combine=combine, lifetime=0.5, **RAW).partial_fit(points, labels)
        for combine in ("average", "vote")
    )
    shares = votes.predict_proba(points) * 5
    np.testing.assert_allclose(shares, np.round(shares))
    alone = [
        amf.BSPForestClassifier(1, combine=c, lifetime=0.5, **RAW).partial_fit(points, labels)
        for c in ("average", "vote")
    ]
    said = alone[0].predict_proba(points)
    np.testing.assert_array_equal(alone[1].predict_proba(points)[:, 0], (said[:, 0] >= said[:, 1]).astype(float))
    assert not np.array_equal(averages.predict_proba(points), votes.predict_proba(points))


# What holds of every tree.


def grown(n=400, d=3, **parameters):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, d))
    return amf.BSPForestClassifier(2, classes=[0, 1], **RAW, **parameters).partial_fit(x, (x[:, 0] > 0).astype(int))


@pytest.mark.parametrize("max_bytes", [64_000_000, 60_000])
def test_cuts_part_the_points_below_them_and_times_increase(max_bytes):
    for tree in trees_of(grown(max_bytes=max_bytes)):
        for row in np.flatnonzero(tree.child):
            child = tree.child[row]
            assert all(tree.time[row] <= tree.time[child + side] for side in (0, 1))
            assert tree.count[row] >= tree.count[child] + tree.count[child + 1]
            for side in (0, 1):
                points = tree.point[tree.below(child + side)]
                places = points[:, tree.first[row]] + tree.slope[row] * points[:, tree.second[row]]
                assert ((places > tree.offset[row]) == side).all()


def test_inner_nodes_that_are_shown_hold_four_samples():
    forest = grown(lifetime=1e30)
    x = np.random.default_rng(5).normal(size=(400, 3))
    depth = forest.prequential(x, [None] * 400).depth
    seen = centred(forest, x)
    expected = [[sum(tree.count[tree.path(point)] >= 4) for point in seen] for tree in trees_of(forest)]
    np.testing.assert_allclose(depth, np.mean(expected, axis=0))


def test_more_features_than_hulls_are_kept_for_are_refused_with_what_to_do():
    with pytest.raises(
        ValueError, match=r"21 features: a BSP forest takes 20 features at most, .* leave columns out .*PCA"
    ):
        amf.BSPForestClassifier().partial_fit(np.zeros((1, 21)), [0])
    with pytest.raises(
        ValueError, match=r"max_features must be a whole number from 1 to 20, got 21: .* leave columns out .*PCA"
    ):
        amf.BSPForestClassifier(max_features=21)
    forest = amf.BSPForestClassifier()
    with pytest.raises(ValueError, match="21 features: a BSP forest takes 20 features at most"):
        forest.add_features([f"f{j}" for j in range(21)])
    assert forest.partial_fit(np.eye(20), [0, 1] * 10).n_features == 20


def test_the_description_sees_what_forecasts_see():
    rng = np.random.default_rng(2)
    x = rng.random((400, 2))
    forest = amf.BSPForestClassifier(4, **RAW).partial_fit(x, (x[:, 0] > 0.5).astype(int))
    shown = forest.describe().mean_weighted_depth
    assert 0.5 < shown < forest.describe().mean_depth
    assert forest.feature_usage().sum() == pytest.approx(shown)
    assert shown == pytest.approx(forest.prequential(x, [None] * 400).weighted_depth.mean(), rel=1e-9)


@pytest.mark.parametrize("words", [0, 1, 3, 1000])
def test_hulls_that_are_not_kept_change_no_bit(words, monkeypatch):
    """However little room there is for hulls: what is not kept is made anew."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4))
    expected = amf.BSPForestClassifier(2, seed=1).partial_fit(x, [0, 1] * 150)
    monkeypatch.setattr("amf.forests.bsp.hull_room", lambda n_features: 4 + words)
    forest = amf.BSPForestClassifier(2, seed=1).partial_fit(x[:150], [0, 1] * 75)
    forest.partial_fit(x[150:], [0, 1] * 75)
    assert forest.dumps() == expected.dumps()


# What holds in law.

N_TREES = 2000
POINTS = np.array([[0.0, 0.0, 0.2], [1.0, 0.5, 0.0], [0.25, 2.0, 0.4], [0.75, 0.5, 0.1], [3.0, 1.0, 0.3]])


def parted(points, order, budget, d):
    """Leaves (trees, points) of the points at a time, when they came in an order."""
    x = points[list(order)][:, :d]
    forest = amf.BSPForestClassifier(N_TREES, classes=[0, 1], seed=order[0], **RAW)
    forest.partial_fit(x, np.arange(len(x)) % 2)
    return np.array(
        [[tree.leaf(point, budget) for point in centred(forest, points[:, :d])] for tree in trees_of(forest)]
    )


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_points_are_apart_by_the_law_of_a_bsp_tree_whatever_their_order(d, order):
    budget = 0.15
    leaves = parted(POINTS, order, budget, d)
    for one, other in PAIRS:
        between = POINTS[one, :d] - POINTS[other, :d]
        pairs = list(itertools.combinations(range(d), 2)) or [(0,)]
        p = 1 - math.exp(-2 * budget * sum(np.linalg.norm(between[list(pair)]) for pair in pairs))
        are_as_frequent(leaves[:, one] != leaves[:, other], p)


def test_as_printed_the_leaf_rule_depends_on_the_order_of_the_samples():
    """The ends of a segment, and points between them: as printed every sample is another chance to part the ends."""
    budget, n, points = 0.3, 2000, np.array([0.0, 1.0, 0.3, 0.5, 0.7])
    p = 1 - math.exp(-2 * budget)
    error = SIGMAS * math.sqrt(0.25 / n)
    rng, as_printed = np.random.default_rng(3), []
    for order in ((0, 1, 2, 3, 4), (2, 3, 4, 0, 1)):
        apart = 0
        for _ in range(n):
            tree = LiteralTree(budget, rng)
            for place in order:
                tree.learn(points[place])
            apart += tree.leaf_of(0.0) != tree.leaf_of(1.0)
        as_printed.append(apart / n)
        leaves = parted(np.column_stack([points, np.zeros(5)]), order, budget, 2)
        assert np.mean(leaves[:, 0] != leaves[:, 1]) == pytest.approx(p, abs=error)
    assert abs(as_printed[0] - p) > 5 * error
    assert abs(as_printed[0] - as_printed[1]) > 2 * error


@pytest.mark.full
@pytest.mark.parametrize("order", [range(14), range(13, -1, -1)])
def test_partitions_have_the_law_of_a_tree_that_is_drawn_at_once(order):
    """Sizes of the leaves against [BSP] Alg. 2 and 5, which draw lines that hit the hull of all points."""
    rng, budget, n = np.random.default_rng(4), 1.0, 1500
    points = rng.random((14, 2)).astype(np.float32)
    at_once = [[len(leaf) for leaf in drawn_at_once(points.astype(float), budget, rng)] for _ in range(n)]
    forest = amf.BSPForestClassifier(n, classes=[0, 1], **RAW).partial_fit(points[list(order)], [0, 1] * 7)
    seen = centred(forest, points)
    found = [[*Counter(tree.leaf(point, budget) for point in seen).values()] for tree in trees_of(forest)]
    have_like_sizes(found, at_once)


def test_cuts_of_a_segment_are_a_poisson_process():
    """Each of the gaps between points on a segment is cut by itself, at twice its length."""
    budget, gaps, n = 0.8, 24, 1000
    direction = np.array([0.6, 0.8])
    points = np.arange(gaps + 1)[:, None] / gaps * direction
    order = np.random.default_rng(6).permutation(gaps + 1)
    forest = amf.BSPForestClassifier(n, classes=[0, 1], **RAW).partial_fit(points[order], order % 2)
    seen = centred(forest, points)
    cuts = np.array([len({tree.leaf(point, budget) for point in seen}) - 1 for tree in trees_of(forest)])
    p = 1 - math.exp(-2 * budget / gaps)
    assert cuts.mean() == pytest.approx(gaps * p, abs=SIGMAS * math.sqrt(gaps * p * (1 - p) / n))
    assert cuts.var() == pytest.approx(gaps * p * (1 - p), rel=SIGMAS * math.sqrt(2 / n) + 0.05)


@pytest.mark.parametrize("far", [1e308, -1.7e308])
@pytest.mark.parametrize("algorithm", ["bsp-classifier", "bsp-regressor"])
def test_cuts_remain_lines_where_an_origin_moves_as_far_as_numbers_go(algorithm, far) -> None:
    system = amf.SYSTEMS[algorithm]
    for seed in range(20):
        forest = system.from_params(system.Parameters(n_estimators=5, seed=seed))
        forest.partial_fit(np.array([[far, far], [1e-38, 5e-324], [-far, far], [3.0, 1.0]]), [1, 1, 0, 1])
        assert amf.loads(forest.dumps()).dumps() == forest.dumps()
