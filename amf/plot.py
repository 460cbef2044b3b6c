"""Pictures of forests for people. Needs the extra `plot`: `pip install '.[plot]'`.

Each function draws into the Axes it is given, or into a new figure, and returns the Axes. Colours are those of Okabe
and Ito, which people of any colour vision tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import amf

try:
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch
except ImportError as error:
    raise ImportError("amf.plot needs matplotlib 3.9 or newer: pip install '.[plot]'") from error

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of classes and of runs, in their order."""

_MARKERS = "os^Dv*P"  # of classes, for eyes and printers without colours
_STRONGEST = 0.6  # share of a class's colour where the class is certain: samples of that class still stand out


def decision_regions(
    forest: amf.AMFClassifier,
    X: ArrayLike,  # noqa: N803
    y: Any,
    *,
    resolution: int = 250,
    ax: Axes | None = None,
) -> Axes:
    """What a classifier of two features predicts over the plane, with samples on top.

    A point has the colour of its likeliest class, the fainter the less certain: white where all classes are equally
    likely. A line runs where the likeliest class changes.

    Parameters
    ----------
    forest : a classifier of two features and up to seven classes that has learned.
    X, y : samples to show, (n, 2) and (n,); those whose label is no class of the forest are left out. The plane is
        shown as far as they reach, and a margin; of a forest on the unit cube no further than that.
    resolution : points along each axis at which the forest is asked.

    Raises ValueError where X has not two features or the forest more than seven classes.

    Examples
    --------
    >>> import amf, amf.plot, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same sign", "different")
    >>> forest = amf.AMFClassifier(seed=1).partial_fit(X, y)
    >>> ax = amf.plot.decision_regions(forest, X, y, resolution=50)
    >>> ax.figure.savefig("regions.png")
    """
    x = np.asarray(X, np.float64)
    labels = forest.class_labels
    if x.ndim != 2 or x.shape[1] != 2:
        raise ValueError(f"regions are drawn over two features, X has shape {x.shape}")
    if len(labels) > len(COLOURS):
        raise ValueError(f"{len(labels)} classes are more than the {len(COLOURS)} colours that differ visibly")
    across, up = _grid(x, resolution, (0.0, 1.0) if forest.in_unit_cube else (-np.inf, np.inf))
    points = np.stack(np.meshgrid(across, up), axis=-1)
    probabilities = forest.predict_proba(points.reshape(-1, 2)).reshape(resolution, resolution, len(labels))

    ax = _axes(ax)
    ax.imshow(
        _surface(probabilities), extent=(across[0], across[-1], up[0], up[-1]), origin="lower", aspect="auto", zorder=0
    )
    for leads in _leads(probabilities):
        ax.contour(across, up, leads, levels=[0.0], colors="0.2", linewidths=0.9, zorder=1)
    classes = np.array([amf.class_text(label) for label in np.asarray(y, object).tolist()])
    for label, colour, marker in zip(labels, COLOURS, _MARKERS, strict=False):
        own = x[classes == amf.class_text(label)]
        style: dict[str, Any] = {"s": 18, "marker": marker, "color": colour, "edgecolor": "white", "linewidth": 0.5}
        ax.scatter(*own.T, label=str(label), zorder=2, **style)
    names = forest.feature_names or ("$x_1$", "$x_2$")
    ax.set(xlabel=names[0], ylabel=names[1])
    undecided = Patch(facecolor="white", edgecolor="0.6", label="undecided")
    _legend(ax, handles=[*ax.get_legend_handles_labels()[0], undecided])
    return ax


def weighted_depth(
    forest: amf.AMFClassifier | amf.AMFRegressor, x: ArrayLike, *, label: str | None = None, ax: Axes | None = None
) -> Axes:
    """How deep the averaged prunings reach along a feature ([AMF] Sec. 5.1, Fig. 8): deep where labels vary fast.

    Parameters
    ----------
    forest : one that has learned from a single feature.
    x : where to ask, (n,), in any order.
    label : of the curve, in the legend. A further curve in the same Axes takes the next colour.

    Raises ValueError where x is not one-dimensional.

    Examples
    --------
    >>> import amf, amf.plot, numpy as np
    >>> x = np.random.default_rng(0).random(500)
    >>> forest = amf.AMFRegressor(seed=1).partial_fit(x[:, None], np.sin(1 / (x + 0.05)))
    >>> ax = amf.plot.weighted_depth(forest, np.linspace(0, 1, 200), label="10 trees")
    >>> ax.figure.savefig("depth.png")
    """
    places = np.sort(np.asarray(x, np.float64))
    if places.ndim != 1:
        raise ValueError(f"the depth is drawn along one feature, x has shape {places.shape}")
    depths = forest.weighted_depth(places[:, None])
    ax = _axes(ax)
    ax.plot(places, depths, color=_next_colour(ax), linewidth=1.2, label=label)
    ax.set(xlabel=(forest.feature_names or ("$x$",))[0], ylabel="weighted depth (splits)")
    ax.set_ylim(bottom=0.0, auto=True)  # a further, deeper curve must not be cut
    ax.grid(axis="y", linewidth=0.5, alpha=0.5)
    if label is not None:
        _legend(ax)
    return ax


def log_loss(runs: Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Prequential log-loss: the mean, over all samples so far, of the loss each had before it was learned.

    Parameters
    ----------
    runs : name -> losses -log p(label) in nats, (n,) in the order of the stream, NaN where there was no label; or
        (s, n), the same stream under s seeds: then the line is their mean and the band runs from the least to the
        largest. The legend adds where each line ends.

    With codes (n,) the places of the labels in `classes_`, the losses of a forest are
    `-np.log(forest.prequential(X, y).probabilities[np.arange(n), codes])`.

    Raises ValueError where there are more than seven runs or losses of another shape.

    Examples
    --------
    >>> import amf, amf.plot, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> codes = (X[:, 0] > 0).astype(int)
    >>> runs = {}
    >>> for trees in (3, 10):
    ...     forest = amf.AMFClassifier(trees, seed=1, classes=[0, 1])
    ...     runs[f"{trees} trees"] = -np.log(forest.prequential(X, codes).probabilities[np.arange(200), codes])
    >>> ax = amf.plot.log_loss(runs)
    >>> ax.figure.savefig("log_loss.png")
    """
    if len(runs) > len(COLOURS):
        raise ValueError(f"{len(runs)} runs are more than the {len(COLOURS)} colours that differ visibly")
    ax = _axes(ax)
    for name, losses in runs.items():
        means = _running_means(np.atleast_2d(np.asarray(losses, np.float64)))
        samples, colour = np.arange(1, means.shape[1] + 1), _next_colour(ax)
        mean = means.mean(axis=0)
        ax.plot(samples, mean, color=colour, linewidth=1.5, label=f"{name}: {mean[-1]:.3f}")
        if means.shape[0] > 1:
            ax.fill_between(samples, means.min(axis=0), means.max(axis=0), color=colour, alpha=0.2, linewidth=0.0)
    ax.set(xlabel="samples", ylabel="mean log-loss so far (nats)", xscale="log")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.grid(linewidth=0.5, alpha=0.5)
    _legend(ax)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _next_colour(ax: Axes) -> str:
    return COLOURS[len(ax.lines) % len(COLOURS)]


def _legend(ax: Axes, **what: Any) -> None:
    """Above the Axes, where it hides nothing."""
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, frameon=False, handletextpad=0.4, **what)


def _grid(
    x: NDArray[np.float64], resolution: int, within: tuple[float, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates (resolution,) along both axes: the range of the samples and a margin, within what can be asked."""
    low, high = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
    margin = 0.05 * np.where(high > low, high - low, 1.0)
    first, last = np.clip([low - margin, high + margin], *within)
    across, up = np.linspace(first, last, resolution).T
    return across, up


def _surface(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colours (..., 3) of probabilities (..., K): that of the likeliest class, mixed with white."""
    n_classes = probabilities.shape[-1]
    chance = 1.0 / n_classes if n_classes > 1 else 0.0
    certainty = (probabilities.max(axis=-1, keepdims=True) - chance) / (1.0 - chance)
    palette = np.array([to_rgb(colour) for colour in COLOURS])
    surface: NDArray[np.float64] = 1.0 - _STRONGEST * certainty * (1.0 - palette[probabilities.argmax(axis=-1)])
    return surface


def _leads(probabilities: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """By how much a class is likelier than any other, (...) for each class; zero where the likeliest changes."""
    n_classes = probabilities.shape[-1]
    others = [np.delete(probabilities, k, axis=-1).max(axis=-1, initial=0.0) for k in range(n_classes)]
    # Of two classes one leads by as much as the other trails: their lines are one.
    drawn = range(n_classes) if n_classes > 2 else range(n_classes - 1)
    return [probabilities[..., k] - others[k] for k in drawn]


def _running_means(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means (s, n) of the losses so far, NaN before the first."""
    if losses.ndim != 2 or not losses.shape[1]:
        raise ValueError(f"losses are (n,), or (s, n) for s seeds, got shape {losses.shape}")
    seen = np.cumsum(~np.isnan(losses), axis=1)
    sums = np.cumsum(np.nan_to_num(losses), axis=1)
    means: NDArray[np.float64] = np.divide(sums, seen, out=np.full_like(sums, np.nan), where=seen > 0)
    return means
