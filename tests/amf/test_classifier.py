"""The kernels against the readable reference on the same random stream, and the invariants of the trees."""

from __future__ import annotations

import numpy as np
import pytest
from reference import ReferenceForest
from reference_calibration import CalibratedForest
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


SETTINGS = [
    dict(prior="parent", smoothing=0.7),
    dict(prior="parent", smoothing=0.7, purity=0.0),
    dict(prior="parent", smoothing=1.0, charge_first=True),
    dict(prior="dirichlet", dirichlet=0.5, charge_first=True, purity=0.0),
    dict(prior="dirichlet", dirichlet=0.01, purity=2.0),
    dict(prior="dirichlet", dirichlet=0.5, charge_first=True, split_pure=True),
    dict(prior="parent", smoothing=0.3, split_pure=True),
    dict(prior="parent", smoothing=0.3, pause=1.0),
    dict(prior="dirichlet", dirichlet=0.3, pause=0.7),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(
    ("d", "k", "grid", "missing"),
    [
        (3, 3, 4, 0.0),
        (2, 2, 2, 0.5),
        *(
            pytest.param(*shape, marks=pytest.mark.full)
            for shape in [(1, 2, None, 0.0), (9, 2, None, 0.2), (17, 5, 3, 0.1)]
        ),
    ],
)
def test_kernels_equal_the_reference(setting, d, k, grid, missing):
    x, y = data(d * 7 + k, 120, d, k, grid=grid, missing=missing)
    x[0] = 0.0  # fixes every origin at 0, so that the reference sees the same float32 values
    forest = amf.AMFClassifier(3, classes=range(k), seed=11, scaling="none", **setting)
    reference = ReferenceForest(11, 3, d, k, **setting)
    calibrated = CalibratedForest(reference)
    y[3::7] = -1
    probabilities, raw = calibrated.predict_learn(x.astype(np.float32), y)
    labels = [None if label < 0 else int(label) for label in y]
    got = forest.prequential(x, labels)
    np.testing.assert_allclose(got.raw, raw, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.probabilities, probabilities, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(forest.losses, calibrated.calibration.losses.means(), rtol=1e-9)
    same_rows(forest, reference)
    later = x[:20].astype(np.float32)
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(forest.predict_proba(x[:20]), [calibrated.predict(row) for row in later], **close)
    plain = forest.predict_proba(x[:20], calibrated=False)
    np.testing.assert_allclose(plain, [reference.predict(row) for row in later], **close)
    np.testing.assert_allclose(
        forest.weighted_depth(x[:20]), [reference.weighted_depth(row) for row in later], rtol=1e-9
    )
