"""From an event's time to its prediction where two of 80,000 models change, and a checkpoint comes every 5 s.

    python -m tests.benchmarks few

One partition has all models. An event of each comes first, as fast as they are taken, then 50 events a second of two of
them. A checkpoint holds what has changed: how many other models there are must not show in the latency.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.latency import CHECKPOINT, measure
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, Testbed
from tests.benchmarks.worker.workload import N_FEATURES, VALUE, publish
from tests.kafka.broker import Broker

MODELS, CHANGING = 80_000, 2
RATE, SECONDS = 50.0, 60.0


def each_once(n: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of an event of each of so many models."""
    rng = np.random.default_rng(0)
    for number in range(n):
        yield b"model-%d" % number, (VALUE % (*rng.integers(10_000, size=N_FEATURES).tolist(), number % 2)).encode()


def main(scale: float = 1.0) -> None:
    n, seconds = int(MODELS * scale), SECONDS * scale
    with Broker() as broker, Testbed(broker, partitions=1) as bed:
        publish(bed.bootstrap, bed.source, each_once(n))
        with bed.worker(checkpoint=CHECKPOINT) as worker:
            worker.await_metric(EVENTS_TAKEN, n)
            worker.settled("amf_checkpoint_last_timestamp_seconds")
            found, behind_s = measure(bed, bed.sink(), RATE, seconds, CHANGING)
            checkpoints = worker.metric("amf_checkpoint_duration_seconds_count")
            worker.terminate()
    print(
        f"\nLatency at {RATE:g} events/s of {CHANGING} of {n:,} models in one partition, over {seconds:g} s: "
        f"{checkpoints:.0f} checkpoints; the producer was at most {behind_s * 1000:.0f} ms behind",
        flush=True,
    )
    show("ms: p50", found.p50, at_most(100))
    show("ms: p99", found.p99, at_most(500))
    show("ms: max", found.max, at_most(1000))
