"""Twenty million events through one forest of at most 64 MB: memory, speed and log-loss of every million.

    python -m tests.benchmarks endless

The yardstick is a forest without a bound over its first million: no later million of the bounded one may be worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import amf
from tests.benchmarks.learners.endless_stream import CHUNK, N_CLASSES, chunks, load_kernels
from tests.benchmarks.measure import held_bytes, seconds
from tests.benchmarks.report import at_least, at_most, number, show

MILLION = 1_000_000
EVENTS = 20 * MILLION
MAX_BYTES = 64_000_000
UNBOUNDED = 10**12


class Stretch(NamedTuple):
    """A million events: at its end the bytes of the forest and what the process grew by; its samples/s and log-loss."""

    nbytes: int
    held: float
    speed: float
    log_loss: float


def stretches(max_bytes: int, events: int, length: int) -> Iterator[Stretch]:
    """One stretch for each `length` events, up to whole chunks."""
    before = held_bytes()
    forest = amf.AMFClassifier(classes=range(N_CLASSES), max_bytes=max_bytes)
    stream, per_stretch = chunks(), -(-length // CHUNK)
    for _ in range(events // length):
        spent_s, losses = 0.0, []
        for x, y in (next(stream) for _ in range(per_stretch)):
            forecasts: list[np.ndarray] = []
            spent_s += seconds(lambda: forecasts.append(forest.predict_learn(x, y)))  # noqa: B023  # called at once
            losses.append(-np.log(forecasts[0][np.arange(CHUNK), y]).mean())
        speed = per_stretch * CHUNK / spent_s
        yield Stretch(forest.nbytes, held_bytes() - before, speed, float(np.mean(losses)))


def main(events: int = EVENTS, length: int = MILLION) -> None:
    load_kernels()
    print(f"\nEndless: {events:,} generated events, 10 trees, one thread, at most {MAX_BYTES / 1e6:g} MB", flush=True)
    print(f"{'':<22} {'forest MB':>10} {'process MB':>11} {'samples/s':>10} {'log-loss':>9}")
    [unbounded] = stretches(UNBOUNDED, length, length)
    show_stretch("unbounded, million 1", unbounded)
    bounded = []
    for stretch in stretches(MAX_BYTES, events, length):
        bounded.append(stretch)
        show_stretch(f"bounded, million {len(bounded)}", stretch)
    later = bounded[1:]
    show("MB of the forest, at most", max(stretch.nbytes for stretch in bounded) / 1e6, at_most(MAX_BYTES / 1e6))
    show("memory of the process, last million / second", later[-1].held / later[0].held, at_most(1.05), digits=3)
    show("samples/s, last million / second", later[-1].speed / later[0].speed, at_least(0.95), digits=3)
    worst = max(stretch.log_loss for stretch in later)
    show("log-loss, worst later million / unbounded first", worst / unbounded.log_loss, at_most(1), digits=4)


def show_stretch(name: str, stretch: Stretch) -> None:
    """Print the line of one million."""
    memory = f"{stretch.nbytes / 1e6:>10.1f} {number(stretch.held / 1e6, 1):>11}"
    print(f"{name:<22} {memory} {stretch.speed:>10,.0f} {stretch.log_loss:>9.4f}", flush=True)
