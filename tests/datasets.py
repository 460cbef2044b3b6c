"""Real data for tests: sets that scikit-learn and river ship, always there, and the shared ones of AMF_DATA."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from river import datasets
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

SHIPPED: dict[str, Callable[..., Any]] = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
}
FROM_RIVER: dict[str, Callable[[], Any]] = {
    "bananas": datasets.Bananas,
    "image_segments": datasets.ImageSegments,
    "phishing": datasets.Phishing,
}


def shared_folder() -> Path | None:
    """Folder of the shared sets, each an .npz of X and y; None where AMF_DATA does not name it."""
    if not (named := os.environ.get("AMF_DATA")):
        return None
    folder = Path(named)
    if not (folder / "adult.npz").is_file():
        pytest.fail(f"AMF_DATA is set to {folder}, where there is no adult.npz")
    return folder


LARGE = [*FROM_RIVER] if shared_folder() is None else ["car", "cardio", "letter", "default_cb", "adult"]
"""Sets of some thousand rows: the shared ones, and where there are none those of river take their place."""


def load(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """X (n, d) and y (n,), classes from 0 on; the features of large sets lie from 0 to 1.

    The sets that are shipped are shuffled: some are sorted by class.
    """
    if name in SHIPPED:
        x, y = SHIPPED[name](return_X_y=True)
    elif name in FROM_RIVER:
        rows, labels = zip(*FROM_RIVER[name](), strict=True)
        x = in_unit_cube(np.array([[*row.values()] for row in rows], np.float64))
        y = np.unique([str(label) for label in labels], return_inverse=True)[1]
    else:
        folder = shared_folder()
        assert folder is not None, f"{name} is a shared set, and AMF_DATA is not set"
        with np.load(folder / f"{name}.npz") as file:
            return file["X"], file["y"]
    order = np.random.default_rng(0).permutation(len(y))
    return x[order], y[order]


def in_unit_cube(x: NDArray[Any]) -> NDArray[Any]:
    """Each feature from 0 to 1; as it is where it lies there already, as in the shared sets."""
    if x.min() >= 0 and x.max() <= 1:
        return x
    extent = np.ptp(x, axis=0)
    return (x - x.min(axis=0)) / np.where(extent > 0, extent, 1.0)
