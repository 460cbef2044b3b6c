"""The rules of deploy/prometheus as a resource of the Prometheus Operator.

python deploy/kubernetes/monitoring/generate.py
"""

from __future__ import annotations

from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
RULES = FOLDER.parents[1] / "prometheus/amf-rules.yaml"
TARGET = FOLDER / "prometheusrule.yaml"
HEAD = "# Written by generate.py from deploy/prometheus/amf-rules.yaml, which is the place for changes.\n"


def generated() -> str:
    """The text of prometheusrule.yaml."""
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "amf-worker"},
        "spec": yaml.safe_load(RULES.read_text()),
    }
    return HEAD + yaml.safe_dump(resource, sort_keys=False, width=120)


if __name__ == "__main__":
    TARGET.write_text(generated())
