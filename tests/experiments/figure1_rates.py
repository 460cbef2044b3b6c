"""[rates] Fig. 1: accuracy on a test set after a tenth of the training set, two tenths, and so on.

A third of letter is the test set. Features are scaled to [0, 1] by the ranges of the training set; splits are within
the ranges of the samples, as in the paper. It tells neither the number of trees nor that of the repetitions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import amf
from tests.datasets import load
from tests.experiments import common
from tests.experiments.common import axes_of, forest, rounded, save, show

N_TREES = 50
SEEDS = range(3)
TENTHS = range(1, 11)

_NEW = partial(forest, amf.IncreasingLifetimeForestClassifier)
ONLINE: dict[str, Any] = {
    "Mondrian, lifetime n^(1/(d+2))": _NEW,
    "Mondrian, lifetime 2": partial(_NEW, lifetime=2.0, lifetime_exponent=0.0),
}
BATCH: dict[str, Any] = {
    "Extra-Trees, one feature a split": partial(ExtraTreesClassifier, max_features=1),
    "random forest": RandomForestClassifier,
}


def accuracies(
    seed: int, x: NDArray[np.float64], y: NDArray[np.int64], *, n_trees: int = N_TREES
) -> dict[str, NDArray[np.float64]]:
    """Of each method after each tenth of the training set, on rows (n, d) and their classes."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order], y[order]
    n = len(x) * 2 // 3
    low, high = x[:n].min(axis=0), x[:n].max(axis=0)
    x = (x - low) / np.where(high > low, high - low, 1.0)
    return common.accuracies(ONLINE, BATCH, x, y, [(n * tenth // 10, n) for tenth in TENTHS], n_trees, seed)


def main() -> None:
    x, y = load("letter")
    runs = [accuracies(seed, x, y) for seed in SEEDS]
    means = {name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]}
    about = f"{N_TREES} trees, mean over {len(SEEDS)} divisions"
    rows = {name: rounded(mean) for name, mean in means.items()}
    show(f"accuracy on letter, {about}", "share of the training set", (f"{10 * tenth} %" for tenth in TENTHS), rows)
    figure, (axes,) = axes_of(1, xlabel="share of the training set", ylabel="accuracy on the test set")
    for name, mean in means.items():
        axes.plot(np.array(TENTHS) / 10, mean, marker="o", label=name)
    axes.legend()
    save(figure, "figure1_rates.png")
