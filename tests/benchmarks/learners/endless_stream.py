"""A stream without end: 10 features, uniform within 100 overlapping boxes of 5 classes, a tenth of the labels random.

It costs less than a single tree does, so that it can feed every benchmark of long streams; its time is never counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import amf

N_FEATURES = 10
N_CLASSES = 5
N_BOXES = 100
LABEL_NOISE = 0.1
"""Share of labels that are drawn at random; the random one may be the right one."""
CHUNK = 8192
"""Rows that come at a time: 2^13, so that chunks end at the powers of two."""


def chunks(seed: int = 0) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """(x (CHUNK, N_FEATURES), y (CHUNK,)) for ever; they depend on the seed alone."""
    rng = np.random.default_rng(seed)
    corners = rng.random((N_BOXES, N_FEATURES), np.float32)
    sides = rng.uniform(0.2, 0.8, (N_BOXES, 1)).astype(np.float32)
    classes = rng.integers(N_CLASSES, size=N_BOXES, dtype=np.int32)
    while True:
        box = rng.integers(N_BOXES, size=CHUNK)
        x = rng.random((CHUNK, N_FEATURES), np.float32)
        x *= sides[box]
        x += corners[box]
        y = classes[box]
        noisy = np.flatnonzero(rng.random(CHUNK) < LABEL_NOISE)
        y[noisy] = rng.integers(N_CLASSES, size=noisy.size)
        yield x, y


def load_kernels() -> None:
    """Learn and predict a few rows, so that compiling and loading are no part of any figure."""
    x, y = next(chunks())
    forest = amf.AMFClassifier(1, classes=range(N_CLASSES))
    forest.predict_learn(x[:100], y[:100])
    forest.partial_fit(x[:100], y[:100])
