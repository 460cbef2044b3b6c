"""deploy/kubernetes: what kustomize makes of it, against the schemas of Kubernetes and the worker's own facts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.availability import Unavailable, give_up
from tests.deployment.image import stages
from tests.deployment.rules import RULES
from tests.go_programs import GoProgram
from worker import config, service
from worker.adapters.http.paths import PATHS
from worker.adapters.kafka.errors import CALL_S
from worker.runtime import loop

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
KUSTOMIZE = GoProgram("kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "v5.6.0")
# The oldest that has all fields that are used, and the newest that there is a schema of.
VERSIONS = "1.31", kubernetes_validate.latest_version()
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

Resource = dict[str, Any]


def build(folder: Path) -> dict[str, Resource]:
    """The resources of an overlay by their kinds; of ConfigMaps, that of the worker."""
    try:
        kustomize = KUSTOMIZE.find()
    except Unavailable as reason:
        give_up(str(reason))
    done = subprocess.run([kustomize, "build", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    resources = [each for each in yaml.safe_load_all(done.stdout) if "dashboards" not in each["metadata"]["name"]]
    found = {each["kind"]: each for each in resources}
    assert len(found) == len(resources)
    return found


@pytest.fixture(params=["base", "example"])
def built(request: pytest.FixtureRequest) -> dict[str, Resource]:
    return build(FOLDER / request.param)


@pytest.fixture
def example() -> dict[str, Resource]:
    return build(FOLDER / "example")


def pod(resources: dict[str, Resource]) -> Any:
    return resources["StatefulSet"]["spec"]["template"]["spec"]


def container(resources: dict[str, Resource]) -> Any:
    [only] = pod(resources)["containers"]
    return only


def amount(text: str) -> float:
    """Bytes of a quantity."""
    return float(text[:-2]) * UNITS[text[-2:]]


def configuration(resources: dict[str, Resource], folder: Path) -> config.Config:
    """The configuration as the pod reads it; what its secrets hold is made up."""
    text = resources["ConfigMap"]["data"]["worker.yaml"]
    for name in ("password", "ca.pem"):
        (folder / name).write_text("made up\n")
    variables = {each["name"]: each.get("value", "amf-worker-0") for each in container(resources)["env"]}
    return config.loads(text.replace("/run/secrets/kafka", str(folder)), variables)


pytestmark = pytest.mark.full


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_resource(built: dict[str, Resource], version: str) -> None:
    for kind, resource in built.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(resource, version, strict=True)


def test_the_schemas_refuse_what_is_no_field(example: dict[str, Resource]) -> None:
    container(example)["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(example["StatefulSet"], VERSIONS[-1], strict=True)


def test_the_worker_takes_the_configuration(built: dict[str, Resource], tmp_path: Path) -> None:
    parsed = configuration(built, tmp_path)
    assert parsed.kafka["group.instance.id"] == "amf-worker-0"
    [port] = container(built)["ports"]
    assert (parsed.metrics.host, parsed.metrics.port) == ("0.0.0.0", port["containerPort"])


def test_what_the_worker_writes_and_reads_is_mounted_and_has_room(built: dict[str, Resource], tmp_path: Path) -> None:
    parsed, limits = configuration(built, tmp_path), container(built)["resources"]["limits"]
    mounts = {mount["mountPath"]: mount for mount in container(built)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(built)["volumes"]}
    spill = volumes[mounts[str(parsed.models.spill)]["name"]]["emptyDir"]
    assert parsed.models.spill_bytes <= amount(spill["sizeLimit"]) <= amount(limits["ephemeral-storage"])
    assert parsed.models.cache_bytes is not None
    assert parsed.models.cache_bytes <= amount(limits["memory"]) / 2
    assert volumes[mounts["/etc/amf"]["name"]]["configMap"]["name"] == built["ConfigMap"]["metadata"]["name"]
    assert container(built)["args"] == ["run", "/etc/amf/worker.yaml"]
    assert {volume for volume in volumes} == {mount["name"] for mount in mounts.values()}
    assert all(mount.get("readOnly") for path, mount in mounts.items() if path.startswith(("/etc", "/run")))


def test_secrets_are_referred_to_and_nowhere_written(example: dict[str, Resource]) -> None:
    assert "Secret" not in example
    [line] = [line for line in example["ConfigMap"]["data"]["worker.yaml"].splitlines() if "password:" in line]
    assert line.split() == ["sasl.password:", "${file:/run/secrets/kafka/password}"]
    references = [each["secretRef"]["name"] for each in container(example)["envFrom"]]
    references += [volume["secret"]["secretName"] for volume in pod(example)["volumes"] if "secret" in volume]
    assert references == ["amf-worker-store", "amf-worker-kafka"]


def test_a_pod_has_no_privilege_and_is_the_user_of_the_image(built: dict[str, Resource]) -> None:
    asked = pod(built)["securityContext"]
    assert f"{asked['runAsUser']}:{asked['runAsGroup']}" == stages()[""].only("USER").value
    assert asked["runAsNonRoot"]
    assert asked["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(built)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(built)["automountServiceAccountToken"] is False


def test_it_is_not_killed_before_it_has_ended_in_order(built: dict[str, Resource]) -> None:
    # The last commit and leaving are calls of the broker; in between are the last checkpoints.
    assert pod(built)["terminationGracePeriodSeconds"] > 2 * CALL_S + loop.REVOKE_S + service.LEAVE_S


def probes(resources: dict[str, Resource]) -> Iterator[tuple[str, Any]]:
    return ((name, probe) for name, probe in container(resources).items() if name.endswith("Probe"))


def test_probes_ask_the_port_of_the_metrics_and_only_live_restarts(built: dict[str, Resource]) -> None:
    asked = {name: probe["httpGet"]["path"] for name, probe in probes(built)}
    assert asked == {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    assert set(asked.values()) <= PATHS.keys()
    [port] = container(built)["ports"]
    assert {probe["httpGet"]["port"] for _, probe in probes(built)} == {port["name"]}
    start = container(built)["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 60


def test_selectors_find_the_pods(example: dict[str, Resource]) -> None:
    labels = example["StatefulSet"]["spec"]["template"]["metadata"]["labels"].items()
    assert example["Service"]["spec"]["selector"].items() <= labels
    assert example["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert example["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels
    [constraint] = pod(example)["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"].items() <= labels
    assert example["StatefulSet"]["spec"]["serviceName"] == example["Service"]["metadata"]["name"]


def test_metrics_come_under_the_job_that_the_rules_ask_for(example: dict[str, Resource]) -> None:
    monitor, names = example["ServiceMonitor"]["spec"], example["Service"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= names.items()
    assert names[monitor["jobLabel"]] == "amf-worker"
    [endpoint], [port] = monitor["endpoints"], example["Service"]["spec"]["ports"]
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] == container(example)["ports"][0]["name"]
    assert example["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"port": port["targetPort"]}]


def test_the_rules_are_those_of_prometheus(example: dict[str, Resource]) -> None:
    groups = example["PrometheusRule"]["spec"]["groups"]
    assert [rule for group in groups for rule in group["rules"]] == RULES


def test_the_autoscaler_asks_for_the_group_and_the_topic_of_the_worker(
    example: dict[str, Resource], tmp_path: Path
) -> None:
    parsed, scaled = configuration(example, tmp_path), example["ScaledObject"]["spec"]
    [trigger] = scaled["triggers"]
    assert trigger["metadata"]["topic"] == parsed.input.topic
    assert trigger["metadata"]["consumerGroup"] == parsed.kafka["group.id"]
    assert trigger["metadata"]["bootstrapServers"] == parsed.kafka["bootstrap.servers"]
    assert trigger["metadata"]["offsetResetPolicy"] == parsed.input.start
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert 1 <= scaled["minReplicaCount"] <= scaled["maxReplicaCount"]
    target = example["StatefulSet"]
    assert scaled["scaleTargetRef"] == {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"]


def test_the_overlay_sets_what_is_its_own(example: dict[str, Resource]) -> None:
    assert container(example)["image"].startswith("registry.example.com/")
    assert {each["metadata"]["namespace"] for each in example.values()} == {"streaming"}


def test_two_installations_of_one_namespace_have_nothing_in_common(tmp_path: Path) -> None:
    """By a prefix and a name, as the overlay says: what is scaled, drained and scraped is each one's own."""
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        overlay = {
            "resources": [os.path.relpath(FOLDER / "example", folder)],
            "namePrefix": f"{name}-",
            "labels": [
                {
                    "pairs": {"app.kubernetes.io/instance": name},
                    "includeSelectors": True,
                    "fields": [{"kind": "ServiceMonitor", "path": "spec/selector/matchLabels", "create": True}],
                }
            ],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        built = build(folder)
        assert built["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == built["StatefulSet"]["metadata"]["name"]
        [trigger] = built["ScaledObject"]["spec"]["triggers"]
        assert trigger["authenticationRef"]["name"] == built["TriggerAuthentication"]["metadata"]["name"]
        selectors = [
            built["StatefulSet"]["spec"]["selector"]["matchLabels"],
            built["StatefulSet"]["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"][
                "matchLabels"
            ],
            built["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
            built["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
            built["Service"]["spec"]["selector"],
            built["ServiceMonitor"]["spec"]["selector"]["matchLabels"],
        ]
        assert [each.get("app.kubernetes.io/instance") for each in selectors] == [name] * len(selectors)
        assert built["Service"]["metadata"]["labels"].items() >= selectors[-1].items()
        found.append({resource["metadata"]["name"] for resource in built.values()})
    assert not found[0] & found[1]
