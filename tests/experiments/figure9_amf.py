"""[AMF] Fig. 9: what forests say over the plane, of simulated samples of two features and two classes.

500 samples, 100 trees, forests of batches with the defaults of scikit-learn. The paper claims that AMF's decision
function alone is smooth, and that the others' probabilities are therefore not calibrated. So two numbers stand beside
the pictures: how far the probability moves between neighbours on the grid, summed along a line across the plane, in the
mean over all lines (0 of a constant, 1 of one step from 0 to 1); and the log-loss on 5,000 further samples. The paper
does not tell its data; these are scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import make_circles, make_classification, make_moons
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from tests.datasets import in_unit_cube
from tests.experiments.common import CLASSIFIERS, Floats, log_losses, rounded, save, show

N_TREES = 100
N_SAMPLES = 500
N_TEST = 5000
STEPS = 100
SEEDS = range(3)
BANDS = colormaps["coolwarm"].resampled(9)
BATCH: dict[str, Any] = {"random forest": RandomForestClassifier, "Extra-Trees": ExtraTreesClassifier}
SETS: dict[str, Callable[[int, int], Any]] = {
    "moons": lambda n, seed: make_moons(n, noise=0.3, random_state=seed),
    "circles": lambda n, seed: make_circles(n, noise=0.2, factor=0.5, random_state=seed),
    "linear": lambda n, seed: make_classification(
        n, 2, n_redundant=0, n_clusters_per_class=1, class_sep=0.7, random_state=seed
    ),
}


def samples(name: str, seed: int, n_test: int = N_TEST) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples to learn, and then those of the test."""
    x, y = SETS[name](N_SAMPLES + n_test, seed)
    return in_unit_cube(x), y


def surface(model: Any, steps: int = STEPS) -> Floats:
    """Probability of class 1 on a grid (steps, steps) over the unit square."""
    side = np.linspace(0.0, 1.0, steps)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    return np.asarray(model.predict_proba(points)[:, 1]).reshape(steps, steps)


def variation(values: Floats) -> float:
    """Of a surface along its lines in both directions, in the mean over lines."""
    return float(np.mean([np.abs(np.diff(values, axis=axis)).sum(axis=axis).mean() for axis in (0, 1)]))


def fitted(method: str, n_trees: int, seed: int, x: NDArray[Any], y: NDArray[Any]) -> Any:
    if method in CLASSIFIERS:
        return CLASSIFIERS[method](n_trees, seed, classes=(0, 1)).partial_fit(x, y)
    return BATCH[method](n_trees, random_state=seed).fit(x, y)


def figures(method: str, name: str, seed: int, n_trees: int = N_TREES) -> tuple[float, float]:
    """Log-loss and variation of a method that has learned samples of a set."""
    x, y = samples(name, seed)
    model = fitted(method, n_trees, seed, x[:N_SAMPLES], y[:N_SAMPLES])
    losses = log_losses(model.predict_proba(x[N_SAMPLES:]), y[N_SAMPLES:])
    return float(losses.mean()), variation(surface(model))


def main() -> None:
    methods = [*CLASSIFIERS, *BATCH]
    tables: dict[str, dict[str, list[str]]] = {"log-loss": {}, "variation": {}}
    figure = Figure(figsize=(1.45 * len(methods), 1.55 * len(SETS) + 0.3), layout="constrained")
    for column, method in enumerate(methods):
        runs = np.array([[figures(method, name, seed) for seed in SEEDS] for name in SETS])
        for table, values in zip(tables.values(), runs.mean(axis=1).T, strict=True):
            table[method] = rounded(values)
        for row, name in enumerate(SETS):
            x, y = (part[:N_SAMPLES] for part in samples(name, SEEDS[0]))
            axes = figure.add_subplot(len(SETS), len(methods), row * len(methods) + column + 1)
            over = surface(fitted(method, N_TREES, SEEDS[0], x, y))
            axes.imshow(over, extent=(0, 1, 0, 1), origin="lower", cmap=BANDS, vmin=0, vmax=1, aspect="auto")
            axes.scatter(*x[:150].T, c=y[:150], cmap="coolwarm", s=4, edgecolors="k", linewidths=0.4)
            axes.set_xticks([])
            axes.set_yticks([])
            if not row:
                axes.set_title(method, fontsize=8)
            if not column:
                axes.set_ylabel(name)
    for title, rows in tables.items():
        show(f"{title}, {N_TREES} trees, mean over seeds {SEEDS[0]} to {SEEDS[-1]}", title, SETS, rows)
    save(figure, "figure9_amf.png")
