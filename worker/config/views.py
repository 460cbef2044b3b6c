"""The configuration as plain values for people, and what of it decides which records are learned.

Both follow from the declarations of the keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from worker.config import kafka as config_kafka
from worker.config.keys import Decides, Key, OverrideList, Properties, Section, keys
from worker.config.model import OVERRIDE_KEYS, ModelParams, Override, fits
from worker.config.schema import Config
from worker.config.values import Kind


def intake_of(config: Config) -> dict[str, str]:
    """The keys that decide which records are learned, with their values: what checkpoints hold and compare."""
    return dict(sorted(_intake_of(config, "")))


def _intake_of(config: Any, path: str) -> Iterator[tuple[str, str]]:
    for name, each in keys(type(config)).items():
        value = getattr(config, each.attribute)
        if isinstance(each.kind, Section):
            yield from _intake_of(value, f"{path}{name}.")
        elif each.decides is Decides.INTAKE:
            # Where null is a value, text is quoted: it may be "null".
            shown = "null" if value is None else repr(value) if each.default is None else str(value)
            yield f"{path}{name}", shown


def plain(config: Any) -> dict[str, Any]:
    """A section as plain values by the names of its keys: defaults included, secrets masked."""
    shown: dict[str, Key] = keys(type(config))
    if isinstance(config, ModelParams):
        shown = {name: each for name, each in shown.items() if fits(each.attribute, config.algorithm)}
    return {name: _plain(each.kind, getattr(config, each.attribute), config) for name, each in shown.items()}


def _plain(kind: object, value: Any, section: Any) -> Any:
    """A value of a section."""
    match kind:
        case Kind():
            return kind.dump(value)
        case Properties():
            return config_kafka.masked(value, section.kafka_origins)
        case OverrideList():
            return [_plain_override(override) for override in value]
        case _:
            return plain(value)


def _plain_override(override: Override) -> dict[str, Any]:
    given = {"match": override.match, **override.params}
    return {
        name: _plain(each.kind, given[each.attribute], override)
        for name, each in OVERRIDE_KEYS.items()
        if each.attribute in given
    }


def history_of(config: Config) -> tuple[str, str, str]:
    """Group, lineage and topic: with the topic's id they name its checkpoints."""
    return str(config.kafka["group.id"]), config.checkpoint.lineage, config.input.topic
