"""[BSP] Fig. 3: accuracy on letter, reduced to four principal components, by the share of rows that are learned.

As in the paper there are 15,000 rows, features are scaled to [0, 1] after the reduction, and trees of BSP and Mondrian
forests vote; there are half as many trees. Each repetition shuffles the rows; the online forests learn them in that
order, and all methods are asked for the rows that have not been learned. Of its four sets this one is here. It searches
a grid for the forests of batches; here these have the defaults of scikit-learn.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import amf
from tests.datasets import in_unit_cube, load
from tests.experiments import common
from tests.experiments.common import Floats, axes_of, forest, save, show, summary, with_errors

N_TREES = 50
N_ROWS = 15_000
N_COMPONENTS = 4
SHARES = (0.1, 0.5, 0.9)
SEEDS = range(4)

ONLINE: dict[str, Any] = {
    "BSP, budget n^(1/(d+2))": partial(forest, amf.BSPForestClassifier),
    "Mondrian, lifetime n^(1/(d+2))": partial(forest, amf.IncreasingLifetimeForestClassifier),
    "Mondrian, no end of lifetime": partial(forest, amf.MondrianForestClassifier),
}
BATCH: dict[str, Any] = {"Extra-Trees": ExtraTreesClassifier, "random forest": RandomForestClassifier}


def reduced(x: NDArray[Any]) -> NDArray[Any]:
    """Principal components of rows, each from 0 to 1."""
    return in_unit_cube(PCA(N_COMPONENTS, random_state=0).fit_transform(x))


def accuracies(
    seed: int, x: NDArray[Any], y: NDArray[Any], shares: tuple[float, ...] = SHARES, n_trees: int = N_TREES
) -> dict[str, Floats]:
    """Of each method after each share of rows (n, d) and their classes."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order], y[order]
    ends = [round(share * len(x)) for share in shares]
    return common.accuracies(ONLINE, BATCH, x, y, [(end, end) for end in ends], n_trees, seed)


def main() -> None:
    x, y = load("letter")
    x = reduced(x[:N_ROWS])
    runs = [accuracies(seed, x, y[:N_ROWS]) for seed in SEEDS]
    found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    rows = {name: with_errors(values) for name, values in found.items()}
    about = f"{N_TREES} trees, mean over {len(runs)} repetitions +- 1.96 standard errors"
    shares = [f"{share:.0%}" for share in SHARES]
    show(f"accuracy on letter with {N_COMPONENTS} components, {about}", "rows learned", shares, rows)
    figure, (axes,) = axes_of(1, xlabel="share of the rows that is learned", ylabel="accuracy on the others")
    for name, values in found.items():
        axes.errorbar(SHARES, *summary(values), marker="o", capsize=3, label=name)
    axes.legend()
    save(figure, "figure3_bsp.png")
