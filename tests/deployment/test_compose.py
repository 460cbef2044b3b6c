"""deploy/compose.yaml: what Compose itself says of it, and what its services run, with real servers but no engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.availability import Unavailable, give_up
from tests.deployment.image import stages
from tests.deployment.rules import FOLDER as RULES_FOLDER
from tests.deployment.rules import promtool
from tests.go_programs import GoProgram
from tests.kafka.broker import Broker, read_all
from tests.kafka.jars import KAFKA_VERSION
from tests.kafka.workers import WorkerProcess, wait_for_progress, within
from tests.worker.support.versitygw import BUCKET, VERSITYGW, S3Server
from worker import config

FOLDER = Path(__file__).parents[2] / "deploy"
# The reference implementation of the Compose Specification: what `docker compose` itself reads a file with.
COMPOSE = GoProgram("compose-spec", "github.com/compose-spec/compose-go/v2/cmd", "v2.10.0")
CONFIG = FOLDER / "compose/worker.yaml"
OURS = ["topics", "worker-0", "worker-1", "events"]
WITHIN_S, READY_WITHIN_S = 120.0, 300.0
EVENTS, MODELS, PARTITIONS = 1000, 24, 4

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as Compose reads them: paths absolute, defaults filled in, all that is referred to there."""
    try:
        compose = COMPOSE.find()
    except Unavailable as reason:
        give_up(str(reason))
    # One variable that is not set would be an empty text with a warning: the file needs none.
    done = subprocess.run(
        [compose, "--format", "json", "compose.yaml"], cwd=FOLDER, env={}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_all_that_is_mounted_exists(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", ())]
    binds = [Path(mount["source"]) for mount in mounts if mount["type"] == "bind"]
    assert {path.name for path in binds} >= {"compose", "dashboards", "amf-rules.yaml"}
    assert [path for path in binds if not path.exists()] == []
    assert all(mount["read_only"] for mount in mounts if mount["type"] == "bind")


def test_every_service_is_bounded_watched_and_without_privileges(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert name.startswith("worker") or "healthcheck" in service, name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ())), name
    assert all(services[name]["read_only"] for name in OURS)


def test_our_services_are_one_image_built_from_the_dockerfile(services: dict[str, Any]) -> None:
    assert len({json.dumps([services[name]["image"], services[name]["build"]]) for name in OURS}) == 1
    build = services["events"]["build"]
    assert (Path(build["context"]), build["dockerfile"]) == (FOLDER.parent, "deploy/Dockerfile")
    # The workers run what the image runs.
    assert [services["worker-0"].get(key) for key in ("command", "entrypoint", "user")] == [None] * 3


def test_the_images_are_the_versions_that_the_tests_run(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert services["s3"]["image"] == f"versity/versitygw:{VERSITYGW.version}"


def variables(services: Mapping[str, Any], name: str) -> dict[str, str]:
    found: dict[str, str] = services[name]["environment"]
    return found


@pytest.mark.parametrize("name", OURS)
def test_the_configuration_is_one_with_the_variables_of_the_service(services: dict[str, Any], name: str) -> None:
    asked = set(re.findall(r"\$\{(\w+)", CONFIG.read_text()))
    given = variables(services, name)
    assert asked <= given.keys()
    assert [each for each in given if each not in asked and not each.startswith("AWS_")] == []
    parsed = config.loads(CONFIG.read_text(), given)
    assert parsed.kafka["group.instance.id"] == name
    assert parsed.metrics.port == int(stages()[""].only("EXPOSE").value)
    assert f"mkdir -p /data/{parsed.checkpoint.url.split('/')[2]} " in services["s3"]["entrypoint"][-1]


def test_prometheus_has_the_rules_and_asks_every_worker(services: dict[str, Any], tmp_path: Path) -> None:
    for mount in services["prometheus"]["volumes"]:
        if mount["type"] == "bind":
            (tmp_path / Path(mount["target"]).name).write_text(Path(mount["source"]).read_text())
    assert "rules found" in promtool("check", "config", str(tmp_path / "prometheus.yaml"))
    ours, usual = (yaml.safe_load((folder / "prometheus.yaml").read_text()) for folder in (tmp_path, RULES_FOLDER))
    [job], [usual_job] = ours["scrape_configs"], usual["scrape_configs"]
    assert job["job_name"] == usual_job["job_name"]
    assert job["static_configs"][0]["targets"] == [f"{name}:9464" for name in OURS if name.startswith("worker")]


def test_grafana_finds_dashboards_and_prometheus_where_it_is_told(services: dict[str, Any]) -> None:
    mounts = {mount["target"]: Path(mount["source"]) for mount in services["grafana"]["volumes"]}
    [provider] = yaml.safe_load((mounts["/etc/grafana/provisioning/dashboards"] / "amf.yaml").read_text())["providers"]
    dashboards = mounts[provider["options"]["path"]]
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (dashboards / home.relative_to(provider["options"]["path"])).is_file()
    [source] = yaml.safe_load(mounts["/etc/grafana/provisioning/datasources/prometheus.yaml"].read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"


def properties(environment: Mapping[str, Any]) -> dict[str, str]:
    """The properties of Kafka's image from its variables, but for names of hosts and folders."""
    named = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    local = re.compile(r"listener|quorum|node\.id|log\.dirs|heap|process\.roles")
    return {name: str(value) for name, value in named.items() if not local.search(name)}


def run(program: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(program, env={**os.environ, **environment}, cwd=FOLDER.parent)


def test_topics_events_and_predictions_flow_as_composed(services: dict[str, Any], tmp_path: Path) -> None:
    """The commands of the services, in their order, with the broker's own settings and a real S3 server."""
    try:
        server, broker = S3Server(tmp_path / "s3"), Broker(properties(variables(services, "kafka")))
    except Unavailable as reason:
        give_up(str(reason))
    path = tmp_path / "worker.yaml"
    path.write_text(CONFIG.read_text().replace("s3://amf/", f"s3://{BUCKET}/").replace("0.0.0.0:9464", "127.0.0.1:0"))

    def arguments(words: list[str]) -> list[str]:
        return [str(path) if word == "/etc/amf/worker.yaml" else word for word in words]

    with server, broker:
        here = {"KAFKA_BOOTSTRAP": broker.bootstrap, **server.environment}
        topics = [sys.executable, "-m", "worker", *arguments(services["topics"]["command"])]
        assert run(topics, variables(services, "topics") | here).wait(WITHIN_S) == 0
        script = FOLDER / "compose" / Path(services["events"]["entrypoint"][1]).relative_to("/etc/amf")
        command = [sys.executable, str(script), *arguments(services["events"]["command"])]
        with WorkerProcess(path, tmp_path / "worker.log", **(variables(services, "worker-0") | here)) as worker:
            events = run(command, variables(services, "events") | here)
            try:
                within(
                    READY_WITHIN_S, worker, lambda: "is live at offset" in worker.log()
                )  # its kernels may be compiled
                wait_for_progress(broker.bootstrap, "predictions", PARTITIONS, EVENTS, [worker])
            finally:
                events.terminate()
                events.wait(WITHIN_S)
            assert worker.terminate() == 0, worker.log()
        seen = read_all(broker.bootstrap, "predictions")
        assert len({message.key for message in seen}) >= MODELS // 2
        assert list((tmp_path / "s3").rglob("*.manifest"))
