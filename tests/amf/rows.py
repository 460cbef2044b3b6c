"""Samples with ties and gaps for classifiers, and the rows of their trees beside those of the reference."""

from __future__ import annotations

import numpy as np
from reference import ReferenceForest
from trees import trees_of

import amf


def data(seed: int, n: int, d: int, k: int, *, grid: int | None, missing: float):
    """Samples with ties, duplicates (on a grid) and missing values; labels that depend on them with noise."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, d)) if grid is None else rng.integers(0, grid, (n, d)) / 4.0
    y = ((x[:, 0] * k + rng.random(n)) % k).astype(int)
    x = x.astype(np.float32).astype(np.float64)
    x[rng.random((n, d)) < missing] = np.nan
    return x, y


def rows_in_order(forest: amf.AMFClassifier, tree: int):
    """(feature, threshold, time, counts, low, high) of each node, left subtree first."""
    nodes = trees_of(forest)[tree]

    def walk(node: int):
        child = nodes.child[node]
        if child:
            yield from walk(child)
        feature = int(nodes.feature[node]) if child else -1
        threshold = float(nodes.threshold[node]) if child else 0.0
        counts = nodes.counts[node].tolist()
        assert sum(counts) == nodes.count[node]
        yield feature, threshold, float(nodes.time[node]), counts, nodes.low[node], nodes.high[node]
        if child:
            yield from walk(child + 1)

    return list(walk(0))


def same_rows(forest: amf.AMFClassifier, reference: ReferenceForest) -> None:
    """The same nodes in the same order, bit for bit."""
    origin = forest._scaling.origin
    assert np.all((origin == 0) | np.isnan(origin)), "the reference does not centre its features"
    for tree, other in enumerate(reference.trees):
        mine, theirs = rows_in_order(forest, tree), other.nodes()
        assert len(mine) == len(theirs)
        for (feature, threshold, time, counts, low, high), node in zip(mine, theirs, strict=True):
            assert (feature, threshold, time) == (node.feature, node.threshold, node.time)
            assert counts == list(node.counts)
            np.testing.assert_array_equal(low, node.lo)
            np.testing.assert_array_equal(high, node.hi)
