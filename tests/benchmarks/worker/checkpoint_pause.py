"""How long a checkpoint keeps the loop from its work: models that learn while they wait to be written are copied first.

    python -m tests.benchmarks pause

One partition with 1 GB of models, all of them changed, which events go on to change while a thread writes them to a
folder: 1,000 models, and then a single one of 500 MB. A pause is what a turn spends on the checkpoint: to start it, and
to put aside what its events are about to change.
"""

from __future__ import annotations

import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

import amf
from tests.benchmarks.learners.endless_stream import CHUNK, N_CLASSES, chunks
from tests.benchmarks.report import at_most, number, show
from tests.worker.support.fakes import config
from worker.adapters.store import FileStore
from worker.base import gc_tuning
from worker.base.metrics import Metrics
from worker.base.records import Bounds, Record
from worker.checkpoint import Location, Policy, SavedModel
from worker.runtime.loop import Worker
from worker.service import SystemClock
from worker.task.allowance import Allowance
from worker.task.checkpointer import Checkpointer
from worker.task.recovery import Recovery, Terms
from worker.task.task import Task

MODELS, MODEL_BYTES = 1_000, 1_000_000
LARGE_BYTES = 500_000_000
STEP = 256
"""Samples between two looks at the size."""
TURN = 2_000
"""Events of a turn."""
PROMISED_MS = 50.0


class Pauses(NamedTuple):
    """Of one checkpoint."""

    longest_ms: float
    total_ms: float
    turns: int
    written_s: float


def learned(nbytes: int) -> bytes:
    """A forest of 10 trees and about this size."""
    forest = amf.AMFClassifier(10, classes=range(N_CLASSES), max_bytes=10**12)
    for x, y in chunks():
        for start in range(0, CHUNK, STEP):
            forest.partial_fit(x[start : start + STEP], y[start : start + STEP])
            if forest.nbytes >= nbytes:
                return forest.dumps()
    raise AssertionError("the stream has no end")


def pauses(n_models: int, nbytes: int) -> Pauses:
    """Those of a checkpoint of so many models, each of about this size, under events without end."""
    data = learned(nbytes)
    settings, clock, metrics = config(), SystemClock(), Metrics()
    task, keys = Task(0, settings, 1_000_000), [f"model-{n}" for n in range(n_models)]
    saved = ((key, SavedModel(task.models.configured_spec(key), data, {})) for key in keys)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as cleaner:
        store, location = FileStore(Path(folder)), Location("group", "main", "events", "topic", 0)
        # With nothing, at offset 0; one record later all models are there.
        recovery = Recovery(store, location, Terms.of(settings, 1), clock, metrics)
        opened = recovery.open(None, Bounds(0, 1, 1), task.load)
        opened = replace(opened, models=task.load(saved, 1), position=1, live_from=1)
        opened.models.mark_all_changed()
        checkpointer = Checkpointer(opened, Policy(3600.0, 10.0), clock, metrics, writer, cleaner)
        task.open(opened.models, 1, 1, checkpointer)
        task.go_live()
        writer.submit(amf.loads, data).result()  # no checkpoint is a worker's first for long
        return _turns(task, keys)


def _turns(task: Task, keys: list[str]) -> Pauses:
    rng, spent, hold = np.random.default_rng(0), [0.0], task.models.hold

    def timed(key: str) -> None:
        before = time.perf_counter()
        hold(key)
        spent[-1] += time.perf_counter() - before

    task.models.hold = timed  # type: ignore[method-assign]
    started = time.perf_counter()
    task.checkpointer.start(task.reach(None))
    spent[-1] += time.perf_counter() - started
    while task.checkpointer.is_writing:
        task.buffer = _records(keys, task.position, rng)
        task.take(task.n_to_take(len(task.buffer), Allowance(1, 1, Worker.copied_bytes, math.inf)))
        spent.append(0.0)
        task.checkpointer.poll()
    return Pauses(max(spent) * 1e3, sum(spent) * 1e3, len(spent), time.perf_counter() - started)


def _records(keys: list[str], offset: int, rng: np.random.Generator) -> list[Record]:
    chosen, x = rng.integers(len(keys), size=TURN).tolist(), rng.random((TURN, 10)).round(4).tolist()
    labels = rng.integers(N_CLASSES, size=TURN).tolist()
    return [
        Record(offset + i, 0, keys[key].encode(), msgspec.json.encode({"features": row, "label": label}), [])
        for i, (key, row, label) in enumerate(zip(chosen, x, labels, strict=True))
    ]


def main() -> None:
    gc_tuning.calm()  # as every worker does when it starts
    found = pauses(MODELS, MODEL_BYTES)
    print(
        f"\nPauses of a checkpoint: {MODELS:,} models of {MODEL_BYTES / 1e6:g} MB, written in {found.written_s:.1f} s, "
        f"{found.turns} turns meanwhile, pauses of {number(found.total_ms)} ms in all",
        flush=True,
    )
    show("longest pause, ms", found.longest_ms, at_most(PROMISED_MS))
    large = pauses(1, LARGE_BYTES)
    print(
        f"one model of {LARGE_BYTES / 1e6:g} MB: a pause of {number(large.longest_ms)} ms, written in "
        f"{large.written_s:.1f} s",
        flush=True,
    )
