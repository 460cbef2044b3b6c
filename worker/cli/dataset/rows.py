"""A row of a file as an event, and what the columns of a file are for."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, islice
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

from worker.base.errors import ConfigError
from worker.base.records import Label

BLOCK_ROWS = 1024
NO_TIME = -1
STDIN = "-"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])(([01]\d|2[0-3])([0-5]\d){1,2})?")
"""Digits that are a date: read as seconds they would be one of 1970."""
# Of the units in which people count the time since 1970 the one that makes it a time from 1973 to 5138.
_PER_SECOND = ((1e11, 1), (1e14, 10**3), (1e17, 10**6), (1e20, 10**9))

Value = float | str | None
Cell = str | int | float | bool | None


class Row(NamedTuple):
    """One event of a file."""

    number: int
    key: str | None
    """None where its column has none: no model, or the one of models.null_key."""
    features: dict[str, Value]
    label: Label | None
    id: str | None = None
    """None where no column names it: then the number is the id."""
    time_ms: int = NO_TIME
    """Time of the event in ms since the epoch."""
    value: bytes | None = None
    """The JSON of the event as it stands in the file; None where the row is yet to be written as one."""


class Columns(NamedTuple):
    """What the columns of a file are for, by their names; all others are features."""

    label: str | None = None
    key: str | None = None
    id: str | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()
    key_from: str = "--key"
    """What named the key."""

    def features(self, names: Sequence[str]) -> list[str]:
        """Those of the names that are features."""
        taken = {self.label, self.key, self.id, self.time, *self.drop}
        return [name for name in names if name not in taken]

    def options(self) -> list[tuple[str, str]]:
        """Each name that was given, beside the option that gave it."""
        single = (("--label", self.label), (self.key_from, self.key), ("--id", self.id), ("--time", self.time))
        dropped = [("--drop", name) for name in self.drop]
        return [(option, name) for option, name in single if name is not None] + dropped


class Line(NamedTuple):
    """The cells of a row by what they are for."""

    features: dict[str, Value]
    label: Cell
    key: str | None
    """None, or an empty text, where there is none."""
    id: str | None
    time_ms: int
    value: bytes | None = None
    """Where the row is an event already."""


class Rows(ABC):
    """The rows of a file, from the first one each time they are iterated. Iterating raises ConfigError."""

    path: Path
    columns: list[str]
    """All names in the file, also of columns that are no features; in an .npz the names of its arrays."""
    labelled: bool
    """Whether there is a column of labels; single labels may be missing all the same."""
    has_key: bool = False
    """Whether a column names the model."""
    are_events: bool = False
    """Whether rows are events already, in JSON."""
    total: int | None
    """Number of rows, None where only reading would tell."""
    fraction: float = 0.0
    """Share of the file that the latest iteration has read; 0 where nobody knows."""

    @abstractmethod
    def __iter__(self) -> Iterator[Row]: ...

    @property
    def notes(self) -> Sequence[str]:
        """What was odd in the rows so far, in sentences."""
        return ()


class FileRows(Rows):
    """The rows of a file of any format, which says how to read its lines."""

    typed = True
    """Whether a text is one because the file says so, and not because it cannot say anything else."""

    def __init__(self, path: Path, columns: Columns, n_keys: int, has_numbers: Callable[[str], bool]) -> None:
        self.path = path
        self.from_stdin = str(path) == STDIN
        self.name = "stdin" if self.from_stdin else str(path)
        """What errors call the file."""
        self.roles, self.has_key = columns, columns.key is not None
        self.has_numbers = has_numbers
        """Tells of a model key, empty where there is none, whether its labels are numbers; others are classes."""
        self.feature_names: list[str] = []
        self.not_finite = 0
        """Numbers in it that are none: NaN where it does not stand for a missing value, infinite, or out of range."""
        self.late = 0
        """Rows that are older than the row before them."""
        self.without_key = 0
        """Rows whose key is empty."""
        self._first_not_finite = ""
        self._n_keys = n_keys
        self._ahead: tuple[list[Line], Iterator[Line]] | None = None

    @abstractmethod
    def _lines(self) -> Iterator[Line]:
        """The rows from the first one on; keeps `fraction`."""

    @property
    def notes(self) -> Sequence[str]:
        found = []
        if self.not_finite:
            cells = "1 cell is" if self.not_finite == 1 else f"{self.not_finite:,} cells are"
            found.append(f"{cells} no finite number and taken as missing, the first in {self._first_not_finite}")
        if self.late:
            rows = "1 row is" if self.late == 1 else f"{self.late:,} rows are"
            found.append(f"{rows} older than the row before: sort the file by time, or models learn from the future")
        if self.without_key:
            rows = "1 row has" if self.without_key == 1 else f"{self.without_key:,} rows have"
            found.append(f"{rows} no key: no model takes such a row, unless models.null_key names one")
        return found

    def use_thousands(self, separator: str) -> None:
        """Read numbers with this between their thousands, before any row is read. Raises ConfigError."""
        raise ConfigError(
            f"{self.name}: --thousands is for cells of text; the numbers of this file are numbers already"
        )

    def peek(self, n: int) -> list[Line]:
        """The first rows, which the next iteration begins with all the same."""
        if self._ahead is None:
            lines = self._lines()
            self._ahead = [], lines
            # One after the other: of a pipe the next one may be waited for in vain.
            for line in islice(lines, n):
                self._ahead[0].append(line)
        return self._ahead[0]

    def __iter__(self) -> Iterator[Row]:
        if self._ahead is None:
            self.not_finite, self._first_not_finite = 0, ""
            lines = self._lines()
        else:
            lines, self._ahead = chain(*self._ahead), None
        self.late, self.without_key, before_ms = 0, 0, NO_TIME
        has_numbers = lru_cache(maxsize=10_000)(self.has_numbers)
        for number, line in enumerate(lines):
            key = line.key or None if self.roles.key else f"model-{number % self._n_keys}"
            self.without_key += key is None
            if line.time_ms != NO_TIME:
                self.late += line.time_ms < before_ms
                before_ms = line.time_ms
            label = label_of(line.label, has_numbers(key or ""), typed=self.typed)
            yield Row(number, key, line.features, label, line.id, line.time_ms, line.value)
        self.fraction = 1.0

    def require_columns(self, names: list[str], place: str) -> None:
        """Raise ConfigError for a name of two columns, for a column that is not there, and where none is left."""
        if len(set(names)) < len(names):
            name, _ = Counter(names).most_common(1)[0]
            column = names.index(name, names.index(name) + 1) + 1
            problem = f"column {column} has the name {name!r}, which another one has"
            raise ConfigError(f"{place}: {problem}; give every column a name of its own")
        for option, name in self.roles.options():
            if name not in names:
                raise ConfigError(f"{place}: there is no column {name!r} for {option}; {choice(names)}")
        if not self.roles.features(names):
            raise ConfigError(f"{place}: there is no column left for the features")

    def count_not_finite(self, place: str, n: int = 1) -> None:
        """Note cells that hold no finite number, the first of them at `place`."""
        self._first_not_finite = self._first_not_finite or place
        self.not_finite += n


def label_of(cell: Cell, is_number: bool, *, typed: bool) -> Label | None:
    """A label as a record has it.

    Of text without a type that is to be a class: an integer where it is the usual way to write one (the class is the
    same), else the text. Where it is to be a number, any way to write one will do, as long as JSON has it.
    """
    if cell is None or cell == "":
        return None
    if isinstance(cell, str) and not typed:
        if _INTEGER.fullmatch(cell):
            return int(cell)
        number = number_of(cell) if is_number else None
        return cell if number is None or not isfinite(number) else number
    if isinstance(cell, float):
        if not isfinite(cell):
            return None
        return int(cell) if not is_number and cell.is_integer() and abs(cell) < 2.0**63 else cell
    return cell


def number_of(text: str) -> float | None:
    """The number that a text is, be it NaN or infinite; None where it is none. To Python alone 1_000 is one."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def float_of(number: float) -> float:
    """A number as a float: infinite where none is as large."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def quantity_of(cell: Cell) -> float | None:
    """The number that a cell is, be it as text; None where it is none, as an empty one and a boolean are."""
    if isinstance(cell, str):
        return number_of(cell)
    return None if cell is None or isinstance(cell, bool) else float_of(cell)


def text_of(cell: object) -> str | None:
    """A key or an id as its text in JSON."""
    if cell is None or isinstance(cell, str):
        return cell
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def time_ms_of(cell: Cell, place: str) -> int:
    """A time as ms since the epoch, NO_TIME where there is none.

    It is a date with or without time (ISO 8601, UTC where no zone is named), or a number of seconds, or of ms, us or
    ns, since 1970. Raises ConfigError, which says the place, for anything else.
    """
    if cell is None or cell == "":
        return NO_TIME
    number = quantity_of(cell)
    text = str(cell).strip() if number is None or isinstance(cell, str) else f"{number:.0f}"
    is_date = _DATE.fullmatch(text) is not None
    if number is not None and not is_date:
        for limit, scale in _PER_SECOND:
            if abs(number) < limit:
                return round(number * 1000 / scale)
    if is_date or isinstance(cell, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(text if is_date else str(cell))
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    expected = "expected a date and time such as 2024-05-17T12:30:00Z, or seconds since 1970"
    raise ConfigError(f"{place}: {expected}, found {str(cell)[:40]!r}")


def choice(names: Sequence[str]) -> str:
    """What there is to choose from, as the end of an error."""
    shown = ", ".join(name if name.isprintable() and name == name.strip() else repr(name) for name in names[:20])
    return f"there are {shown}{', ...' if len(names) > 20 else ''}"


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Whatever reading a file may raise, as a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: expected text in UTF-8, found other bytes") from None
