"""Forests that hold all that the bytes of one can, and where its header begins."""

from __future__ import annotations

import struct

import numpy as np

import amf

PREFIX = struct.Struct("<4sIQ")


def stream(n, seed=0):
    """Rows (n, 3) with missing values, and labels of several types."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, 3)) * [1, 100, 1e-3], 6) + np.array([0, 1.7e9, 0])
    y = np.array(["no", 7, True], object)[(np.abs(x[:, 0] * 2).astype(int) + (rng.random(n) < 0.2)) % 3]
    x[rng.random((n, 3)) < 0.1] = np.nan
    return x, y.tolist()


def example(**parameters):
    """A forest with names, of which one came later, and with all else that the bytes can hold."""
    x, y = stream(30)
    forest = amf.AMFClassifier(3, seed=2**63, **parameters)
    forest.add_features(["a", "ü"])
    forest.partial_fit(x[:10, :2], y[:10])
    forest.add_features(["late"])
    return forest.partial_fit(x[10:], y[10:])


FORESTS = {
    "empty": amf.AMFClassifier,
    "with classes, empty": lambda: amf.AMFClassifier(2, classes=["a", 2, True], prior="dirichlet", dirichlet=0.1),
    "one row": lambda: amf.AMFClassifier(2).partial_fit([[1.0, 2.0, 3.0]], ["no"]),
    "example": example,
    "unscaled": lambda: example(scaling="none", charge_first=True, split_pure=True),
    "many features": lambda: amf.AMFClassifier(1).partial_fit(np.eye(21), np.arange(21) % 4),
    "at its limit": lambda: example(max_bytes=2000),
}
