"""The prediction modes: `sampled` is Alg. 6 repaired, `expected` is its mean, and a forest is like the reference."""

from __future__ import annotations

import math
import pickle
from functools import partial

import numpy as np
import pytest
from reference import ReferenceForest, ReferenceTree, average_over_prunings
from reference_modes import branched_off, draw, existing, expected, hazards, outlook, sampled

import amf

PRIORS = [{"prior": "dirichlet", "dirichlet": 0.5}, {"prior": "parent", "smoothing": 0.7}]
CHARGES = [{"charge_first": True}, {"charge_first": False}]
MODES = ["sampled", "expected"]


def samples(n: int, d: int = 3, k: int = 3, *, seed: int = 0, missing: float = 0.0):
    """Samples on a coarse grid, so that ties and duplicates occur, and labels that depend on them with noise."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(-8, 8, size=(n, d)) / 4).astype(np.float32)
    labels = (points[:, 0] > 0).astype(int) + (rng.random(n) < 0.3) * rng.integers(0, k, n)
    points[0] = 0.0  # fixes every origin of a forest at 0: the reference does not centre its features
    points[1:][rng.random((n - 1, d)) < missing] = np.nan
    return points, labels % k


def grown(points, labels, *, seed: int = 1, **options) -> ReferenceTree:
    tree = ReferenceTree(seed, points.shape[1], 3, **options)
    for x, label in zip(points, labels, strict=True):
        tree.learn(x, int(label))
    return tree


def elsewhere(n: int, *, seed: int, missing: float = 0.0):
    """Where to ask: near the samples, off their grid and beyond their range."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (n, 3)).astype(np.float32)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def state(tree: ReferenceTree):
    rows = [(u.feature, u.threshold, u.time, u.lw, u.lwb, u.counts.tolist(), str((u.lo, u.hi))) for u in tree.nodes()]
    return rows, tree.rng.word, tree.n_nodes


# The reference.


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("charge", CHARGES, ids=str)
def test_expected_is_the_sum_over_branch_offs_of_the_sum_over_prunings(prior, charge):
    """Nothing of the recursion is used here: each temporary tree is built and all of its prunings are enumerated."""
    for seed in range(5):
        points, labels = samples(12, seed=seed, missing=0.1)
        tree = grown(points, labels, max_nodes=13, split_pure=True, **prior, **charge)
        assert tree.n_nodes >= 9
        for x in [*elsewhere(4, seed=seed, missing=0.1), *points[:2]]:
            forecast, depth, leaf_depth, not_yet = 0.0, 0.0, 0.0, 1.0
            for node, hazard in hazards(tree, x):
                probability = not_yet * -math.expm1(-hazard)
                with branched_off(tree, node, x):
                    average = average_over_prunings(tree, x)
                    leaf_depth += probability * existing(tree, x).depth
                forecast = forecast + probability * average.forecast
                depth += probability * average.depth
                not_yet *= math.exp(-hazard)
            average = average_over_prunings(tree, x)
            mean = expected(tree, x)
            assert mean.forecast == pytest.approx(forecast + not_yet * average.forecast, rel=1e-9)
            assert mean.weighted_depth == pytest.approx(depth + not_yet * average.depth, rel=1e-9)
            assert mean.depth == pytest.approx(leaf_depth + not_yet * existing(tree, x).depth, rel=1e-9)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("charge", CHARGES, ids=str)
def test_expected_is_the_mean_of_sampled(prior, charge):
    """As a function of its uniform, `sampled` has one step a node: a grid of uniforms misses the mean by little."""
    points, labels = samples(40, seed=3, missing=0.1)
    tree = grown(points, labels, split_pure=True, **prior, **charge)
    n_draws, n_branch_offs = 500, 0
    for x in elsewhere(4, seed=4):
        draws = np.array([np.hstack(sampled(tree, x, (i + 0.5) / n_draws)) for i in range(n_draws)])
        steps = np.abs(np.diff(draws, axis=0))
        n_branch_offs += np.count_nonzero(steps[:, -1])
        error = (steps.max(axis=0) * len(list(tree.path(x))) + 1e-9) / n_draws
        assert (np.abs(draws.mean(axis=0) - np.hstack(expected(tree, x))) <= error).all()
    assert n_branch_offs > 12


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_probabilities_are_probabilities_and_nothing_is_left_behind(prior):
    points, labels = samples(80, missing=0.1)
    tree = grown(points, labels, **prior)
    before = state(tree)
    for x in elsewhere(20, seed=5, missing=0.2):
        for mode in (sampled, expected):
            forecast, depth, weighted_depth = mode(tree, x)
            assert forecast.sum() == pytest.approx(1, rel=1e-12)
            assert (forecast > 0).all()
            assert 0 <= weighted_depth <= depth
    assert state(tree) == before


def test_inside_every_box_the_modes_agree_and_far_away_the_sample_leaves_at_the_root():
    points, labels = samples(60)
    tree = grown(points, labels, **PRIORS[0])
    inside = next(x for x in points if sum(hazard for _, hazard in hazards(tree, x)) == 0)
    for mode in (sampled, expected):
        for value, same in zip(mode(tree, inside), existing(tree, inside), strict=True):
            assert value == pytest.approx(same, rel=1e-12)
        far = mode(tree, np.full(3, 1e6, np.float32))
        assert far.depth == 1
        stop = tree.root.stop_probability
        alone = (stop * tree.forecast(tree.root) + np.full(3, 1 / 6)) / (0.5 + stop)
        assert far.forecast == pytest.approx(alone, rel=1e-9)


def test_a_pure_leaf_splits_in_a_forecast_though_it_pauses_in_learning():
    tree = ReferenceTree(0, 1, 2, charge_first=True, purity=0.0)
    tree.learn([0.0], 0)
    tree.learn([1.0], 0)
    assert tree.n_nodes == 1
    outside = np.array([1.5], np.float32)
    # The node above has seen the leaf's two labels, forecast 5/6; half of the weight goes to a fresh leaf.
    assert expected(tree, outside).forecast == pytest.approx([(5 / 6 + 1 / 2) / 2, (1 / 6 + 1 / 2) / 2])
    assert existing(tree, outside).forecast == pytest.approx([5 / 6, 1 / 6])


def test_beside_a_leaf_a_fresh_leaf_that_says_what_its_parent_says_changes_no_forecast():
    points, labels = samples(12, seed=2)
    tree = grown(points, labels, prior="parent")
    x = points[-1] + np.float32(1e-3)
    leaf, hazard = hazards(tree, x)[-1]
    assert (leaf.is_leaf, hazard) == (True, math.inf)
    before = existing(tree, x)
    with branched_off(tree, leaf, x):
        after = existing(tree, x)
    assert after.forecast == pytest.approx(before.forecast, rel=1e-12)
    assert after.depth == before.depth + 1


def test_the_draw_depends_on_the_state_and_on_the_sample_alone():
    points, labels = samples(30)
    tree, other = grown(points, labels), grown(points, labels, seed=2)
    rows = elsewhere(200, seed=6)
    rows[:50, 1] = np.nan
    draws = [draw(tree, x) for x in rows]
    assert draws == [draw(tree, x) for x in rows]
    everything = {*draws, *(draw(other, x) for x in rows)}
    tree.learn(points[0], 0)
    assert len(everything | {draw(tree, x) for x in rows}) == 600
    assert draw(tree, np.array([-0.0, 1, 2], np.float32)) == draw(tree, np.array([0.0, 1, 2], np.float32))
    assert np.mean(draws) == pytest.approx(0.5, abs=5 / math.sqrt(12 * 200))


# The forest.

SETTINGS = [
    {"prior": "parent", "smoothing": 0.7, "pause": 1.0},
    {"prior": "parent", "smoothing": 0.3, "charge_first": True, "split_pure": True},
    {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True, "split_pure": True},
    {"prior": "dirichlet", "dirichlet": 0.01, "pause": 1.0},
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(
    ("d", "missing"),
    [(3, 0.0), (2, 0.5), *(pytest.param(*shape, marks=pytest.mark.full) for shape in [(1, 0.0), (9, 0.2)])],
)
def test_the_forest_equals_the_reference(mode, setting, d, missing):
    points, labels = samples(100, d, seed=d, missing=missing)
    labels[3::7] = -1
    forest = amf.AMFClassifier(3, classes=range(3), seed=11, scaling="none", mode=mode, **setting)
    reference = ReferenceForest(11, 3, d, 3, **setting)
    got = forest.prequential(points, [None if label < 0 else int(label) for label in labels])
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        forecast, depth, weighted_depth = outlook(reference, x, mode)
        np.testing.assert_allclose(got.raw[row], forecast, rtol=1e-9, atol=1e-12)
        assert got.depth[row] == pytest.approx(depth, rel=1e-9)
        assert got.weighted_depth[row] == pytest.approx(weighted_depth, rel=1e-9)
        reference.learn(x, int(label))
    x = elsewhere(20, seed=d)[:, np.arange(d) % 3]
    outlooks = [outlook(reference, row, mode) for row in x]
    np.testing.assert_allclose(forest.predict_proba(x, calibrated=False), [o.forecast for o in outlooks], rtol=1e-9)
    np.testing.assert_allclose(forest.weighted_depth(x), [o.weighted_depth for o in outlooks], rtol=1e-9)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_forests_mean_over_draws_is_the_expected_forecast(setting):
    points, labels = samples(200, seed=8)
    new = partial(amf.AMFClassifier, 20, classes=range(3), seed=4, scaling="none", **setting)
    forest, other = (new(mode=mode).partial_fit(points, labels) for mode in MODES)
    x = elsewhere(5, seed=9)
    rng = np.random.default_rng(10)
    n_draws = 400
    tables = np.empty((n_draws, 5, 3))
    for n in range(n_draws):
        forest._words[:] = rng.integers(0, 2**64, 20, dtype=np.uint64)
        tables[n] = forest.predict_proba(x, calibrated=False)
    # The second term is for branch-offs so rare that no draw may show them.
    error = 5 * tables.std(axis=0) / math.sqrt(n_draws) + 1 / n_draws
    assert (tables.std(axis=0) > 0).any()
    assert (np.abs(tables.mean(axis=0) - other.predict_proba(x, calibrated=False)) <= error).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_forecast_leaves_no_trace_and_is_the_same_again_in_any_batch(mode):
    points, labels = samples(100, missing=0.1)
    forest = amf.AMFClassifier(5, seed=3, mode=mode).partial_fit(points, labels)
    before = forest.dumps()
    x = elsewhere(30, seed=1, missing=0.1)
    table = forest.predict_proba(x)
    np.testing.assert_array_equal(forest.predict_proba(x[::-1]), table[::-1])
    np.testing.assert_array_equal(np.vstack([forest.predict_proba(row[None]) for row in x]), table)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(forest)).predict_proba(x), table)
    forest.weighted_depth(x)
    forest.partial_fit(x, [None] * 30)
    assert forest.dumps() == before


@pytest.mark.parametrize("mode", MODES)
def test_learning_is_the_same_in_every_mode_and_predict_learn_is_predict_then_learn(mode):
    points, labels = samples(80, missing=0.1)
    forest, plain = (amf.AMFClassifier(5, seed=3, classes=range(3), mode=m) for m in (mode, "existing"))
    plain.partial_fit(points, labels)
    twin = amf.AMFClassifier(5, seed=3, classes=range(3), mode=mode)
    rows = []
    for x, label in zip(points, labels, strict=True):
        rows.append(twin.predict_proba(x[None])[0])
        twin.partial_fit(x[None], [label])
    np.testing.assert_array_equal(forest.predict_learn(points, labels), rows)
    np.testing.assert_array_equal(forest._words, plain._words)
    assert forest._calibration.shape == plain._calibration.shape
    assert forest.dumps() == twin.dumps()
    assert forest.n_nodes == plain.n_nodes
