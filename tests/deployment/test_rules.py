"""The rules of deploy/prometheus, as promtool judges them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from deploy.kubernetes.monitoring import generate
from tests.deployment.rules import FOLDER, RULES, promtool
from worker.base.metrics import Metrics

ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
FILES = ["amf-rules-test.yaml", "amf-rules-days-test.yaml"]
CASES: list[dict[str, Any]] = [case for name in FILES for case in yaml.safe_load((FOLDER / name).read_text())["tests"]]


@pytest.mark.full
def test_promtool_takes_the_rules_and_the_configuration() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "amf-rules.yaml")
    assert f"{len(RULES)} rules found" in promtool("check", "config", "prometheus.yaml")


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_each_alert_fires_when_it_should_and_only_then(name: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", name)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_that_fires_and_one_that_does_not(alert: str) -> None:
    found = {bool(expr["exp_samples"]) for case in CASES for expr in case["promql_expr_test"] if alert in expr["expr"]}
    assert found == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_happened_and_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    assert re.fullmatch(r"(Amf)([A-Z][a-z]+)+", alert)
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"].startswith("1. ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rules_ask_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    known = Metrics().families().keys()
    recorded = {each["record"] for each in RULES if "record" in each}
    for name in re.findall(r"\b(?:job:|model:)?amf_[a-z0-9_:]+", rule["expr"]):
        assert name in recorded or re.sub(r"_(bucket|sum|count)$", "", name) in known, name


def test_the_resource_of_the_prometheus_operator_is_what_the_code_makes_of_the_rules() -> None:
    assert generate.TARGET.read_text() == generate.generated(), "run: python deploy/kubernetes/monitoring/generate.py"
