"""Streams of samples that several tests learn, and what is asked of forests."""

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


def friedman(n, d=5, seed=0):
    """Numbers that five features decide in different ways, two of them together, and further ones not at all.

    Their standard deviation is 5, that of the noise in them 1.
    """
    rng = np.random.default_rng(seed)
    x = rng.random((n, d))
    told = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, told + rng.standard_normal(n)


def log_loss(probabilities, y):
    return -np.log(probabilities[np.arange(len(y)), y]).mean()


def state(forest):
    return state_of(forest._adaptation, forest.params.n_estimators, forest.n_features)
