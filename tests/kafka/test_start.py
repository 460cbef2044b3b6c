"""A worker that is there before its broker: it waits, says so, is alive, and works as soon as the broker comes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import Sections, configuration
from tests.kafka.workers import WorkerProcess, page, within

WAITING = re.compile(
    r"WARNING waiting: broker: not there yet, trying again .*: no broker answers at kafka\.bootstrap\.servers="
)
GAVE_UP_S = 12.0
"""Time that two questions of a start take together, after which it once ended."""


def started(folder: Path, bootstrap: str, input: Sections = MappingProxyType({})) -> WorkerProcess:
    """A worker with a log for people."""
    path = folder / "worker.yaml"
    path.write_text(configuration(bootstrap, folder, {"input": input, "logging": {"format": "human"}}))
    return WorkerProcess(path, folder / "worker.log")


def test_a_worker_without_a_broker_ends_at_once_and_in_order_when_it_is_told_to(tmp_path: Path) -> None:
    with started(tmp_path, "127.0.0.1:1") as worker:
        within(60, worker, lambda: WAITING.search(worker.log()))
        assert page(worker, "/live") == "alive\n"
        began = time.monotonic()
        assert worker.terminate() == 0
        assert time.monotonic() - began < 5
        assert "stopped in order" in worker.log()


@pytest.mark.full
@pytest.mark.parametrize(
    "input", [{}, {"repartition": True, "model_key": "field:shop"}], ids=["keyed", "repartitioned"]
)
def test_a_worker_that_was_there_before_its_broker_works_when_it_comes(
    own_broker: Broker, tmp_path: Path, input: Sections
) -> None:
    for topic in ("events", "predictions", "dead"):
        own_broker.create_topic(topic)
    own_broker.stop()
    with started(tmp_path, own_broker.bootstrap, input) as worker:
        within(60, worker, lambda: WAITING.search(worker.log()))
        time.sleep(GAVE_UP_S + 3)
        worker.require_alive()
        assert len(WAITING.findall(worker.log())) == 1
        assert worker.log().count("Connection refused") < 5
        assert page(worker, "/live") == "alive\n"
        assert "amf_build_info" in page(worker, "/metrics")
        own_broker.restart()
        producer = Producer({"bootstrap.servers": own_broker.bootstrap})
        for i in range(10):
            value = json.dumps({"features": [i % 2, 1.0], "label": "ab"[i % 2], "shop": "s"})
            producer.produce("events", key=b"s", value=value.encode())
        assert producer.flush(30) == 0
        within(120, worker, lambda: "is live at offset" in worker.log())
        assert len(read_all(own_broker.bootstrap, "predictions", until=10)) == 10
        assert page(worker, "/live") == "alive\n"
        assert worker.terminate() == 0


@pytest.mark.full
def test_a_broker_that_goes_away_is_logged_in_a_few_lines(own_broker: Broker, tmp_path: Path) -> None:
    """librdkafka's own lines included, of several clients that try ten times a second."""
    for topic in ("events", "predictions", "dead"):
        own_broker.create_topic(topic)
    with started(tmp_path, own_broker.bootstrap) as worker:
        within(120, worker, lambda: "is live at offset" in worker.log())
        before = len(worker.log().splitlines())
        own_broker.stop()
        within(60, worker, lambda: " WARNING kafka-client: " in worker.log())
        time.sleep(GAVE_UP_S)
        worker.require_alive()
        lines = worker.log().splitlines()[before:]
        said = [line.partition("Z ")[2].partition("rdkafka#")[0] for line in lines]
        assert len(lines) < 20, "\n".join(said)
