"""What a row costs: time of the processor to learn and to forecast it, against rows learned, features, and AMF's.

    python -m tests.experiments complexity

Rows are uniform on [0, 1]^d, and classes say on which side of its median Friedman's function with noise lies. Growth is
that of a single tree, by powers of four up to 2^20 rows with d = 10: learning is that of the rows since the power
before, a forecast is one of 2,000 further rows. A system stops early when its nodes would take MOST_BYTES.
Against d there are ten trees and 5,000 rows; on the shared sets ten trees forecast each row and then learn it. There
the systems take turns, and of each counts the least time of its turns: what else runs on a machine makes them longer.
All forests are as in the papers, where they are not said to have our defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from tests.datasets import load
from tests.experiments.common import (
    CLASSIFIERS,
    Floats,
    axes_of,
    forest,
    friedman,
    one_legend,
    rounded,
    save,
    show,
    ticks_at,
)

SIZES = tuple(4**power for power in range(5, 11))
DIMENSIONS = (5, 8, 10, 20)
N_DIMENSIONS = 10
N_ASKED = 2000
N_ROWS = 5000
MOST_BYTES = 6e9
SETS = ("car", "cardio", "letter", "default_cb", "adult")
N_SHARED = 8000
TURNS = 3

SYSTEMS: dict[str, Callable[..., Any]] = {
    "AMF": partial(forest, amf.AMFClassifier),
    "Mondrian": partial(forest, amf.MondrianForestClassifier),
    "increasing lifetime": partial(forest, amf.IncreasingLifetimeForestClassifier),
    "BSP": partial(forest, amf.BSPForestClassifier),
}


class Cost(NamedTuple):
    """Microseconds a row; and the nodes' bytes."""

    learn: float
    predict: float
    nbytes: int


def microseconds(work: Callable[[], Any], rows: int) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / rows * 1e6


def rows_of(n: int, d: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, d))
    values = friedman(x) + rng.normal(size=n)
    return x, (values > np.median(values)).astype(np.int64)


def costs(system: str, n_trees: int, sizes: tuple[int, ...], d: int) -> list[Cost]:
    """After each number of rows, as far as memory goes."""
    x, y = rows_of(sizes[-1], d)
    asked, _ = rows_of(N_ASKED, d, seed=1)
    learner = SYSTEMS[system](n_trees, 0, classes=(0, 1))
    found: list[Cost] = []
    start = 0
    for end in sizes:
        learn = microseconds(partial(learner.partial_fit, x[start:end], y[start:end]), end - start)
        predict = microseconds(partial(learner.predict_proba, asked), N_ASKED)
        found.append(Cost(learn, predict, learner.nbytes))
        # The next part is about four times as large.
        if 4 * learner.nbytes > MOST_BYTES:
            break
        start = end
    return found


def by_features(d: int, n: int = N_ROWS, n_trees: int = 10) -> dict[str, Cost]:
    """Of each system its costs after n rows, the least of its turns."""
    turns = [{system: costs(system, n_trees, (n,), d)[0] for system in SYSTEMS} for _ in range(TURNS)]
    return {system: Cost(*np.min([turn[system] for turn in turns], axis=0)) for system in SYSTEMS}


def beside(name: str) -> dict[str, float]:
    """Microseconds a row of a shared set of each classifier of [AMF], the least of its turns."""
    x, y = (part[:N_SHARED] for part in load(name))
    classes = range(int(y.max()) + 1)
    taken: dict[str, list[float]] = {kind: [] for kind in CLASSIFIERS}
    for turn in range(TURNS):
        for kind, new in CLASSIFIERS.items():
            taken[kind].append(microseconds(partial(new(10, turn, classes=classes).prequential, x, y), len(y)))
    return {kind: min(spent) for kind, spent in taken.items()}


def _ratios(found: dict[str, list[Cost]]) -> list[str]:
    return rounded((bsp.learn / own.learn for bsp, own in zip(found["BSP"], found["AMF"], strict=False)), 1)


def main() -> None:
    for system in SYSTEMS:
        costs(system, 1, SIZES[:1], N_DIMENSIONS)  # kernels are loaded
    growth = {system: costs(system, 1, SIZES, N_DIMENSIONS) for system in SYSTEMS}
    turns = [by_features(d) for d in DIMENSIONS]
    by_d = {system: [turn[system] for turn in turns] for system in SYSTEMS}
    figure, panels = axes_of(2, yscale="log", ylabel="microseconds a row")
    for axes, columns, found, title in (
        (panels[0], SIZES, growth, f"one tree, d = {N_DIMENSIONS}, by rows learned"),
        (panels[1], DIMENSIONS, by_d, f"10 trees, {N_ROWS:,} rows, by features"),
    ):
        rows = {}
        for place, (system, own) in enumerate(found.items()):
            for part, line in (("learn", "o-"), ("predict", "s--")):
                taken = [getattr(cost, part) for cost in own]
                rows[f"{system}, {part}"] = rounded(taken, 2) + ["stopped"] * (len(columns) - len(own))
                axes.plot(columns[: len(own)], taken, line, color=f"C{place}", label=f"{system}, {part}")
        rows["BSP / AMF, learn"] = _ratios(found)
        show(f"microseconds a row, {title}", title, (f"{column:,}" for column in columns), rows)
        axes.set_title(title, fontsize=10)
    panels[0].set(xlabel="rows learned", xscale="log")
    panels[1].set(xlabel="features")
    ticks_at(panels[1], DIMENSIONS)
    one_legend(figure)
    save(figure, "complexity.png")
    speeds = {name: beside(name) for name in SETS}
    rows = {kind: rounded((taken[kind] for taken in speeds.values()), 1) for kind in CLASSIFIERS}
    for kind in ("Mondrian, path_mean", "Mondrian, ikn"):
        for own in ("AMF, our defaults", "AMF, to the letter"):
            rows[f"speed of {kind} / {own}"] = rounded((taken[own] / taken[kind] for taken in speeds.values()), 2)
    show(f"microseconds a row, forecast and learn, 10 trees, the first {N_SHARED:,} rows", "", SETS, rows)
