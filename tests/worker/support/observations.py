"""One observation or two for every metric."""

from __future__ import annotations

from typing import Any

from worker.base.metrics import Metrics


def fill(metrics: Metrics) -> None:
    """Give every family at least one series."""
    for family in metrics.families().values():
        values = {
            "partition": 3,
            "state": "live",
            "outcome": "committed",
            "model": "a",
            "feature": "x",
            "version": "0.1",
            "engine": "e",
            "group": "g",
            "topic": "t",
            "change": "assigned",
            "forecast": "calibrated",
            "verdict": "useful",
        }
        labels: Any = {label: values.get(label, "code-1") for label in family.labels}
        match family.kind:
            case "counter":
                family.add(2, **labels)
            case "gauge":
                family.set(2.5, **labels)
            case "summary":
                family.add(2.5, 2, **labels)
            case "histogram":
                family.observe([0.5, 2.0], **labels)
