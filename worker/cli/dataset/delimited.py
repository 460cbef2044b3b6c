"""Rows of text: a header and cells, between commas, semicolons, tabs or bars; from a file, gzip or not, or from stdin.

A cell that is written as a number is one, true and false are 1 and 0 as the booleans of an event are, an empty cell is
a missing value, any other text is a category. Each cell speaks for itself: what a row says does not depend on the rows
after it, and a stray text costs its column nothing. A number that is not finite (nan, inf, 1e400) is a missing value,
and counted. Between semicolons, where spreadsheets write 3,5 for 3.5, a comma is the point of a number. What stands
between thousands is said by who reads the file: 1,234 is a number for some and another one for others.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from io import TextIOWrapper
from itertools import chain
from math import isfinite
from pathlib import Path

from worker.base.errors import ConfigError
from worker.cli.dataset.rows import (
    BLOCK_ROWS,
    NO_TIME,
    Columns,
    Line,
    Value,
    number_of,
    time_ms_of,
)
from worker.cli.dataset.text import MOST_LINE_CHARS, TextRows, not_utf8

_DELIMITERS = ",;\t|"
_SPREADSHEET = re.compile(r'sep=([^"\w\s]|\t)\s*', re.IGNORECASE)
"""A line before the header by which spreadsheets tell each other what stands between the cells."""
_SAVE_AS = "spreadsheets save as `CSV UTF-8`, and "
DECIMAL_COMMA = re.compile(r"\s*[-+]?[0-9]*,[0-9]+(?:[eE][-+]?[0-9]+)?\s*")
"""A number whose comma may be its point."""
MAYBE_THOUSANDS = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:,[0-9]{3})+")
"""One whose commas may stand between its thousands: with a decimal comma it has three digits behind the point."""
_ENOUGH = 10
_BOOLEANS = {"true": 1.0, "false": 0.0}


class _Records:
    """The records of a text but for blank lines, each a list of its cells, and where they are."""

    def __init__(self, lines: Iterator[str], delimiter: str) -> None:
        self._reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        self.began = 1
        """The line on which the record begins that is read, or was read last."""

    @property
    def line_num(self) -> int:
        """The line on which it ends."""
        return self._reader.line_num

    def header(self) -> list[str]:
        """The first one, nothing where it is blank."""
        return next(self._reader, [])

    def __iter__(self) -> Iterator[list[str]]:
        reader = self._reader
        self.began = reader.line_num + 1
        for cells in reader:
            if cells:
                yield cells
            self.began = reader.line_num + 1


class DelimitedRows(TextRows):
    """The rows of a text file, or of stdin."""

    typed = False

    def __init__(self, path: Path, columns: Columns, n_keys: int, has_numbers: Callable[[str], bool]) -> None:
        super().__init__(path, columns, n_keys, has_numbers)
        self.labelled = columns.label is not None
        self._thousands: Callable[[str], str] | None = None
        self._decimal_comma: bool | None = None
        """None where the file tells by its delimiter."""
        self._with_comma: dict[str, list[int]] = {}
        """Of each column with decimal commas how many of its numbers have one, and of how many it may be another."""
        self._begin()

    def use_thousands(self, separator: str) -> None:
        """A number with this between its thousands is one; a comma that is not this itself is a point."""
        between = "[ \u00a0\u202f]" if separator == " " else re.escape(separator)
        point = "," if separator == "." else "." if separator == "," else "[.,]"
        number = re.compile(rf"\s*[-+]?[0-9]{{1,3}}(?:{between}[0-9]{{3}})+(?:{point}[0-9]+)?\s*")

        def without(cell: str) -> str:
            return re.sub(between, "", cell.strip()) if number.fullmatch(cell) else cell

        self._thousands = without
        self._decimal_comma = separator != ","

    @property
    def notes(self) -> Sequence[str]:
        odd = [name for name, (n, maybe) in self._with_comma.items() if n == maybe >= _ENOUGH]
        columns = f"column {odd[0]!r}" if len(odd) == 1 else f"columns {', '.join(map(repr, odd))}"
        sentence = (
            f"all commas of {columns} stand before three digits, and are read as points: 1,234 is 1.234; --thousands , "
            "takes it for 1234"
        )
        return [*super().notes, *([sentence] if odd else [])]

    def _read(self) -> Generator[Line | None, None, None]:
        with self._open() as (fraction, reader, delimiter):
            names = self.columns = self._header(reader)
            self.feature_names = self.roles.features(names)
            place_of = {name: place for place, name in enumerate(names)}
            features = [place_of[name] for name in self.feature_names]
            label, key, of_id, time = (
                None if name is None else place_of[name]
                for name in (self.roles.label, self.roles.key, self.roles.id, self.roles.time)
            )
            yield None
            numeric = [*features, *([] if label is None else [label])]
            decimal_comma = delimiter == ";" if self._decimal_comma is None else self._decimal_comma
            thousands, self._with_comma = self._thousands, {}
            for n, cells in enumerate(reader):
                if len(cells) != len(names):
                    raise self._error(reader, f"expected {len(names)} cells as in the header, found {len(cells)}")
                if n % BLOCK_ROWS == 0:
                    self.fraction = fraction()
                if thousands is not None:
                    for column in numeric:
                        cells[column] = thousands(cells[column])
                if decimal_comma:
                    for column in numeric:
                        if "," in cells[column]:
                            cells[column] = self._with_point(cells[column], names[column])
                yield Line(
                    dict(zip(self.feature_names, self._values(reader, [cells[c] for c in features]), strict=True)),
                    None if label is None else cells[label],
                    None if key is None else cells[key],
                    None if of_id is None else cells[of_id] or None,
                    NO_TIME if time is None else time_ms_of(cells[time], f"{self.name}:{reader.line_num}"),
                )

    @contextmanager
    def _open(self) -> Iterator[tuple[Callable[[], float], _Records, str]]:
        """How far the file was read, the reader of its records, and what stands between their cells."""
        with self._unpacked() as (file, fraction):
            text = TextIOWrapper(file, "utf-8-sig", newline="")
            try:
                first = text.readline(MOST_LINE_CHARS)
                if len(first) == MOST_LINE_CHARS:
                    raise ConfigError(
                        f"{self.name}: expected a header, found a line of {len(first):,} characters or more"
                    )
                if "\0" in first:
                    raise ConfigError(
                        f"{self.name}:1: expected a header in UTF-8, found zero bytes: of UTF-16 `iconv -f UTF-16LE -t "
                        "UTF-8` makes it, and `tar -xO` writes what is in an archive"
                    )
                told = _SPREADSHEET.fullmatch(first)
                delimiter = told[1] if told else _delimiter_of(first)
                # A line that goes on is cut, and so is refused by its cells: of a packed file it may have any length.
                lines = iter(partial(text.readline, MOST_LINE_CHARS), "")
                reader = _Records(chain([first], lines), delimiter)
                if told:
                    reader.header()
                yield fraction, reader, delimiter
            except csv.Error as error:
                raise self._no_csv(reader, error) from None
            except UnicodeDecodeError as error:
                raise not_utf8(self._place_of_other_bytes(), error, _SAVE_AS) from None
            finally:
                if self.from_stdin:
                    text.detach()  # or stdin would be closed along with it

    def _no_csv(self, reader: _Records, error: csv.Error) -> ConfigError:
        """A quote is looked for where it opens: what is found wrong by it may be any number of lines below."""
        if "end of data" in str(error):
            problem = "a quote in the row of this line that is not closed"
        elif reader.began < reader.line_num:
            problem = f"a quote in the row of this line that is closed on line {reader.line_num}, if at all: {error}"
        else:
            problem = f"something else: {error}"
        return ConfigError(f"{self.name}:{reader.began}: expected CSV, found {problem}")

    def _header(self, reader: _Records) -> list[str]:
        names = reader.header()
        if not names:
            raise ConfigError(f"{self.name}: expected a header with the names of the columns, found nothing")
        if "" in names:
            column = names.index("")
            index = "" if column else " (pandas writes one without for its index, but for index=False)"
            raise self._error(reader, f"column {column + 1} has no name; give every column a name of its own{index}")
        self.require_columns(names, f"{self.name}:{reader.line_num}")
        return names

    def _values(self, reader: _Records, texts: list[str]) -> Sequence[Value]:
        """The features of a row."""
        numbers = _numbers(texts)
        if numbers is not None:
            return numbers
        values = [_value(text) for text in texts]
        for column, value in enumerate(values):
            if isinstance(value, float) and not isfinite(value):
                values[column] = None
                self.count_not_finite(f"line {reader.line_num}, column {self.feature_names[column]!r}")
        return values

    def _with_point(self, cell: str, column: str) -> str:
        """A number with a decimal comma as one with a point; any other text as it is."""
        if not DECIMAL_COMMA.fullmatch(cell):
            return cell
        counts = self._with_comma.setdefault(column, [0, 0])
        counts[0] += 1
        counts[1] += MAYBE_THOUSANDS.fullmatch(cell) is not None
        return cell.replace(",", ".")

    def _error(self, reader: _Records, problem: str) -> ConfigError:
        return ConfigError(f"{self.name}:{reader.line_num}: {problem}")


def _delimiter_of(header: str) -> str:
    """What makes the most columns of a header."""

    def n_columns(delimiter: str) -> int:
        return len(next(csv.reader([header], delimiter=delimiter, skipinitialspace=True), []))

    return max(_DELIMITERS, key=n_columns)


def _numbers(texts: list[str]) -> list[float | None] | None:
    """The cells as finite numbers, None where empty; None if a cell is anything else, such as nan, inf or 1_000."""
    try:
        values = [float(text) if text else None for text in texts]
    except ValueError:
        return None
    # Two looks at the whole row instead of two at each cell; a finite sum has finite terms.
    return values if isfinite(sum(filter(None, values))) and "_" not in "".join(texts) else None


@lru_cache(maxsize=10_000)
def _value(text: str) -> Value:
    """One cell by itself. NaN or infinite where it is no finite number and no text either."""
    if not text:
        return None
    number = _BOOLEANS.get(text.lower()) if len(text) < 6 else None
    number = number_of(text) if number is None else number
    return text if number is None else number
