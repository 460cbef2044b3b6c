"""Limits of memory: what `max_bytes` holds, and counters that are full."""

from __future__ import annotations

import numpy as np
import pytest

import amf
from amf.arena import CHILD, COUNT, LARGEST_COUNT, STATS, _Blocks


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    return x, (x[:, 0] > rng.normal(size=n)).astype(int)


@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize("max_bytes", [5_000, 20_000, 77_777, 300_000])
def test_a_forest_stays_below_its_limit_and_uses_it(scaling, max_bytes):
    """With classes and features known from the start. The peak is higher: while rows move both copies exist."""
    x, y = stream(3000)
    forest = amf.AMFClassifier(3, classes=[0, 1], max_bytes=max_bytes, scaling=scaling)
    for start in range(0, 3000, 100):
        forest.partial_fit(x[start : start + 100], y[start : start + 100])
        assert forest.nbytes <= max_bytes
    split = 2 * 3 * 4 * forest._arena.layout.words
    assert forest.nbytes > max_bytes - split
    assert forest.n_nodes > 3 * (forest._arena.capacity - 2)


def test_a_forest_without_room_for_anything_still_counts():
    x, y = stream(500)
    forest = amf.AMFClassifier(2, classes=[0, 1], max_bytes=1, prior="dirichlet", dirichlet=0.5).partial_fit(x, y)
    assert forest.n_nodes == 2
    expected = (np.bincount(y) + 0.5) / (500 + 1)
    np.testing.assert_allclose(forest.predict_proba(x[:3]), np.tile(expected, (3, 1)), rtol=1e-14)


def test_at_the_limit_trees_stop_splitting_and_go_on_counting_and_improve():
    x, y = stream(6000)
    forest = amf.AMFClassifier(5, classes=[0, 1], max_bytes=30_000, split_pure=True).partial_fit(x[:2000], y[:2000])
    nodes, nbytes = forest.n_nodes, forest.nbytes
    before = -np.log(forest.predict_proba(x[5000:])[np.arange(1000), y[5000:]]).mean()
    forest.partial_fit(x[2000:5000], y[2000:5000])
    after = -np.log(forest.predict_proba(x[5000:])[np.arange(1000), y[5000:]]).mean()
    assert (forest.n_nodes, forest.nbytes, forest.n_samples) == (nodes, nbytes, 5000)
    for tree in range(5):
        rows = forest._arena.rows(tree)
        assert rows[0, COUNT] == 5000
        leaves = rows[rows[:, CHILD] == 0]
        assert leaves[:, COUNT].sum() == 5000
    assert after < before


def test_a_limit_below_what_is_in_use_ends_all_splits():
    """Classes that come late make every row longer. Rows are not given back, so that the forest exceeds its limit."""
    x, y = stream(2000)
    forest = amf.AMFClassifier(3, max_bytes=60_000).partial_fit(x, y)
    nodes = forest.n_nodes
    forest.partial_fit(x[:100], np.arange(100))
    assert forest.n_nodes == nodes
    assert forest.n_samples == 2100
    np.testing.assert_allclose(forest.predict_proba(x).sum(axis=1), 1.0, rtol=1e-12)


def test_the_limit_changes_nothing_until_it_is_reached():
    x, y = stream(100)
    roomy, tight = (amf.AMFClassifier(3, classes=[0, 1], max_bytes=m).partial_fit(x, y) for m in (64_000_000, 60_000))
    assert tight.n_nodes == roomy.n_nodes
    np.testing.assert_array_equal(tight.predict_proba(x), roomy.predict_proba(x))


def test_memory_per_small_forest_is_small():
    """The figure that many small forests live on: ten trees that have learned 20 samples of 10 features."""
    rng = np.random.default_rng(0)
    forest = amf.AMFClassifier(10).partial_fit(rng.normal(size=(20, 10)), rng.integers(0, 2, 20))
    assert forest.nbytes <= 64_000


def test_a_full_counter_halves_the_counts_of_its_node():
    x, y = stream(200)
    forest = amf.AMFClassifier(1, classes=[0, 1], prior="dirichlet", dirichlet=0.5).partial_fit(x, y)
    rows = forest._arena.rows(0)
    rows[0, [COUNT, STATS, STATS + 1]] = LARGEST_COUNT, LARGEST_COUNT - 101, 101
    others = rows[1:, COUNT].copy()
    forest.partial_fit(x[:1], [1])
    assert rows[0, [STATS, STATS + 1]].tolist() == [(LARGEST_COUNT - 101) // 2, 51]
    assert rows[0, COUNT] == rows[0, STATS] + rows[0, STATS + 1]
    assert (rows[1:, COUNT] - others).max() == 1
    np.testing.assert_allclose(forest.predict_proba(x).sum(axis=1), 1.0, rtol=1e-12)
    again = amf.loads(forest.dumps()).partial_fit(x, y)
    assert again.dumps() == forest.partial_fit(x, y).dumps()


def test_no_counter_overflows():
    """A leaf whose counter is full, with one label only, learns that label and another one."""
    forest = amf.AMFClassifier(1, classes=[0, 1]).partial_fit(np.zeros((2, 1)), [0, 0])
    for label, expected in [(0, [LARGEST_COUNT // 2 + 1, 0]), (1, [LARGEST_COUNT // 2, 1])]:
        forest._arena.rows(0)[0, [COUNT, STATS, STATS + 1]] = LARGEST_COUNT, LARGEST_COUNT, 0
        forest.partial_fit(np.zeros((1, 1)), [label])
        assert forest._arena.rows(0)[0, [STATS, STATS + 1]].tolist() == expected
        assert forest._arena.rows(0)[0, COUNT] == sum(expected)


def test_a_block_that_somebody_looks_at_is_not_used_again():
    blocks = _Blocks(10**9)
    size = 10**6
    block = blocks.take(size)
    view = block[:10]
    blocks.give(block)
    assert blocks.take(size) is not block
    del view
    blocks.give(block)
    address = block.ctypes.data
    block[:] = 7
    del block
    again = blocks.take(size)
    assert again.ctypes.data == address
    assert not again.any()


def test_a_dead_forest_may_be_collected_while_blocks_are_handed_out():
    blocks = _Blocks(10**9)
    with blocks._lock:  # as when a collection of garbage strikes in the middle of `take`
        block = blocks.take(10**6)
        blocks.give(block)
    assert blocks._bytes == block.nbytes
