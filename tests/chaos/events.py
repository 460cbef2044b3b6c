"""Seeded events: models of three sorts, few of them busy; some without label, some malformed, some tombstones."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from tests.chaos.cluster import EVENTS

KEYS = 40
SORTS = ("model", "model", "adaptive", "numbers")
"""What the keys of models begin with, in turn: the latter two have algorithms of their own (cluster.CONFIG)."""
BURST_S = 0.05


def events(seed: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values without end; the same ones for the same seed."""
    rng = random.Random(seed)
    malformed = (b"{", b'{"features": {}}', b'{"features": {"a": NaN}, "label": 1}', b"x" * 20_000, b'{"label": "a"}')
    while True:
        number = int(KEYS * rng.random() ** 3)
        sort = SORTS[number % len(SORTS)]
        key = f"{sort}-{number}".encode()
        fate = rng.random()
        if fate < 0.02:
            yield key, rng.choice(malformed)
        elif fate < 0.025:
            yield key, None
        elif fate < 0.03:
            yield None, b'{"features": [1]}'
        else:
            yield key, json.dumps(_event(rng, has_numbers=sort == "numbers")).encode()


def _event(rng: random.Random, *, has_numbers: bool) -> dict[str, Any]:
    """Mostly four numbers with a label that they tell; now and then a value is missing, a text, or of a new feature."""
    x: dict[str, Any] = {name: rng.gauss(0, 1) for name in "abcd"}
    label: Any = ["no", "yes", "perhaps"][(x["a"] > x["b"]) + (x["c"] > 1)]
    if has_numbers:
        label = x["a"] - x["b"] + rng.gauss(0, 0.1)
    elif rng.random() < 0.001:
        label = f"rare-{rng.randrange(9)}"
    if rng.random() < 0.3:
        x["country"] = rng.choice(("IT", "FR", "DE", "--"))
    if rng.random() < 0.001:
        x[f"late-{rng.randrange(9)}"] = 1.0
    odd = rng.random()
    if odd < 0.1:
        x[rng.choice("abcd")] = None
    elif odd < 0.2:
        del x[rng.choice("abcd")]
    elif odd < 0.3:
        x = dict(sorted(x.items(), reverse=True))
    return {"features": x, "label": label if rng.random() < 0.9 else None}


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
