"""What a worker tells of a stream of which everything is known."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.kafka.workers import WorkerProcess, page, within
from worker.adapters.http import parse

N = 600
LATE_MS = 3_000

Told = dict[str, dict[tuple[str, ...], float]]


def test_all_figures_of_a_worker_are_those_of_what_it_published(broker: Broker, topics: Names, tmp_path: Path) -> None:
    events, predictions, dead = (topics.create(kind) for kind in ("events", "predictions", "dead"))
    config = tmp_path / "worker.yaml"
    config.write_text(configuration(broker.bootstrap, tmp_path, named(topics)))
    rng = random.Random(0)
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(n: int, ago_ms: int) -> None:
        for i in range(n):
            x = rng.random()
            label = None if i % 4 == 0 else "yes" if rng.random() < x else "no"
            value = json.dumps({"features": [x, rng.random()], "label": label})
            if i % 50 == 7:
                value = "no JSON" if i % 100 == 7 else json.dumps({"features": "x"})
            at = int(time.time() * 1000) - ago_ms
            producer.produce(events, key="ab"[i % 3 == 0], value=value, timestamp=at)
        assert producer.flush(30) == 0

    def metrics(worker: WorkerProcess) -> Told:
        return parse(page(worker, "/metrics"))

    def has_all(worker: WorkerProcess) -> bool:
        return sum(metrics(worker)["amf_events_total"].values()) == N

    with WorkerProcess(config, tmp_path / "first.log") as worker:
        within(60, worker, lambda: "is live at offset" in worker.log())
        send(N, 0)
        within(60, worker, lambda: has_all(worker))
        time.sleep(1.5)
        worker.kill()
    with WorkerProcess(config, tmp_path / "second.log") as worker:
        within(60, worker, lambda: "is live at offset" in worker.log())
        before = len(read_all(broker.bootstrap, predictions, until=N - 12))
        send(N, LATE_MS)
        within(60, worker, lambda: has_all(worker))
        time.sleep(2.5)
        told = metrics(worker)
        status = json.loads(page(worker, "/status"))
        models = {key: json.loads(page(worker, f"/models/{key}")) for key in "ab"}
        outputs = read_all(broker.bootstrap, predictions, until=2 * N - 24)
        letters = read_all(broker.bootstrap, dead, until=24)
    published = [json.loads(each.value) for each in outputs]
    values = published[before:]
    check_counts(told, values)
    assert len(letters) == 2 * N / 50
    check_models(told, models, published, before)
    labelled = [each for each in values if each.get("label") is not None]
    assert one(told, "amf_nodes") == sum(each["nodes"] for each in models.values())
    assert status["totals"]["events"] == N
    assert status["totals"]["dead_letters"] == len(status["dead_letters"]) == N / 50
    assert sum(each["count"] for each in status["calibration"] if each) == len(labelled)


def check_counts(told: Told, values: list[dict[str, Any]]) -> None:
    labelled = [each for each in values if each.get("label") is not None]
    # What only grows is of this process alone, to the last record that is committed.
    assert (one(told, "amf_predictions_total"), one(told, "amf_learned_samples_total")) == (len(values), len(labelled))
    assert {key: n for key, n in told["amf_dead_letters_total"].items() if n} == {
        ("malformed-json",): N / 100,
        ("wrong-type",): N / 100,
    }
    assert (one(told, "amf_log_loss_count"), one(told, "amf_log_loss_sum")) == (len(labelled), near(losses(labelled)))
    assert one(told, "amf_correct_predictions_total") == sum(each["prediction"] == each["label"] for each in labelled)
    sure = sum(max(each["probabilities"].values()) for each in labelled)
    assert sum(told["amf_confidence_sum"].values()) == near(sure)
    assert sum(told["amf_confidence_correct_total"].values()) == one(told, "amf_correct_predictions_total")
    assert one(told, "amf_end_to_end_latency_seconds_count") == N
    assert LATE_MS / 1000 < one(told, "amf_end_to_end_latency_seconds_sum") / N < LATE_MS / 1000 + 5
    assert one(told, "amf_consumer_lag_records") == one(told, "amf_consumer_lag_seconds") == 0


def check_models(told: Told, models: dict[str, dict[str, Any]], published: list[dict[str, Any]], before: int) -> None:
    # What is of the models goes on where the process before was killed.
    for key, model in models.items():
        own = [each for each in published if each["model"] == key and each.get("label") is not None]
        mine = [each for each in published[before:] if each["model"] == key and each.get("label") is not None]
        assert of_model(told, "amf_model_samples")[key] == model["samples"] == len(own)
        assert of_model(told, "amf_model_log_loss_sum")[key] == near(losses(mine))
        assert model["scores"]["log_loss"] == near(losses(mine) / len(mine))
        # Recent is the last thousand labels or so, and there were fewer.
        assert model["loss"]["calibrated"] == pytest.approx(losses(own) / len(own), rel=0.05)
        assert model["loss"]["baseline"] == pytest.approx(math.log(2), rel=0.02)
        assert sum(each["share"] for each in model["features"]) == near(1)


def one(told: Told, name: str) -> float:
    [value] = told[name].values()
    return value


def of_model(told: Told, name: str) -> dict[str, float]:
    return {key[0]: value for key, value in told[name].items()}


def losses(values: list[dict[str, Any]]) -> float:
    return math.fsum(each["loss"] for each in values)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)
