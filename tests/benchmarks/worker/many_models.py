"""100,000 models in one worker, events by Zipf's law, in half of the memory that the models need.

    python -m tests.benchmarks keys

Every key once, in random order, then 500,000 events with exponent 1.1: the models come to about 3 GB. A worker
without a limit goes first and says what they need; the second one gets half of that as `models.cache_bytes`. Both read
the same events, and every output of the one must equal the other's. The rate is that of the last half of the events,
when the models are more than the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.report import at_least, at_most, show
from tests.benchmarks.worker.output_reader import Digest, read
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, Testbed
from tests.benchmarks.worker.workload import BLOCK, LABEL_NOISE, N_FEATURES, VALUE, publish
from tests.kafka.broker import Broker

KEYS = 100_000
EVENTS = 500_000
EXPONENT = 1.1
LAST_HALF = 0.5, 0.95
SPARE_BYTES = 500e6
"""What the process may take beyond the models."""


class Outcome(NamedTuple):
    """Of one worker."""

    rate: float
    model_bytes: float
    peak_bytes: float
    """Resident memory of the process at its highest."""
    records: int
    digest: str


def popular(n_keys: int, n: int, seed: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of n_keys + n events: each key once, then n draws by Zipf's law."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, n_keys + 1) ** -EXPONENT
    ladder = np.cumsum(shares / shares.sum())
    keys = np.concatenate((rng.permutation(n_keys), np.searchsorted(ladder, rng.random(n) * ladder[-1])))
    for first in range(0, len(keys), BLOCK):
        block = keys[first : first + BLOCK]
        digits = rng.integers(10_000, size=(len(block), N_FEATURES))
        # A model's rule: the first feature and one that depends on the key are large.
        scores = digits[:, 0] + digits[np.arange(len(block)), block % N_FEATURES] - 9_999
        labels = (scores > 0) ^ (rng.random(len(block)) < LABEL_NOISE)
        for key, row in zip(block.tolist(), np.column_stack((digits, labels)).tolist(), strict=True):
            yield b"key-%d" % key, (VALUE % tuple(row)).encode()


def measure(bed: Testbed, side: str, n: int, models: dict[str, Any]) -> Outcome:
    """Take all n events with a worker of its own."""
    with bed.worker(side=side, models=models) as worker:
        rate = worker.rate(EVENTS_TAKEN, n, LAST_HALF)
        worker.await_metric(EVENTS_TAKEN, n)
        model_bytes = worker.settled("amf_model_bytes")
        peak_bytes = peak_rss(worker.process.pid)
        worker.terminate()
    digest = Digest()
    for records in read(bed.bootstrap, bed.sink(side)):
        digest.take(records)
    return Outcome(rate, model_bytes, peak_bytes, digest.records, digest.value)


def peak_rss(pid: int) -> float:
    """Resident memory of a process at its highest, bytes; NaN anywhere but on Linux."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text() if status.exists() else "", re.MULTILINE)
    return int(found[1]) * 1024.0 if found else float("nan")


def main(scale: float = 1.0) -> None:
    n_keys, n = int(KEYS * scale), int(EVENTS * scale)
    forest = {"default": {"n_estimators": 10}}
    print(f"\nKeys: {n_keys:,}, each once and {n:,} events by Zipf's law with exponent {EXPONENT}", flush=True)
    with Broker() as broker, Testbed(broker) as bed:
        publish(bed.bootstrap, bed.source, popular(n_keys, n))
        free = measure(bed, "unlimited", n_keys + n, forest)
        limit = int(free.model_bytes / 2)
        bound = measure(bed, "limited", n_keys + n, {**forest, "cache_bytes": limit})
    print(f"unlimited: {free.model_bytes / 1e9:.2f} GB of models, {free.rate:,.0f} events/s over the last half")
    show("MB of models in memory at the end", bound.model_bytes / 1e6, at_most(limit / 1e6))
    show("events/s over the last half, in half of the memory", bound.rate, at_least(20_000))
    show("MB of the process at its peak", bound.peak_bytes / 1e6, at_most((limit + SPARE_BYTES) / 1e6))
    equal = (bound.records, bound.digest) == (free.records, free.digest)
    print(f"outputs: {free.records:,} unlimited, {bound.records:,} limited, of {n_keys + n:,} events")
    print(f"         {free.digest} and {bound.digest}: {'equal' if equal else 'DIFFERENT'}")
    if not equal or free.records != n_keys + n:
        raise SystemExit("keys: the outputs are not what they must be")
