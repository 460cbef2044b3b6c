"""The dashboards of deploy/grafana: the committed files, and each of their queries against a worker at work."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from deploy.grafana.generate import FOLDER, generated
from tests.availability import program
from tests.deployment.rules import FOLDER as RULES_FOLDER
from tests.deployment.rules import RULES
from tests.kafka.broker import Broker
from tests.kafka.configurations import configuration
from tests.kafka.workers import WorkerProcess, page, within

WITHIN_S = 120.0
COMPARISON = re.compile(r"(?:==|[<>]=?) (?:bool )?[\d.]+")


def queries() -> list[tuple[str, str]]:
    """(panel, PromQL) of all dashboards, with the variables that Grafana sets."""
    panels = [panel for path in sorted(FOLDER.glob("*.json")) for panel in json.loads(path.read_text())["panels"]]
    return [
        (
            panel["title"],
            target["expr"].replace("$job", "amf-worker").replace("$namespace", ".*").replace("$__rate_interval", "10s"),
        )
        for panel in panels
        for target in panel.get("targets", ())
    ]


def test_the_files_are_what_the_code_makes() -> None:
    files = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert files == generated(), "run: python deploy/grafana/generate.py"


def test_no_dashboard_is_bound_to_one_prometheus() -> None:
    for path in FOLDER.glob("*.json"):
        dashboard = json.loads(path.read_text())
        assert [each["type"] for each in dashboard["templating"]["list"]] == ["datasource", "query", "query"]
        sources = re.findall(r'"uid": "([^"]*)"', path.read_text())
        assert set(sources) == {path.stem, "${datasource}"}
        assert all(panel["targets"] for panel in dashboard["panels"] if panel["type"] != "row")


def test_each_query_is_of_the_namespace_that_was_chosen() -> None:
    chosen = 'job="$job", namespace=~"$namespace"'
    for path in FOLDER.glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                selected = re.findall(r"(?<=\{)[^{}]+(?=\})", target["expr"])
                assert selected, panel["title"]
                assert all(each.startswith(chosen) for each in selected), panel["title"]


def test_the_provisioning_is_yaml_that_names_a_prometheus_and_a_folder() -> None:
    folder = FOLDER.parent / "provisioning"
    [source] = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    [provider] = yaml.safe_load((folder / "dashboards/amf.yaml").read_text())["providers"]
    assert (source["type"], provider["type"]) == ("prometheus", "file")


def feed(producer: Producer, rng: random.Random) -> None:
    """Labelled events of three models, and some that are rejected."""
    for _ in range(20):
        x = rng.random()
        for key, label in (("classes", "ab"[x < 0.5]), ("numbers", x), ("adapting", "ab"[x < 0.5])):
            producer.produce("events", key=key, value=json.dumps({"features": [x, 1.0], "label": label}))
        producer.produce("events", key="classes", value=b"{")
    assert producer.flush(30) == 0


class Prometheus:
    """A Prometheus that scrapes one worker every second, with the rules."""

    def __init__(self, folder: Path, target: str) -> None:
        config = yaml.safe_load((RULES_FOLDER / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES_FOLDER / "amf-rules.yaml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [program("prometheus"), f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                 "--web.listen-address=127.0.0.1:0"],
                stdout=log, stderr=log,
            )  # fmt: skip
        self._folder = folder

    def url(self) -> str | None:
        found = re.search(r'msg="Listening on" address=(\S+)', self._log.read_text())
        return None if found is None else f"http://{found[1]}"

    def ask(self, promql: str) -> list[Any]:
        """The series that a query gives now. Raises HTTPError where it is no PromQL."""
        asked = f"{self.url()}/api/v1/query?" + urllib.parse.urlencode({"query": promql})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return found


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    started = Prometheus(folder, target)
    try:
        yield started
    finally:
        started.process.terminate()
        started.process.wait(30)


@pytest.mark.full
def test_every_query_of_panels_and_rules_returns_data(own_broker: Broker, tmp_path: Path) -> None:
    """A rule that is quiet returns nothing: what it compares with a number must be there."""
    for topic in ("events", "predictions", "dead"):
        own_broker.create_topic(topic)
    path, rng = tmp_path / "worker.yaml", random.Random(1)
    overrides = [
        {"match": "numbers", "algorithm": "amf-regressor"},
        {"match": "adapting", "algorithm": "adaptive-classifier"},
    ]
    changes = {"input": {"repartition": True}, "models": {"default": {"n_estimators": 2}, "overrides": overrides}}
    path.write_text(configuration(own_broker.bootstrap, tmp_path, changes))
    asked = queries() + [(rule.get("alert") or rule["record"], COMPARISON.sub("", rule["expr"])) for rule in RULES]
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    with WorkerProcess(path, tmp_path / "worker.log") as worker:
        within(WITHIN_S, worker, lambda: "is live at offset" in worker.log())
        assert "amf_build_info" in page(worker, "/metrics")
        target = re.search(r"metrics at http://([^/]+)/metrics", worker.log())
        assert target is not None
        with prometheus(tmp_path, target[1]) as server:
            within(WITHIN_S, worker, server.url)
            missing, deadline = asked, time.monotonic() + WITHIN_S
            while missing:
                assert time.monotonic() < deadline, f"no data: {missing}"
                feed(producer, rng)
                time.sleep(1)
                missing = [each for each in missing if not has_data(server, each[1])]


def has_data(server: Prometheus, promql: str) -> bool:
    """Whether a query gives a number; a ratio whose divisor has not moved yet is none."""
    return any(each["value"][1] != "NaN" for each in server.ask(promql))
