"""What a full tree forgets, what stays, and what that does to forecasts."""

from __future__ import annotations

import numpy as np
import pytest
from trees import nodes_of, trees_of

import amf
from amf.forests.unit_cube import chains_of
from amf.jit.decorators import exported
from amf.kernels import forgetting
from amf.kernels.forgetting import HEAT, SEEN
from amf.memory.arena import CHILD, COUNT, LARGEST_COUNT, ODDS

LONGEST_MEMORY = 40
"""Samples a leaf after which a sample counts for half, where samples come as they used to."""
PRIOR_HEAT = 1 / 8

kept = exported(forgetting._kept)


def forget(forest, tree):
    """Let a tree forget once."""
    forest._shrink(tree, int(forest._arena.used[tree]) + 1)


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


def aged(heads):
    """The heads of a tree at a time when it forgets: with the heat of each leaf brought up to date."""
    heads = heads.copy()
    leaves = np.flatnonzero(heads[:, CHILD] == 0)
    heat = heads.view(np.float32)[:, HEAT]
    was = [float(h) for h in heat[leaves]]
    new = [float(n) for n in heads[leaves, COUNT] - heads[leaves, SEEN]]
    kept = 1.0
    if sum(was) > 0 and sum(new) > 0:
        met = sum_of(n * h for n, h in zip(new, was, strict=True)) / sum_of(new)
        expected = sum_of(h * h for h in was) / sum_of(was)
        foresight = min((met + PRIOR_HEAT) / (expected + PRIOR_HEAT), 1.0)
        memory = LONGEST_MEMORY * foresight * foresight * len(leaves)
        kept = memory / (memory + sum_of(new))
    heat[leaves] = [kept * h + n for h, n in zip(was, new, strict=True)]
    heads[leaves, SEEN] = heads[leaves, COUNT]
    return heads


def sum_of(terms):
    """One after the other, each time rounded, which Python's own sum is not."""
    total = 0.0
    for term in terms:
        total += term
    return total


def odds_in(forest, tree):
    """Odds of stopping at the nodes of a tree, of whole chains where nodes stand for those."""
    heads, _ = nodes_of(forest, tree)
    odds = heads.view(float)[:, ODDS].copy()
    if forest.in_unit_cube:
        inner, n_cells = chains_of(heads)
        odds[inner] *= np.ldexp(1.0, np.minimum(n_cells, 1000)) - 1.0
    return odds


def shares_below(heads, odds, row=0, share=1.0):
    """(leaf, posterior probability that a pruning goes on down to it) of each leaf below a row."""
    left = int(heads[row, CHILD])
    if left == 0:
        return [(row, share)]
    goes_on = share / (1.0 + float(odds[row]))
    return [each for side in (0, 1) for each in shares_below(heads, odds, left + side, goes_on)]


def worth_of(heads, odds):
    """Leaf -> what it is worth when its tree forgets."""
    heat = aged(heads).view(np.float32)[:, HEAT].astype(float)
    return {row: heat[row] * share for row, share in shares_below(heads, odds)}


def least_worth(heads, odds):
    """The leaves that go: an eighth, those of the least worth, the older of equals."""
    worth = worth_of(heads, odds)
    return sorted(worth, key=lambda row: (worth[row], row))[: max(len(worth) // 8, 1)]


def after_forgetting(heads, boxes, odds):
    """Nodes as `nodes_of` gives them: the slow way."""
    root = induced(heads[:, CHILD], set(least_worth(heads, odds)))
    parents = sorted(inner_nodes(root), key=lambda node: heads[node[0], CHILD])
    rows = [root[0]] + [side[0] for _, *sides in parents for side in sides]
    heads = aged(heads)[rows]
    heads[:, CHILD] = 0
    for place, (parent, _, _) in enumerate(parents):
        heads[rows.index(parent), CHILD] = 1 + 2 * place
    return heads, boxes[rows]


def unused(arena):
    """Words of the rows that no node has."""
    taken = np.concatenate([arena.rows(tree) for tree in range(arena.n_trees)])
    heads = np.delete(arena.block(), taken, axis=0)
    n_rows = arena.ints.shape[0] // arena.layout.head
    boxes = np.delete(arena.boxes[: n_rows * arena.layout.box].reshape(n_rows, -1), taken, axis=0)
    return heads, boxes


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_tree_becomes_the_one_that_its_worthiest_leaves_induce(system, missing):
    """Down to a single leaf, one tree after the other, which must not touch the others."""
    x, y = system.stream(400, 5, seed=3, missing=missing)
    x = np.round(x, 1)  # equal samples, so that leaves differ in their counts
    forest = system.new(n_estimators=3, seed=2, **system.whole).partial_fit(x, y)
    arena = forest._arena
    n_passes = 0
    for tree in range(3):
        while nodes_of(forest, tree)[0].shape[0] > 1:
            expected = [nodes_of(forest, t) for t in range(3)]
            expected[tree] = after_forgetting(*expected[tree], odds_in(forest, tree))
            forget(forest, tree)
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
        gone, worth = set(least_worth(heads, tree.odds)), worth_of(heads, tree.odds)
        assert sum(worth[row] for row in gone) <= sum(worth.values()) / 8
        new_places = set()  # those that another node moves to, or where none is left
        for row in range(len(tree.child)):
            left = induced(tree.child, gone, row)
            if left is None or left[0] != row:
                new_places.add(row)
        before = forest.predict_proba(x, calibrated=False)
        forget(forest, 0)
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


FULL = {"n_estimators": 3, "max_bytes": 40_000}
"""Three trees that are full after a few hundred samples."""


def test_a_full_forest_does_not_depend_on_batches_threads_or_saving(system):
    x, y = system.stream(2000, 4, seed=5, missing=0.1, unlabelled=0.1)
    whole = system.new(**FULL, **system.whole).partial_fit(x, y)
    pieces = system.new(**FULL, **system.whole, n_threads=2)
    for start in range(0, 2000, 7):
        part = slice(start, start + 7)
        pieces.partial_fit(x[part], y[part])
        if start % 700 == 0:
            pieces = amf.loads(pieces.dumps(), n_threads=2)
    assert pieces.dumps() == whole.dumps()
    unlimited = system.new(**FULL | system.whole | {"max_bytes": 64_000_000}).partial_fit(x, y)
    assert whole.n_nodes < unlimited.n_nodes / 2


def test_a_forecast_is_that_of_the_tree_before_the_sample_also_where_it_forgets(system):
    x, y = system.stream(1500, 4, seed=6)
    forest = system.new(**FULL, **system.whole)
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


def board(n, seed, x=0.0):
    """Samples on the unit square at x, labelled as the squares of a chess board, a twentieth of them wrong."""
    rng = np.random.default_rng(seed)
    samples = rng.random((n, 2)) + np.array([x, 0.0])
    return samples, ((np.floor(6 * samples).sum(axis=1) % 2 != 0) ^ (rng.random(n) < 0.05)).astype(int)


SMALL = {"n_estimators": 5, "classes": [0, 1], "max_bytes": 200_000}
"""Trees with a few leaves for each square of the board."""


def log_loss(forest, x, y, rows):
    """Of the forecasts of the trees, over some rows; the forest learns them all."""
    return -np.log(forest.prequential(x, y).raw[np.arange(len(y)), y])[rows].mean()


LATER = slice(10_000, None)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_forest_follows_its_stream_to_another_region(seed):
    """By counts alone those of the old region, which had more time to grow, would stay for ever."""
    forest = amf.AMFClassifier(**SMALL, seed=seed).partial_fit(*board(60_000, seed))
    next_board = board(20_000, seed + 100, x=1.0)
    fresh = log_loss(amf.AMFClassifier(**SMALL, seed=seed), *next_board, LATER)
    assert log_loss(forest, *next_board, LATER) < 1.4 * fresh


@pytest.mark.parametrize("seed", range(3))
def test_a_full_forest_follows_labels_that_turn_round(seed):
    """Where labels have changed, nodes know the wrong ones; prunings stop above them, and what is below makes room."""
    x, y = board(60_000, seed)
    forest = amf.AMFClassifier(**SMALL, seed=seed).partial_fit(x, y)
    other_x, other_y = board(40_000, seed + 100)
    before = log_loss(forest.copy(), other_x, other_y, LATER)
    assert log_loss(forest, other_x, 1 - other_y, LATER) < 1.4 * before


@pytest.mark.parametrize(
    ("samples", "heats", "left"),
    [
        ([40, 40], [3, 3], 1 / 2),  # as foretold: half is left after 40 samples a leaf
        ([80, 0], [3, 3], 1 / 2),
        ([60, 20], [3, 1], 1 / 2),
        ([7, 8], [1.875, 0], 4 / 7),  # half as warm as foretold, a quarter of the memory: 10 samples a leaf
        ([0, 20], [11.125, 0], 1 / (1 + 20 / (80 / 90**2))),  # where no sample came before: next to nothing is left
        ([0, 1], [0.875, 0], 1 / (1 + 1 / (80 / 8**2))),  # more where heat means next to nothing
        ([7, 7], [0, 0], 1),
        ([0, 0], [3, 5], 1),  # without samples time stands still
    ],
)
def test_heat_fades_with_the_samples_that_come_and_faster_where_they_come_unforeseen(samples, heats, left):
    assert kept(np.array(samples, float), np.array(heats, float)) == pytest.approx(left, rel=1e-15)


def test_heat_that_is_no_number_is_worth_nothing(system):
    """Bytes may have come from anywhere: a tree never forgets everything, and is never without room for ever."""
    x, y = system.stream(2000, 4, seed=5)
    forest = system.new(**FULL, **system.whole).partial_fit(x[:500], y[:500])
    expected = forest.n_nodes
    heads = forest._arena.block()
    rows = forest._arena.rows(0)
    leaves = rows[heads[rows, CHILD] == 0]
    for part, heat in zip(np.array_split(leaves, 3), (np.nan, -np.inf, np.inf), strict=True):
        heads.view(np.float32)[part, HEAT] = heat
    heads[leaves[::2], SEEN] = LARGEST_COUNT
    system.ask(forest.partial_fit(x[500:], y[500:]), x)
    assert expected / 2 < forest.n_nodes


@pytest.mark.parametrize("n_counters", [1, 3])
def test_paths_through_a_full_tree_stay_short_where_features_only_grow(n_counters):
    """Each sample lies beyond all earlier ones: if only leaves split, each of them prolongs the path of the next."""
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(6000, n_counters)).cumsum(axis=0)
    forest = amf.AMFClassifier(1, max_bytes=600_000)
    depth = forest.prequential(x, rng.integers(2, size=6000)).depth
    assert forest.n_nodes > forest._allowed / 4  # full enough to be sparing with splits
    assert 100 < depth.max() < 160
