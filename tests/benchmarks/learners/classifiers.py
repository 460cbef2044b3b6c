"""The table: speed, memory and quality of classifiers, ours beside onelearn, river and MOA, in one run.

Rows: the first 8,000 of each shared data set, the same for everybody. Ten trees; one thread but for the line that says
two. Every learner sits in a process of its own and is measured there, by the same code wherever it is Python
(peers/scripts/serve.py), compiled and warm. Columns:

    fit, predict, prequential    samples/s. Prequential: predict, then learn, row by row in one pass. onelearn has
                                 none that is fast: a fit and then a predict of all rows, its cheapest way.
                                 MOA: by the processor time that its task reports.
    peak MB                      resident memory at its highest during predict and learn, above that before
    B/sample                     resident memory that a learner that has learned the rows adds to its process, a row
    log-loss, accuracy           prequential, over all rows but the first

The contenders take turns, so that a busy machine slows all of them; a ratio is the median over rounds of the ratio
within a round. The slow ones take part in fewer rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import numpy as np

from tests.benchmarks.peers import catalogue
from tests.benchmarks.peers.process import Peer, PeerMissingError
from tests.benchmarks.report import Target, at_least, at_most, number

ROWS = 8000
SETS = ["car", "cardio", "letter", "default_cb", "adult"]
PACKAGE = {"prior": "dirichlet", "scaling": "none"}
"""The settings of onelearn."""


@dataclass(frozen=True)
class Contender:
    """rounds: how often its speed is measured. passes: how many seeds its quality is the mean of."""

    name: str
    peer: Peer
    settings: dict[str, Any] = field(default_factory=dict)
    rounds: int = 5
    passes: int = 5

    def ask(self, question: str, path: Path, seed: int) -> dict[str, float]:
        settings = {"n_classes": n_classes(path), **self.settings}
        return self.peer.ask(question, path=str(path), rows=ROWS, seed=seed, settings=settings)


@dataclass
class Figures:
    """Of one contender on one set. speeds: one a round; what a peer cannot tell is missing."""

    speeds: list[dict[str, float]] = field(default_factory=list)
    rest: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, column: str) -> float:
        if self.speeds and column in self.speeds[0]:
            return median(speed[column] for speed in self.speeds)
        return self.rest.get(column, float("nan"))


COLUMNS = {
    "fit": 0,
    "predict": 0,
    "prequential": 0,
    "peak_mb": 1,
    "bytes_per_sample": 0,
    "log_loss": 4,
    "accuracy": 4,
}
"""Columns of the table and their digits."""
HEADS = ["fit", "predict", "prequential", "peak MB", "B/sample", "log-loss", "accuracy"]


@dataclass(frozen=True)
class Ratio:
    """A figure of ours over that of a peer: a target for the geometric mean over the sets, and one for each set."""

    figure: str
    ours: str
    peer: str
    on_average: Target
    on_each: Target

    def of(self, figures: dict[str, Figures]) -> float:
        """On one set; NaN without the peer."""
        if self.peer not in figures:
            return float("nan")
        ours, theirs = figures[self.ours], figures[self.peer]
        if self.figure != "prequential":
            return ours[self.figure] / theirs[self.figure]
        rounds = zip(ours.speeds, theirs.speeds)  # noqa: B905  # the slow ones take part in the first rounds
        return median(own["prequential"] / other["prequential"] for own, other in rounds)


def _faster(ours: str, peer: str, times: float) -> Ratio:
    return Ratio("prequential", ours, peer, at_least(times), at_least(times).halved())


RATIOS = [
    _faster("amf", "onelearn", 12),
    _faster("amf", "river", 60),
    _faster("amf", "MOA ARF", 20),
    _faster("amf, two threads", "onelearn", 20),
    Ratio("bytes_per_sample", "amf", "onelearn", at_most(0.5), at_most(0.5).halved()),
    Ratio("log_loss", "amf", "onelearn", at_most(0.99), at_most(1.03)),
]


def n_classes(path: Path) -> int:
    """Classes of the whole set, of which the first rows need not show all."""
    with np.load(path) as file:
        return int(file["y"].max()) + 1


def contenders(stack: ExitStack) -> list[Contender]:
    """Everybody who can run here; the stack closes them."""
    ours = stack.enter_context(catalogue.ours())
    found = [
        Contender("amf, package settings", ours, PACKAGE),
        Contender("amf", ours),
        Contender("amf, two threads", ours, {"n_threads": 2}),
    ]
    others: list[tuple[str, Callable[[], Peer], int, int]] = [
        ("onelearn", catalogue.onelearn, 5, 3),
        ("river", catalogue.river, 1, 1),
        ("MOA ARF", catalogue.Moa, 3, 1),
    ]
    for name, start, rounds, passes in others:
        try:
            found.append(Contender(name, stack.enter_context(start()), rounds=rounds, passes=passes))
        except PeerMissingError as reason:
            print(f"Without {name}: {reason}")
    return found


def measure(path: Path, everybody: list[Contender]) -> dict[str, Figures]:
    """All contenders on one set, taking turns."""
    figures = {contender.name: Figures() for contender in everybody}
    for round_ in range(max(contender.rounds for contender in everybody)):
        for contender in everybody:
            if round_ < contender.rounds:
                figures[contender.name].speeds.append(contender.ask("speed", path, round_))
    for contender in everybody:
        rest = figures[contender.name].rest
        rest.update(contender.ask("memory", path, 0))
        scores = [contender.ask("classes", path, seed) for seed in range(contender.passes)]
        rest.update({column: mean(score[column] for score in scores) for column in scores[0]})
    return figures


def show_set(name: str, figures: dict[str, Figures]) -> None:
    """Print the lines of one set."""
    for contender, own in figures.items():
        cells = (f"{number(own[column], digits):>12}" for column, digits in COLUMNS.items())
        print(f"{name:<11} {contender:<22}", *cells, flush=True)


def show_ratios(table: dict[str, dict[str, Figures]]) -> None:
    """Print a line for each ratio: on each set, their geometric mean, the targets."""
    print(f"\n{'ratio of ours to a peer':<45}", *(f"{name:>10}" for name in table), f"{'geo. mean':>10}")
    for ratio in RATIOS:
        values = [ratio.of(figures) for figures in table.values()]
        average = geometric_mean(values) if all(value > 0 for value in values) else float("nan")
        cells = (f"{number(value, 2):>10}" for value in [*values, average])
        worst = (min if ratio.on_each.at_least else max)(values)
        verdicts = f"{ratio.on_average.verdict(average)}; on each set {ratio.on_each.verdict(worst)}"
        print(f"{ratio.figure.replace('_', ' '):<17} {ratio.ours + ' / ' + ratio.peer:<27}", *cells, f"  {verdicts}")


def main() -> None:
    print(f"\nClassifiers: 10 trees, the first {ROWS:,} rows of each set", flush=True)
    if not (folder := os.environ.get("AMF_DATA")):
        print("No table: AMF_DATA is not set. It names the folder of the shared data sets (adult.npz, car.npz, ...)")
        return
    with ExitStack() as stack:
        everybody = contenders(stack)
        print(f"{'':<34}", *(f"{head:>12}" for head in HEADS))
        table = {}
        for name in SETS:
            table[name] = measure(Path(folder).resolve() / f"{name}.npz", everybody)
            show_set(name, table[name])
    show_ratios(table)
