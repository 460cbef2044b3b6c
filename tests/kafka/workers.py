"""Worker processes under test, and what they must have published."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.broker import Message

STOP_WITHIN_S = 30.0
PROGRESS_WITHIN_S = 180.0


class WorkerProcess:
    """`amf-worker run CONFIG` as a process of its own; its log goes to a file that is shown when it dies unasked."""

    def __init__(self, config: Path, log: Path, *options: str, **environ: str) -> None:
        self._config = config
        self._log = log
        self._options = options
        self._environ = {**os.environ, **environ}
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "worker", "run", str(self._config), *self._options]
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=self._environ)

    def kill(self) -> None:
        """SIGKILL: no chance to finish anything."""
        self.require_alive()
        self.process.kill()
        self.process.wait(STOP_WITHIN_S)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_WITHIN_S)

    def require_alive(self) -> None:
        """Raises AssertionError with the log where the worker ended by itself."""
        code = self.process.poll()
        assert code is None, f"the worker ended with {code}:\n{self.log()[-4000:]}"

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_WITHIN_S)


def published(bootstrap: str, topic: str, partitions: int) -> int:
    """How far the output has come: the sum of its end offsets, markers of transactions included."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "progress"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10) for n in range(partitions)]
        return sum(high for _, high in ends)
    finally:
        consumer.close()


def wait_for_progress(
    bootstrap: str,
    topic: str,
    partitions: int,
    beyond: int,
    workers: list[WorkerProcess],
    while_: Callable[[], bool] = lambda: True,
) -> int:
    """Wait until the output has more than `beyond` records, or there is no more to wait for; returns how far it came.

    Raises AssertionError after some minutes.
    """
    deadline = time.monotonic() + PROGRESS_WITHIN_S
    while (now := published(bootstrap, topic, partitions)) <= beyond and while_():
        for worker in workers:
            worker.require_alive()
        assert time.monotonic() < deadline, (
            f"no record beyond {beyond} in {PROGRESS_WITHIN_S:g} s:\n{workers[0].log()[-4000:]}"
        )
    return now


def source_of(message: Message) -> tuple[int, int]:
    """(partition, offset) of the input record that an output or dead letter was made from."""
    headers = dict(message.headers)
    return int(headers["source-partition"] or b""), int(headers["source-offset"] or b"")


def require_each_once(messages: list[Message], ends: dict[int, int]) -> None:
    """Exactly one record for every offset of the input: nothing is missing, nothing is there twice."""
    seen = Counter(source_of(message) for message in messages)
    twice = {source: n for source, n in seen.items() if n > 1}
    assert not twice, f"{len(twice)} input records were answered more than once, such as {sorted(twice)[:5]}"
    missing = {(partition, offset) for partition, end in ends.items() for offset in range(end)} - seen.keys()
    assert not missing, f"{len(missing)} input records were not answered, such as {sorted(missing)[:5]}"


def expected(predictions_csv: Path) -> dict[str, dict[str, object]]:
    """The CSV of `evaluate` as the values that the worker must publish, by id."""
    rows: dict[str, dict[str, object]] = {}
    with predictions_csv.open(newline="") as file:
        for row in csv.DictReader(file):
            probabilities = {name[2:]: float(p) for name, p in row.items() if name.startswith("p:") and p}
            rows[row["row"]] = {
                "model": row["model"],
                "label": row["label"],
                "prediction": row["prediction"],
                "probabilities": probabilities,
                "learned": int(row["learned"]),
                "loss": float(row["loss"]) if row["loss"] else None,
            }
    return rows


def require_equal(messages: list[Message], rows: dict[str, dict[str, object]]) -> None:
    """Every prediction equals what `evaluate` says of its row, to the last bit."""
    for message in messages:
        value = json.loads(message.value or b"")
        want = rows[value["id"]]
        got = {
            "model": value["model"],
            "label": "" if value.get("label") is None else str(value["label"]),
            "prediction": "" if value["prediction"] is None else str(value["prediction"]),
            "probabilities": value.get("probabilities", {}),
            "learned": value["learned"],
            "loss": value.get("loss"),
        }
        assert got == want, f"row {value['id']} differs: published {got}, evaluate says {want}"
        assert message.key == value["model"].encode()


def within(seconds: float, worker: WorkerProcess, condition: Callable[[], object]) -> None:
    """Wait until it is so. Raises AssertionError with the log where it is not, or the worker has ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        worker.require_alive()
        assert time.monotonic() < deadline, f"not within {seconds:g} s:\n{worker.log()[-4000:]}"
        time.sleep(0.05)


def page(worker: WorkerProcess, path: str) -> str:
    """What a worker answers at a path of its HTTP server."""
    found = re.search(r"metrics at (http://[^/]+)/metrics", worker.log())
    assert found is not None
    with urllib.request.urlopen(found[1] + path, timeout=10) as answer:
        return str(answer.read().decode())
