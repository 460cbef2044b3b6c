"""One worker end to end beside the bare pass-through loop, on one broker, in one run; then its replay of the same.

    python -m tests.benchmarks worker

10-feature JSON events over 64 keys, plain AMF with 10 trees, exactly-once. The worker is a process of its own; its
rates are read off its own counters. No checkpoint follows the first, empty one: when the worker has taken all events it
is killed, and its successor learns all of them again, without predicting, before it goes on.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.benchmarks.report import at_least, show
from tests.benchmarks.worker.pass_through import EVENTS, pass_through
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, REPLAYED, Testbed, Worker
from tests.benchmarks.worker.workload import load
from tests.kafka.broker import Broker

NEVER = {"interval": "168h", "recovery_budget": "168h"}
"""When to write checkpoints."""


class Rates(NamedTuple):
    """Events/s."""

    live: float
    replay: float
    bare: float


def live_rate(bed: Testbed, n: int) -> tuple[Worker, float]:
    """Events/s of a worker over the steady part of `n` events; it is left running."""
    worker = bed.worker(checkpoint=NEVER)
    try:
        return worker, worker.rate(EVENTS_TAKEN, n)
    except BaseException:
        worker.kill()
        raise


def measure(n: int = EVENTS) -> Rates:
    with Broker() as broker, Testbed(broker) as bed:
        load(bed.bootstrap, bed.source, n)
        bare = pass_through(bed.bootstrap, bed.source, bed.sink("bare"), n)
        worker, live = live_rate(bed, n)
        with worker:
            worker.await_metric(EVENTS_TAKEN, n)  # counted once their transaction is committed
            worker.kill()
            worker.start()
            replay = worker.rate(REPLAYED, n)
            worker.await_live(bed.partitions)
            worker.terminate()
    return Rates(live, replay, bare)


def main(scale: float = 1.0) -> None:
    n = int(EVENTS * scale)
    rates = measure(n)
    print(f"\nWorker: {n:,} events over 64 keys, 10 features, 10 trees, exactly-once, one broker beside it")
    print(f"events/s: worker {rates.live:,.0f}, bare pass-through {rates.bare:,.0f}, replay {rates.replay:,.0f}")
    show("worker / bare pass-through", rates.live / rates.bare, at_least(0.5), digits=2)
    show("replay / worker", rates.replay / rates.live, at_least(1.8), digits=2)
