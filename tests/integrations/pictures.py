"""The pictures of the README: `python -m tests.integrations.pictures [FOLDER]` draws them into deploy/pictures.

A picture is a function of the seeds here and of the learner: one that changes shows a learner that did.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

import amf
from amf import plot

FOLDER = Path(__file__).parents[2] / "deploy" / "pictures"
WIDTH_INCHES, DOTS_PER_INCH = 9.0, 100
SEEDS = range(5)


def moons(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Two half circles that reach into each other, (n, 2), and which of them a sample is from."""
    upper = rng.random(n) < 0.5
    angle = rng.random(n) * np.pi
    x = np.where(upper, np.cos(angle), 1.0 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return np.column_stack([x, y]) + rng.normal(0.0, 0.22, (n, 2)), np.where(upper, "upper", "lower")


def bumps(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A flat line with five bumps, wide and narrow: (n, 1) and noisy values (n,)."""
    x = rng.random((n, 1))
    places, heights, widths = np.array([[0.1, 0.3, 0.45, 0.5, 0.8], [2, 4, 3, 5, 4], [0.01, 0.03, 0.005, 0.01, 0.06]])
    return x, (heights * np.exp(-np.abs((x - places) / widths))).sum(axis=1) + rng.normal(0.0, 0.2, n)


def clouds(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Six classes of three normal clouds each among ten features, four of which say nothing; (n, 10) and (n,)."""
    centres = np.hstack([rng.normal(0.0, 2.0, (18, 6)), np.zeros((18, 4))])
    cloud = rng.integers(0, 18, n)
    return centres[cloud] + rng.normal(size=(n, 10)), cloud % 6


def regions(n: int) -> Figure:
    """One forest, while more and more samples reach it."""
    x, y = moons(n, np.random.default_rng(3))
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH_INCHES, 3.6), layout="constrained", sharey=True)
    forest, learned = amf.AMFClassifier(classes=["upper", "lower"], seed=1), 0
    for ax, upto in zip(axes, (n // 100, n // 10, n), strict=True):
        forest.partial_fit(x[learned:upto], y[learned:upto])
        learned = upto
        plot.decision_regions(forest, x[:200], y[:200], ax=ax)
        ax.set_title(f"after {learned:,} samples")
        ax.label_outer()
        legend = ax.get_legend()
        legend.remove()
    names = [text.get_text() for text in legend.get_texts()]
    figure.legend(legend.legend_handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


def depth(n: int) -> Figure:
    """A forest looks as deep as the line is steep."""
    x, y = bumps(n, np.random.default_rng(0))
    forest = amf.AMFRegressor(50, seed=1).partial_fit(x, y)
    along = np.linspace(0.0, 1.0, 1_000)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(WIDTH_INCHES, 4.6), layout="constrained", sharex=True, height_ratios=(3, 2)
    )
    low, middle, high = forest.predict_quantiles(along[:, None], [0.05, 0.5, 0.95]).T
    above.scatter(x[:1_000], y[:1_000], s=5, color="0.5", linewidth=0.0, label="samples")
    above.fill_between(along, low, high, color=plot.COLOURS[1], alpha=0.25, linewidth=0.0, label="90 % band")
    above.plot(along, middle, color=plot.COLOURS[1], linewidth=1.2, label="median")
    above.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False)
    above.spines[["top", "right"]].set_visible(False)
    above.set_ylabel("$y$")
    plot.weighted_depth(forest, along, ax=below)
    return figure


def log_loss(n: int) -> Figure:
    """More trees, and the default beside the paper's literal algorithm, on one stream."""
    x, y = clouds(n, np.random.default_rng(0))

    def losses(n_estimators: int, preset: str) -> NDArray[np.float64]:
        forests = (amf.AMFClassifier.preset(preset, n_estimators=n_estimators, classes=range(6), seed=s) for s in SEEDS)
        return np.array([-np.log(forest.predict_learn(x, y)[np.arange(n), y]) for forest in forests])

    runs = {f"{n_trees} trees": losses(n_trees, "default") for n_trees in (3, 10, 30)}
    runs["10 trees, paper"] = losses(10, "paper")
    figure, ax = plt.subplots(figsize=(WIDTH_INCHES, 3.6), layout="constrained")
    plot.log_loss(runs, ax=ax).set_xlim(10, n)
    return figure


PICTURES = {"regions": (regions, 2_000), "depth": (depth, 4_000), "log_loss": (log_loss, 10_000)}
"""File name -> what draws it, from how many samples."""


def png(figure: Figure) -> bytes:
    """A small file: a picture of a few colours needs no more than a palette."""
    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=DOTS_PER_INCH)
    plt.close(figure)
    with Image.open(raw) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()


def main(folder: Path = FOLDER) -> None:
    """Draw all pictures into the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw, n) in PICTURES.items():
        (folder / f"{name}.png").write_bytes(png(draw(n)))


if __name__ == "__main__":
    plt.switch_backend("Agg")
    main(*map(Path, sys.argv[1:]))
