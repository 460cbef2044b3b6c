"""A worker process on the embedded broker, with payments flowing in, some of them with keys and labels that attack."""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import yaml

from worker import config
from worker.adapters.kafka import KafkaPublisher
from worker.cli.dataset import message
from worker.demo.events import Payments
from worker.demo.processes import Process, start_broker, start_worker

TOPICS = ("events", "predictions", "dead-letters")
ATTACK = "<img src=x onerror=\"document.title='owned'\">"
ATTACKS = (ATTACK, "\u202eright to left", "../../etc", "two\nlines", "a%2Fb/c?d=e#f", "ключ", "..")
MODELS = {
    "default": {"n_estimators": 5},
    "overrides": [{"match": "hotels", "algorithm": "adaptive-classifier", "n_estimators": 10}],
}
PATIENCE_S = 120.0
_TICK_S = 0.05

Events = Iterable[tuple[str, bytes]]


def payments(models: int = 6) -> Iterator[tuple[str, bytes]]:
    """Key and value of payments of some shops, without end."""
    return ((row.key, message(row)) for row in Payments(models))


def faulty() -> Iterator[tuple[str, bytes]]:
    """Among payments now and then one that is rejected."""
    faults = cycle([b'{"features": {"amount": "', b'{"features": {}}', b'{"features": {"hour": true}}', b"not JSON"])
    for i, event in enumerate(payments()):
        yield event if i % 997 else (event[0], next(faults))


def attacking() -> Iterator[tuple[str, bytes]]:
    """Payments of models whose names attack, and rejected records with such keys, features and classes."""
    for i, (_, value) in enumerate(payments(1)):
        attack = ATTACKS[i % len(ATTACKS)]
        yield attack, value
        if i % 50 == 0:
            yield attack, b'{"features": {"%b": []}}' % ATTACK.replace('"', "'").encode()


def _free_port() -> int:
    """A port that stays the worker's when it is started again; not the usual one, for which others may wait, too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def changing() -> Iterator[tuple[str, bytes]]:
    """Events of a model whose only feature is a number first, and text from then on."""
    yield "odd", b'{"features": {"amount": 3.5}, "label": "ok"}'
    while True:
        yield "odd", b'{"features": {"amount": "3.5"}, "label": "ok"}'


class Traffic:
    """A worker on a broker of its own, and a thread that publishes events."""

    def __init__(self, folder: Path, servers: str, models: dict[str, object], metrics: dict[str, object]) -> None:
        self.port = _free_port()
        self._folder = folder
        self._path = folder / "worker.yaml"
        told = {
            "input": {"topic": TOPICS[0]},
            "output": {"topic": TOPICS[1], "explain": 3},
            "dead_letter": {"topic": TOPICS[2]},
            "delivery": "at-least-once",
            "kafka": {
                "bootstrap.servers": servers, "group.id": "payments", "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 20,
            },
            "models": models,
            "checkpoint": {"url": (folder / "checkpoints").as_uri(), "interval": "5s"},
            "metrics": {"listen": f"127.0.0.1:{self.port}", **metrics},
        }  # fmt: skip
        self._path.write_text(yaml.safe_dump(told))
        self._config = config.load(self._path, os.environ)
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []
        self.worker = self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Process:
        """Start the worker, or start it again."""
        self.worker = start_worker(self._path, self._folder, os.environ)
        return self.worker

    def await_page(self) -> None:
        """Wait until the worker answers. Raises AssertionError with its log where it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}live", timeout=10):
                    return
            except OSError:
                assert time.monotonic() < deadline, self.log()
                time.sleep(_TICK_S)

    def send(self, events: Events, rate: float) -> None:
        """From now on publish so many events a second."""
        self._threads.append(threading.Thread(target=self._send, args=(iter(events), rate), daemon=True))
        self._threads[-1].start()

    def _send(self, events: Iterator[tuple[str, bytes]], rate: float) -> None:
        publisher, began, sent = KafkaPublisher(self._config, TOPICS[0]), time.monotonic(), 0
        while not self._enough.wait(_TICK_S):
            due = int(rate * (time.monotonic() - began)) - sent
            for key, value in islice(events, due):
                publisher.send(key.encode(), value)
            sent += due
            publisher.wait(0)

    def log(self) -> str:
        return self.worker.log.read_text(errors="replace")

    def close(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        self.worker.kill()


@contextmanager
def traffic(folder: Path, models: dict[str, object] | None = None, **metrics: object) -> Iterator[Traffic]:
    """A worker at work; `metrics` are further keys of that section of its configuration."""
    broker, servers = start_broker(TOPICS, folder)
    with broker:
        running = Traffic(folder, servers, models or MODELS, metrics)
        try:
            running.await_page()
            yield running
        finally:
            running.close()
