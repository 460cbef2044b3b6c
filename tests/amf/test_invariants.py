"""Statements about trees and forecasts that hold exactly, for any stream (algorithms A.6, 0.6 and D.6)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import ReferenceForest, average_over_prunings
from rows import data, same_rows
from trees import trees_of

import amf

GOLDEN_GAMMA = 0x9E3779B97F4A7C15
PAPER = {"prior": "dirichlet", "dirichlet": 0.5, "scaling": "none"}
CHARGES = [{"charge_first": True}, {"charge_first": False}]


# A.6.1, structure.


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    d=st.integers(1, 18),
    grid=st.sampled_from([None, 2, 5]),
    missing=st.sampled_from([0.0, 0.3, 0.9]),
    split_pure=st.booleans(),
    scaling=st.sampled_from(["auto", "none"]),
    max_bytes=st.sampled_from([64_000_000, 20_000]),
)
def test_boxes_cuts_times_and_counts_of_a_grown_tree_agree(seed, n, d, grid, missing, split_pure, scaling, max_bytes):
    x, y = data(seed, n, d, 3, grid=grid, missing=missing)
    forest = amf.AMFClassifier(2, seed=seed, split_pure=split_pure, scaling=scaling, max_bytes=max_bytes)
    forest.partial_fit(x, y)
    forgets = max_bytes == 20_000

    def hull(bounds, of_children, at_least):
        """What a node knows is what its children know, and what has been forgotten."""
        if forgets:
            assert np.all(at_least(bounds, of_children) | np.isnan(of_children))
        else:
            np.testing.assert_array_equal(bounds, of_children)

    for tree, word in zip(trees_of(forest), forest._words, strict=True):
        left, inner = tree.child[tree.inner], tree.inner
        right = left + 1
        # A tree: every node but the root is the child of exactly one.
        assert sorted([*left, *right]) == list(range(1, len(tree.child)))
        # Boxes are hulls, of what was forgotten too, and thresholds lie in the gap between the children.
        hull(tree.low[inner], np.fmin(tree.low[left], tree.low[right]), np.less_equal)
        hull(tree.high[inner], np.fmax(tree.high[left], tree.high[right]), np.greater_equal)
        cut = np.arange(len(inner)), tree.feature[inner]
        low, high = tree.low[right][cut], tree.high[left][cut]
        # Of the side on which a value was known only those may be left that lacked it.
        assert np.all((high <= tree.threshold[inner]) | (forgets & np.isnan(high)))
        assert np.all((tree.threshold[inner] < low) | (forgets & np.isnan(low)))
        # Times increase downwards, leaves never split.
        assert np.all(tree.time[left] > tree.time[inner])
        assert np.all(tree.time[right] > tree.time[inner])
        assert np.all(tree.time[inner] > 0)
        assert np.all(np.isinf(tree.time[tree.leaves]))
        # Counts add up.
        hull(tree.counts[inner], tree.counts[left] + tree.counts[right], np.greater_equal)
        np.testing.assert_array_equal(tree.count, tree.counts.sum(axis=1))
        assert forgets or tree.count[0] == n
        assert np.all(tree.count > 0)
        assert np.all(tree.odds > 0)
        assert np.all(np.isfinite(tree.odds))
        # One draw a label after the first, two more a split.
        draws = n - 1 + len(tree.child) - 1
        start = amf.AMFClassifier(2, seed=seed)._words[list(forest._words).index(word)]
        assert forgets or int(word) == (int(start) + draws * GOLDEN_GAMMA) % 2**64


@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize("grid", [None, 3])
def test_a_tree_is_the_partition_it_describes(grid, scaling):
    """Without missing values, counting all samples again by the cuts gives the counts of every node."""
    x, y = data(1, 300, 4, 3, grid=grid, missing=0.0)
    forest = amf.AMFClassifier(3, scaling=scaling).partial_fit(x, y)
    centred = (x - forest._scaling.origin).astype(np.float32)
    columns = [forest.class_labels.index(label) for label in y.tolist()]
    depths = []
    for tree in trees_of(forest):
        counts = np.zeros_like(tree.counts)
        for row, column in zip(centred, columns, strict=True):
            path = tree.path(row)
            counts[path, column] += 1
            depths.append(len(path) - 1)
        np.testing.assert_array_equal(counts, tree.counts)
    found = forest.describe()
    assert found.mean_depth == forest.mean_depth == pytest.approx(np.mean(depths), rel=1e-12)
    assert (found.max_depth, found.n_leaves) == (max(depths), sum(len(tree.leaves) for tree in trees_of(forest)))


@pytest.mark.parametrize("grid", [None, 2, 4])
def test_with_pure_splits_a_leaf_is_a_distinct_point(grid):
    x, y = data(2, 150, 3, 2, grid=grid, missing=0.0)
    distinct = len(np.unique(x, axis=0))
    assert (distinct < 150) == (grid is not None)
    for tree in trees_of(amf.AMFClassifier(3, split_pure=True).partial_fit(x, y)):
        np.testing.assert_array_equal(tree.low[tree.leaves], tree.high[tree.leaves])
        assert len(tree.leaves) == distinct
        assert len(tree.child) == 2 * distinct - 1


# A.6.3 and 0.6: one number a node, and what it stands for.


def log_weights(tree, charge_first):
    """Log weight and log averaged weight of each node, from its counts alone (Krichevsky-Trofimov, eta = 1)."""
    k = tree.counts.shape[1]
    lgamma = np.vectorize(math.lgamma)
    lw = math.lgamma(k / 2) - lgamma(tree.count + k / 2)
    lw += (lgamma(tree.counts + 0.5) - math.lgamma(0.5)).sum(axis=1)
    if not charge_first:
        lw += math.log(k)
    lwb = lw.copy()

    def average(node):
        left = tree.child[node]
        if left:
            below = average(left) + average(left + 1)
            lwb[node] = np.logaddexp(lw[node], below) - math.log(2)
        return lwb[node]

    average(0)
    return lw, lwb


@pytest.mark.parametrize("charge", CHARGES, ids=str)
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("split_pure", [False, True])
def test_odds_are_the_ratio_of_the_absolute_weights_given_by_the_counts(charge, k, split_pure):
    x, y = data(3, 400, 3, k, grid=None, missing=0.0)
    forest = amf.AMFClassifier(3, classes=range(k), split_pure=split_pure, **PAPER, **charge).partial_fit(x, y)
    for tree in trees_of(forest):
        lw, lwb = log_weights(tree, **charge)
        left = tree.child[tree.inner]
        expected = lw[tree.inner] - lwb[left] - lwb[left + 1]
        np.testing.assert_allclose(np.log(tree.odds[tree.inner]), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("charge", CHARGES, ids=str)
def test_where_the_tree_stays_as_it_is_the_averaged_weight_is_multiplied_by_the_forecast(charge):
    """A.6.5. On all other rows the published forecast is that of the tree before it changed."""
    x, y = data(4, 200, 2, 3, grid=5, missing=0.0)
    forest = amf.AMFClassifier(1, classes=range(3), **PAPER, **charge).partial_fit(x[:50], y[:50])
    checked = 0
    for row in range(50, 200):
        (before,) = trees_of(forest)
        forecast = forest.prequential(x[row : row + 1], y[row : row + 1]).raw[0, y[row]]
        (after,) = trees_of(forest)
        if len(after.child) == len(before.child):
            grown = log_weights(after, **charge)[1][0] - log_weights(before, **charge)[1][0]
            assert grown == pytest.approx(math.log(forecast), rel=1e-9)
            checked += 1
    assert checked > 50


# A.6.4 and D: the definition, by enumeration of all prunings.


@pytest.mark.parametrize("prior", [{"prior": "dirichlet", "dirichlet": 0.5}, {"prior": "parent", "smoothing": 0.7}])
@pytest.mark.parametrize("charge", CHARGES, ids=str)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_forecasts_and_weighted_depths_are_averages_over_all_prunings(prior, charge, missing):
    for seed in range(5):
        x, y = data(seed, 8, 3, 3, grid=None, missing=missing)
        x[0] = 0.0
        setting = {**prior, **charge, "split_pure": True}
        forest = amf.AMFClassifier(3, classes=range(3), seed=seed, scaling="none", **setting).partial_fit(x, y)
        reference = ReferenceForest(seed, 3, n_features=3, n_classes=3, **setting)
        reference.predict_learn(x.astype(np.float32), y)
        same_rows(forest, reference)
        assert forest.n_nodes > 20
        forecasts = forest.predict_proba(x, calibrated=False)
        for row, forecast, depth in zip(x, forecasts, forest.weighted_depth(x), strict=True):
            averages = [average_over_prunings(tree, row.astype(np.float32)) for tree in reference.trees]
            np.testing.assert_allclose(forecast, np.mean([a.forecast for a in averages], axis=0), rtol=1e-12)
            assert depth == pytest.approx(np.mean([a.depth for a in averages]), rel=1e-12)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    prior=st.sampled_from([{"prior": "parent"}, {"prior": "dirichlet"}, {"prior": "parent", "smoothing": 0.01}]),
    charge=st.sampled_from(CHARGES),
    missing=st.sampled_from([0.0, 0.3]),
)
def test_forecasts_are_distributions_and_weighted_depths_lie_within_depths(seed, prior, charge, missing):
    x, y = data(seed, 150, 3, 4, grid=None, missing=missing)
    forecasts = amf.AMFClassifier(3, classes=range(4), **prior, **charge).prequential(x, y)
    for probabilities in (forecasts.probabilities, forecasts.raw):
        assert np.all(probabilities > 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(forecasts.weighted_depth >= 0)
    assert np.all(forecasts.weighted_depth <= forecasts.depth + 1e-12)
    assert forecasts.depth[0] == forecasts.weighted_depth[0] == 0


# A.6.7, A.6.8.


@pytest.mark.parametrize("power", [-20, -1, 3, 40])
def test_scaling_all_features_by_a_power_of_two_scales_thresholds_and_times(power):
    x, y = data(5, 300, 4, 3, grid=None, missing=0.1)
    factor = 2.0**power
    plain, scaled = (amf.AMFClassifier(3, scaling="none", seed=2, purity=purity) for purity in (4.0, 4.0 / factor))
    np.testing.assert_array_equal(plain.predict_learn(x, y), scaled.predict_learn(x * factor, y))
    for a, b in zip(trees_of(plain), trees_of(scaled), strict=True):
        for same in ("child", "feature", "odds", "counts"):
            np.testing.assert_array_equal(getattr(a, same), getattr(b, same))
        np.testing.assert_array_equal(a.threshold * np.float32(factor), b.threshold)
        np.testing.assert_array_equal(a.low * np.float32(factor), b.low)
        np.testing.assert_array_equal(a.time / factor, b.time)


@pytest.mark.parametrize("prior", [{"prior": "parent"}, {"prior": "dirichlet"}], ids=str)
def test_relabelling_permutes_the_columns(prior):
    x, y = data(6, 200, 3, 3, grid=None, missing=0.0)
    order = np.array([2, 0, 1])
    plain, renamed = (amf.AMFClassifier(3, classes=range(3), **prior) for _ in range(2))
    told, other = plain.prequential(x, y), renamed.prequential(x, order[y])
    np.testing.assert_array_equal(told.raw, other.raw[:, order])
    # The calibration norms forecasts by sums over classes, whose order is another one.
    np.testing.assert_allclose(told.probabilities, other.probabilities[:, order], rtol=1e-12)


def test_two_points_by_hand():
    forest = amf.AMFClassifier(1, classes=[0, 1], charge_first=True, **PAPER)
    table = forest.prequential([[0.0], [1.0]], [0, 1]).raw
    np.testing.assert_allclose(table, [[1 / 2, 1 / 2], [3 / 4, 1 / 4]], rtol=1e-15)
    (tree,) = trees_of(forest)
    assert tree.odds[0] == pytest.approx((1 / 8) / (1 / 2 * 1 / 2), rel=1e-15)
    lw, lwb = log_weights(tree, charge_first=True)
    np.testing.assert_allclose(np.exp([lw[0], lwb[0], *lwb[1:]]), [1 / 8, 3 / 16, 1 / 2, 1 / 2], rtol=1e-12)
    after = forest.predict_proba([[0.0], [1.0]], calibrated=False)
    np.testing.assert_allclose(after, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], rtol=1e-15)
    np.testing.assert_allclose(forest.weighted_depth([[0.0]]), [2 / 3], rtol=1e-15)


# D.6 and A.6.10, what the weighted depth tells.


def test_the_weighted_depth_of_a_root_alone_is_zero():
    forest = amf.AMFClassifier().partial_fit(np.ones((5, 2)), [0, 1, 0, 1, 1])
    np.testing.assert_array_equal(forest.weighted_depth(np.random.default_rng(0).normal(size=(4, 2))), np.zeros(4))


def test_the_weighted_depth_is_the_depth_where_every_node_is_certain_to_be_too_coarse():
    x = np.tile(np.arange(8.0), 200)[:, None]
    forest = amf.AMFClassifier(5, scaling="none").partial_fit(x, x[:, 0].astype(int) % 2)
    forecasts = forest.prequential(x[:8], [None] * 8)
    assert forecasts.depth.min() > 1
    np.testing.assert_allclose(forecasts.weighted_depth, forecasts.depth, rtol=1e-9)
