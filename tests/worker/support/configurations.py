"""Configurations as text, and what is found wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.base.errors import ConfigError
from worker.config import Models, loads

EXAMPLE = Path(__file__).parents[3] / "config" / "worker.yaml"
"""The commented example file."""

REQUIRED = {
    "input": "{topic: events}",
    "output": "{topic: predictions}",
    "dead_letter": "{topic: dead-letters}",
    "kafka": "{bootstrap.servers: 'localhost:9092'}",
    "checkpoint": "{url: 'file:///var/lib/amf/checkpoints'}",
}


def document(**sections: str) -> str:
    """A file with what must be given, each section on its own line in the order of REQUIRED; then what is added."""
    return "".join(f"{name}: {value}\n" for name, value in {**REQUIRED, **sections}.items())


def problems(text: str, environ: dict[str, str] | None = None) -> list[str]:
    """What is found wrong, a line each."""
    with pytest.raises(ConfigError) as caught:
        loads(text, environ or {}, "worker.yaml")
    return str(caught.value).splitlines()


def the_problem(text: str, environ: dict[str, str] | None = None) -> str:
    """The only thing that is found wrong."""
    found = problems(text, environ)
    assert len(found) == 1, found
    return found[0]


def with_kafka(properties: str) -> str:
    """A file with these properties of the clients beside those that must be given."""
    return document(kafka=f"{{bootstrap.servers: 'localhost:9092', {properties}}}")


def models_in(text: str) -> Models:
    """The models of a file with this section."""
    return loads(document(models=text), {}).models
