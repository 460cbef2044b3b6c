"""What the experiments share: the forests of the papers, losses, tables, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import amf

FOLDER = Path(__file__).parent
LEAST_PROBABILITY = 1e-15
"""What a label is charged for that a forecast held impossible, as in the public scripts of [AMF]."""

Floats = NDArray[np.float64]


def forest(kind: Any, n_trees: int, seed: int, *, preset: str = "paper", **parameters: Any) -> Any:
    """A forest that has learned nothing; no memory is too much for it."""
    return kind.preset(preset, n_estimators=n_trees, seed=seed, max_bytes=2**40, **parameters)


CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "AMF, our defaults": partial(forest, amf.AMFClassifier, preset="default", calibration=False),
    "AMF, as its package": partial(forest, amf.AMFClassifier, dirichlet=None, charge_first=False, mode="existing"),
    "AMF, to the letter": partial(forest, amf.AMFClassifier),
    "Mondrian, path_mean": partial(forest, amf.MondrianForestClassifier, smoothing="path_mean"),
    "Mondrian, ikn": partial(forest, amf.MondrianForestClassifier, smoothing="ikn"),
}
"""The online forests of [AMF]: (trees, seed) to a forest whose forecasts are means over trees, without calibration.
The package of the paper's authors has a Dirichlet prior of 0.01 for more than two classes, forecasts by the tree as it
is, and does not charge a leaf for its first sample."""


def accuracies(
    online: Mapping[str, Callable[[int, int], Any]],
    batch: Mapping[str, Callable[..., Any]],
    x: NDArray[Any],
    y: NDArray[Any],
    parts: Sequence[tuple[int, int]],
    n_trees: int,
    seed: int,
) -> dict[str, Floats]:
    """Of each method once it has learned rows (n, d) and their classes up to an end, on the rows from a start on.

    parts: each end with its start. The methods in `online` learn on from one end to the next.
    """
    found = {name: np.zeros(len(parts)) for name in (*online, *batch)}
    for name, new in online.items():
        learner, learned = new(n_trees, seed), 0
        for place, (end, start) in enumerate(parts):
            learner.partial_fit(x[learned:end], y[learned:end])
            found[name][place], learned = np.mean(learner.predict(x[start:]) == y[start:]), end
    for name, kind in batch.items():
        for place, (end, start) in enumerate(parts):
            found[name][place] = kind(n_trees, random_state=seed).fit(x[:end], y[:end]).score(x[start:], y[start:])
    return found


def log_losses(probabilities: Floats, y: NDArray[Any]) -> Floats:
    """-log of what each row (n, K) gives its label (n,)."""
    losses: Floats = -np.log(np.maximum(probabilities[np.arange(len(y)), y], LEAST_PROBABILITY))
    return losses


def rmse(said: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((said - truth) ** 2)))


def friedman(x: Floats) -> Floats:
    """The function of the first five features, [BSP] Eq. 2."""
    values: Floats = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return values


def summary(values: Floats) -> tuple[Floats, Floats]:
    """Mean over repetitions (repetitions, ...), and 1.96 times its standard error."""
    return values.mean(axis=0), 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))


def with_errors(values: Floats) -> list[str]:
    """Cells of a table: of each column of (repetitions, columns) mean +- 1.96 standard errors."""
    return [f"{mean:.3f} +- {error:.3f}" for mean, error in zip(*summary(values), strict=True)]


def rounded(values: Iterable[float], digits: int = 3) -> list[str]:
    """Cells of a table."""
    return [f"{value:,.{digits}f}" for value in values]


def show(title: str, corner: str, columns: Iterable[Any], rows: Mapping[str, Sequence[str]]) -> None:
    """Print a table that is Markdown, too."""
    heads = [corner, *map(str, columns)]
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def axes_of(n: int, **labels: Any) -> tuple[Figure, list[Axes]]:
    """A picture of n panels, at most three side by side, with the same labels and scales."""
    across, down = min(n, 3), -(-n // 3)
    figure = Figure(figsize=(7 if n == 1 else 4 * across, 4.5 if down == 1 else 3.3 * down), layout="constrained")
    return figure, [figure.add_subplot(down, across, place + 1, **labels) for place in range(n)]


def ticks_at(axes: Axes, places: Sequence[int]) -> None:
    """Label these places of the axis across, and no others."""
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()


def one_legend(figure: Figure, *, columns: int = 4) -> None:
    """Name the lines of all panels once, below them."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, fontsize="small")


def save(figure: Figure, name: str) -> None:
    """Write a picture of few colours to this folder: it stays small."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=120)
    Image.open(buffer).convert("RGB").quantize(48).save(FOLDER / name, optimize=True)
    print(f"\npicture: {FOLDER / name}", flush=True)
