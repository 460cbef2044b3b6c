"""The regression reference against the specification, and the regressor's kernels against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference import average_over_prunings
from reference_regression import Labels, RegressionForest, RegressionTree
from trees import trees_of

import amf

BOUND = 2.0
PAPER = {"loss": "square", "bound": BOUND, "charge_first": True, "split_pure": True}
LOSSES = [
    {},
    {"charge_first": True},
    {"split_pure": True},
    PAPER,
    {"loss": "square", "bound": BOUND, "charge_first": False},
    {"loss": "square", "bound": BOUND / 4, "charge_first": True},
    {"purity": 0.0},
]


def samples(n, d=3, seed=0, *, grid=None, missing=0.0):
    """Samples, on a grid with ties and duplicates, and labels within [-BOUND, BOUND], some of them bitwise equal."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, d)) if grid is None else rng.integers(0, grid, (n, d)) / 4
    y = np.clip(np.sin(5 * x[:, 0]) + rng.standard_t(3, n) / 3, -BOUND, BOUND)
    y[rng.random(n) < 0.2] = 0.5
    x = x.astype(np.float32)
    x[rng.random((n, d)) < missing] = np.nan
    return x, y


def grown(x, y, seed=1, **options):
    tree = RegressionTree(seed, x.shape[1], **options)
    for row, label in zip(x, y, strict=True):
        tree.learn(row, float(label))
    return tree


def labels_below(tree, x, y):
    """The labels of each node in the order in which they came."""
    found = {node: [] for node in tree.nodes()}
    for row, label in zip(x, y, strict=True):
        for node, _ in tree.path(row):
            found[node].append(float(label))
    return found


# What one node says.


@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_a_node_knows_number_mean_and_deviations_of_its_labels(options):
    x, y = samples(150, grid=8)
    for node, labels in labels_below(grown(x, y, **options), x, y).items():
        assert node.n == len(labels)
        assert node.counts.mean == pytest.approx(np.mean(labels), abs=1e-12)
        assert node.counts.m2 == pytest.approx(np.var(labels) * len(labels), abs=1e-12)


def test_the_loss_of_the_mean_exceeds_the_best_constant_by_a_sum_over_its_errors():
    """[AMF] Lemma 6, exactly: errors / rank, which is at most bound^2 (1 + 4 log n)."""
    x, y = samples(200)
    tree = grown(x, y, **PAPER)
    for node, labels in labels_below(tree, x, y).items():
        loss = -8 * BOUND**2 * node.lw
        regret = loss - sum((np.mean(labels) - label) ** 2 for label in labels)
        errors = [label - np.mean(labels[:k]) if k else label for k, label in enumerate(labels)]
        assert regret == pytest.approx(sum(e**2 / k for k, e in enumerate(errors, 1)), abs=1e-9)
        assert regret <= BOUND**2 * (1 + 4 * math.log(len(labels)))


def test_student_evidence_worked_out_by_hand():
    tree = grown(np.array([[0.0], [1.0], [2.0]]), [0.0, 4.0, 2.0], split_pure=True)
    root, (leaf, *_) = tree.root, [node for node in tree.nodes() if node.is_leaf]
    assert tree.variance(root) == 4.0  # 8 / 2
    above = tree.variance(leaf.parent)
    assert tree.variance(leaf) == pytest.approx(3 / 4 * above)
    # Distance 2 about mean 2 with variance 4: share 4 / (12 + 4), density share^2 / 2.
    assert tree.log_forecast(root, 4.0) == pytest.approx(math.log(1 / 16 / 2))
    # A fresh leaf pays half the way from there to the peak: share / 3 / 2.
    assert tree.log_first_forecast(root, 4.0) == pytest.approx(math.log(1 / 12 / 2))
    assert tree.log_first_forecast(root, 2.0) == pytest.approx(tree.log_forecast(root, 2.0))
    peak = tree.log_forecast(root, 2.0)
    assert 2 * tree.log_first_forecast(root, 4.0) == pytest.approx(peak + tree.log_forecast(root, 4.0))


def test_equal_labels_are_no_evidence_and_a_leaf_of_equal_labels_does_not_split():
    x = np.arange(6.0)[:, None]
    tree = grown(x, [7.0] * 6, purity=0.0)
    assert tree.n_nodes == 1
    assert grown(x, [7.0] * 6).n_nodes > 1
    tree = grown(x, [7.0] * 6, split_pure=True)
    assert tree.n_nodes == 11
    assert {node.lw for node in tree.nodes()} == {0.0}
    tree.learn([2.5], 8.0)
    assert all(math.isfinite(node.lwb) for node in tree.nodes())
    assert tree.predict(np.array([9.0])) >= 7.0


def test_a_label_that_is_missing_changes_nothing_and_without_labels_nothing_is_forecast():
    tree = RegressionTree(0, 1)
    word = tree.rng.word
    tree.learn([1.0], math.nan)
    assert (tree.root, tree.rng.word) == (None, word)
    assert tree.outlook(np.array([1.0])) is None
    forest = RegressionForest(0, 2, 1)
    assert math.isnan(forest.predict(np.array([1.0])).mean)
    forest.learn([1.0], 4.0)
    assert forest.predict(np.array([1.0])) == (4.0, 4.0, 0.0, (4.0, 4.0, 4.0))


# The average over prunings.


@pytest.mark.parametrize("options", LOSSES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_recursion_equals_enumeration(options, seed):
    x, y = samples(12, seed=seed, missing=0.1)
    tree = grown(x, y, max_nodes=15, **options)
    assert tree.n_nodes >= 9
    for row in x:
        average = average_over_prunings(tree, row)
        assert tree.root.lwb == pytest.approx(average.log_weight, rel=1e-12)
        assert tree.predict(row) == pytest.approx(average.forecast, rel=1e-12, abs=1e-12)
        assert tree.weighted_depth(row) == pytest.approx(average.depth, rel=1e-12)


@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_the_odds_of_stopping_follow_their_own_recursion(options):
    """The one-number form that the kernels use, computed here from old values."""
    x, y = samples(120)
    tree = RegressionTree(1, 3, **options)
    kinds = {"leaf": 0, "inner": 0}
    for row, label in zip(x, y, strict=True):
        old_stop = {node: node.stop_probability for node in tree.nodes()}
        leaf = tree.insert(row, label)
        evidence = {node: math.exp(tree.log_forecast(node, label)) for node in leaf.lineage()}
        tree.count(leaf, label)
        mixed = evidence[leaf]
        for node in list(leaf.lineage())[1:]:
            e = evidence[node]
            if node in old_stop:
                stop = old_stop[node]
                odds, mixed = stop / (1 - stop) * e / mixed, stop * e + (1 - stop) * mixed
            else:
                below = node.left if node.right is leaf else node.right
                kinds["leaf" if below.is_leaf else "inner"] += 1
                stop = 1.0 if below.is_leaf else 2 * old_stop[below]
                odds, mixed = stop * e / mixed, (stop * e + mixed) / 2
            assert node.stop_probability == pytest.approx(odds / (1 + odds), rel=1e-6)
    assert min(kinds.values()) > 3


@pytest.mark.parametrize("seed", range(3))
def test_regret_against_every_pruning_in_a_fixed_partition(seed):
    """Corollary 2 with the constants it needs. It is a law of a tree that does not change while labels come, so the
    samples grow the tree before the first label is counted."""
    x, y = samples(40, seed=seed, grid=3)
    tree = RegressionTree(seed, 3, max_nodes=15, **PAPER)
    for row in x:
        tree.insert(row, 0.0)
    assert tree.n_nodes >= 9
    own_loss = 0.0
    for row, label in zip(x, y, strict=True):
        forecast, before = tree.predict(row), tree.root.lwb
        *_, (leaf, _) = tree.path(row)
        tree.count(leaf, float(label))
        own_loss += (forecast - label) ** 2
        # The square loss is exp-concave: the mixed forecast is never charged more than the mixture of charges.
        assert (forecast - label) ** 2 <= 8 * BOUND**2 * (before - tree.root.lwb) + 1e-12
    labels = labels_below(tree, x, y)
    for pruning in tree.prunings():
        best = sum(np.var(labels[stop]) * len(labels[stop]) for stop in pruning if labels[stop])
        size = len(pruning) - 1 + sum(not stop.is_leaf for stop in pruning)
        leaves = sum(BOUND**2 * (1 + 4 * math.log(len(labels[stop]))) for stop in pruning if labels[stop])
        assert own_loss - best <= 8 * BOUND**2 * size * math.log(2) + leaves


@pytest.mark.parametrize("charge_first", [False, True])
def test_unit_and_zero_of_the_labels_do_not_matter(charge_first):
    x, y = samples(150, grid=16)
    plain, moved = grown(x, y, charge_first=charge_first), grown(x, 1000 * y - 7e5, charge_first=charge_first)
    assert plain.n_nodes == moved.n_nodes > 20
    for a, b in zip(plain.nodes(), moved.nodes(), strict=True):
        assert b.stop_probability == pytest.approx(a.stop_probability, rel=1e-5)
    for row in x[:20]:
        before, after = plain.outlook(row), moved.outlook(row)
        assert (after.origin + 7e5) / 1000 == pytest.approx(before.origin)
        assert after.mean / 1000 == pytest.approx(before.mean, rel=1e-6)
        assert after.variance == pytest.approx(1e6 * before.variance, rel=1e-5)


def test_in_the_paper_the_zero_of_the_labels_matters():
    """Its empty node forecasts 0, so a fresh leaf far from 0 is charged: documented, not mended (algorithms.md B.6)."""
    x, y = samples(60)
    plain, moved = grown(x, y, **PAPER), grown(x, y + 5, **PAPER)
    assert plain.n_nodes == moved.n_nodes
    assert abs(moved.predict(x[0]) - 5 - plain.predict(x[0])) > 0.01


# What a forest makes of its trees.


def test_variance_is_that_of_the_mixture():
    x, y = samples(80)
    forest = RegressionForest(3, 4, 3)
    forest.predict_learn(x, y)
    for row in x[:10]:
        parts = [
            (reach * node.stop_probability / 4, tree.forecast(node), tree.variance(node))
            for tree in forest.trees
            for node, reach in tree.path(row)
        ]
        assert sum(weight for weight, _, _ in parts) == pytest.approx(1)
        mean = sum(weight * m for weight, m, _ in parts)
        outlook = forest.outlook(row)
        assert outlook.origin == pytest.approx(np.mean(y))
        assert outlook.origin + outlook.mean == pytest.approx(mean)
        assert outlook.variance == pytest.approx(sum(w * (v + m**2) for w, m, v in parts) - mean**2)


def test_labels_say_how_many_equal_one_value():
    labels = Labels()
    for _ in range(3):
        labels.add(0.1)
    assert (labels[0.1], labels[0.2]) == (3, 0)
    labels.add(0.5)
    assert (labels[0.1], labels[labels.mean], labels.sum()) == (0, 0, 4)


# The kernels.


@pytest.mark.parametrize("options", [*LOSSES, {"calibration": False}], ids=str)
@pytest.mark.parametrize(
    ("d", "grid", "missing"),
    [
        (3, 4, 0.0),
        (2, 2, 0.5),
        *(pytest.param(*shape, marks=pytest.mark.full) for shape in [(1, None, 0.0), (9, None, 0.2), (17, 3, 0.1)]),
    ],
)
def test_kernels_equal_the_reference(options, d, grid, missing):
    x, y = samples(120, d, seed=d, grid=grid, missing=missing)
    x[0] = 0.0  # fixes every origin at 0, so that the reference sees the same float32 values
    y[3::7] = np.nan
    forest = amf.AMFRegressor(3, seed=11, scaling="none", **options)
    reference = RegressionForest(11, 3, d, **options)
    expected = reference.predict_learn(x, y)
    got = forest.prequential(x.astype(float), y)
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(got.mean, [forecast.mean for forecast in expected], **close)
    np.testing.assert_allclose(got.raw_mean, [forecast.raw_mean for forecast in expected], **close)
    np.testing.assert_allclose(got.std, [forecast.std for forecast in expected], **close)
    np.testing.assert_allclose(got.quantiles, [forecast.quantiles for forecast in expected], **close)
    if forest.params.calibration:
        np.testing.assert_allclose(forest.losses, reference.losses.means(), **close)
    else:
        assert forest.losses is None
    # Bit for bit, unless an origin has moved: then up to the rounding of that.
    origin = forest._scaling.origin
    exact = {"rtol": 0.0, "atol": 0.0} if not origin.any() else {"rtol": 1e-5, "atol": 1e-5}
    for tree, other in zip(trees_of(forest), reference.trees, strict=True):
        for row, node in zip(tree.in_order(), other.nodes(), strict=True):
            feature, threshold = tree.cut(row)
            moved = threshold + (origin[feature] if feature >= 0 else 0.0)
            assert (feature, tree.count[row]) == (node.feature, node.n)
            np.testing.assert_allclose([moved, tree.time[row]], [node.threshold, node.time], **exact)
            np.testing.assert_allclose(tree.low[row] + origin, node.lo, **exact)
            np.testing.assert_allclose(tree.high[row] + origin, node.hi, **exact)
    later = [reference.predict(row) for row in x[:20]]
    np.testing.assert_allclose(forest.predict(x[:20].astype(float)), [one.mean for one in later], **close)
    np.testing.assert_allclose(forest.predict_std(x[:20].astype(float)), [one.std for one in later], **close)
    np.testing.assert_allclose(
        forest.predict_quantiles(x[:20].astype(float), [0.05, 0.5, 0.95]), [one.quantiles for one in later], **close
    )


def test_kernels_equal_the_reference_where_labels_are_forgotten():
    """With an outlier and a level shift, over more labels than a mean holds."""
    rng = np.random.default_rng(0)
    x = rng.random((1500, 2)).astype(np.float32)
    x[0] = 0.0
    y = np.sin(5.0 * x[:, 0]) + rng.standard_t(2, 1500)
    y[700] = 1e4
    y[1100:] += 20.0
    forest = amf.AMFRegressor(2, seed=3, scaling="none")
    reference = RegressionForest(3, 2, 2)
    expected, got = reference.predict_learn(x, y), forest.prequential(x.astype(float), y)
    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(got.mean, [forecast.mean for forecast in expected], **close)
    np.testing.assert_allclose(got.quantiles, [forecast.quantiles for forecast in expected], **close)
    np.testing.assert_allclose(forest.losses, reference.losses.means(), **close)


@pytest.mark.parametrize("options", [{}, {"charge_first": True}, {"charge_first": True, "split_pure": True}], ids=str)
@pytest.mark.parametrize("label", [200.0, -200.0, 1e75])
def test_a_label_far_beyond_the_bound_does_not_decide_everything(options, label):
    """Its evidence would be exp(-(200 - mean)**2 / 8), 0 to the last bit, for every node: then no odds are left."""
    rng = np.random.default_rng(0)
    x = rng.random((600, 2))
    y = 0.9 * np.sin(6 * x[:, 0])
    errors = []
    for there in (y[300], label):
        forest = amf.AMFRegressor(5, loss="square", bound=1.0, seed=1, **options)
        said = forest.prequential(x, np.where(np.arange(600) == 300, there, y))
        for column in (said.mean, said.raw_mean, said.std):
            assert np.isfinite(column[1:]).all()
        assert all(np.isfinite(tree.odds).all() for tree in trees_of(forest))
        errors.append(np.median(np.abs(said.raw_mean - y)[400:]))
    # Whatever decides, the mean of the root has learned it: 1e75 shows in every forecast.
    assert abs(label) == 1e75 or errors[1] < 1.2 * errors[0]
