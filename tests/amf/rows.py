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


def same_rows(forest: amf.AMFClassifier, reference: ReferenceForest) -> None:
    """The same nodes in the same order, bit for bit."""
    origin = forest._scaling.origin
    assert np.all((origin == 0) | np.isnan(origin)), "the reference does not centre its features"
    for tree, other in zip(trees_of(forest), reference.trees, strict=True):
        for row, node in zip(tree.in_order(), other.nodes(), strict=True):
            assert tree.cut(row) == (node.feature, node.threshold)
            assert (tree.time[row], tree.count[row]) == (node.time, node.n)
            assert tree.counts[row].tolist() == list(node.counts)
            np.testing.assert_array_equal(tree.low[row], node.lo)
            np.testing.assert_array_equal(tree.high[row], node.hi)
