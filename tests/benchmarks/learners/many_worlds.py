"""Twenty million events, another world every million: one adaptive forest of at most 64 MB that lives through them all.

    python -m tests.benchmarks worlds

A world is a stream of its own (endless_stream.py): other boxes, other classes in them. The yardstick of each is a
forest of the same settings that has seen nothing before it. Columns:

    accuracy    per cent of the last quarter of the million
    fresh       the same, of the forest that has seen nothing else
    recovery    rows until the accuracy over the next 250 is 95 % of that of the last quarter
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import amf
from tests.benchmarks.learners.concept_drift import Run
from tests.benchmarks.learners.endless_stream import CHUNK, N_CLASSES, chunks
from tests.benchmarks.measure import held_bytes, seconds
from tests.benchmarks.report import at_least, at_most, number, show

MILLION = 1_000_000
WORLDS = 20
MAX_BYTES = 64_000_000


class Life(NamedTuple):
    """A forest in one world: at its end its bytes and those of the process; its samples/s, accuracy and recovery."""

    nbytes: int
    held: float
    speed: float
    accuracy: float
    """Per cent."""
    recovery: float


def new_forest() -> amf.AdaptiveAMFClassifier:
    return amf.AdaptiveAMFClassifier(classes=range(N_CLASSES), max_bytes=MAX_BYTES)


def live(forest: amf.AdaptiveAMFClassifier, world: int, length: int) -> Life:
    """Forecast and learn `length` events of a world, rounded up to whole chunks."""
    stream, spent_s, correct = chunks(world), 0.0, []
    for x, y in (next(stream) for _ in range(-(-length // CHUNK))):
        forecasts: list[np.ndarray] = []
        spent_s += seconds(lambda: forecasts.append(forest.predict_learn(x, y)))  # noqa: B023  # called at once
        correct.append(forecasts[0].argmax(axis=1) == y)
    run = Run(np.concatenate(correct), spent_s)
    accuracy = 100 * float(run.correct[-len(run.correct) // 4 :].mean())
    return Life(forest.nbytes, held_bytes(), len(run.correct) / spent_s, accuracy, run.recovery([0]))


def lives(worlds: int, length: int) -> Iterator[tuple[Life, Life]]:
    """Of each world the forest that lives on and the fresh one."""
    forest = new_forest()
    for world in range(worlds):
        yield live(forest, world, length), live(new_forest(), world, length)


def main(worlds: int = WORLDS, length: int = MILLION) -> None:
    live(new_forest(), 0, CHUNK)
    print(f"\nWorlds: {worlds * length:,} events, another world every {length:,}, at most {MAX_BYTES / 1e6:g} MB")
    heads = ("forest MB", "process MB", "samples/s", "accuracy", "fresh", "recovery", "fresh")
    print(f"{'':<9}", *(f"{head:>10}" for head in heads), flush=True)
    pairs = []
    for old, fresh in lives(worlds, length):
        pairs.append((old, fresh))
        cells = (number(old.nbytes / 1e6, 1), number(old.held / 1e6, 1), number(old.speed))
        cells += (number(old.accuracy, 2), number(fresh.accuracy, 2), number(old.recovery), number(fresh.recovery))
        print(f"world {len(pairs):<3}", *(f"{cell:>10}" for cell in cells), flush=True)
    later = pairs[1:]
    show("MB of the forest, at most", max(old.nbytes for old, _ in pairs) / 1e6, at_most(MAX_BYTES / 1e6))
    show("memory of the process, last world / second", later[-1][0].held / later[0][0].held, at_most(1.05), digits=3)
    behind = max(fresh.accuracy - old.accuracy for old, fresh in later)
    show("points below a fresh forest, worst world", behind, at_most(0.5), digits=2)
    slower = max(old.recovery / fresh.recovery for old, fresh in later)
    show("rows to recover over a fresh forest's, worst world", slower, at_most(1.2), digits=2)
    show("samples/s, last world / second", later[-1][0].speed / later[0][0].speed, at_least(0.95), digits=3)
