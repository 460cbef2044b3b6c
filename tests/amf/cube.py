"""Samples in the unit cube, and the priors of forests that live there."""

from __future__ import annotations

import numpy as np

PRIORS = [{"prior": "dirichlet", "dirichlet": 0.5}, {"prior": "parent", "smoothing": 0.7}]
KT = {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True}
"""The forecaster of Krichevsky and Trofimov."""


def samples(n: int, d: int = 2, k: int = 3, *, seed: int = 0):
    """Samples in the cube, some on a grid, some twice, some a hair apart, some on the border, and noisy labels."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, d))
    x[::3] = np.round(x[::3] * 8) / 8
    x[1::4] = x[rng.integers(0, n, len(x[1::4]))]
    x[2::9, 0] = np.abs(x[2::9, 0] - 1e-6)
    labels = ((x[:, 0] * k).astype(int) + (rng.random(n) < 0.3) * rng.integers(0, k, n)) % k
    return x.astype(np.float32), labels
