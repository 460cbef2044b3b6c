"""How a key is declared: a field of a section's class that carries its kind, its sentence and what it decides."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

from worker.config.values import Kind


class Decides(Enum):
    """What another value of a key would change of the models. Every key says it, for replay rests on it."""

    NOTHING = "they would be the same"
    HISTORY = "they would be those of another history, or of one that begins or goes on elsewhere: checkpoints know it"
    INTAKE = "other records would be learned: checkpoints hold the value, and a replay under another one is refused"
    SPEC = "they would learn something else: the value is part of their specs"


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
    decides: Decides | None
    """None for a section, whose keys say it."""


def key(kind: object, sentence: str, decides: Decides, *, name: str | None = None) -> dict[str, object]:
    """The metadata that makes a field a key. `name` is its name in the file where that is not the field's."""
    return {"kind": kind, "sentence": sentence, "decides": decides, "name": name}


def section(section_type: type[Any]) -> dict[str, object]:
    """The metadata that makes a field a mapping with the keys of that class."""
    return {"kind": Section(section_type), "sentence": str(section_type.__doc__), "decides": None, "name": None}


def keys(section_type: type[Any]) -> dict[str, Key]:
    """The declared keys of a section by their name in the file, in order."""
    return {
        each.metadata["name"] or each.name: Key(
            each.name, each.metadata["kind"], each.metadata["sentence"], each.default, each.metadata["decides"]
        )
        for each in fields(section_type)
        if each.metadata
    }


def unknown_key(name: str, known: Mapping[str, Key]) -> str:
    """What an error says of a key that there is not."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown key{hint}, expected one of {', '.join(known)}"
