"""Streams that change, and the same before they do: the adaptive forest beside the plain one and beside MOA's.

    python -m tests.benchmarks drift [--rows 40000] [--seeds 5] [--trees 10]

Streams of MOA's generators (moa_streams.py) for the seeds 1, 2, ..., each row forecast before its label, ten trees
everywhere; of MOA the AdaptiveRandomForest and the StreamingRandomPatches, which tell no seed of their own. Columns,
means over seeds:

    accuracy    per cent of all rows
    recovery    rows after an abrupt change until the accuracy over the next WINDOW ones is 95 % of that of the last
                quarter of the part, mean over changes
    samples/s   of processor time, of predicting and learning; MOA's as its task reports it

Below: by how much ours is more accurate than the better one of MOA's; on streams that do not change, than the plain
forest, with the standard error of the difference over seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import geometric_mean, mean, stdev
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.learners.moa_streams import CHANGING, ROWS, STILL, changes, written
from tests.benchmarks.peers.catalogue import ADAPTIVE_FOREST, RANDOM_PATCHES, Moa
from tests.benchmarks.peers.process import PeerMissingError
from tests.benchmarks.report import at_least, at_most, number, show

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.learners.options import Options
    from tests.benchmarks.learners.tables import Table

SEEDS = 5
WINDOW = 250
PLAIN, OURS, ARF, SRP = "amf", "adaptive amf", "MOA ARF", "MOA SRP"


class Run(NamedTuple):
    """Of one learner on one stream."""

    correct: NDArray[np.bool_]
    """Of each row whether its class was forecast."""
    cpu_s: float

    def recovery(self, changes: list[int]) -> float:
        """Rows after a change until most of the new accuracy is reached, mean over changes; NaN where nothing changes.

        A learner that never comes so far is charged the whole part.
        """
        return mean(map(self._recovery, changes, [*changes[1:], len(self.correct)])) if changes else math.nan

    def _recovery(self, start: int, stop: int) -> int:
        part = self.correct[start:stop].astype(float)
        plateau = part[-len(part) // 4 :].mean()
        sums = np.concatenate(([0.0], np.cumsum(part)))
        over_window = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
        reached = np.flatnonzero(over_window >= 0.95 * plateau)
        return int(reached[0]) if reached.size else len(part)


Learner = Callable[["Path", "Table", int], Run]


def ours(kind: type[amf.AMFClassifier], trees: int) -> Learner:
    """One of our forests, classes given as MOA is given them."""

    def run(_: Path, table: Table, seed: int) -> Run:
        classes = range(table.n_classes)
        kind(1, classes=classes).predict_learn(
            table.x[:100], table.y[:100]
        )  # so that no loading of kernels is measured
        forest = kind(trees, classes=classes, seed=seed)
        start = time.process_time()
        said = forest.predict_learn(table.x, table.y)
        return Run(said.argmax(axis=1) == table.y, time.process_time() - start)

    return run


def of_moa(moa: Moa, learner: str) -> Learner:
    """One of MOA's learners."""

    def run(arff: Path, table: Table, _: int) -> Run:
        return Run(*moa.prequential(learner, arff, len(table.y)))

    return run


def measure(moa: Moa, name: str, seeds: int, rows: int, learners: dict[str, Learner]) -> dict[str, list[Run]]:
    """All learners on a stream, one run for each seed."""
    runs: dict[str, list[Run]] = {learner: [] for learner in learners}
    for seed in range(1, seeds + 1):
        arff, table = written(moa, name, seed, rows)
        for learner, run in learners.items():
            runs[learner].append(run(arff, table, seed))
    return runs


def accuracies(runs: list[Run]) -> list[float]:
    """Per cent, of each run."""
    return [100 * float(run.correct.mean()) for run in runs]


def show_stream(name: str, runs: dict[str, list[Run]], rows: int) -> None:
    """Print a line for each learner."""
    for learner, own in runs.items():
        recovery = mean(run.recovery(changes(name, rows)) for run in own)
        speed = len(own) * rows / sum(run.cpu_s for run in own)
        cells = number(mean(accuracies(own)), 2), number(recovery), number(speed)
        print(f"{name:<18} {learner:<14}", *(f"{cell:>10}" for cell in cells), flush=True)


def show_changing(table: dict[str, dict[str, list[Run]]], rows: int) -> None:
    """Print how ours stand beside MOA's on streams that change."""
    print()
    for name, runs in table.items():
        best = max(mean(accuracies(runs[peer])) for peer in (ARF, SRP))
        show(f"{name}: points above the best of MOA's", mean(accuracies(runs[OURS])) - best, at_least(-0.3), digits=2)
        if when := changes(name, rows):
            own, other = (mean(run.recovery(when) for run in runs[learner]) for learner in (OURS, ARF))
            show(f"{name}: rows to recover, those of MOA's ARF {other:,.0f}", own, at_most(other), digits=0)
    times = (sum(run.cpu_s for run in runs[ARF]) / sum(run.cpu_s for run in runs[OURS]) for runs in table.values())
    show("times as fast as MOA's ARF, geometric mean of the streams", geometric_mean(times), at_least(10))


def show_still(table: dict[str, dict[str, list[Run]]]) -> None:
    """Print how ours stand beside the plain forest on streams that do not change."""
    print()
    for name, runs in table.items():
        gains = [a - b for a, b in zip(accuracies(runs[OURS]), accuracies(runs[PLAIN]), strict=True)]
        error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        what = f"{name}: points above the plain forest, +- {number(error, 2)}"
        show(what, mean(gains), at_least(-2 * error), digits=2)


def main(options: Options) -> None:
    rows, seeds, trees = options.rows or ROWS, options.seeds or SEEDS, (options.trees or [10])[0]
    print(f"\nStreams that change: {rows:,} rows, seeds 1 to {seeds}, ours with {trees} trees", flush=True)
    with ExitStack() as stack:
        try:
            moa = stack.enter_context(Moa())
        except PeerMissingError as reason:
            print(f"No streams without MOA, which generates them: {reason}")
            return
        own = {PLAIN: ours(amf.AMFClassifier, trees), OURS: ours(amf.AdaptiveAMFClassifier, trees)}
        peers = {ARF: of_moa(moa, ADAPTIVE_FOREST), SRP: of_moa(moa, RANDOM_PATCHES)}
        print(f"{'':<33}", *(f"{head:>10}" for head in ("accuracy", "recovery", "samples/s")))
        changing, still = {}, {}
        for name in STILL:
            still[name] = measure(moa, name, seeds, rows, own)
            show_stream(name, still[name], rows)
        for name in CHANGING:
            changing[name] = measure(moa, name, seeds, rows, own | peers)
            show_stream(name, changing[name], rows)
    show_still(still)
    show_changing(changing, rows)
