"""Configurations of workers on a broker, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kafka.conftest import Names

Sections = Mapping[str, Any]


def configuration(bootstrap: str, folder: Path, *changes: Sections) -> str:
    """A worker on this broker that keeps its checkpoints in this folder, a section on each line.

    It reads the topic `events`, publishes to `predictions` and `dead`, and is of the group `group`. Each of `changes`
    stands above that and above those before it, key by key; None leaves a key or a section out.
    """
    sections: dict[str, Any] = {
        "input": {"topic": "events"},
        "output": {"topic": "predictions"},
        "dead_letter": {"topic": "dead"},
        "transaction": {"interval": "20ms"},
        "kafka": {"bootstrap.servers": bootstrap, "group.id": "group"},
        "models": {"default": {"n_estimators": 1}},
        "checkpoint": {"url": f"file://{folder}/checkpoints", "interval": "1s"},
        "metrics": {"listen": "127.0.0.1:0"},
    }
    for change in changes:
        sections = merged(sections, change)
    return "".join(f"{name}: {json.dumps(section, ensure_ascii=False)}\n" for name, section in sections.items())


def named(topics: Names) -> Sections:
    """The topics and the group of one test, in place of names that every test has."""
    return {
        "input": {"topic": topics.name("events")},
        "output": {"topic": topics.name("predictions")},
        "dead_letter": {"topic": topics.name("dead")},
        "kafka": {"group.id": topics.name("group")},
    }


def merged(sections: Sections, change: Sections) -> dict[str, Any]:
    """Sections with a change, key by key."""
    found = dict(sections)
    for name, value in change.items():
        if isinstance(value, Mapping):
            found[name] = merged(found.get(name, {}), value)
        elif value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found
