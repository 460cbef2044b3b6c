"""[AMF] Fig. 11: area under the ROC curve on a test set, online forests as they learn beside batch forests at the end.

Sets and divisions are those of figure12_amf, ten trees. The paper asks every 100 rows; here there are about five places
for each power of ten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from tests.datasets import load
from tests.experiments.common import CLASSIFIERS, Floats, axes_of, one_legend, rounded, save, show
from tests.experiments.figure12_amf import BATCH, N_ROWS, SETS, auc, divided

N_TREES = 10
FIRST = 100
COLUMNS = (100, 500, 2000)
SEEDS = range(3)


def places_up_to(n: int) -> list[int]:
    """Numbers of rows after which the test set is asked."""
    steps = np.logspace(np.log10(FIRST), np.log10(n), 1 + round(5 * np.log10(n / FIRST)))
    return sorted({*steps.round().astype(int).tolist(), *(column for column in COLUMNS if column < n)})


def areas(seed: int, x: NDArray[Any], y: NDArray[Any]) -> tuple[list[int], dict[str, Floats]]:
    """The numbers of rows, and of each method its areas after them; those of batch forests are all the last."""
    x, asked, y, truth = divided(seed, x, y)
    places = places_up_to(len(y))
    online: dict[str, Any] = {name: new(N_TREES, seed, classes=(0, 1)) for name, new in CLASSIFIERS.items()}
    online["SGD"] = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, alpha=1e-4, shuffle=False)
    known = {"SGD": {"classes": (0, 1)}}
    found = {name: np.zeros(len(places)) for name in online}
    for name, model in online.items():
        for place, (start, end) in enumerate(zip([0, *places[:-1]], places, strict=True)):
            model.partial_fit(x[start:end], y[start:end], **known.get(name, {}))
            found[name][place] = auc(model, asked, truth)
    for name, kind in BATCH.items():
        found[name] = np.full(len(places), auc(kind(N_TREES, random_state=seed).fit(x, y), asked, truth))
    return places, found


def main() -> None:
    figure, panels = axes_of(len(SETS), xlabel="rows learned", xscale="log")
    for axes, name in zip(panels, SETS, strict=True):
        x, y = (part[:N_ROWS] for part in load(name))
        runs = [areas(seed, x, y) for seed in SEEDS]
        places = runs[0][0]
        means = {method: np.mean([found[method] for _, found in runs], axis=0) for method in runs[0][1]}
        columns = [places.index(column) for column in COLUMNS] + [len(places) - 1]
        cells = {
            method: ["", "", "", *rounded(mean[-1:])] if method in BATCH else rounded(mean[columns])
            for method, mean in means.items()
        }
        heads = [f"{places[column]:,} rows" for column in columns]
        show(
            f"AUC on 30 % of {N_ROWS:,} rows of {name}, {N_TREES} trees, mean over {len(runs)} divisions",
            name,
            heads,
            cells,
        )
        for method, mean in means.items():
            axes.plot(places, mean, linestyle="--" if method in BATCH else "-", label=method)
        axes.set_title(name)
    panels[0].set_ylabel("AUC on the test set")
    one_legend(figure)
    save(figure, "figure11_amf.png")
