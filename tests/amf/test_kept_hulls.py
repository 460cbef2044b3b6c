"""The hulls that BSP forests keep: they are those of the points below a node, and what is missing is soon made."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from reference_bsp import hull as hull_in_fractions

import amf
from amf.geometry.hull_cache import STAMP, hull_room, region
from amf.jit.decorators import index
from amf.memory.arena import CHILD


def circle(rng, n):
    return np.column_stack([f(rng.random(n) * 6.3) for f in (np.cos, np.sin)])


def with_logarithm(rng, n, sigma=6.0):
    """Amounts with a long tail and their logarithms: all points are vertices, and the tail is parted one by one."""
    amounts = np.exp(rng.normal(0, sigma, n))
    return np.column_stack([amounts, np.log(amounts)])


def outliers_first(rng, n):
    return circle(rng, n) * np.where(np.arange(n) < 12, 4.0 ** (12 - np.arange(n).clip(max=12)), 1.0)[:, None]


def with_missing(rng, n):
    x = np.column_stack([circle(rng, n), rng.integers(0, 4, (n, 2))])
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


STREAMS = {
    "normal": lambda rng, n: rng.normal(size=(n, 3)),
    "circle": circle,
    "parabola in order": lambda rng, n: np.column_stack([np.arange(n), np.arange(n) ** 2.0]),
    "logarithm": with_logarithm,
    "outliers first": outliers_first,
    "missing": with_missing,
    "grid": lambda rng, n: rng.integers(0, 12, (n, 3)).astype(float),
    "far, then near": lambda rng, n: rng.normal(size=(n, 2)) + np.where(np.arange(n) < 20, 1e12, 0.0)[:, None],
}


def kept_of(forest, tree):
    """(row of a node, for each pair of features the vertices that are kept) of each node of a tree that has hulls."""
    arena, n_pairs = forest._arena, forest.n_features * (forest.n_features - 1) // 2
    region = arena.hulls.reshape(arena.n_trees, -1)[tree]
    if region[int(STAMP)] != arena.used[tree]:
        return  # nothing holds any more
    for number, row in enumerate(arena.rows(tree), 1):
        if entry := int(region[len(region) - 1 - number]):
            at, hulls = entry + 3 + 3 * n_pairs, []
            for size in region[entry + 3 : at : 3].tolist():
                hulls.append(region[at : at + 2 * size].view(np.float32).reshape(-1, 2).astype(float))
                at += 2 * size
            assert at <= entry + region[entry]
            yield row, hulls


def points_below(forest, row):
    arena = forest._arena
    child = int(arena.block()[row, CHILD])
    return (
        [arena._boxes()[row, 0, : forest.n_features].astype(float)]
        if not child
        else [point for side in (0, 1) for point in points_below(forest, child + side)]
    )


def from_the_least(vertices):
    start = vertices.index(min(vertices)) if vertices else 0
    return vertices[start:] + vertices[:start]


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("max_bytes", [64_000_000, 60_000])
def test_hulls_that_are_kept_are_those_of_the_points_below(kind, max_bytes):
    rng, n_kept = np.random.default_rng(3), 0
    x, y = STREAMS[kind](rng, 300), rng.integers(0, 2, 300)
    pairs = list(itertools.combinations(range(x.shape[1]), 2))
    forest = amf.BSPForestClassifier(2, classes=[0, 1], max_bytes=max_bytes)
    for begin in range(0, 300, 15):
        forest.partial_fit(x[begin : begin + 15], y[begin : begin + 15])
        for tree in range(2) if begin % 90 == 75 else ():
            for row, hulls in kept_of(forest, tree):
                points = np.array(points_below(forest, row))
                n_kept += 1
                for pair, vertices in zip(pairs, hulls, strict=True):
                    known = points[:, pair][~np.isnan(points[:, pair]).any(axis=1)]
                    expected = hull_in_fractions([tuple(point) for point in known.tolist()])
                    assert from_the_least([tuple(vertex) for vertex in vertices.tolist()]) == from_the_least(expected)
    assert n_kept > 20


def seconds_of_the_last_rows(x):
    """CPU time that the last sixth of the rows takes."""
    forest, y = amf.BSPForestClassifier(1, seed=1, classes=[0, 1]), np.arange(len(x)) % 2
    last = len(x) * 5 // 6
    forest.partial_fit(x[:last], y[:last])
    start = time.thread_time()
    forest.partial_fit(x[last:], y[last:])
    return time.thread_time() - start


def test_a_chain_of_nodes_with_nearly_the_same_hulls_is_soon_passed():
    """Were the hulls of all of them dropped at once for want of room, each sample would make those of all points anew:
    three hundred times the price of a stream without such a chain, and the more the longer the stream is."""
    long_tail, plain = (STREAMS[kind](np.random.default_rng(0), 6000) for kind in ("logarithm", "circle"))
    seconds_of_the_last_rows(plain[:60])
    assert seconds_of_the_last_rows(long_tail) < 80 * seconds_of_the_last_rows(plain)


def test_entries_begin_where_an_int32_can_say():
    """A tree of four million rows over 20 features, as a large `max_bytes` allows: its region has 2.3e9 words."""
    rows, head = 4_000_000, 64
    nodes = SimpleNamespace(
        hulls=np.broadcast_to(np.int32(0), rows * hull_room(20)),
        ints=np.broadcast_to(np.int32(0), rows * head),
        used=np.zeros(1, np.uint64),
        words=index(head),
    )
    first, length, end = getattr(region, "py_func", region)(nodes, index(0))
    assert (first, length) == (0, rows * hull_room(20))
    assert 2**30 < end < 2**31
