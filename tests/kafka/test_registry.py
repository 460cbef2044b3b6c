"""Avro in and out on a real broker, with a schema registry that goes away in the middle of the stream."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.workers import WorkerProcess, require_each_once, source_of, wait_for_progress, within
from tests.worker.support.registry import StubRegistry
from worker import codec
from worker.base.records import Event
from worker.config import ModelParams, Models
from worker.state.model_store import ModelStore

pytestmark = pytest.mark.kafka

SECRET = "hunter2"
BEFORE, AFTER = 40, 30
"""Records of each partition before and after the one with the schema that cannot be asked for."""


def schema(version: int) -> str:
    label = {"name": "label", "type": ["null", "string"]}
    extra = {"name": f"extra{version}", "type": "int", "default": 0}
    features = {"name": "features", "type": {"type": "map", "values": ["null", "double"]}}
    return json.dumps({"type": "record", "name": "Event", "fields": [features, label, extra]})


def datum(number: int) -> dict[str, Any]:
    features = {"a": number % 7 / 7, "b": None if number % 5 == 0 else number % 3 / 3}
    return {"features": features, "label": "xyz"[number % 3]}


class Job:
    """Topics, a registry and a configuration of one test."""

    def __init__(self, broker: Broker, topics: Any, stub: StubRegistry, folder: Path) -> None:
        self.broker, self.stub = broker, stub
        self.events = topics.create("events", 2)
        self.predictions, self.dead = topics.create("predictions", 2), topics.create("dead")
        self.config = folder / "worker.yaml"
        self.folder = folder
        changes = {
            "input": {"codec": "avro"},
            "output": {"codec": "avro"},
            "models": {"default": {"n_estimators": 2}},
            "schema_registry": {"url": stub.url, "user_info": "${USER_INFO}", "timeout": "5s"},
        }
        self.config.write_text(configuration(broker.bootstrap, folder, named(topics), changes))
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(self, partition: int, number: int, version: int) -> None:
        file = io.BytesIO()
        text = schema(version)
        fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(text)), datum(number))
        framed = b"\0" + self.stub.add(f"{self.events}-value", text).to_bytes(4) + file.getvalue()
        self._producer.produce(self.events, framed, b"key-%d" % partition, partition)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def worker(self) -> WorkerProcess:
        return WorkerProcess(self.config, self.folder / "worker.log", USER_INFO=f"amf:{SECRET}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "worker", *arguments],
            capture_output=True, text=True, timeout=120, env={"USER_INFO": f"amf:{SECRET}"},
        )  # fmt: skip


@pytest.fixture
def job(broker: Broker, topics: Any, tmp_path: Path) -> Iterator[Job]:
    with StubRegistry(user_info=f"amf:{SECRET}") as stub:
        yield Job(broker, topics, stub, tmp_path)


def expected(numbers: list[int], key: str) -> list[dict[str, Any]]:
    """What a model of this key says of these events, by the JSON."""
    forests = ModelStore(Models(default=ModelParams(n_estimators=2)).params_for)
    events = [Event(datum(number)["features"], datum(number)["label"], None) for number in numbers]
    answers = forests.get(key).apply(events, predict=True).outcomes
    return [json.loads(codec.encode_answers([key], [answer])[0]) for answer in answers]


@pytest.mark.parametrize("trouble", ["away", pytest.param("not-registered", marks=pytest.mark.full)])
def test_the_partition_waits_for_a_schema_and_then_all_is_there_exactly_once(job: Job, trouble: str) -> None:
    stub, total = job.stub, BEFORE + 1 + AFTER
    for number in range(BEFORE):
        job.send(0, number, version=1)
        job.send(1, number, version=1)
    job.flush()
    with job.worker() as worker:
        wait_for_progress(job.broker.bootstrap, job.predictions, 2, 2 * BEFORE, [worker])
        new = stub.add(f"{job.events}-value", schema(2))
        if trouble == "away":
            stub.fault = 503
        else:
            stub.withheld.add(new)
        job.send(0, BEFORE, version=2)
        for number in range(BEFORE + 1, total):
            job.send(0, number, version=1)
        for number in range(BEFORE, total):
            job.send(1, number, version=1)
        job.flush()
        # The registry turns it away more than once; the other partition needs nothing of it.
        within(60, worker, lambda: stub.asked[f"GET /schemas/ids/{new}"] >= 2)
        there = read_all(job.broker.bootstrap, job.predictions, until=BEFORE + total, timeout=60)
        assert sum(source_of(message)[0] == 0 for message in there) == BEFORE
        stub.fault = None
        stub.withheld.clear()
        messages = read_all(job.broker.bootstrap, job.predictions, until=2 * total, timeout=60)
        assert worker.terminate() == 0
    require_each_once(messages, {0: total, 1: total})
    assert read_all(job.broker.bootstrap, job.dead) == []
    [number] = stub.subjects[f"{job.predictions}-value"]
    reader = fastavro.parse_schema(json.loads(stub.schema(number)["schema"]))
    for partition in (0, 1):
        values = [message.value for message in sorted(messages, key=source_of) if source_of(message)[0] == partition]
        assert {value[:5] for value in values} == {b"\0" + number.to_bytes(4)}
        read = [fastavro.schemaless_reader(io.BytesIO(value[5:]), reader, None) for value in values]
        said = [{name: each for name, each in value.items() if each is not None} for value in read]
        wanted = [
            {name: each for name, each in value.items() if each is not None}
            for value in expected(list(range(total)), f"key-{partition}")
        ]
        assert said == wanted
    assert "waits at offset" in worker.log()
    assert SECRET not in worker.log()


def test_check_tries_the_registry(job: Job) -> None:
    done = job.command("check", str(job.config), "--connect")
    assert done.returncode == 0, done.stderr
    assert f"ok      schema registry {job.stub.url}: answers" in done.stdout
    job.stub.fault = 503
    failed = job.command("check", str(job.config), "--connect")
    assert failed.returncode == 1
    assert "failed  the schema registry at" in failed.stdout
    assert SECRET not in done.stdout + done.stderr + failed.stdout + failed.stderr
