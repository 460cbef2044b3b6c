"""Streams that change under a forest which is full: how well it follows, and what it costs where nothing changes.

    python -m tests.benchmarks moving

A line for each part of a stream, means of three seeds: log-loss over the part and over its last 10,000 rows, of
the forest that has learned all parts before, of a fresh one with the same limits, and of one without a limit that has
learned all parts before. `trees alone` is the first of these before calibration, which follows changes, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.learners.endless_stream import load_kernels
from tests.benchmarks.report import at_most, show

SEEDS = 3
TAIL = 10_000
UNLIMITED = 10**12
ROWS_PER_CALL = 1_000

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


class Stream(NamedTuple):
    """parts: seed -> name of a part -> its rows, in order. settings: of a forest that is full long before the end."""

    parts: Callable[[int], dict[str, Batch]]
    settings: dict[str, Any]


def board(rng: np.random.Generator, corner: NDArray[np.float64], cells: int = 8) -> Batch:
    """Samples uniform on unit squares, with lower corners (n, 2), labelled as a chess board; 5 % of labels wrong."""
    x = rng.random(corner.shape) + corner
    label = np.floor(x * cells).sum(axis=1) % 2 != 0
    return x.astype(np.float32), (label ^ (rng.random(len(x)) < 0.05)).astype(int)


def region(seed: int) -> dict[str, Batch]:
    """One square, the next one, and the first one again."""
    rng = np.random.default_rng(seed)
    lengths = {"a square": 200_000, "the next": 40_000, "back": 40_000}
    return {name: board(rng, np.tile([name == "the next", 0.0], (n, 1))) for name, n in lengths.items()}


def labels(seed: int) -> dict[str, Batch]:
    """The same square with all labels turned round."""
    rng = np.random.default_rng(seed)
    (x, y), (other_x, other_y) = (board(rng, np.zeros((100_000, 2))) for _ in range(2))
    return {"labels": (x, y), "turned": (other_x, 1 - other_y)}


def window(seed: int) -> dict[str, Batch]:
    """A square that moves by its own length."""
    n, rng = 200_000, np.random.default_rng(seed)
    return {"drifting": board(rng, np.column_stack((np.arange(n) / n, np.zeros(n))))}


def popular(seed: int) -> dict[str, Batch]:
    """Ten squares; the k-th one is visited k^-1.5 times as often as the first one."""
    n, rng = 200_000, np.random.default_rng(seed)
    visits = np.arange(1, 11) ** -1.5
    which = rng.choice(10, n, p=visits / visits.sum())
    return {"ten squares": board(rng, np.column_stack((3 * which, 7 * which)) % 10.0, cells=4)}


def twice(path: Path) -> Callable[[int], dict[str, Batch]]:
    """A data set in an order of its own for each seed, twice."""

    def parts(seed: int) -> dict[str, Batch]:
        with np.load(path) as table:
            x, y = table["X"], table["y"].astype(int)
        order = np.random.default_rng(seed).permutation(len(y))
        return {path.stem: (x[order], y[order]), "again": (x[order], y[order])}

    return parts


def streams() -> dict[str, Stream]:
    """All of them; those of data sets where AMF_DATA names their folder."""
    small = {"n_estimators": 5, "classes": [0, 1], "max_bytes": 400_000}
    made = {each.__name__: Stream(each, small) for each in (region, labels, window, popular)}
    if folder := os.environ.get("AMF_DATA"):
        for name, n_classes, max_bytes in (("letter", 26, 7_000_000), ("adult", 2, 12_000_000)):
            settings = {"classes": range(n_classes), "max_bytes": max_bytes}
            made[name] = Stream(twice(Path(folder) / f"{name}.npz"), settings)
    return made


def losses(forest: amf.AMFClassifier, rows: Batch) -> NDArray[np.float64]:
    """Log-losses (n, 2), of the forecasts and of those of the trees alone; the labels are learned."""
    x, y = rows
    said = []
    for start in range(0, len(y), ROWS_PER_CALL):
        part = slice(start, start + ROWS_PER_CALL)
        told = forest.prequential(x[part], y[part])
        said += [np.column_stack([p[np.arange(len(p)), y[part]] for p in (told.probabilities, told.raw)])]
    return -np.log(np.maximum(np.concatenate(said), 1e-300))


def measure(stream: Stream, seed: int) -> dict[str, NDArray[np.float64]]:
    """(4, 2) for each part: forest, its trees alone, fresh, without a limit; over the part, over its tail."""
    forest = amf.AMFClassifier(seed=seed, **stream.settings)
    unlimited = amf.AMFClassifier(seed=seed, **stream.settings | {"max_bytes": UNLIMITED})
    figures = {}
    for name, rows in stream.parts(seed).items():
        fresh = amf.AMFClassifier(seed=seed, **stream.settings)
        ours = losses(forest, rows)
        four = np.column_stack((ours, losses(fresh, rows)[:, 0], losses(unlimited, rows)[:, 0]))
        figures[name] = np.column_stack((four.mean(axis=0), four[-TAIL:].mean(axis=0)))
    return figures


def main() -> None:
    load_kernels()
    print("\nMoving: log-loss of full forests, over a part of a stream and over its end")
    print(f"{'':<14} {'forest':>13} {'trees alone':>13} {'fresh':>13} {'unlimited':>13}")
    for name, stream in streams().items():
        runs = [measure(stream, seed) for seed in range(SEEDS)]
        means = {part: np.mean([run[part] for run in runs], axis=0) for part in runs[0]}
        for part, figures in means.items():
            print(f"{part:<14} " + " ".join(f"{whole:>6.3f} {end:>6.3f}" for whole, end in figures), flush=True)
        if name == "region":
            forest, _, fresh, _ = means["the next"]
            show("log-loss on the next square / fresh", forest[0] / fresh[0], at_most(1.2), digits=2)
            show("the same at its end", forest[1] / fresh[1], at_most(1.2), digits=2)
