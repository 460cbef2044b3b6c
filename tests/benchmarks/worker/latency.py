"""From an event's time to its prediction, as a read_committed reader sees it, at two rates.

    python -m tests.benchmarks latency

One is half of the worker's full rate, which is measured first, on the same broker. Events come evenly, and
`transaction.interval` is varied. The latency takes in the producer (10 ms of linger), the broker twice, the worker, and
the reader's fetch, all on one machine. Two lines say what of it is none of a worker's: without a worker the reader
reads the events themselves, and the bare loop (pass_through.py) does nothing but pass them on in transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from confluent_kafka import Message

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.output_reader import Tail
from tests.benchmarks.worker.paced_producer import Pacer
from tests.benchmarks.worker.pass_through import EVENTS, Endless
from tests.benchmarks.worker.testbed import Testbed, wait_for
from tests.benchmarks.worker.throughput import live_rate
from tests.benchmarks.worker.workload import N_MODELS, load
from tests.kafka.broker import Broker

INTERVALS_MS = (10, 50, 100, 250)
CALM_RATE, CALM_INTERVALS_MS = 2000.0, (10,)
PROMISED_MS = {100: (100, 300), 10: (25, 60)}
"""p50 and p99 at half of the full rate with transactions of 100 ms, and at the calm rate with those of 10 ms."""
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


def with_bare_loop(broker: Broker, rate: float, seconds: float, interval_ms: int) -> tuple[Quantiles, float]:
    """`measure` of what a bare loop passes on."""
    with Testbed(broker) as bed, Endless(bed.bootstrap, bed.source, bed.sink(), interval_ms / 1000):
        return measure(bed, bed.sink(), rate, seconds)


def table(broker: Broker, rate: float, seconds: float, intervals_ms: Sequence[int]) -> dict[int, Quantiles]:
    """Shows the latencies at a rate, and returns those of the worker by its interval."""
    lines: dict[int, Quantiles] = {}
    print(f"\nLatency at {rate:,.0f} events/s, over {seconds:g} s for each line")
    print(f"{'transaction.interval':<22} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'producer behind, ms':>20}")
    with Testbed(broker) as bed:
        show_line("without a worker", *measure(bed, bed.source, rate, seconds))
    for interval_ms in intervals_ms:
        show_line(f"{interval_ms} ms, bare loop", *with_bare_loop(broker, rate, seconds, interval_ms))
        lines[interval_ms], behind_s = with_worker(broker, rate, seconds, interval_ms)
        show_line(f"{interval_ms} ms", lines[interval_ms], behind_s)
    return lines


def main(scale: float = 1.0) -> None:
    n, seconds = int(EVENTS * scale), SECONDS * scale
    with Broker() as broker:
        with Testbed(broker) as bed:
            load(bed.bootstrap, bed.source, n)
            worker, full = live_rate(bed, n)
            worker.kill()
        half = table(broker, full / 2, seconds, INTERVALS_MS)
        calm = table(broker, CALM_RATE, seconds, CALM_INTERVALS_MS)
    for rate, lines, interval_ms in (("half of the full rate", half, 100), ("2,000 events/s", calm, 10)):
        found, (p50, p99) = lines[interval_ms], PROMISED_MS[interval_ms]
        show(f"ms at {rate}, {interval_ms} ms: p50", found.p50, at_most(p50))
        show(f"ms at {rate}, {interval_ms} ms: p99", found.p99, at_most(p99))
