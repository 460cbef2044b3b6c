"""When labels come, and in which unit: sorted by the label, some hundred rows late, and a hundredth of what they were.

    python -m tests.benchmarks order [--seeds 3] [--trees 10]

A forest takes what comes last for the present. That is what streams are like, but not a file that is sorted by its
label; and where labels come late, what is known of the present is that of another time. Means over seeds of generated
streams; log-loss of classes, RMSE of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification, make_friedman1

import amf
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

SEEDS, TREES = 3, 10
LATE, DELAYS, BATCH = 3000, (0, 200, 500), 25
"""Rows of a stream of late labels, how many rows these come late, and rows that are forecast at a time."""
RESCALED, PARTS = 3000, (0, 50, 500, 1500, 3000)
"""Rows before labels change their unit, and the bounds of the parts of what comes then."""
FLOOR = 1e-15
Rows = NDArray[np.float64]
Stream = tuple[str, Rows, NDArray[Any]]
"""What it is like, X and y."""


def log_loss(probabilities: Rows, y: NDArray[Any]) -> float:
    """Of classes that are called 0, 1, and so on."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(y)), y], FLOOR)).mean())


def rmse(means: Rows, y: NDArray[Any]) -> float:
    """Of numbers."""
    return float(np.sqrt(np.mean((means - y) ** 2)))


def tables(seed: int) -> Iterator[Stream]:
    """A file of each kind; the last 1,500 rows are what is forecast."""
    yield "three classes, 4,500 rows", *make_classification(6000, 10, n_informative=6, n_classes=3, random_state=seed)
    yield "numbers (Friedman), 2,000 rows", *make_friedman1(3500, noise=1, random_state=seed)


def sorted_rows(trees: int, seeds: int) -> None:
    """A file sorted by its label, and the same in a random order."""
    print(f"\n{'rows in a random order, and sorted by label':<44} {'random':>9} {'sorted':>9} {'trees':>9}")
    for runs in zip(*(list(tables(seed)) for seed in range(seeds)), strict=True):
        classes = runs[0][2].dtype.kind == "i"
        for kind in (amf.AMFClassifier, amf.AdaptiveAMFClassifier) if classes else REGRESSORS:
            scores = [after(kind, trees, x, y) for _, x, y in runs]
            shown = " ".join(f"{number(mean(column), 2):>9}" for column in zip(*scores, strict=True))
            print(f"{runs[0][0]:<31} {kind.family[:12]:<12} {shown}", flush=True)


REGRESSORS = amf.AMFRegressor, amf.AdaptiveAMFRegressor


def after(kind: Any, trees: int, x: Rows, y: NDArray[Any]) -> tuple[float, ...]:
    """The score on the last 1,500 rows after the others in their order, after them sorted, and then of trees alone."""
    known, asked = slice(None, -1500), slice(-1500, None)
    order, given = np.argsort(y[known], kind="stable"), {} if y.dtype.kind == "f" else {"classes": [0, 1, 2]}
    found = []
    for rows, calibrated in ((np.arange(len(order)), True), (order, True), (order, False)):
        forest = kind(trees, seed=0, calibration=calibrated, **given).partial_fit(x[known][rows], y[known][rows])
        score = (
            log_loss(forest.predict_proba(x[asked]), y[asked]) if given else rmse(forest.predict(x[asked]), y[asked])
        )
        found.append(score)
    return tuple(found)


def streams(seed: int) -> Iterator[Stream]:
    """Two classes whose frequencies, or whose rule, go and come back; the last stays as it is."""
    rng, time = np.random.default_rng(seed), np.arange(LATE)
    x, signal = rng.normal(size=(LATE, 4)), np.array([1.5, 0.75, 0.0, 0.0])
    swings = rng.random(LATE) < 0.5 + 0.45 * np.sin(2 * np.pi * time / 400)
    yield "a season of 400 rows, no signal", x, swings.astype(int)
    stays = (np.cumsum(rng.random(LATE) < 0.003) % 2).astype(int)
    yield "runs of 333 rows in the mean", x + stays[:, None] * signal, stays
    turns = (rng.random(LATE) < np.where(time % 1500 < 750, 0.2, 0.8)).astype(int)
    yield ".2 and .8 by turns of 750 rows", x + turns[:, None] * signal, turns
    either = (rng.random(LATE) < 0.5).astype(int)
    yield "frequencies that stay", x + either[:, None] * signal, either


def late(forest: Any, x: Rows, y: NDArray[Any], delay: int) -> float:
    """Log-loss over the second half, where each label is learned so many rows after its forecast."""
    said = []
    for first in range(0, len(y), BATCH):
        said.append(forest.predict_proba(x[first : first + BATCH]))
        known = slice(max(first - delay, 0), max(first + BATCH - delay, 0))
        forest.partial_fit(x[known], y[known]) if known.stop else None
    half = len(y) // 2
    return log_loss(np.concatenate(said)[half:], y[half:])


def late_labels(trees: int, seeds: int) -> None:
    """Classes whose labels come late, calibrated and not."""
    print(f"\n{'log-loss, labels so many rows late':<50} " + " ".join(f"{delay:>9}" for delay in DELAYS))
    for runs in zip(*(list(streams(seed)) for seed in range(seeds)), strict=True):
        for calibrated in (True, False):
            scores = [
                [late(amf.AMFClassifier(trees, classes=[0, 1], calibration=calibrated, seed=seed), x, y, delay)
                 for delay in DELAYS]
                for seed, (_, x, y) in enumerate(runs)
            ]  # fmt: skip
            shown = " ".join(f"{number(mean(column), 2):>9}" for column in zip(*scores, strict=True))
            print(f"{runs[0][0]:<33} {'calibrated' if calibrated else 'trees alone':<16} {shown}", flush=True)


def rescaled_labels(trees: int, seeds: int) -> None:
    """Labels that are a hundredth, or a hundred times, of what they were, beside a forest that begins there."""
    names = [f"{first}-{last}" for first, last in pairwise(PARTS)]
    print(f"\n{'RMSE after labels change their unit, over':<44} " + " ".join(f"{name:>9}" for name in names))
    for factor in (0.01, 100.0):
        for kind in REGRESSORS:
            errors = np.mean([squares(kind, trees, factor, seed) for seed in range(seeds)], axis=0)
            for who, of_rows in zip(("that knew the old", "that begins there"), errors, strict=True):
                parts = (of_rows[first:last].mean() ** 0.5 for first, last in pairwise(PARTS))
                shown = " ".join(f"{part:>9.3g}" for part in parts)
                print(f"x {factor:<7g} {kind.family[:12]:<15} {who:<18} {shown}", flush=True)


def squares(kind: Any, trees: int, factor: float, seed: int) -> Rows:
    """Squared errors after the change: of a forest that learned the rows before it, and of one that did not."""
    rng, n = np.random.default_rng(seed), RESCALED + PARTS[-1]
    x = rng.normal(size=(n, 4))
    y = 10 + 2 * x[:, 0] + x[:, 1] + 0.5 * rng.normal(size=n)
    y[RESCALED:] *= factor
    old = kind(trees, seed=seed).predict_learn(x, y)[RESCALED:]
    new = kind(trees, seed=seed).predict_learn(x[RESCALED:], y[RESCALED:])
    new[0] = y[RESCALED]  # there is no forecast yet
    return (np.stack((old, new)) - y[RESCALED:]) ** 2


def main(options: Options) -> None:
    trees, seeds = (options.trees or [TREES])[0], options.seeds or SEEDS
    sorted_rows(trees, seeds)
    late_labels(trees, seeds)
    rescaled_labels(trees, seeds)
