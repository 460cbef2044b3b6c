"""Rows of JSON, a document on each line: events as a topic has them, or flat objects.

Where the first document has `features`, an object or an array, lines are events: each one is taken as it stands, and
what a worker would refuse of it the worker's own decoder refuses. Else the fields of a document are what columns are
in a table, and types are those of JSON: a number is one, true and false are 1 and 0, null or an absent field is a
missing value, a text is a category. A number that is not finite (NaN, 1e400) is a missing value, and counted.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Any

import msgspec

from worker.base.errors import ConfigError
from worker.base.limits import MAX_DEPTH
from worker.base.records import Event, Reject
from worker.cli.dataset.rows import (
    BLOCK_ROWS,
    NO_TIME,
    Cell,
    Columns,
    Line,
    Value,
    choice,
    float_of,
    text_of,
    time_ms_of,
)
from worker.cli.dataset.text import MOST_LINE_CHARS, TextRows, head_of, not_utf8
from worker.codec import decode

_SUFFIXES = (".jsonl", ".ndjson")
_BEGINS = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:"(?:[^"\\]|\\.)*+"\s*(?::|\Z)|\}|\Z)|\[\s*(?:[{["]|\Z))')
"""How an object begins, or an array; a header whose first name has a brace or a bracket is neither."""
_BOM = b"\xef\xbb\xbf"
_MOST_DIGITS = 4000
"""Of an integer that is one: Python reads none of more than 4,300."""
_RAW = dict[str, msgspec.Raw]

Fields = dict[str, Any]


def holds_json(path: Path) -> bool:
    """Whether a file, or stdin, is JSON, by its name or by how it begins."""
    return path.name.lower().removesuffix(".gz").endswith(_SUFFIXES) or _BEGINS.match(head_of(path)) is not None


class JsonRows(TextRows):
    """The rows of JSON lines, from a file, gzip or not, or from stdin."""

    def __init__(self, path: Path, columns: Columns, n_keys: int, has_numbers: Callable[[str], bool]) -> None:
        super().__init__(path, columns, n_keys, has_numbers)
        self._taken = {columns.label, columns.key, columns.id, columns.time, *columns.drop}
        self._unseen = {name for _, name in columns.options()}
        """Names that no line had so far."""
        self._begin()
        self.labelled = self.are_events or columns.label is not None
        if self.are_events:
            self._require_names_of_events()
        if self._unseen and not self.from_stdin and (absent := self._absent()):
            option, name = absent[0]
            raise ConfigError(
                f"{self.name}: no line has {name!r} for {option}; in the first one {choice(self.columns)}"
            )

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *(f"no line had {name!r} for {option}" for option, name in self._named_but_unseen())]

    def _require_names_of_events(self) -> None:
        """An event has its label and its id where the contract says."""
        for option, name, field in (("--label", self.roles.label, "label"), ("--id", self.roles.id, "id")):
            if name not in (None, field):
                raise ConfigError(
                    f"{self.name}: lines are events, whose {field} is the field {field!r}: leave {option} out; "
                    f"`jq -c '.{field} = .[{json.dumps(name)}]'` makes another field it"
                )
        self.roles = self.roles._replace(label="label")
        self._unseen -= {"label", "id"}

    def _absent(self) -> list[tuple[str, str]]:
        """The names that no line of the file has, each with its option: it is read until all were seen."""
        for _ in self._lines():
            if not self._unseen:
                break
        self.not_finite, self._first_not_finite = 0, ""
        return self._named_but_unseen()

    def _named_but_unseen(self) -> list[tuple[str, str]]:
        return [(option, name) for option, name in self.roles.options() if name in self._unseen]

    def _read(self) -> Generator[Line | None, None, None]:
        with self._unpacked() as (file, fraction):
            lines = self._documents(file)
            first = next(lines, None)
            if first is None:
                raise ConfigError(f"{self.name}: expected a JSON object on each line, found nothing")
            self._look_at(*first)
            yield None
            names: dict[str, None] = {}
            for n, (place, line) in enumerate(chain([first], lines)):
                if n % BLOCK_ROWS == 0:
                    self.fraction = fraction()
                read = self._event(place, line) if self.are_events else self._flat(place, line)
                if n < BLOCK_ROWS and not names.keys() >= read.features.keys():
                    names |= dict.fromkeys(read.features)
                    self.feature_names = list(names)
                yield read

    def _documents(self, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
        """The lines that are not blank, each with its place."""
        number = 0
        while line := file.readline(MOST_LINE_CHARS):
            number += 1
            place = f"{self.name}:{number}"
            if len(line) == MOST_LINE_CHARS:
                raise ConfigError(
                    f"{place}: expected a JSON object on each line, found a line of {len(line):,} bytes or more"
                    f"{self._remedy(line)}"
                )
            if line := (line.removeprefix(_BOM) if number == 1 else line).strip():
                yield place, line

    def _look_at(self, place: str, line: bytes) -> None:
        """Tell by the first document what the lines are."""
        fields = self._object(place, line)
        self.are_events = isinstance(fields.get("features"), dict | list)
        self.columns = list(fields)

    def _event(self, place: str, line: bytes) -> Line:
        """A line that is an event, or is refused as one."""
        roles = self.roles
        if roles.drop:
            line = self._without_dropped(line)
        verdict = decode(line, sys.maxsize)
        if isinstance(verdict, Reject):
            if verdict.code == "malformed-json":
                self._object(place, line)  # which says more
                raise self._no_json(place, verdict.reason, line)
            verdict = Event({}, None, None)
        features = verdict.features if isinstance(verdict.features, dict) else {}
        key, time = None, NO_TIME
        if roles.key is not None or roles.time is not None:
            fields = _parsed(line)
            fields = fields if isinstance(fields, dict) else {}
            named = fields.get(roles.key or "")
            key = text_of(named) if isinstance(named, str | int) else None
            time = self._time(place, fields)
            self._unseen -= fields.keys()
        return Line(features, verdict.label, key, verdict.id, time, line)

    def _without_dropped(self, line: bytes) -> bytes:
        """An event without the features that are dropped, all else as it stands."""
        try:
            event = msgspec.json.decode(line, type=_RAW)
            features = msgspec.json.decode(event["features"], type=_RAW)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            return line
        self._unseen -= features.keys() & set(self.roles.drop)
        kept = {name: value for name, value in features.items() if name not in self.roles.drop}
        return msgspec.json.encode({**event, "features": kept})

    def _flat(self, place: str, line: bytes) -> Line:
        """A line whose fields are columns."""
        roles, taken = self.roles, self._taken
        fields = self._object(place, line)
        if self._unseen:
            self._unseen -= fields.keys()
        label, key, id = (
            None if name is None else self._cell(place, fields, name, option)
            for option, name in (("--label", roles.label), (roles.key_from, roles.key), ("--id", roles.id))
        )
        features = {name: self._value(place, name, value) for name, value in fields.items() if name not in taken}
        return Line(features, label, text_of(key), text_of(id), self._time(place, fields))

    def _time(self, place: str, fields: Fields) -> int:
        if self.roles.time is None:
            return NO_TIME
        return time_ms_of(self._cell(place, fields, self.roles.time, "--time"), place)

    def _value(self, place: str, name: str, value: Any) -> Value:
        """A feature."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            leaves_out = f"--drop {shlex.quote(name)} leaves it out"
            problem = f"{place}: {name!r} is {_kind(value)}, which no feature can be; {leaves_out}"
            if name == "features":
                problem += ". If lines are events, the first one must be one, too: it tells what the others are"
            raise ConfigError(problem)
        number = float_of(value)
        if isfinite(number):
            return number
        self._count_not_finite(place, name)
        return None

    def _count_not_finite(self, place: str, name: str) -> None:
        self.count_not_finite(f"line {place.rpartition(':')[2]}, column {name!r}")

    def _cell(self, place: str, fields: Fields, name: str, option: str) -> Cell:
        """What is in the line for an option."""
        cell: Cell = fields.get(name)
        if isinstance(cell, dict | list):
            raise ConfigError(
                f"{place}: {name!r} is {_kind(cell)}, which nothing can be for {option}; write it as text, a number or "
                "a boolean"
            )
        if isinstance(cell, float) and not isfinite(cell):
            self._count_not_finite(place, name)
            return None
        return cell

    def _object(self, place: str, line: bytes) -> Fields:
        try:
            value = _parsed(line)
        except UnicodeDecodeError as error:
            raise not_utf8(place, error) from None
        except UnicodeEncodeError:
            raise self._no_json(place, r"a \u escape is half of a surrogate pair", line) from None
        except RecursionError:
            raise self._no_json(place, f"the line is nested deeper than {MAX_DEPTH} levels", line) from None
        except json.JSONDecodeError as error:
            raise self._no_json(place, f"the line is not JSON at character {error.pos}: {error.msg}", line) from None
        if isinstance(value, dict):
            return value
        found = _kind(value) if isinstance(value, list) else "none"
        raise ConfigError(f"{place}: expected a JSON object on each line, found {found}{self._remedy(line)}")

    def _no_json(self, place: str, problem: str, line: bytes) -> ConfigError:
        return ConfigError(f"{place}: expected a whole JSON object on each line: {problem}{self._remedy(line)}")

    def _remedy(self, line: bytes) -> str:
        """How lines are made of what begins so."""
        file = "" if self.from_stdin else f" {shlex.quote(self.name)}"
        if line.startswith(b"["):
            return f"; `jq -c '.[]'{file}` writes the elements of an array one a line"
        return (
            f"; `jq -c .{file}` writes documents of many lines on one each, `jq -cR 'fromjson?'{file}` leaves out what "
            "is none"
        )


def _parsed(line: bytes) -> Any:
    """The document on a line, with NaN and infinite numbers where it has such.

    Raises JSONDecodeError, UnicodeError and, of nesting, RecursionError.
    """
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = json.loads(line.decode(), parse_int=_integer)
        msgspec.json.encode(value)  # which half of a surrogate pair cannot be
        return value


def _kind(value: dict[str, Any] | list[Any]) -> str:
    return "an object" if isinstance(value, dict) else "an array"


def _integer(text: str) -> float:
    return int(text) if len(text) < _MOST_DIGITS else float(text)


def with_field(value: bytes, name: str, text: str) -> bytes:
    """An event whose field of this name is this text, or what means the same; all else as it stands."""
    try:
        event = msgspec.json.decode(value, type=_RAW)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value  # which is a dead letter whatever the field is
    field = event.get(name)
    if field is not None and text_of(msgspec.json.decode(field)) == text:
        return value
    return msgspec.json.encode({**event, name: text})
