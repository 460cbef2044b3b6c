"""What the benchmarks of the worker stand on: topics on a broker, and workers on them whose metrics can be read."""

from __future__ import annotations

import json
import re
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.benchmarks.worker.pass_through import PARTITIONS
from tests.kafka.broker import Broker
from tests.kafka.workers import WorkerProcess

GIVE_UP_S = 600.0
"""No single step of a benchmark takes longer."""
POLL_S = 0.05
RATE_POLL_S = 0.5
"""While a rate is read, the metrics are asked for this seldom: to write them takes the worker some milliseconds."""
GAUGES_S = 1.5
"""The worker refreshes its gauges every second."""
EVENTS_TAKEN = "amf_events_total"
REPLAYED = "amf_replayed_records_total"
STEADY = 0.2, 0.9
"""The shares of the events between which a rate is read: joining and the last, smaller batches are not throughput."""


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float = GIVE_UP_S) -> None:
    """Raises TimeoutError, saying what did not happen."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


class Worker(WorkerProcess):
    """A worker process on one side of a bed, its metrics, and when it said what in its present life."""

    def __init__(self, config: Path, log: Path, side: str) -> None:
        self.side = side
        super().__init__(config, log)

    def start(self) -> None:
        self._life = len(self.log()) if self._log.exists() else 0
        self._address = ""
        super().start()

    def said(self) -> str:
        """What it has logged since it was started last."""
        return self.log()[self._life :]

    def await_live(self, partitions: int) -> None:
        """Wait until so many of its partitions are live. Raises TimeoutError, AssertionError where it dies."""

        def enough() -> bool:
            self.require_alive()
            return self.said().count(" is live at ") >= partitions

        wait_for(f"{partitions} live partitions", enough)

    def moments(self, words: str) -> list[float]:
        """When it logged a line with these words, seconds since the epoch."""
        lines = [line for line in self.said().splitlines() if words in line]
        stamps = [datetime.strptime(json.loads(line)["time"], "%Y-%m-%dT%H:%M:%S.%fZ") for line in lines]
        return [stamp.replace(tzinfo=UTC).timestamp() for stamp in stamps]

    def metric(self, name: str) -> float:
        """Sum over the series of a metric; 0 where it has none, or where there are no metrics yet."""
        self.require_alive()
        if not self.address:
            return 0.0
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
            return total(answer.read().decode(), name)

    @property
    def address(self) -> str:
        """Host and port of its metrics; empty before it has said so."""
        found = None if self._address else re.search(r"http://(127\.0\.0\.1:\d+)/metrics", self.said())
        if found is not None:
            self._address = found[1]
        return self._address

    def await_metric(self, name: str, at_least: float, poll_s: float = POLL_S) -> tuple[float, float]:
        """Wait for a metric; returns when it was there (time.time) and its value then."""
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            now, value = time.time(), self.metric(name)
            if value >= at_least:
                return now, value
            time.sleep(poll_s)
        raise TimeoutError(f"{name} was not {at_least:g} within {GIVE_UP_S:g} s")

    def settled(self, name: str) -> float:
        """A metric once it stays the same from one refreshing of the gauges to the next."""
        deadline, before = time.monotonic() + GIVE_UP_S, float("nan")
        while (now := self.metric(name)) != before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} did not settle within {GIVE_UP_S:g} s")
            before = now
            time.sleep(GAUGES_S)
        return now

    def rate(self, name: str, n: float, between: tuple[float, float] = STEADY) -> float:
        """How much a metric grows in a second between two shares of n."""
        started, first = self.await_metric(name, between[0] * n, RATE_POLL_S)
        ended, last = self.await_metric(name, between[1] * n, RATE_POLL_S)
        return (last - first) / (ended - started)


def total(exposition: str, name: str) -> float:
    """Sum over the series of a metric in the Prometheus text format; 0 where there is none."""
    values = re.findall(rf"^{name}(?:{{[^\n]*}})? (\S+)$", exposition, re.MULTILINE)
    return sum(map(float, values))


class Testbed:
    """Three topics of a benchmark and a folder for what its workers write; the folder is removed on exit.

    A `side` has an output, a group and checkpoints of its own: workers of two sides both read the whole input.
    """

    def __init__(self, broker: Broker, partitions: int = PARTITIONS) -> None:
        self.bootstrap, self.partitions = broker.bootstrap, partitions
        self._broker = broker
        self._folder = tempfile.TemporaryDirectory()
        self._mark = uuid.uuid4().hex[:8]
        self._sides: set[str] = set()
        self.source = f"events-{self._mark}"
        broker.create_topic(self.source, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    def sink(self, side: str = "a") -> str:
        """The output topic of a side, created when it is first asked for."""
        name = f"predictions-{side}-{self._mark}"
        if side not in self._sides:
            self._sides.add(side)
            self._broker.create_topic(name, self.partitions)
            self._broker.create_topic(f"dead-{name}", self.partitions)
        return name

    def worker(self, name: str = "worker", side: str = "a", **sections: Mapping[str, Any]) -> Worker:
        """Start a worker; `sections` are keys of the configuration, over those of the benchmark."""
        sink = self.sink(side)
        config: dict[str, dict[str, Any]] = {
            "input": {"topic": self.source},
            "output": {"topic": sink},
            "dead_letter": {"topic": f"dead-{sink}"},
            "kafka": {"bootstrap.servers": self.bootstrap, "group.id": sink},
            "models": {"default": {"n_estimators": 10}},
            "checkpoint": {"url": f"file://{self.folder}/checkpoints"},
            "metrics": {"listen": "127.0.0.1:0"},
        }
        for section, keys in sections.items():
            config.setdefault(section, {}).update(keys)
        path = self.folder / f"{side}-{name}.yaml"
        path.write_text(json.dumps(config))  # every JSON text is one of YAML
        return Worker(path, path.with_suffix(".log"), side)
