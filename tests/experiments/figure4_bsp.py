"""[BSP] Fig. 4: RMSE to the Friedman function, of the BSP forest beside both kinds of Mondrian forests.

Features are uniform on [0, 1]^d, of which the function has the first five, and labels are the function of them and
noise N(0, 1). Each repetition is one stream of its own, after whose first samples all forests are asked for the same
test points; differences are paired. The Mondrian forests are the original one, whose trees part all samples, and the
one with the lifetime n^(1/(d+2)), which is also the budget of the BSP forest. The paper does not tell the number of
test points. It searches a grid for the forests of batches; here these have the defaults of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

import amf
from tests.experiments.common import (
    Floats,
    axes_of,
    forest,
    friedman,
    one_legend,
    rmse,
    save,
    show,
    summary,
    ticks_at,
    with_errors,
)

N_TREES = 100
N_TEST = 1000
SIZES = (500, 1000, 2000, 5000)
SEEDS = {5: range(16), 10: range(8)}
"""By the number of features."""

BSP = "BSP, budget n^(1/(d+2))"
ONLINE: dict[str, Any] = {
    BSP: amf.BSPForestRegressor,
    "Mondrian, lifetime n^(1/(d+2))": amf.IncreasingLifetimeForestRegressor,
    "Mondrian, no end of lifetime": amf.MondrianForestRegressor,
}
BATCH: dict[str, Any] = {"Extra-Trees": ExtraTreesRegressor, "random forest": RandomForestRegressor}


def errors(
    seed: int, d: int = 5, sizes: tuple[int, ...] = SIZES, n_trees: int = N_TREES, n_test: int = N_TEST
) -> dict[str, Floats]:
    """Of each method its RMSE on the test points after each number of samples."""
    rng = np.random.default_rng(seed)
    x, asked = rng.random((sizes[-1], d)), rng.random((n_test, d))
    y, truth = friedman(x) + rng.normal(size=len(x)), friedman(asked)
    found = {name: np.zeros(len(sizes)) for name in (*ONLINE, *BATCH)}
    for name, kind in ONLINE.items():
        learner, start = forest(kind, n_trees, seed), 0
        for place, end in enumerate(sizes):
            learner.partial_fit(x[start:end], y[start:end])
            found[name][place], start = rmse(learner.predict(asked), truth), end
    for name, kind in BATCH.items():
        for place, end in enumerate(sizes):
            learner = kind(n_trees, random_state=seed).fit(x[:end], y[:end])
            found[name][place] = rmse(learner.predict(asked), truth)
    return found


def main() -> None:
    figure, panels = axes_of(len(SEEDS), xlabel="samples", xscale="log")
    for axes, (d, seeds) in zip(panels, SEEDS.items(), strict=True):
        runs = [errors(seed, d) for seed in seeds]
        found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
        differences = {f"{name}, less BSP": found[name] - found[BSP] for name in [*ONLINE][1:]}
        rows = {name: with_errors(values) for name, values in {**found, **differences}.items()}
        about = f"{N_TREES} trees, mean over {len(runs)} repetitions +- 1.96 standard errors"
        show(f"RMSE to the Friedman function, d = {d}, {about}", f"d = {d}", (f"{size:,}" for size in SIZES), rows)
        for name, values in found.items():
            axes.errorbar(SIZES, *summary(values), marker="o", capsize=3, label=name)
        axes.set_title(f"d = {d}")
        ticks_at(axes, SIZES)
    panels[0].set_ylabel("RMSE to the Friedman function")
    one_legend(figure, columns=3)
    save(figure, "figure4_bsp.png")
