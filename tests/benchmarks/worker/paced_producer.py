"""A producer that keeps to a rate, in a process of its own: what it does to itself must not count as the worker's.

    python -m tests.benchmarks.worker.paced_producer BOOTSTRAP TOPIC RATE SECONDS MODELS

The timestamp of an event is the moment at which it was due, not the one at which the producer came round to it: time
that it lost counts as latency too. On SIGTERM it stops early.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import Producer

from tests.benchmarks.peers.process import Peer
from tests.benchmarks.worker.workload import N_MODELS, PROPERTIES, events

TICK_S = 0.002
LINGER_MS = 10
"""Time that goes into the latency. With 2 ms the broker, on the same machine, takes more of it than the worker."""


class Pacer(Peer):
    """The producer at work, from when it is made on; it makes all events before it sends the first."""

    def __init__(self, bootstrap: str, topic: str, rate: float, seconds: float, n_models: int = N_MODELS) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.worker.paced_producer",
            bootstrap,
            topic,
            str(rate),
            str(seconds),
            str(n_models),
        ]
        super().__init__("the producer", command)

    def result(self) -> dict[str, float]:
        """`sent` events, and `behind_s`, the most that the producer was behind; waits for its end."""
        return self._answer()

    def stop(self) -> dict[str, float]:
        """`result` of what was sent until now."""
        self._process.send_signal(signal.SIGTERM)
        return self.result()


def produce(bootstrap: str, topic: str, rate: float, seconds: float, n_models: int) -> dict[str, float]:
    """Send events at the rate, and return what `Pacer.result` says."""
    failures: list[str] = []
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))

    def report(error: Any, record: Any) -> None:
        failures.append(str(error))

    producer = Producer({**PROPERTIES, "bootstrap.servers": bootstrap, "linger.ms": LINGER_MS, "log_level": 0})
    planned = list(events(int(rate * seconds), n_models=n_models))
    print("{}", flush=True)
    started_s, sent, behind_s = time.time(), 0, 0.0
    while sent < len(planned) and not stopped:
        elapsed_s = time.time() - started_s
        due = min(int(elapsed_s * rate) + 1, len(planned))
        behind_s = max(behind_s, elapsed_s - sent / rate)
        for number in range(sent, due):
            key, value = planned[number]
            due_ms = int((started_s + number / rate) * 1000)
            while True:
                try:
                    producer.produce(topic, value, key, timestamp=due_ms, on_delivery=report)
                    break
                except BufferError:  # the broker is away
                    producer.poll(TICK_S)
        sent = due
        producer.poll(0)
        time.sleep(TICK_S)
    if producer.flush(60) or failures:
        sys.exit(f"not every event was published: {failures[:1]}")
    return {"sent": sent, "behind_s": behind_s}


if __name__ == "__main__":
    bootstrap, topic, rate, seconds, models = sys.argv[1:]
    print(json.dumps(produce(bootstrap, topic, float(rate), float(seconds), int(models))), flush=True)
