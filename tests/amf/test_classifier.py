"""The kernels against the readable reference on the same random stream, and the invariants of the trees."""

from __future__ import annotations

import numpy as np
import pytest
from reference import ReferenceForest
from reference_calibration import CalibratedForest
from rows import data, same_rows

import amf

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


@pytest.mark.parametrize(("n_classes", "pseudo_counts"), [(2, 0.5), (3, 0.01)])
def test_by_default_uniform_pseudo_counts_are_those_of_the_public_package(n_classes, pseudo_counts):
    x, y = data(n_classes, 60, 2, n_classes, grid=None, missing=0.0)
    said = [
        amf.AMFClassifier(2, classes=range(n_classes), prior="dirichlet", dirichlet=dirichlet).predict_learn(x, y)
        for dirichlet in (None, pseudo_counts)
    ]
    np.testing.assert_array_equal(*said)
