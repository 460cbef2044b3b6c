"""The time of an event as a feature: what it costs where nothing changes, and what it gives where something does.

    python -m tests.benchmarks time [--rows 8000] [--seeds 3] [--trees 10]

A time, a row number or a counter only grows: each row lies beyond all earlier ones, and a cut of it parts what was from
what is. Log-loss, and the RMSE of numbers, over the second half of generated streams, means over seeds; without and
with the number of the row as one feature more.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

ROWS, SEEDS, TREES = 8000, 3, 10
Stream = tuple[str, NDArray[np.float64], NDArray[np.float64]]
"""What it is like, X and y."""


def classes(seed: int, rows: int) -> Iterator[Stream]:
    """Two classes, by a rule that stays, one that turns by half a circle, and one that is another one at the end."""
    rng = np.random.default_rng(seed)
    x, noise, time = rng.normal(size=(rows, 4)), rng.normal(size=rows), np.arange(rows)
    angle = np.pi * time / rows
    yield "a rule that stays", x, x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * noise > 0
    yield "a rule that turns", x, np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] + 0.2 * noise > 0
    sign = np.where(time < 0.6 * rows, 1.0, -1.0)
    yield "one change, all at once", x, (x[:, 0] + sign * x[:, 1] > 0) ^ (noise > 1.645)


def numbers(seed: int, rows: int) -> Iterator[Stream]:
    """A function with noise, by itself, with a trend, and with a season."""
    rng = np.random.default_rng(seed)
    x, time = rng.uniform(size=(rows, 4)), np.arange(rows)
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + rng.normal(size=rows)
    yield "a function that stays", x, y
    yield "a trend", x, y + time / 200
    yield "a season", x, y + 8 * np.sin(time / 300)


def with_time(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The number of the row as one feature more."""
    return np.column_stack((x, np.arange(len(x))))


def log_loss(forest: amf.AMFClassifier, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Of the second half."""
    codes = y.astype(int)
    given = forest.predict_learn(x, codes)[np.arange(len(y)), codes]
    return float(-np.log(given[len(y) // 2 :]).mean())


def rmse(forest: amf.AMFRegressor, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Of the second half."""
    errors = forest.prequential(x, y).mean - y
    return float(np.sqrt(np.mean(errors[len(y) // 2 :] ** 2)))


def main(options: Options) -> None:
    rows, seeds, trees = options.rows or ROWS, options.seeds or SEEDS, (options.trees or [TREES])[0]
    print(f"\nThe number of the row as a feature, {rows:,} rows, {trees} trees")
    print(f"{'':<44} {'without':>9} {'with':>9}")
    for streams, score, kinds in (
        (classes, log_loss, (amf.AMFClassifier, amf.AdaptiveAMFClassifier)),
        (numbers, rmse, (amf.AMFRegressor, amf.AdaptiveAMFRegressor)),
    ):
        drawn = [list(streams(seed, rows)) for seed in range(seeds)]
        for runs in zip(*drawn, strict=True):
            for kind in kinds:
                labels = {"classes": [0, 1]} if score is log_loss else {}
                scores = [
                    [score(kind(trees, seed=seed, **labels), given, y) for given in (x, with_time(x))]
                    for seed, (_, x, y) in enumerate(runs)
                ]
                without, with_it = (number(mean(column), 3) for column in zip(*scores, strict=True))
                print(f"{runs[0][0]:<25} {kind.family:<18} {without:>9} {with_it:>9}", flush=True)
