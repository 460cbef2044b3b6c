"""What a full tree forgets, what stays, and what that does to forecasts."""

from __future__ import annotations

import numpy as np
import pytest
from trees import nodes_of, trees_of

import amf
from amf.arena import CHILD, COUNT


def induced(child, gone, row=0):
    """The tree that is left below a row, by the book: (row,) of a leaf, (row, left, right), or None."""
    if child[row] == 0:
        return None if row in gone else (row,)
    sides = [induced(child, gone, child[row] + side) for side in (0, 1)]
    left = [side for side in sides if side is not None]
    return (row, *left) if len(left) == 2 else (left or [None])[0]


def inner_nodes(node):
    if len(node) == 1:
        return []
    return [node, *inner_nodes(node[1]), *inner_nodes(node[2])]


def least_visited(heads):
    """The leaves that go: an eighth, those of the smallest counts, the older of equals."""
    leaves = np.flatnonzero(heads[:, CHILD] == 0)
    ordered = sorted(leaves, key=lambda row: (heads[row, COUNT], row))
    return ordered[: max(len(leaves) // 8, 1)]


def after_forgetting(heads, boxes):
    """Nodes as `Arena.nodes` gives them: the slow way."""
    root = induced(heads[:, CHILD], set(least_visited(heads)))
    parents = sorted(inner_nodes(root), key=lambda node: heads[node[0], CHILD])
    rows = [root[0]] + [side[0] for _, *sides in parents for side in sides]
    heads = heads[rows]
    heads[:, CHILD] = 0
    for place, (parent, _, _) in enumerate(parents):
        heads[rows.index(parent), CHILD] = 1 + 2 * place
    return heads, boxes[rows]


def unused(arena):
    """Words of the rows that no node has."""
    taken = np.concatenate([arena.rows(tree) for tree in range(arena.n_trees)])
    heads = np.delete(arena.ints.reshape(-1, arena.layout.head), taken, axis=0)
    n_rows = arena.ints.shape[0] // arena.layout.head
    boxes = np.delete(arena.boxes[: n_rows * arena.layout.box].reshape(n_rows, -1), taken, axis=0)
    return heads, boxes


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_tree_becomes_the_one_that_its_most_visited_leaves_induce(system, missing):
    """Down to a single leaf, one tree after the other, which must not touch the others."""
    x, y = system.stream(400, 5, seed=3, missing=missing)
    x = np.round(x, 1)  # equal samples, so that leaves differ in their counts
    forest = system.new(n_estimators=3, seed=2, split_pure=True).partial_fit(x, y)
    arena = forest._arena
    n_passes = 0
    for tree in range(3):
        while nodes_of(forest, tree)[0].shape[0] > 1:
            expected = [after_forgetting(*nodes_of(forest, t)) if t == tree else nodes_of(forest, t) for t in range(3)]
            forest._forget(tree)
            n_passes += 1
            for t, (heads, boxes) in enumerate(expected):
                np.testing.assert_array_equal(nodes_of(forest, t)[0], heads)
                np.testing.assert_array_equal(nodes_of(forest, t)[1], boxes)
        for words in unused(arena):
            assert not words.any()
    assert n_passes > 30
    assert forest.n_nodes == 3
    assert np.all(np.isfinite(system.ask(forest, x)))


@pytest.mark.parametrize("prior", ["parent", "dirichlet"])
def test_forecasts_move_by_no_more_than_the_weight_of_what_changed(prior):
    rng = np.random.default_rng(4)
    x = rng.random((3000, 3))
    y = (np.sin(9 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=3000)).round().astype(int)
    moved, bounds = [], []
    for seed in range(5):
        forest = amf.AMFClassifier(1, seed=seed, prior=prior).partial_fit(x, y)
        (tree,) = trees_of(forest)
        heads, _ = nodes_of(forest, 0)
        gone = set(least_visited(heads))
        assert tree.count[sorted(gone)].sum() <= tree.count[tree.leaves].sum() / 8
        new_places = set()  # those that another node moves to, or where nobody is left
        for row in range(len(tree.child)):
            left = induced(tree.child, gone, row)
            if left is None or left[0] != row:
                new_places.add(row)
        before = forest.predict_proba(x, calibrated=False)
        forest._forget(0)
        moved.append(np.abs(forest.predict_proba(x, calibrated=False) - before).max(axis=1))
        centred = (x - forest._scaling.origin).astype(np.float32)
        for sample in centred:
            weight = 1.0
            for row in tree.path(sample):
                if row in new_places:
                    break
                weight *= 1 / (1 + tree.odds[row]) if tree.child[row] else 0.0
            bounds.append(weight)
    moved, bounds = np.concatenate(moved), np.array(bounds)
    assert np.all(moved[bounds == 0] == 0)
    assert np.all(moved <= bounds * (1 + 1e-9))
    assert np.mean(bounds == 0) > 0.2
    assert moved.max() > 0.01


FULL = {"n_estimators": 3, "split_pure": True, "max_bytes": 40_000}
"""Three trees that are full after a few hundred samples."""


def test_a_full_forest_does_not_depend_on_batches_threads_or_saving(system):
    x, y = system.stream(2000, 4, seed=5, missing=0.1, unlabelled=0.1)
    whole = system.new(**FULL).partial_fit(x, y)
    pieces = system.new(**FULL, n_threads=2)
    for start in range(0, 2000, 7):
        part = slice(start, start + 7)
        pieces.partial_fit(x[part], y[part])
        if start % 700 == 0:
            pieces = amf.loads(pieces.dumps(), n_threads=2)
    assert pieces.dumps() == whole.dumps()
    unlimited = system.new(**FULL | {"max_bytes": 64_000_000}).partial_fit(x, y)
    assert whole.n_nodes < unlimited.n_nodes / 2


def test_a_forecast_is_that_of_the_tree_before_the_sample_also_where_it_forgets(system):
    x, y = system.stream(1500, 4, seed=6)
    forest = system.new(**FULL)
    forest.partial_fit(x[:500], y[:500])
    forgot = 0
    for row in range(500, 1500):
        one = slice(row, row + 1)
        asked, nodes = system.ask(forest, x[one]), forest.n_nodes
        told = forest.predict_learn(x[one], y[one])
        np.testing.assert_array_equal(told[:, : asked.shape[1]] if asked.ndim == 2 else told, asked)
        forgot += forest.n_nodes < nodes
    assert forgot > 5


def test_an_endless_stream_stays_within_its_bytes_and_is_forecast_no_worse():
    """A tenth of the labels are noise, so that an unlimited tree never stops growing."""
    rng = np.random.default_rng(7)
    n, quarter, limit = 40_000, 10_000, 150_000
    x = rng.random((n, 4))
    y = (x[:, 0] > 0.5) ^ (x[:, 1] > 0.3)
    y = np.where(rng.random(n) < 0.1, ~y, y).astype(int)

    def losses(forest, rows):
        table = forest.predict_learn(x[rows], y[rows])
        assert forest.nbytes <= forest.params.max_bytes
        return -np.log(table[np.arange(len(table)), y[rows]])

    batches = [slice(start, start + 100) for start in range(0, n, 100)]
    unlimited = amf.AMFClassifier(5, classes=[0, 1])
    first = np.concatenate([losses(unlimited, rows) for rows in batches[: quarter // 100]]).mean()
    assert unlimited.nbytes > 5 * limit
    forest = amf.AMFClassifier(5, classes=[0, 1], max_bytes=limit)
    quarters = np.concatenate([losses(forest, rows) for rows in batches]).reshape(4, quarter).mean(axis=1)
    assert np.all(quarters[1:] < first)
    assert forest.nbytes > 0.9 * limit
    assert forest.n_samples == n
