"""The metrics of a worker at work, as Prometheus takes them."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.kafka.workers import WorkerProcess, page, within
from tests.worker.support.promtool import complaints
from worker.adapters.http import parse


@pytest.mark.full
def test_promtool_finds_nothing_to_complain_about_in_what_a_worker_tells(
    broker: Broker, topics: Names, tmp_path: Path
) -> None:
    events, predictions, dead = (topics.create(kind) for kind in ("events", "predictions", "dead"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(10):
        value = json.dumps({"features": [i % 2, 1.0], "label": "ab"[i % 2]})
        producer.produce(events, key="männlich", value=value)
    producer.produce(events, key="other", value="no JSON")
    assert producer.flush(30) == 0

    config = tmp_path / "worker.yaml"
    config.write_text(configuration(broker.bootstrap, tmp_path, named(topics)))
    with WorkerProcess(config, tmp_path / "worker.log") as worker:
        read_all(broker.bootstrap, predictions, until=10)
        read_all(broker.bootstrap, dead, until=1)
        found = re.search(r"http://\S+/metrics", worker.log())
        assert found is not None
        with urllib.request.urlopen(found[0], timeout=10) as answer:
            told = answer.read().decode()
    assert {code: n for code, n in parse(told)["amf_dead_letters_total"].items() if n} == {("malformed-json",): 1}
    assert complaints(told) == ""


def test_a_worker_tells_of_its_models_and_of_what_it_rejected(broker: Broker, topics: Names, tmp_path: Path) -> None:
    events, *_ = (topics.create(kind) for kind in ("events", "predictions", "dead"))
    config = tmp_path / "worker.yaml"
    config.write_text(configuration(broker.bootstrap, tmp_path, named(topics)))
    with WorkerProcess(config, tmp_path / "worker.log") as worker:
        within(60, worker, lambda: "metrics at" in worker.log())
        with pytest.raises(urllib.error.HTTPError, match="503"):
            page(worker, "/ready")
        within(60, worker, lambda: "is live at offset" in worker.log())
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for i in range(10):
            producer.produce(events, key="männlich/1", value=json.dumps({"features": [i % 2], "label": "ab"[i % 2]}))
        producer.produce(events, key="other", value="no JSON")
        assert producer.flush(30) == 0
        within(60, worker, lambda: json.loads(page(worker, "/status"))["dead_letters"])
        [letter] = json.loads(page(worker, "/status"))["dead_letters"]
        assert (letter["topic"], letter["offset"], letter["key"], letter["code"]) == (
            events,
            10,
            "other",
            "malformed-json",
        )
        assert page(worker, "/ready") == "ready\n"
        model = json.loads(page(worker, "/models/m%C3%A4nnlich%2F1"))
        assert (model["samples"], model["classes"], model["in_memory"]) == (10, ["a", "b"], True)
        assert [each["key"] for each in json.loads(page(worker, "/models"))["models"]] == ["männlich/1"]


def test_the_marker_of_a_transaction_is_no_lag(broker: Broker, topics: Names, tmp_path: Path) -> None:
    events, *_ = (topics.create(kind) for kind in ("events", "predictions", "dead"))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topics.name("feeder")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(events, key="k", value=json.dumps({"features": [1.0], "label": "a"}))
    producer.commit_transaction(30)
    config = tmp_path / "worker.yaml"
    config.write_text(configuration(broker.bootstrap, tmp_path, named(topics)))

    def figures() -> dict[str, float | None]:
        told = parse(page(worker, "/metrics"))
        names = ("amf_events_total", "amf_consumer_lag_records", "amf_consumer_lag_seconds")
        return {name: next(iter(told.get(name, {}).values()), None) for name in names}

    with WorkerProcess(config, tmp_path / "worker.log") as worker:
        within(60, worker, lambda: "is live at offset" in worker.log())
        within(30, worker, lambda: list(figures().values()) == [1, 0, 0])
