"""[002] Fig. 4: RMSE to the Friedman function, of the BSP forest beside both kinds of Mondrian forests.

Features are uniform on [0, 1]^5, and labels are the function of them and noise N(0, 1). Each repetition is one stream
of its own, after whose first samples all forests are asked for the same test points; differences are paired. The
Mondrian forests are the original one, whose trees part all samples, and the one with the lifetime n^(1/(d+2)), which is
also the budget of the BSP forest. The paper does not tell the number of test points. It searches a grid for the forests
of batches; here these have the defaults of scikit-learn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

import amf

N_TREES = 100
N_TEST = 1000
SIZES = (500, 1000, 2000, 5000)
SEEDS = range(12)
PICTURE = Path(__file__).parent / "figure4_002.png"

BSP = "BSP, budget n^(1/(d+2))"
ONLINE: dict[str, Any] = {
    BSP: amf.BSPForestRegressor,
    "Mondrian, lifetime n^(1/(d+2))": amf.IncreasingLifetimeForestRegressor,
    "Mondrian, no end of lifetime": amf.MondrianForestRegressor,
}
BATCH: dict[str, Any] = {"Extra-Trees": ExtraTreesRegressor, "random forest": RandomForestRegressor}


def friedman(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The function of the first five features."""
    values: NDArray[np.float64] = (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    )
    return values


def errors(
    seed: int, sizes: tuple[int, ...] = SIZES, n_trees: int = N_TREES, n_test: int = N_TEST
) -> dict[str, NDArray[np.float64]]:
    """Of each method its RMSE on the test points after each number of samples."""
    rng = np.random.default_rng(seed)
    x, asked = rng.random((sizes[-1], 5)), rng.random((n_test, 5))
    y, truth = friedman(x) + rng.normal(size=len(x)), friedman(asked)
    found = {name: np.zeros(len(sizes)) for name in (*ONLINE, *BATCH)}
    for name, kind in ONLINE.items():
        forest, start = kind.preset("paper", n_estimators=n_trees, seed=seed, max_bytes=2**32), 0
        for place, end in enumerate(sizes):
            forest.partial_fit(x[start:end], y[start:end])
            found[name][place], start = np.sqrt(np.mean((forest.predict(asked) - truth) ** 2)), end
    for name, kind in BATCH.items():
        for place, end in enumerate(sizes):
            forest = kind(n_trees, random_state=seed).fit(x[:end], y[:end])
            found[name][place] = np.sqrt(np.mean((forest.predict(asked) - truth) ** 2))
    return found


def summary(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over repetitions (repetitions, sizes), and 1.96 times its standard error."""
    return values.mean(axis=0), 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))


def main() -> None:
    runs = [errors(seed) for seed in SEEDS]
    found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    differences = {f"{name}, less BSP": found[name] - found[BSP] for name in [*ONLINE][1:]}
    print(f"RMSE to the Friedman function, {N_TREES} trees, mean over {len(runs)} repetitions +- 1.96 standard errors")
    print(f"{'samples':42}" + "".join(f"{size:18}" for size in SIZES))
    for name, values in {**found, **differences}.items():
        print(
            f"{name:42}" + "".join(f"{mean:9.3f} +- {error:5.3f}" for mean, error in zip(*summary(values), strict=True))
        )
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="samples", ylabel="RMSE to the Friedman function", xscale="log")
    for name, values in found.items():
        mean, error = summary(values)
        axes.errorbar(SIZES, mean, error, marker="o", capsize=3, label=name)
    axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(PICTURE, dpi=120)
    print(f"picture: {PICTURE}")
