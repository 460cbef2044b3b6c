"""The events of the benchmarks: 64 model keys, 10 features, a noisy label that can be learned, about 100 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from confluent_kafka import Message, Producer

N_FEATURES = 10
N_MODELS = 64
LABEL_NOISE = 0.1
"""Share of labels that are flipped."""

BLOCK = 10_000
PROPERTIES = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "log_level": 3,  # a fresh broker makes librdkafka retry its first request, and warn of it
}
"""Of a producer of events."""
VALUE = '{"features":[' + ",".join(["0.%04d"] * N_FEATURES) + '],"label":%d}'


def events(n: int, seed: int = 0, n_models: int = N_MODELS) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of `n` events. Fewer of them are a prefix of more."""
    return islice(_endless(seed, n_models), n)


def _endless(seed: int, n_models: int) -> Iterator[tuple[bytes, bytes]]:
    rng = np.random.default_rng(seed)
    keys = [b"model-%d" % model for model in range(n_models)]
    # Each model has a rule of its own, so that one model's forest is of no use to another.
    rules = rng.standard_normal((n_models, N_FEATURES))
    while True:
        models = rng.integers(n_models, size=BLOCK)
        digits = rng.integers(10_000, size=(BLOCK, N_FEATURES))
        scores = np.einsum("ij,ij->i", digits - 4_999.5, rules[models])
        labels = (scores > 0) ^ (rng.random(BLOCK) < LABEL_NOISE)
        for model, row in zip(models.tolist(), np.column_stack((digits, labels)).tolist(), strict=True):
            yield keys[model], (VALUE % tuple(row)).encode()


def load(bootstrap: str, topic: str, n: int, seed: int = 0) -> None:
    """Publish `n` events to an existing topic, see `publish`."""
    publish(bootstrap, topic, events(n, seed))


def publish(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Publish keys and values to an existing topic, each exactly once and in order.

    Raises RuntimeError where one fails.
    """
    failures: list[str] = []

    def report(error: Any, record: Message) -> None:
        failures.append(str(error))

    producer = Producer({**PROPERTIES, "bootstrap.servers": bootstrap, "linger.ms": 20})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} events were not acknowledged within 60 s")
    if failures:
        raise RuntimeError(f"{len(failures)} events were not published, the first: {failures[0]}")
