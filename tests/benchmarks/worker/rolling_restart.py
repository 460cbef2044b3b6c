"""A rolling restart of three workers at a steady rate: SIGTERM, exit, start, one worker after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from typing import NamedTuple

from confluent_kafka import Message

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.output_reader import Coverage, Tail, ends, read
from tests.benchmarks.worker.paced_producer import Pacer
from tests.benchmarks.worker.testbed import Testbed, Worker, wait_for
from tests.kafka.broker import Broker

WORKERS = 3
PARTITIONS = 12
RATE = 10_000
SETTLE_S = 5.0
"""Between two restarts so much is predicted."""
PLANNED_S = 180.0
"""The producer has events for so long."""


class Flow:
    """When outputs came, by partition."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[int, float] = {}
        self.silences: defaultdict[int, float] = defaultdict(float)
        """Longest time between two arrivals, s."""

    def take(self, now: float, records: list[Message]) -> None:
        self.count += len(records)
        for partition in {record.partition() for record in records}:
            pause = now - self._last.get(partition, now)
            self.silences[partition] = max(self.silences[partition], pause)
            self._last[partition] = now


class Roll(NamedTuple):
    """A rolling restart as the reader saw it."""

    sent: int
    missing: int
    surplus: int
    stop_s: list[float]
    exit_codes: list[int]
    silences: dict[int, float]


def roll(broker: Broker, rate: float, *, static: bool) -> Roll:
    """Restart each worker once while events come at the rate."""
    flow, stop_s, exit_codes = Flow(), [], []
    with Testbed(broker, PARTITIONS) as bed, ExitStack() as stack:
        workers: list[Worker] = []
        for number in range(WORKERS):
            name = f"worker-{number}"
            kafka = {"group.instance.id": name} if static else {}
            workers.append(stack.enter_context(bed.worker(name, kafka=kafka)))
        wait_for(
            "every partition live", lambda: sum(each.said().count(" is live at ") for each in workers) >= PARTITIONS
        )
        stack.enter_context(Tail(bed.bootstrap, bed.sink(), flow.take))
        pacer = stack.enter_context(Pacer(bed.bootstrap, bed.source, rate, PLANNED_S))

        def settle() -> None:
            aim = flow.count + SETTLE_S * rate
            wait_for("a steady flow", lambda: flow.count >= aim)

        settle()
        for worker in workers:
            started_s = time.time()
            exit_codes.append(worker.terminate())
            stop_s.append(time.time() - started_s)
            worker.start()
            worker.await_live(1)
            settle()
        sent = int(pacer.stop()["sent"])
        wait_for("all predictions", lambda: flow.count >= sent)
        for worker in workers:
            exit_codes.append(worker.terminate())
        coverage = Coverage(ends(bed.bootstrap, bed.source))
        for records in read(bed.bootstrap, bed.sink()):
            coverage.take(records)
    return Roll(sent, coverage.missing, coverage.surplus, stop_s, exit_codes, dict(flow.silences))


def main(broker: Broker, scale: float = 1.0) -> None:
    rate = RATE * scale
    print(f"\nRolling restart of {WORKERS} workers, {PARTITIONS} partitions, {rate:,.0f} events/s")
    for static in (True, False):
        found = roll(broker, rate, static=static)
        print(f"{'with' if static else 'without'} instance ids: {found.sent:,} events")
        show("  input records without a prediction", found.missing, at_most(0), digits=0)
        show("  predictions too many", found.surplus, at_most(0), digits=0)
        show("  exit codes other than 0", sum(code != 0 for code in found.exit_codes), at_most(0), digits=0)
        print(f"  s to stop: {', '.join(f'{s:.1f}' for s in found.stop_s)}")
        print(f"  longest silence, s: {max(found.silences.values()):.1f}; by partition", end=" ")
        print(", ".join(f"{silence:.1f}" for _, silence in sorted(found.silences.items())), flush=True)
