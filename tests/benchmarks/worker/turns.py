"""CPU time of an event in a turn, decoded, passed through its model and encoded, without a broker.

    python -m tests.benchmarks turns

Beside it the same turns with one call of the learner for each model, by turns with those that take one for all.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.workload import LABEL_NOISE, N_FEATURES, VALUE
from tests.worker.support.fakes import config
from tests.worker.support.tasks import live
from worker.base.records import Record
from worker.state.cache import Cache
from worker.task import processor
from worker.task.task import Task

TURNS = ((64, 10_000, 12), (64, 500, 80), (20_000, 2_500, 40))
"""Models, events of a turn, turns of each kind."""


def main() -> None:
    for n_models, batch, n_turns in TURNS:
        together_us, ratios = _measured(n_models, batch, n_turns)
        name = f"{n_models:,} models, {batch:,} events a turn"
        print(f"{name}: {together_us:.1f} us/event")
        show("  ratio to one call each, median", statistics.median(ratios), at_most(1.0), 2)


def _measured(n_models: int, batch: int, n_turns: int) -> tuple[float, list[float]]:
    """Microseconds of an event, and for each pair of turns the ratio to one call for each model."""
    rng, task, offset = np.random.default_rng(0), live(Task(0, config(), 1_000_000, Cache())), 0
    for _ in range(5 * max(1, n_models // batch)):
        offset = _pass(task, rng, n_models, batch, offset)[1]
    together = processor.apply_together

    def apart(*args: Any, **kwargs: Any) -> Any:
        return together(*args, **kwargs | {"apart": True})

    ways = {"together": together, "apart": apart}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.freeze()
    try:
        for _ in range(n_turns):
            for name in rng.permutation(list(ways)).tolist():
                processor.apply_together = ways[name]
                us, offset = _pass(task, rng, n_models, batch, offset)
                spent[name].append(us)
    finally:
        processor.apply_together = together
        gc.unfreeze()
    ratios = [ours / theirs for ours, theirs in zip(*spent.values(), strict=True)]
    return statistics.median(spent["together"]), ratios


def _pass(task: Task, rng: np.random.Generator, n_models: int, batch: int, offset: int) -> tuple[float, int]:
    """Microseconds of CPU of an event in one turn, and the offset behind it."""
    records = list(_records(rng, n_models, batch, offset))
    began = time.thread_time()
    task.process(records)
    return (time.thread_time() - began) / batch * 1e6, offset + batch


def _records(rng: np.random.Generator, n_models: int, batch: int, offset: int) -> Iterator[Record]:
    keys = rng.integers(n_models, size=batch)
    digits = rng.integers(10_000, size=(batch, N_FEATURES))
    scores = digits[:, 0] + digits[np.arange(batch), keys % N_FEATURES] - 9_999
    labels = (scores > 0) ^ (rng.random(batch) < LABEL_NOISE)
    rows = np.column_stack((digits, labels)).tolist()
    for at, (key, row) in enumerate(zip(keys.tolist(), rows, strict=True), offset):
        yield Record(at, 1_000 + at, b"key-%d" % key, (VALUE % tuple(row)).encode(), [])
