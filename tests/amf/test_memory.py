"""Limits of memory: what `max_bytes` holds, and counters that are full."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from trees import trees_of

import amf


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    return x, (x[:, 0] > rng.normal(size=n)).astype(int)


@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize("max_bytes", [5_000, 20_000, 77_777, 300_000])
def test_a_forest_stays_below_its_limit_and_uses_it(scaling, max_bytes):
    """The peak is higher: while rows move both copies exist."""
    x, y = stream(3000)
    forest = amf.AMFClassifier(3, classes=[0, 1], max_bytes=max_bytes, scaling=scaling)
    for start in range(0, 3000, 100):
        forest.partial_fit(x[start : start + 100], y[start : start + 100])
        assert forest.nbytes <= max_bytes
    chunk = 8 * 3 * forest._arena.layout.nbytes
    assert forest.nbytes > max_bytes - chunk
    assert forest.n_nodes > 3 * 0.85 * (forest._arena.capacity - 8)


def test_a_forest_without_room_for_anything_still_counts():
    x, y = stream(500)
    forest = amf.AMFClassifier(2, classes=[0, 1], max_bytes=1, prior="dirichlet", dirichlet=0.5).partial_fit(x, y)
    assert forest.n_nodes == 2
    expected = (np.bincount(y) + 0.5) / (500 + 1)
    table = forest.predict_proba(x[:3], calibrated=False)
    np.testing.assert_allclose(table, np.tile(expected, (3, 1)), rtol=1e-14)


def test_at_the_limit_trees_forget_and_go_on_learning():
    x, y = stream(6000)
    forest = amf.AMFClassifier(5, classes=[0, 1], max_bytes=60_000).partial_fit(x[:2000], y[:2000])
    nbytes = forest.nbytes
    before = -np.log(forest.predict_proba(x[5000:])[np.arange(1000), y[5000:]]).mean()
    forest.partial_fit(x[2000:5000], y[2000:5000])
    after = -np.log(forest.predict_proba(x[5000:])[np.arange(1000), y[5000:]]).mean()
    assert (forest.nbytes, forest.n_samples) == (nbytes, 5000)
    for tree in trees_of(forest):
        assert tree.count[0] == 5000  # the root remembers all labels, the leaves many fewer
        assert tree.count[tree.leaves].sum() < 0.8 * tree.count[0]
    assert after < before


def test_a_class_for_which_heads_have_a_word_moves_no_node():
    x, _ = stream(200)
    forest = amf.AMFClassifier(3).partial_fit(x, [0] * 200)
    for n_classes, moves in ((2, False), (3, True), (4, False)):
        blocks = forest._arena.blocks
        forest.add_classes([n_classes])
        kept = [now is before for now, before in zip(forest._arena.blocks[:2], blocks, strict=False)]
        assert kept == [not moves] * 2
        forest.partial_fit(x[:20], [n_classes] * 20)
    assert np.isfinite(forest.predict_proba(x)).all()


def test_classes_that_come_late_leave_room_for_fewer_nodes():
    x, y = stream(2000)
    forest = amf.AMFClassifier(3, max_bytes=60_000).partial_fit(x, y)
    nodes = forest.n_nodes
    forest.partial_fit(x[:100], np.arange(100))
    assert forest.nbytes <= 60_000
    assert forest.n_nodes < nodes
    assert forest.n_samples == 2100
    np.testing.assert_allclose(forest.predict_proba(x).sum(axis=1), 1.0, rtol=1e-12)


def test_features_that_come_late_leave_room_for_fewer_nodes():
    x, y = stream(2000)
    forest = amf.AMFClassifier(3, max_bytes=60_000)
    forest.add_features(list("abcd"))
    forest.partial_fit(x, y)
    forest.add_features([f"f{j}" for j in range(50)])
    forest.partial_fit(np.hstack([x, np.random.default_rng(0).normal(size=(2000, 50))]), y)
    assert forest.nbytes <= 60_000


def test_the_limit_changes_nothing_until_it_is_reached():
    x, y = stream(100)
    roomy, tight = (amf.AMFClassifier(3, classes=[0, 1], max_bytes=m).partial_fit(x, y) for m in (64_000_000, 240_000))
    assert tight.n_nodes == roomy.n_nodes
    np.testing.assert_array_equal(tight.predict_proba(x), roomy.predict_proba(x))


def test_memory_per_small_forest_is_small():
    """The figure that many small forests live on: ten trees that have learned 20 samples of 10 features."""
    rng = np.random.default_rng(0)
    forest = amf.AMFClassifier(10).partial_fit(rng.normal(size=(20, 10)), rng.integers(0, 2, 20))
    assert forest.nbytes <= 64_000


def test_links_fit_however_much_memory_is_allowed():
    """A link is an int32 row of the block of all trees."""
    for n_trees in (1, 3, 10_000):
        forest = amf.AMFClassifier(n_trees, max_bytes=2**63 - 1).partial_fit([[0.0]], [0])
        last = forest._allowed * n_trees - 1
        assert 2**31 - 2 * 8 * n_trees < last < 2**31
        assert np.int32(last) == last


def test_rows_that_grow_while_trees_are_nearly_full_leave_room_for_the_next_split():
    """Each new class makes rows longer, so that fewer of them are allowed than are in use."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        forest = amf.AMFClassifier(4, seed=seed, max_bytes=20_000)
        for row, x in enumerate(np.exp(rng.normal(size=(60, 1)) * 6)):
            forest.partial_fit(x[None], [row])
            assert (forest._arena.used.astype(int) + 2 <= max(forest._allowed, 16)).all()
            assert forest._arena.used.max() <= forest._arena.capacity


def test_a_tree_that_fills_its_memory_forgets_where_no_more_of_it_is_allowed():
    """A new feature makes rows longer, so that no more of them are allowed than there is memory for already."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    forest = amf.AMFClassifier(1, max_bytes=4000, calibration=False, seed=1)
    forest.add_features(["a", "b"])
    for start in range(0, 21, 3):
        forest.partial_fit(x[start : start + 3], y[start : start + 3])
    assert (forest._arena.capacity, forest._arena.used.tolist(), forest._allowed) == (40, [40], 48)
    forest.add_features(["c"])
    assert forest._allowed == 40
    assert forest._arena.used[0] + 2 <= 40
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()


def test_a_new_feature_leaves_no_more_samples_kept_than_there_may_be_with_it():
    """Each takes more memory then, of which there is as much as before."""
    x = np.random.default_rng(0).normal(size=(70, 1))
    forest = amf.AdaptiveAMFClassifier(2, max_bytes=20_000)
    forest.add_features(["a"])
    forest.partial_fit(x, (x[:, 0] > 0).astype(int))
    assert forest._adapted.kept_labels.shape[0] > 60
    forest.add_features(["b"])
    assert forest._adapted.kept_labels.shape[0] == forest._terms.most_kept < 60
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()


@pytest.mark.parametrize("forest", [amf.AMFClassifier(1, max_classes=2000), amf.AMFRegressor(1)], ids=repr)
def test_learning_takes_no_memory_for_forecasts_that_are_not_asked_for(forest):
    """Which are as large as rows times classes: 640 MB here, of rows that are 0.2 MB."""
    rng = np.random.default_rng(0)
    x, y = rng.random((20_000, 1)), np.arange(20_000) % 2000
    twin = forest.copy()
    forest.partial_fit(x[:4000], y[:4000])
    tracemalloc.start()
    forest.partial_fit(x[4000:], y[4000:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000
    for start in range(0, 20_000, 1000):
        twin.predict_learn(x[start : start + 1000], y[start : start + 1000])
    assert twin.dumps() == forest.dumps()
