"""[BSP] Fig. 5: how well BSP and Mondrian forests cut the plane, for budgets c n^(1/4) and for numbers of samples.

Two features, uniform on [0, 1]^2, and labels 10 sin(pi x1 x2) and noise N(0, 0.2^2). First 5,000 samples and c from 0.1
to 1.5, then c = 1 and 300 to 10,000 samples. Errors are those to the function at 2,000 further points; leaves are those
of a tree; time is that of the processor for learning. The paper tells neither of these, and compares with one Mondrian
forest; here that has the same budget as lifetime, so that both have as many cuts in the mean over squares.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

import amf
from tests.experiments.common import Floats, axes_of, forest, rmse, rounded, save, show

N_TREES = 50
N_TEST = 2000
N_SAMPLES = 5000
BUDGETS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
SIZES = (300, 500, 1000, 2000, 5000, 10_000)
N_COUNTED = 5
SEEDS = range(3)
KINDS: dict[str, Any] = {"BSP": amf.BSPForestRegressor, "Mondrian": amf.IncreasingLifetimeForestRegressor}


class Cut(NamedTuple):
    """What a forest has become: its error, leaves of a tree, and seconds that it took."""

    error: float
    leaves: float
    seconds: float


def function(x: Floats) -> Floats:
    values: Floats = 10 * np.sin(np.pi * x[:, 0] * x[:, 1])
    return values


def cut(kind: str, seed: int, n: int, budget: float = 1.0, n_trees: int = N_TREES) -> Cut:
    """A forest that has learned n samples."""
    rng = np.random.default_rng(seed)
    x, asked = rng.random((n, 2)), rng.random((N_TEST, 2))
    y = function(x) + 0.2 * rng.normal(size=n)
    learner, start = forest(KINDS[kind], n_trees, seed, lifetime=budget), time.process_time()
    learner.partial_fit(x, y)
    spent = time.process_time() - start
    return Cut(rmse(learner.predict(asked), function(asked)), leaves(kind, seed, x, y, budget), spent)


def leaves(kind: str, seed: int, x: Floats, y: Floats, budget: float) -> float:
    """Of a tree within its budget, mean over a few: leaves have samples, and means that no other leaf has."""
    trees = [forest(KINDS[kind], 1, N_COUNTED * seed + k, lifetime=budget).partial_fit(x, y) for k in range(N_COUNTED)]
    return float(np.mean([len(np.unique(tree.predict(x))) for tree in trees]))


def mean_cuts(kind: str, sizes: tuple[int, ...], budgets: tuple[float, ...]) -> Cut:
    """Arrays in the order of sizes and budgets, means over seeds."""
    runs = [[cut(kind, seed, n, budget) for n in sizes for budget in budgets] for seed in SEEDS]
    return Cut(*np.mean(np.array(runs), axis=0).T)


def main() -> None:
    by_budget = {kind: mean_cuts(kind, (N_SAMPLES,), BUDGETS) for kind in KINDS}
    by_size = {kind: mean_cuts(kind, SIZES, (1.0,)) for kind in KINDS}
    about = f"{N_TREES} trees, mean over seeds {SEEDS[0]} to {SEEDS[-1]}"
    for title, columns, found in (
        (f"{N_SAMPLES:,} samples, budget c n^(1/4)", BUDGETS, by_budget),
        ("samples, budget n^(1/4)", SIZES, by_size),
    ):
        rows: dict[str, list[str]] = {}
        for kind, cuts in found.items():
            rows[f"{kind}, RMSE"] = rounded(cuts.error)
            rows[f"{kind}, leaves of a tree"] = rounded(cuts.leaves, 0)
            rows[f"{kind}, seconds"] = rounded(cuts.seconds, 2)
        show(f"{title}; {about}", title, columns, rows)
    figure, panels = axes_of(3)
    for kind in KINDS:
        panels[0].plot(BUDGETS, by_budget[kind].error, marker="o", label=kind)
        panels[1].plot(by_budget[kind].leaves, by_budget[kind].error, marker="o", label=kind)
        panels[2].plot(by_size[kind].seconds, by_size[kind].error, marker="o", label=kind)
    panels[0].set(xlabel="c of the budget c n^(1/4)", ylabel="RMSE to the function")
    panels[1].set(xlabel="leaves of a tree", xscale="log")
    panels[2].set(xlabel="seconds of learning, 300 to 10,000 samples", xscale="log")
    panels[0].legend()
    save(figure, "figure5_bsp.png")
