"""Streams for adaptive forests, and what is asked of these."""

from __future__ import annotations

import numpy as np

from amf.adaptation.state import state_of


def changing(n, d=4, seed=0):
    """Two features decide, one before the middle and the other one after it. On a grid, so that there are ties."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 16, (n, d)) / 16.0
    x[0] = 0.0  # fixes every origin at 0, so that a reference sees the same float32 values
    told = np.where(np.arange(n) < n // 2, x[:, 0], x[:, 1])
    return x, (told > 0.5).astype(int)


def log_loss(probabilities, y):
    return -np.log(probabilities[np.arange(len(y)), y]).mean()


def state(forest):
    return state_of(forest._adaptation, forest.params.n_estimators, forest.n_features)
