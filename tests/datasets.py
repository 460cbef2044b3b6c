"""Real data for tests: sets that scikit-learn ships, which are always there, and the shared ones of AMF_DATA."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

SHIPPED: dict[str, Callable[..., Any]] = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
}
SHARED = ["car", "cardio", "letter", "default_cb", "adult"]


def shared_folder() -> Path | None:
    """Folder of the shared sets, each an .npz of X and y; None where AMF_DATA does not name it."""
    if not (named := os.environ.get("AMF_DATA")):
        return None
    folder = Path(named)
    if not (folder / "adult.npz").is_file():
        pytest.fail(f"AMF_DATA is set to {folder}, where there is no adult.npz")
    return folder


def load(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """X (n, d) and y (n,), classes from 0 on. Shuffled where scikit-learn ships it: some are sorted by class.

    Skips the test where it is a shared set and AMF_DATA is not set.
    """
    if name in SHIPPED:
        x, y = SHIPPED[name](return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        return x[order], y[order]
    if (folder := shared_folder()) is None:
        pytest.skip("AMF_DATA is not set: it names the folder of the shared data sets (adult.npz, car.npz, ...)")
    with np.load(folder / f"{name}.npz") as file:
        return file["X"], file["y"]


def in_unit_cube(x: NDArray[Any]) -> NDArray[Any]:
    """Each feature from 0 to 1; as it is where it lies there already, as in the shared sets."""
    if x.min() >= 0 and x.max() <= 1:
        return x
    extent = np.ptp(x, axis=0)
    return (x - x.min(axis=0)) / np.where(extent > 0, extent, 1.0)
