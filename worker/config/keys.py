"""How a key is declared: a field of a section's class that carries its kind and its sentence."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from worker.config.values import Kind


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are the declared fields of a class."""

    expected: ClassVar[str] = "a mapping"
    type: type[Any]


class Properties:
    """A mapping of Kafka properties."""

    expected = "a mapping"


class OverrideList:
    """A list of mappings, each with some of OVERRIDE_KEYS."""

    expected = "a list of overrides"


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of one key; `default` is dataclasses.MISSING where it must be given."""

    attribute: str
    kind: Kind[Any] | Section | Properties | OverrideList
    sentence: str
    default: object


def key(kind: object, sentence: str, *, name: str | None = None) -> dict[str, object]:
    """The metadata that makes a field a key. `name` is its name in the file where that is not the field's."""
    return {"kind": kind, "sentence": sentence, "name": name}


def section(section_type: type[Any]) -> dict[str, object]:
    return key(Section(section_type), str(section_type.__doc__))


def keys(section_type: type[Any]) -> dict[str, Key]:
    """The declared keys of a section by their name in the file, in order."""
    return {
        each.metadata["name"] or each.name: Key(
            each.name, each.metadata["kind"], each.metadata["sentence"], each.default
        )
        for each in fields(section_type)
        if each.metadata
    }
