"""Outputs that a real broker refuses, by size, timestamp or missing key: dead letters in their place, exactly once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, Message, committed_offsets, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.kafka.workers import WorkerProcess

pytestmark = pytest.mark.kafka

WITHIN_S = 90.0
HOUR_MS = 3600 * 1000
YEAR_MS = 365 * 24 * HOUR_MS


class Job:
    """Topics of one test, their settings, and a worker on them."""

    def __init__(self, broker: Broker, topics: Names, folder: Path) -> None:
        self.broker, self.topics, self.folder = broker, topics, folder
        self.events, self.predictions, self.dead = (topics.name(kind) for kind in ("events", "predictions", "dead"))
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

    def create(self, output: dict[str, str], dead: dict[str, str] | None = None) -> None:
        self.topics.create("events", 2, {"message.timestamp.after.max.ms": str(9 * YEAR_MS)})
        self.topics.create("predictions", 2, output)
        self.topics.create("dead", 1, dead)

    def feed(self, label: object, key: bytes | None, partition: int, timestamp_ms: int = 0) -> None:
        value = json.dumps({"features": [1.5], "label": label})
        self._producer.produce(self.events, value, key, partition, timestamp=timestamp_ms or int(time.time() * 1000))

    def worker(self, delivery: str = "exactly-once") -> WorkerProcess:
        assert self._producer.flush(30) == 0
        config = self.folder / "worker.yaml"
        changes = {
            "delivery": delivery,
            "kafka": {"group.instance.id": "one"},
            "models": {"null_key": "anonymous"},
        }
        config.write_text(configuration(self.broker.bootstrap, self.folder, named(self.topics), changes))
        return WorkerProcess(config, self.folder / "log")

    def require_committed(self, worker: WorkerProcess, offsets: dict[int, int]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while committed_offsets(self.broker.bootstrap, self.topics.name("group"), self.events) != offsets:
            worker.require_alive()
            assert time.monotonic() < deadline, worker.log()[-3000:]
            time.sleep(0.1)

    def published(self) -> tuple[list[Message], list[Message]]:
        bootstrap = self.broker.bootstrap
        return read_all(bootstrap, self.predictions), read_all(bootstrap, self.dead)


@pytest.fixture
def job(broker: Broker, topics: Names, tmp_path: Path) -> Job:
    return Job(broker, topics, tmp_path)


def sources(messages: list[Message], partition: int = 0) -> list[int]:
    found = [dict(message.headers) for message in messages]
    return sorted(int(of["source-offset"] or b"") for of in found if of["source-partition"] == b"%d" % partition)


def codes(messages: list[Message]) -> set[bytes | None]:
    return {dict(message.headers)["error-code"] for message in messages}


@pytest.mark.full
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_prediction_that_is_too_large_is_a_dead_letter(job: Job, delivery: str) -> None:
    """A model of very many classes with long names says more than its topic takes; the model beside it does not."""
    job.create({"max.message.bytes": "6000"})
    for i in range(60):
        job.feed(f"{i:03d}" + "x" * 120, b"many", 0)
        job.feed("few", b"few", 0)
        job.feed("few", b"few", 1)
    with job.worker(delivery) as worker:
        job.require_committed(worker, {0: 120, 1: 60})
        assert worker.terminate() == 0
        worker.start()
        job.feed("few", b"few", 1)
        assert job._producer.flush(30) == 0
        job.require_committed(worker, {0: 120, 1: 61})
        assert worker.terminate() == 0
    found, letters = job.published()
    assert codes(letters) == {b"unpublishable"}
    assert 5 < len(set(sources(letters))) < 55
    assert set(sources(letters)) <= set(range(0, 120, 2))
    both = sources(found) + sources(letters)
    assert sorted(set(both)) == [*range(120)]
    assert sorted(set(sources(found, 1))) == [*range(61)]
    if delivery == "exactly-once":
        assert sorted(both) == [*range(120)]
        assert sources(found, 1) == [*range(61)]
    assert b"too large" in (dict(letters[0].headers)["error-reason"] or b"")


def test_a_topic_of_small_records_is_sent_no_larger_batches(job: Job) -> None:
    job.create({"max.message.bytes": "8192"}, {"max.message.bytes": "8192"})
    for i in range(2000):
        job.feed("ab"[i % 2], b"k", i % 2)
    with job.worker() as worker:
        job.require_committed(worker, {0: 1000, 1: 1000})
        assert worker.terminate() == 0
    # Where none is refused, no transaction is sent in halves, which would take a thousand of them.
    assert "records-refused" not in worker.log()
    found, letters = job.published()
    assert (sources(found), sources(found, 1), letters) == ([*range(1000)], [*range(1000)], [])


def test_a_record_without_a_key_for_a_compacted_topic_is_a_dead_letter(job: Job) -> None:
    job.create({"cleanup.policy": "compact,delete"})
    for i in range(30):
        job.feed("a", None if i % 10 == 3 else b"k", 0)
        job.feed("a", b"k", 1)
    with job.worker() as worker:
        job.require_committed(worker, {0: 30, 1: 30})
        assert worker.terminate() == 0
    found, letters = job.published()
    assert (sources(letters), codes(letters)) == ([3, 13, 23], {b"unpublishable"})
    assert sources(found) == [i for i in range(30) if i % 10 != 3]
    assert sources(found, 1) == [*range(30)]


def test_a_timestamp_that_no_topic_takes_stops_its_partition_alone(job: Job) -> None:
    job.create({}, {})
    now_ms = int(time.time() * 1000)
    for i in range(10):
        job.feed("a", b"k", 0, now_ms + (YEAR_MS if i == 4 else i))
        job.feed("a", b"k", 1, now_ms + i)
    with job.worker() as worker:
        job.require_committed(worker, {0: 4, 1: 10})
        assert worker.terminate() == 0
    assert "output-refused" in worker.log()
    found, letters = job.published()
    assert (sources(found), sources(found, 1), letters) == ([*range(4)], [*range(10)], [])
