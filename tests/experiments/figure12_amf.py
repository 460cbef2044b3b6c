"""[AMF] Fig. 12: area under the ROC curve on a test set, by the number of trees.

As in the paper the test set is 30 % of the rows, with the same share of each class. Of its four sets two are here, and
of these the first 10,000 rows. Random forest and Extra-Trees have the defaults of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from tests.datasets import load
from tests.experiments.common import CLASSIFIERS, Floats, axes_of, one_legend, rounded, save, show, summary, ticks_at

SETS = ("adult", "default_cb")
N_ROWS = 10_000
TREES = (1, 2, 5, 10, 20, 50)
SEEDS = range(3)
BATCH: dict[str, Any] = {"random forest": RandomForestClassifier, "Extra-Trees": ExtraTreesClassifier}


def divided(seed: int, x: NDArray[Any], y: NDArray[Any]) -> list[NDArray[Any]]:
    """Training rows, test rows, training labels and test labels."""
    parts: list[NDArray[Any]] = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    return parts


def auc(model: Any, x: NDArray[Any], y: NDArray[Any]) -> float:
    return float(roc_auc_score(y, model.predict_proba(x)[:, 1]))


def areas(seed: int, x: NDArray[Any], y: NDArray[Any], trees: tuple[int, ...] = TREES) -> dict[str, Floats]:
    """Of each method with each number of trees, on rows (n, d) of classes 0 and 1."""
    x, asked, y, truth = divided(seed, x, y)
    found = {}
    for name, new in CLASSIFIERS.items():
        found[name] = np.array([auc(new(m, seed, classes=(0, 1)).partial_fit(x, y), asked, truth) for m in trees])
    for name, kind in BATCH.items():
        found[name] = np.array([auc(kind(m, random_state=seed).fit(x, y), asked, truth) for m in trees])
    return found


def main() -> None:
    figure, panels = axes_of(len(SETS), xlabel="trees", xscale="log")
    for axes, name in zip(panels, SETS, strict=True):
        x, y = (part[:N_ROWS] for part in load(name))
        runs = [areas(seed, x, y) for seed in SEEDS]
        found = {method: np.array([run[method] for run in runs]) for method in runs[0]}
        means = {method: rounded(values.mean(axis=0)) for method, values in found.items()}
        show(f"AUC on 30 % of {N_ROWS:,} rows of {name}, mean over {len(runs)} divisions", "trees", TREES, means)
        for method, values in found.items():
            axes.errorbar(TREES, *summary(values), marker="o", capsize=3, label=method)
        axes.set_title(name)
        ticks_at(axes, TREES)
    panels[0].set_ylabel("AUC on the test set")
    one_legend(figure)
    save(figure, "figure12_amf.png")
