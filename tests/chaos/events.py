"""Seeded events: many models, few of them busy; some without label, some malformed, some tombstones."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from tests.chaos.cluster import EVENTS

KEYS = 40
BURST_S = 0.05


def events(seed: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values without end; the same ones for the same seed."""
    rng = random.Random(seed)
    malformed = (b"{", b'{"features": {}}', b'{"features": {"a": NaN}, "label": 1}', b"x" * 20_000, b'{"label": "a"}')
    while True:
        key = f"model-{int(KEYS * rng.random() ** 3)}".encode()
        fate = rng.random()
        if fate < 0.02:
            yield key, rng.choice(malformed)
        elif fate < 0.025:
            yield key, None
        elif fate < 0.03:
            yield None, b'{"features": [1]}'
        else:
            x = {name: rng.gauss(0, 1) for name in "abcd"}
            label = ["no", "yes", "perhaps"][(x["a"] > x["b"]) + (x["c"] > 1)] if rng.random() < 0.9 else None
            yield key, json.dumps({"features": x, "label": label}).encode()


class Generator:
    """Publishes events at a rate until it is stopped, past the proxy: what arrives is the input, whatever the order."""

    def __init__(self, bootstrap: str, seed: int, rate: float) -> None:
        self._events = events(seed)
        self._one_at_a_time = threading.Lock()
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 100,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def send(self, count: int) -> None:
        """So many events now, from the thread of a scenario or from that of the rate."""
        with self._one_at_a_time:
            for _ in range(count):
                key, value = next(self._events)
                self._producer.produce(EVENTS, value, key)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(120)
        assert left == 0, f"{left} events did not reach the broker"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._stop.wait(BURST_S):
            due = int((time.monotonic() - started) * self._rate)
            # While the broker is away nothing piles up: the rate is that of a living system.
            if len(self._producer) < 50_000:
                self.send(due - sent)
            sent = due
