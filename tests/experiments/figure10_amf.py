"""[AMF] Fig. 10: mean log-loss so far of one pass over the shared sets, each row forecast before its label.

As in the paper the first row is not scored, ten trees, features scaled to [0, 1] and one-hot, rows in the order of the
files. Beside the forests: Dummy, the Krichevsky-Trofimov forecaster of the labels alone, and logistic regression by
stochastic gradient descent (SGD) with a constant rate. Of its ten sets five are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.datasets import load
from tests.experiments.common import (
    CLASSIFIERS,
    Floats,
    axes_of,
    log_losses,
    one_legend,
    rounded,
    save,
    show,
    with_errors,
)

SETS = ("car", "cardio", "letter", "default_cb", "adult")
N_TREES = 10
SEEDS = range(5)
EARLY = 100
RATE, PENALTY = 0.1, 1e-4


def _dummy(x: NDArray[Any], y: NDArray[Any], n_classes: int) -> Floats:
    counts = np.cumsum(np.eye(n_classes)[y], axis=0)
    before = np.vstack([np.zeros(n_classes), counts[:-1]])
    said: Floats = (before + 0.5) / (np.arange(len(y))[:, None] + n_classes / 2)
    return said


def sgd(x: NDArray[Any], y: NDArray[Any], n_classes: int) -> Floats:
    """SGDClassifier of scikit-learn, one logistic regression for each class against the others, a hundred times as fast
    row by row."""
    labels = y[:, None] if n_classes == 2 else np.eye(n_classes)[y]
    rows = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    weights, scores = np.zeros((labels.shape[1], rows.shape[1])), np.zeros(labels.shape)
    for row, label, score in zip(rows, labels, scores, strict=True):
        score[:] = 1.0 / (1.0 + np.exp(-(weights @ row)))
        weights[:, :-1] *= 1.0 - RATE * PENALTY
        weights += np.outer(RATE * (label - score), row)
    said = np.hstack([1.0 - scores, scores]) if n_classes == 2 else scores / scores.sum(axis=1, keepdims=True)
    return np.asarray(said)


def losses(x: NDArray[Any], y: NDArray[Any], seeds: range = SEEDS) -> dict[str, Floats]:
    """Of each forest its losses (seeds, n - 1) on rows (n, d) and their classes; of the others, which have no seed,
    (1, n - 1)."""
    n_classes = int(y.max()) + 1
    found = {}
    for name, new in CLASSIFIERS.items():
        runs = [new(N_TREES, seed, classes=range(n_classes)).prequential(x, y).raw for seed in seeds]
        found[name] = np.array([log_losses(said, y)[1:] for said in runs])
    for name, said in {"SGD": sgd, "Dummy": _dummy}.items():
        found[name] = log_losses(said(x, y, n_classes), y)[None, 1:]
    return found


def _table(runs: dict[str, dict[str, Floats]], title: str, part: slice) -> None:
    """Means of a part of the rows, and how far AMF is below the Mondrian forests."""
    means = {
        learner: np.array([run[learner][:, part].mean(axis=1) for run in runs.values()]) for learner in [*CLASSIFIERS]
    }
    others = {name: np.array([run[name][0, part].mean() for run in runs.values()]) for name in ("SGD", "Dummy")}
    rows = {name: rounded(mean.mean(axis=1)) for name, mean in means.items()}
    rows |= {name: rounded(mean) for name, mean in others.items()}
    for other in ("Mondrian, path_mean", "Mondrian, ikn"):
        for own in ("AMF, as its package", "AMF, our defaults"):
            rows[f"{own}, less {other}"] = with_errors((means[own] - means[other]).T)
    show(f"mean log-loss of {title}, {N_TREES} trees, mean over {len(SEEDS)} seeds", title, SETS, rows)


def main() -> None:
    runs = {name: losses(*load(name)) for name in SETS}
    _table(runs, "all rows", slice(None))
    _table(runs, f"the first {EARLY} rows", slice(EARLY - 1))
    figure, panels = axes_of(len(SETS), xlabel="rows", xscale="log")
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        for learner, charges in run.items():
            charged = charges.mean(axis=0)
            seen = np.arange(1, len(charged) + 1)
            axes.plot(seen[9:], (np.cumsum(charged) / seen)[9:], label=learner)
        axes.set_title(name)
        axes.set_ylim(0.0, 1.3 * run["Dummy"].mean())
    for axes in panels[::3]:
        axes.set_ylabel("mean log-loss so far (nats)")
    one_legend(figure)
    save(figure, "figure10_amf.png")
