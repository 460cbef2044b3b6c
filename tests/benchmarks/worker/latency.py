"""From an event's time to its prediction, as a read_committed reader sees it, at half of the worker's full rate.

    python -m tests.benchmarks latency

The full rate is measured first, on the same broker. Then events come evenly, and `transaction.interval` is varied. The
latency takes in the producer (10 ms of linger), the broker twice, the worker, and the reader's fetch, all on one
machine. The line without a worker, where the reader reads the events themselves, says what of it is none of a worker's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from confluent_kafka import Message

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.output_reader import Tail
from tests.benchmarks.worker.paced_producer import Pacer
from tests.benchmarks.worker.pass_through import EVENTS
from tests.benchmarks.worker.testbed import Testbed, wait_for
from tests.benchmarks.worker.throughput import live_rate
from tests.benchmarks.worker.workload import N_MODELS, load
from tests.kafka.broker import Broker

INTERVALS_MS = (10, 50, 100, 250)
PROMISED_MS = 100
"""The interval that the targets are for."""
CHECKPOINT = {"interval": "5s"}
"""So that some of them fall into the time that is measured."""
SECONDS = 20.0
WARM_UP = 0.2
"""Share of the events that is left out: models are young, and the worker has just joined."""


class Latencies:
    """Latency of each output, ms, as they came."""

    def __init__(self) -> None:
        self.ms: list[float] = []

    def take(self, now: float, records: list[Message]) -> None:
        now_ms = now * 1000
        self.ms += [now_ms - record.timestamp()[1] for record in records]

    def steady(self) -> Quantiles:
        """Without the warm-up."""
        ms = np.array(self.ms[int(WARM_UP * len(self.ms)) :])
        return Quantiles(*np.quantile(ms, (0.5, 0.99, 1.0)))


class Quantiles(NamedTuple):
    """ms."""

    p50: float
    p99: float
    max: float


def measure(bed: Testbed, topic: str, rate: float, seconds: float, n_models: int = N_MODELS) -> tuple[Quantiles, float]:
    """Latencies of the records of a topic while events come at a rate; the most that the producer was behind, s."""
    latencies = Latencies()
    tail = Tail(bed.bootstrap, topic, latencies.take, from_end=True)
    with tail, Pacer(bed.bootstrap, bed.source, rate, seconds, n_models) as pacer:
        result = pacer.result()
        wait_for(f"{result['sent']:.0f} records", lambda: len(latencies.ms) >= result["sent"])
    return latencies.steady(), result["behind_s"]


def with_worker(broker: Broker, rate: float, seconds: float, interval_ms: int) -> tuple[Quantiles, float]:
    """`measure` of the predictions of a fresh worker."""
    transaction = {"interval": f"{interval_ms}ms"}
    with Testbed(broker) as bed, bed.worker(transaction=transaction, checkpoint=CHECKPOINT) as worker:
        worker.await_live(bed.partitions)
        found = measure(bed, bed.sink(), rate, seconds)
        worker.terminate()
    return found


def show_line(name: str, found: Quantiles, behind_s: float) -> None:
    print(f"{name:<22} {found.p50:>8.0f} {found.p99:>8.0f} {found.max:>8.0f} {behind_s * 1000:>20.0f}", flush=True)


def main(scale: float = 1.0) -> None:
    n, seconds = int(EVENTS * scale), SECONDS * scale
    lines: dict[int, Quantiles] = {}
    with Broker() as broker:
        with Testbed(broker) as bed:
            load(bed.bootstrap, bed.source, n)
            worker, full = live_rate(bed, n)
            worker.kill()
        rate = full / 2
        print(f"\nLatency at {rate:,.0f} events/s, half of the full rate, over {seconds:g} s for each interval")
        print(f"{'transaction.interval':<22} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'producer behind, ms':>20}")
        with Testbed(broker) as bed:
            show_line("without a worker", *measure(bed, bed.source, rate, seconds))
        for interval_ms in INTERVALS_MS:
            lines[interval_ms], behind_s = with_worker(broker, rate, seconds, interval_ms)
            show_line(f"{interval_ms} ms", lines[interval_ms], behind_s)
    show(f"ms at {PROMISED_MS} ms: p50", lines[PROMISED_MS].p50, at_most(100))
    show(f"ms at {PROMISED_MS} ms: p99", lines[PROMISED_MS].p99, at_most(300))
