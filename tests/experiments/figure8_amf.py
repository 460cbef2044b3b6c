"""[AMF] Fig. 8: the weighted depth of AMF along signals that are rough in some places and smooth in others.

5,000 places are uniform on [0, 1], and labels are the signal there, from 0 to 1, and noise N(0, 0.03^2). The paper does
not name its signals; these are the four of Donoho and Johnstone (Biometrika 81, 1994). Roughness at a place is the
standard deviation of the signal over the fiftieth of [0, 1] around it. Beside AMF as it is by default, with its
weights by the spread of the labels, stands the paper's, whose square loss has the rate 1 / (8 B^2) with B = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

import amf
from tests.experiments.common import Floats, forest, rmse, rounded, save, show

N_TREES = 100
N_SAMPLES = 5000
NOISE = 0.03
GRID = np.linspace(0.0, 1.0, 1001)
WINDOW = 21
"""Points of the grid over which roughness is taken."""
SEEDS = range(3)

_JUMPS = np.array([0.10, 0.13, 0.15, 0.23, 0.25, 0.40, 0.44, 0.65, 0.76, 0.78, 0.81])
_STEPS = np.array([4.0, -5.0, 3.0, -4.0, 5.0, -4.2, 2.1, 4.3, -3.1, 2.1, -4.2])
_HEIGHTS = np.array([4.0, 5.0, 3.0, 4.0, 5.0, 4.2, 2.1, 4.3, 3.1, 5.1, 4.2])
_WIDTHS = np.array([0.005, 0.005, 0.006, 0.01, 0.01, 0.03, 0.01, 0.01, 0.005, 0.008, 0.005])

SIGNALS: dict[str, Callable[[Floats], Floats]] = {
    "heavisine": lambda x: 4 * np.sin(4 * np.pi * x) - np.sign(x - 0.3) - np.sign(0.72 - x),
    "bumps": lambda x: (_HEIGHTS * (1 + np.abs((x[:, None] - _JUMPS) / _WIDTHS)) ** -4.0).sum(axis=1),
    "blocks": lambda x: (_STEPS * (x[:, None] >= _JUMPS)).sum(axis=1),
    "doppler": lambda x: np.sqrt(x * (1 - x)) * np.sin(2.1 * np.pi / (x + 0.05)),
}


class Seen(NamedTuple):
    """What a forest says on the grid: means, and its weighted depths."""

    said: Floats
    depth: Floats


def signal(name: str, x: Floats) -> Floats:
    """Scaled to [0, 1] by its range on the grid."""
    values = SIGNALS[name](GRID)
    scaled: Floats = (SIGNALS[name](x) - values.min()) / np.ptp(values)
    return scaled


def roughness(name: str) -> Floats:
    around = np.pad(signal(name, GRID), WINDOW // 2, mode="edge")
    spread: Floats = sliding_window_view(around, WINDOW).std(axis=1)
    return spread


def contrast(depth: Floats, rough: Floats) -> float:
    """Mean depth over the roughest fifth of the grid, less that over the smoothest half."""
    order = np.argsort(rough, kind="stable")
    return float(depth[order[-len(order) // 5 :]].mean() - depth[order[: len(order) // 2]].mean())


def forests(n_trees: int, seed: int) -> dict[str, Any]:
    return {
        "AMF": forest(amf.AMFRegressor, n_trees, seed, preset="default", calibration=False),
        "AMF, to the letter": forest(amf.AMFRegressor, n_trees, seed, bound=1.0),
        "Mondrian": forest(amf.MondrianForestRegressor, n_trees, seed),
    }


def seen(name: str, seed: int, n_trees: int = N_TREES, n_samples: int = N_SAMPLES) -> dict[str, Seen]:
    """Of each forest what it says of a signal after noisy samples."""
    rng = np.random.default_rng(seed)
    x = rng.random((n_samples, 1))
    y = signal(name, x[:, 0]) + NOISE * rng.normal(size=n_samples)
    learned = {kind: new.partial_fit(x, y) for kind, new in forests(n_trees, seed).items()}
    places = GRID[:, None]
    return {kind: Seen(new.predict(places), new.weighted_depth(places)) for kind, new in learned.items()}


def main() -> None:
    depths: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    figure = Figure(figsize=(14, 5.5), layout="constrained")
    for place, name in enumerate(SIGNALS):
        runs, truth, rough = [seen(name, seed) for seed in SEEDS], signal(name, GRID), roughness(name)
        for kind in runs[0]:
            gain = np.mean([contrast(run[kind].depth, rough) for run in runs])
            mean = np.mean([run[kind].depth.mean() for run in runs])
            depths.setdefault(kind, []).append(f"{gain:+.2f} of {mean:.1f}")
            errors.setdefault(kind, []).extend(rounded([np.mean([rmse(run[kind].said, truth) for run in runs])], 4))
        above = figure.add_subplot(2, 4, place + 1, title=name)
        above.plot(GRID, truth, color="0.6", label="signal")
        above.plot(GRID, runs[0]["AMF"].said, linewidth=1, label="AMF")
        below = figure.add_subplot(2, 4, place + 5, xlabel="x")
        for kind in ("AMF", "AMF, to the letter"):
            below.plot(GRID, runs[0][kind].depth, linewidth=1, label=kind)
        if not place:
            above.set_ylabel("signal, and what AMF says of it")
            below.set_ylabel("weighted depth (splits)")
            above.legend()
            below.legend()
    about = f"{N_TREES} trees, {N_SAMPLES:,} samples, mean over seeds {SEEDS[0]} to {SEEDS[-1]}"
    show(f"deeper by, in the roughest fifth than in the smoothest half, of a mean depth; {about}", "", SIGNALS, depths)
    show(f"RMSE to the signal; {about}", "", SIGNALS, errors)
    save(figure, "figure8_amf.png")
