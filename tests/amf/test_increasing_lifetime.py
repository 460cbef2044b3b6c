"""The Mondrian forests with increasing lifetime against their readable reference, and what [rates] says of them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from laws import POINTS, SIGMAS, are_apart_as_in_mondrians, have_like_sizes
from reference_increasing import CubeTree, IncreasingNumberTree, IncreasingTree, words_of
from reference_mondrian import drawn_at_once
from reference_mondrian import samples as samples_on_grid
from trees import same_means, same_structure, trees_of

import amf

SCHEDULES = [
    {},
    {"lifetime": 3.0},
    {"lifetime": 2.0, "lifetime_exponent": 0.0},
    {"lifetime": 0.2, "lifetime_exponent": 0.9},
]
RAW = {"scaling": "none", "calibration": False}
samples = partial(samples_on_grid, per_unit=8)


def known(labels):
    return [None if label < 0 else int(label) for label in labels]


# The forests against the reference.


@pytest.mark.parametrize("combine", ["average", "vote"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 3), (9, 11)])
def test_the_classifier_equals_the_reference(combine, schedule, d, k):
    points, labels = samples(70, d, k, seed=d)
    forest = amf.IncreasingLifetimeForestClassifier(3, seed=11, classes=range(k), combine=combine, **RAW, **schedule)
    trees = [IncreasingTree(word, d, k, combine=combine, **schedule) for word in words_of(11, 3)]
    got = forest.prequential(points, known(labels))
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        expected = np.mean([tree.predict(x) for tree in trees], axis=0)
        np.testing.assert_allclose(got.probabilities[row], expected, rtol=1e-12, atol=1e-15)
        if row:
            depth = np.mean([tree.leaf(x)[1] for tree in trees])
            assert got.depth[row] == pytest.approx(depth, rel=1e-12)
            assert got.weighted_depth[row] == pytest.approx(depth, rel=1e-12)
        for tree in trees:
            tree.learn(x, int(label))
    for tree, other in zip(trees_of(forest), trees, strict=True):
        same_structure(tree, other.root)
    np.testing.assert_allclose(forest.lifetimes, [tree.lifetime_now for tree in trees], rtol=1e-14)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("d", [1, 2, 9])
def test_the_regressor_equals_the_reference(schedule, d):
    points, labels = samples(70, d, 4, seed=d)
    labels = np.where(labels < 0, np.nan, labels)
    forest = amf.IncreasingLifetimeForestRegressor(3, seed=11, **RAW, **schedule)
    trees = [IncreasingNumberTree(word, d, **schedule) for word in words_of(11, 3)]
    same_means(forest, trees, points, labels, rel=1e-12)


def in_cube(n, d, k, seed):
    """Samples on a grid of [0, 1]^d, its faces included."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(0, 17, (n, d)) / 16).astype(np.float32)
    return points, np.where(rng.random(n) < 0.3, rng.integers(0, k, n), points[:, 0] > 0.5).astype(int)


CUBE = [{**schedule, "empty_cells": empty} for schedule in SCHEDULES for empty in ("parent", "zero")]


@pytest.mark.parametrize("combine", ["average", "vote"])
@pytest.mark.parametrize("parameters", CUBE, ids=str)
@pytest.mark.parametrize(("d", "k"), [(1, 2), (3, 5)])
def test_the_classifier_on_the_cube_equals_the_reference(combine, parameters, d, k):
    points, labels = in_cube(60, d, k, seed=d)
    forest = amf.IncreasingLifetimeForestClassifier(
        3, seed=11, classes=range(k), combine=combine, domain="cube", calibration=False, **parameters
    )
    trees = [CubeTree(word, d, **parameters) for word in words_of(11, 3)]
    got = forest.prequential(points, labels)
    empty = 0
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        if row:
            counts = [np.bincount(tree.labels_at(x).astype(int), minlength=k) for tree in trees]
            empty += sum(not count.any() for count in counts)
            counts = [count if count.any() else np.eye(k)[0] for count in counts]
            said = [np.eye(k)[np.argmax(c)] if combine == "vote" else c / c.sum() for c in counts]
            np.testing.assert_allclose(got.probabilities[row], np.mean(said, axis=0), rtol=1e-12, atol=1e-15)
            assert got.depth[row] == pytest.approx(np.mean([tree.depth(x) for tree in trees]), rel=1e-12)
        for tree in trees:
            tree.learn(x, label)
    assert (empty > 0) == (parameters["empty_cells"] == "zero")
    said = forest.attribute(points)
    np.testing.assert_allclose(said.forecasts, forest.predict_proba(points), rtol=1e-12)
    np.testing.assert_allclose(said.prior + said.features.sum(axis=1), said.forecasts, atol=1e-12)


@pytest.mark.parametrize("parameters", CUBE, ids=str)
def test_the_regressor_on_the_cube_equals_the_reference(parameters):
    points, labels = in_cube(60, 2, 5, seed=7)
    forest = amf.IncreasingLifetimeForestRegressor(3, seed=5, domain="cube", calibration=False, **parameters)
    trees = [CubeTree(word, 2, **parameters) for word in words_of(5, 3)]
    got = forest.prequential(points, labels)
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        if row:
            found = [tree.labels_at(x) for tree in trees]
            mean = np.mean([np.mean(one) if len(one) else 0.0 for one in found])
            assert got.mean[row] == pytest.approx(mean, rel=1e-12, abs=1e-12)
        for tree in trees:
            tree.learn(x, label)


# The lifetime.


def test_the_lifetime_counts_labels_and_the_features_in_which_samples_differ():
    forest = amf.IncreasingLifetimeForestClassifier(2, classes=[0, 1], max_bytes=10**9)
    assert forest.lifetimes.tolist() == [0.0, 0.0]
    forest.partial_fit([[5.0, 1.0, np.nan]], [0])
    assert forest.lifetimes.tolist() == [1.0, 1.0]
    forest.partial_fit(np.column_stack([np.arange(49.0), np.ones(49), np.full(49, np.nan)]), [0, None] * 24 + [1])
    assert forest.lifetimes == pytest.approx(26 ** (1 / 3), rel=1e-14)  # one of three features moves
    forest.partial_fit([[5.0, 2.0, np.nan]], [0])
    assert forest.lifetimes == pytest.approx(27 ** (1 / 4), rel=1e-14)


def test_a_lifetime_that_does_not_increase_changes_nothing_but_the_leaf_of_the_sample():
    rng = np.random.default_rng(3)
    x, y = rng.random((200, 2)), rng.integers(0, 2, 200)
    forest = amf.IncreasingLifetimeForestClassifier(1, lifetime=3.0, lifetime_exponent=0.0, **RAW).partial_fit(x, y)
    before, nodes = forest.predict_proba(x), forest.n_nodes
    forest.partial_fit(np.repeat(x[:1], 50, axis=0), 1 - y[:1].repeat(50))
    moved = (forest.predict_proba(x) != before).any(axis=1)
    mine = (before == before[0]).all(axis=1)
    assert moved[0]
    assert not moved[~mine].any()
    assert forest.n_nodes == nodes


def test_what_was_shown_as_a_leaf_is_divided_as_the_lifetime_increases_and_never_the_other_way():
    rng = np.random.default_rng(5)
    x = rng.random((400, 2))
    forest = amf.IncreasingLifetimeForestRegressor(1, lifetime_exponent=0.5, **RAW).partial_fit(x[:50], x[:50, 0])
    cells = np.unique(forest.predict(x)).size
    for stop in (100, 200, 400):
        forest.partial_fit(x[stop // 2 : stop], x[stop // 2 : stop, 0])
        assert cells < (cells := np.unique(forest.predict(x)).size) < stop


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lifetime": 0.0}, "lifetime must be a number from 1e-30 to 1e"),
        ({"lifetime": None}, "lifetime must be a number"),
        ({"lifetime_exponent": -0.1}, "lifetime_exponent must be a number from 0 to 10"),
        ({"combine": "mean"}, "combine must be 'average' or 'vote'"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        amf.IncreasingLifetimeForestClassifier(**parameters)


# What the leaves say.


def test_a_tree_votes_for_the_label_that_came_first_where_several_came_as_often():
    forest = amf.IncreasingLifetimeForestClassifier(2, classes=["a", "b", "c"], combine="vote", lifetime=1e-30, **RAW)
    forest.partial_fit([[0.0], [1.0], [2.0], [3.0]], ["c", "b", "b", "c"])
    assert forest.predict_proba([[1.5]]).tolist() == [[0.0, 1.0, 0.0]]
    assert forest.partial_fit([[0.0]], ["c"]).predict_proba([[1.5]]).tolist() == [[0.0, 0.0, 1.0]]


def literal_leaves(x, y, tree, lifetime_of):
    """[rates] Alg. 4 as printed: a label is counted in the leaf of the last lifetime, then leaves are extended.

    Nothing fits the leaves that come: tree.leaf says which they are. Returns the counts of each leaf.
    """
    counts: dict[int, np.ndarray] = {}
    for n, (row, label) in enumerate(zip(x, y, strict=True), 1):
        tree.first, tree.exponent = lifetime_of(n - 1), 0.0
        leaf, _ = tree.leaf(row)
        counts.setdefault(id(leaf), np.zeros(2, int))[label] += 1
    return counts


def test_a_leaf_that_comes_with_the_lifetime_is_fitted_to_all_samples_in_it():
    """As printed, [rates] Alg. 4 leaves the new leaves without the labels that came before them."""
    rng = np.random.default_rng(2)
    x = rng.random((300, 1)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(int)
    forest = amf.IncreasingLifetimeForestClassifier(1, seed=4, classes=[0, 1], lifetime_exponent=0.5, **RAW)
    forest.partial_fit(x, y)
    tree = IncreasingTree(words_of(4, 1)[0], 1, 2, lifetime_exponent=0.5)
    origin = forest._scaling.origin.astype(np.float32)
    for row, label in zip(x - origin, y, strict=True):
        tree.learn(row, int(label))
    leaves = [tree.leaf(row)[0] for row in x - origin]
    for row, leaf in zip(x, leaves, strict=True):
        labels = [label for label, other in zip(y, leaves, strict=True) if other is leaf]
        np.testing.assert_allclose(forest.predict_proba([row])[0, 1], np.mean(labels), rtol=1e-12)

    counts = literal_leaves(x - origin, y, tree, lambda n: math.sqrt(n))
    counted = [counts.get(id(leaf), np.zeros(2)).sum() for leaf in leaves]
    held = [sum(other is leaf for other in leaves) for leaf in leaves]
    assert np.mean(np.array(counted) < held) > 0.9


def test_the_description_and_the_attributions_see_what_forecasts_see():
    rng = np.random.default_rng(2)
    x = rng.random((400, 2))
    y = (x[:, 0] > 0.5).astype(int)
    for combine in ("average", "vote"):
        forest = amf.IncreasingLifetimeForestClassifier(4, combine=combine, **RAW).partial_fit(x, y)
        shown = forest.describe().mean_weighted_depth
        assert 1.0 < shown < 0.8 * forest.describe().mean_depth
        assert forest.feature_usage().sum() == pytest.approx(shown)
        assert shown == pytest.approx(forest.prequential(x, [None] * 400).weighted_depth.mean(), rel=1e-9)
        said = forest.attribute(x)
        np.testing.assert_allclose(said.forecasts, forest.predict_proba(x), rtol=1e-12)
        np.testing.assert_allclose(said.prior + said.features.sum(axis=1), said.forecasts, atol=1e-12)
    moves = forest.attribute(x).features[..., 1]
    assert np.abs(moves[:, 0]).mean() > 3 * np.abs(moves[:, 1]).mean()


# What holds in law.


N_TREES = 3000
UNTIL = {  # schedules that have come to a lifetime of 0.6 after five samples
    "fixed": {"lifetime": 0.6, "lifetime_exponent": 0.0},
    "slowly": {"lifetime": 0.6 / 5 ** (1 / 4)},
    "fast": {"lifetime": 0.6 / 25, "lifetime_exponent": 2.0},
}


@pytest.mark.parametrize("schedule", UNTIL)
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_points_are_apart_at_a_lifetime_by_the_law_of_a_mondrian_whatever_the_way_there(order, schedule):
    forest = amf.IncreasingLifetimeForestRegressor(N_TREES, seed=order[0], **RAW, **UNTIL[schedule])
    forest.partial_fit(POINTS[list(order)], np.arange(5.0))
    assert forest.lifetimes == pytest.approx(0.6, rel=1e-12)
    centred = (POINTS - POINTS[order[0]]).astype(np.float32)
    ends = np.array([[shown_end(tree, x) for x in centred] for tree in trees_of(forest)])
    are_apart_as_in_mondrians(ends, POINTS, 0.6)


def shown_end(tree, x, lifetime=0.6):
    """Row of the leaf of a sample that forecasts see."""
    return next(row for row in tree.path(x) if tree.child[row] == 0 or tree.time[row] >= lifetime)


def test_leaves_have_the_law_of_a_tree_that_is_drawn_at_once():
    """Sizes of the leaves at a lifetime that was come to sample by sample, against a Mondrian drawn on all samples."""
    rng, n_trees, n = np.random.default_rng(4), 1500, 14
    x = rng.random((n, 2)).astype(np.float32)
    lifetime = n ** (1 / 4)
    at_once = [drawn_at_once(x, np.arange(n), lifetime, rng) for _ in range(n_trees)]
    forest = amf.IncreasingLifetimeForestRegressor(n_trees, seed=1, **RAW).partial_fit(x, np.arange(float(n)))
    centred = x - x[0]
    found = []
    for tree in trees_of(forest):
        ends = [shown_end(tree, point, lifetime) for point in centred]
        found.append([ends.count(end) for end in set(ends)])
    have_like_sizes(found, [[len(leaf) for leaf in leaves] for leaves in at_once])


@pytest.mark.parametrize("schedule", UNTIL)
def test_on_the_cube_too_whatever_the_way_there(schedule):
    points = POINTS / 4
    forest = amf.IncreasingLifetimeForestRegressor(N_TREES, seed=3, domain="cube", calibration=False, **UNTIL[schedule])
    forest.partial_fit(points, np.arange(5.0))
    assert forest.lifetimes == pytest.approx(0.6, rel=1e-12)
    ends = np.array([[shown_end(tree, x) for x in points.astype(np.float32)] for tree in trees_of(forest)])
    are_apart_as_in_mondrians(ends, points, 0.6)


@pytest.mark.parametrize(("d", "lifetime"), [(1, 3.0), (2, 2.0)])
def test_cells_become_as_small_as_theorems_say(d, lifetime):
    """P(diameter >= delta) <= d (1 + a) exp(-a), a = lifetime delta / sqrt(d), and the second moment."""
    diameters = []
    for word in words_of(2, 3000):
        tree = CubeTree(word, d, lifetime=lifetime, lifetime_exponent=0.0)
        tree.learn(np.full(d, 0.4), 0.0)
        *_, (low, high) = tree.cells(np.full(d, 0.4, np.float32))
        diameters.append(np.linalg.norm(high - low))
    for delta in (0.2, 0.5, 0.9):
        a = lifetime * delta / math.sqrt(d)
        bound = d * (1 + a) * math.exp(-a)
        assert np.mean(np.array(diameters) >= delta) <= bound + SIGMAS * 0.5 / math.sqrt(3000)
    assert np.mean(np.square(diameters)) <= 6 * d / lifetime**2


def squared_errors(ends, **schedule):
    """Mean squared error of one tree on a line to a Lipschitz function after so many noisy samples, mean over seeds."""
    grid, found = np.linspace(0.05, 0.95, 200)[:, None], np.zeros(len(ends))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.random((ends[-1], 1))
        y = np.abs(x[:, 0] - 0.5) * 4 + rng.normal(size=len(x))
        forest, start = amf.IncreasingLifetimeForestRegressor(1, seed=seed, **RAW, **schedule), 0
        for place, end in enumerate(ends):
            forest.partial_fit(x[start:end], y[start:end])
            found[place] += np.mean((forest.predict(grid) - np.abs(grid[:, 0] - 0.5) * 4) ** 2) / 20
            start = end
    return found


def test_the_error_falls_at_the_minimax_rate_and_stagnates_with_a_fixed_lifetime():
    """[rates] Thm 2 and Prop. 1, d = 1: n**(-2/3), and a bias that stays."""
    ends = [500, 2_000, 8_000, 32_000]
    increasing = squared_errors(ends, lifetime=2.0)
    slope = np.polyfit(np.log(ends), np.log(increasing), 1)[0]
    assert -0.8 < slope < -0.5
    fixed = squared_errors(ends, lifetime=2.0, lifetime_exponent=0.0)
    assert fixed[-1] > 0.8 * fixed[1]
    assert increasing[-1] < 0.1 * fixed[-1]
