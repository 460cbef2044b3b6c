"""Many forests of one system, rows and labels for them, and groups of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import amf


def estimates(system: Any) -> bool:
    """Whether labels are numbers."""
    return issubclass(system, amf.ForestRegressor)


def stream(system: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three features from 0 to 1, and labels as `predict_learn_many` takes them, some of them missing."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    if estimates(system):
        labels = x[:, 0] + rng.normal(size=n)
        labels[rng.random(n) < 0.2] = np.nan
    else:
        labels = (x[:, 0] + 0.3 * rng.random(n) > 0.6).astype(np.int64)
        labels[rng.random(n) < 0.2] = -1
    return x, labels


def as_labels(system: Any, labels: np.ndarray) -> list[Any]:
    """The same labels as a forest's own methods take them."""
    if estimates(system):
        return labels.tolist()
    return [None if code < 0 else "ab"[code] for code in labels]


def forests_of(system: Any, n: int, **parameters: Any) -> list[Any]:
    """Forests of very different sizes, all of which know the features and the classes "a" and "b"."""
    if not estimates(system):
        parameters["classes"] = ("a", "b")
    forests = [system(1 + seed % 3, seed=seed, **parameters) for seed in range(n)]
    for seed, forest in enumerate(forests):
        x, labels = stream(system, 1 + 7 * seed % 90, 100 + seed)
        labels[0] = 0
        forest.partial_fit(x, as_labels(system, labels))
    return forests


def group_of(forests: list[Any]) -> amf.Group:
    """Every third slot is empty."""
    group = amf.Group()
    for i, forest in enumerate(forests):
        group.put(slot_of(i), forest)
    return group


def slot_of(i: int) -> int:
    return i + i // 2
