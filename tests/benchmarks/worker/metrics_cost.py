"""What metrics and page cost a partition, in CPU time per event: batches with and without them, by turns."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import cast

import msgspec

from tests.worker.support.fakes import config
from tests.worker.support.tasks import live
from worker.base.metrics import Metrics
from worker.base.ports import Input
from worker.base.records import Record
from worker.base.status import Board
from worker.runtime import reports
from worker.runtime.status import Reporter
from worker.service import SystemClock
from worker.state.cache import Cache
from worker.task.task import Task

BATCH, FEATURES, TARGET = 500, 10, 0.03
GATHERED = 32
"""Batches between two looks at the metrics: the observations of so many are counted together, looked at or not."""


@dataclass(frozen=True, slots=True)
class Busy:
    """A partition that has more records than were read."""

    def high_watermark(self, _: int) -> int:
        return 10**9

    def end_seen(self, _: int) -> None:
        return None


def main() -> None:
    for n_models, pairs in ((20, 400), (1_000, 200)):
        without_us, ratio, count_us, show_us = measured(n_models, pairs)
        share = ratio - 1 + count_us / without_us + show_us / 1e6
        print(
            f"{n_models:,} models: {without_us:.1f} us/event without metrics; with them {ratio - 1:+.2%} (median of "
            f"{pairs} pairs of batches), {count_us:.3f} us/event to count what was gathered, and {show_us:.0f} us once "
            f"a second: {share:+.2%} in all (target: {TARGET:.0%})"
        )


def measured(n_models: int, pairs: int) -> tuple[float, float, float, float]:
    """What an event takes without metrics, ratio with to without, what an event takes to be counted, what a look takes.

    Times are in microseconds, and CPU time of the thread.
    """
    rng, metrics, cache = random.Random(1), Metrics(), Cache()
    task = live(Task(0, config(), 1_000_000, cache))
    for _ in range(4 * max(1, n_models // BATCH)):
        task.process(_records(rng, n_models))
    clock = SystemClock()
    reporter = Reporter(Board(), metrics, clock)
    ratios, without, counted_us, shown_us = [], [], [], []
    for pair in range(pairs):
        # By turns, since the second of two batches finds more in the caches.
        order = (None, metrics) if pair % 2 else (metrics, None)
        us = {each: _batch_us(task, _records(rng, n_models), each) for each in order}
        without.append(us[None])
        ratios.append(us[metrics] / us[None])
        if (pair + 1) % GATHERED:
            continue
        began = time.thread_time()
        for family in metrics.families().values():
            if family.waiting is not None:
                family.waiting.settle()
        counted = time.thread_time()
        leaders = reports.show(metrics, cache, {0: task}, cast(Input, Busy()), clock)
        reporter.refresh({0: task}, leaders)
        counted_us.append((counted - began) / (GATHERED * BATCH) * 1e6)
        shown_us.append((time.thread_time() - counted) * 1e6)
    times = without, ratios, counted_us, shown_us
    without_us, ratio, count_us, show_us = map(statistics.median, times)
    return without_us, ratio, count_us, show_us


def _batch_us(task: Task, records: list[Record], metrics: Metrics | None) -> float:
    began = time.thread_time()
    result = task.process(records)
    if metrics is not None:
        reports.count(metrics, 0, result, _now_ms())
    return (time.thread_time() - began) / len(records) * 1e6


def _records(rng: random.Random, n_models: int) -> list[Record]:
    def value() -> bytes:
        features = [rng.random() for _ in range(FEATURES)]
        return msgspec.json.encode({"features": features, "label": "ab"[features[0] + rng.random() < 0.8]})

    now_ms = _now_ms()
    return [Record(i, now_ms, b"%d" % rng.randrange(n_models), value(), []) for i in range(BATCH)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
