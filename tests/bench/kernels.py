"""Speed, memory and log-loss of the kernels beside onelearn, and the time from an empty process to a first forecast.

Rows: the first 8,000 of each shared data set. Ours: `predict_learn`, which is prequential. The peer's: a fit of all
rows and then a predict of all rows, the cheapest way it has. Ten trees, one thread. The contenders take turns, so that
a busy machine slows all of them; the ratio is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any, NamedTuple

import numpy as np

import amf
from amf.arena import release_memory
from tests.bench.measure import peak_mb, samples_per_s
from tests.bench.onelearn_peer import ROOT, Peer, PeerMissingError

ROWS = 8000
ROUNDS = 9
PEER_LOSSES = 3
"""Prequential passes of the peer, row by row: they take longer than all the rest."""

SETS = ["car", "cardio", "letter", "default_cb", "adult"]
PEER = "onelearn"
SETTINGS: dict[str, dict[str, Any]] = {"package settings": {"prior": "dirichlet", "scaling": "none"}, "default": {}}
"""Our contenders: with the settings of onelearn, and as we come."""

FIRST_FORECAST = """
import numpy, amf
x, y = numpy.random.default_rng(0).random((30, 4)), numpy.arange(30) % 2
amf.AMFClassifier().predict_learn(x, y)
"""


class Contender(NamedTuple):
    """speeds: samples/s of each round. peak_mb: memory that one pass needs, 10^6 bytes. log_loss: mean over runs."""

    speeds: list[float]
    peak_mb: float
    log_loss: float


class Ours:
    """Our forests on the rows of one data set."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        with np.load(path) as file:
            self._x, self._y = file["X"][:ROWS], file["y"][:ROWS]
            self._settings = {"classes": range(int(file["y"].max()) + 1), **settings}
        self.forecasts(0)  # what is loaded on first use is no part of the figures

    def forecasts(self, seed: int) -> Any:
        """One prequential pass, (n, K)."""
        return amf.AMFClassifier(seed=seed, **self._settings).predict_learn(self._x, self._y)

    def speed(self, seed: int) -> float:
        """Samples/s."""
        return samples_per_s(partial(self.forecasts, seed), len(self._y), ROWS)

    def log_loss(self, seed: int) -> float:
        """Mean over all rows but the first."""
        return float(-np.log(self.forecasts(seed)[np.arange(len(self._y)), self._y])[1:].mean())


def compare(path: Path, peer: Peer | None) -> dict[str, Contender]:
    """All contenders on one data set."""
    ours = {name: Ours(path, settings) for name, settings in SETTINGS.items()}
    speeds: dict[str, list[float]] = {name: [] for name in [*SETTINGS, PEER]}
    for seed in range(ROUNDS):
        for name, forests in ours.items():
            speeds[name].append(forests.speed(seed))
        if peer:
            speeds[PEER].append(peer.ask(question="speed", path=str(path), rows=ROWS, seed=seed)["samples_per_s"])
    contenders = {}
    for name, forests in ours.items():
        release_memory()  # what earlier forests gave back would not show in the peak of this one
        peak = peak_mb(partial(forests.forecasts, 0))
        contenders[name] = Contender(speeds[name], peak, mean(forests.log_loss(seed) for seed in range(ROUNDS)))
    if peer:
        peak = peer.ask(question="memory", path=str(path), rows=ROWS)["peak_mb"]
        losses = [peer.ask(question="loss", path=str(path), rows=ROWS)["log_loss"] for _ in range(PEER_LOSSES)]
        contenders[PEER] = Contender(speeds[PEER], peak, mean(losses))
    return contenders


def show_table(folder: Path, peer: Peer | None) -> None:
    """Print a line for each set and contender, as they come."""
    print(f"{'':<11} {'':<16} {'samples/s':>10} {'ratio':>6} {'peak MB':>8} {'log-loss':>9}")
    ratios: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for data in SETS:
        contenders = compare(folder / f"{data}.npz", peer)
        for name, own in contenders.items():
            shown = ""
            if peer and name != PEER:
                pairs = zip(own.speeds, contenders[PEER].speeds, strict=True)
                ratios[name].append(median(speed / other for speed, other in pairs))
                shown = f"{ratios[name][-1]:.1f}"
            figures = f"{median(own.speeds):10,.0f} {shown:>6} {own.peak_mb:8.1f} {own.log_loss:9.4f}"
            print(f"{data:<11} {name:<16} {figures}", flush=True)
    for name, values in ratios.items() if peer else ():
        low, high = min(values), max(values)
        print(f"{name}: {low:.1f} to {high:.1f} times {PEER}, geometric mean {geometric_mean(values):.1f}")


def first_forecast_s(cache: Path) -> float:
    """Seconds from the start of a process to its first forecast, with this folder as numba's cache."""
    start = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", FIRST_FORECAST], cwd=ROOT, env=environment, check=True)
    return time.perf_counter() - start


def show_start() -> None:
    """Print how long a process takes to its first forecast."""
    with tempfile.TemporaryDirectory() as name:
        cold = first_forecast_s(Path(name))
        warm = median(first_forecast_s(Path(name)) for _ in range(3))
    print(f"start to first forecast: {cold:.1f} s with an empty cache of kernels, {warm:.2f} s with a full one")


def main() -> None:
    print("Kernels: predict and learn, 10 trees, one thread, first 8,000 rows")
    show_start()
    if not (folder := os.environ.get("AMF_DATA")):
        print("No table: AMF_DATA is not set. It names the folder of the shared data sets (adult.npz, car.npz, ...)")
        return
    try:
        with Peer() as peer:
            show_table(Path(folder).resolve(), peer)
    except PeerMissingError as reason:
        print(f"Without the peer: {reason}")
        show_table(Path(folder), None)


if __name__ == "__main__":
    main()
