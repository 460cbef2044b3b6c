"""Files of rows as events: a CSV with a header, or an .npz with a matrix X. Read in pieces, whatever the size.

A row is what a producer would send: its number from 0 is the id, its columns are the features. `message` writes it as
the value of an input record; it is what `produce` publishes and `evaluate` takes.

A cell of a CSV that is written as a number is one, an empty cell is a missing value, any other text is a category. Each
cell speaks for itself: what a row says does not depend on the rows after it, and a stray text costs its column nothing.
"""

from __future__ import annotations

import csv
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from io import TextIOWrapper
from math import isfinite
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.errors import ConfigError
from worker.records import Label

_BLOCK_ROWS = 1024
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class Row(NamedTuple):
    """One event of a file."""

    number: int
    key: str
    features: dict[str, float | str | None]
    label: Label | None


class Rows(ABC):
    """The rows of a file, from the first one each time they are iterated. Iterating raises ConfigError."""

    path: Path
    columns: list[str]
    """All names in the file, those of the label and the key included; in an .npz the names of its arrays."""
    labelled: bool
    """Whether there is a column of labels; single labels may be missing all the same."""
    total: int | None
    """Number of rows, None where only reading would tell."""
    fraction: float = 0.0
    """Share of the file that the latest iteration has read."""

    @abstractmethod
    def __iter__(self) -> Iterator[Row]: ...


def open_rows(
    path: str | Path,
    label: str | None = None,
    key: str | None = None,
    n_keys: int = 1,
    has_numbers: Callable[[str], bool] = lambda key: False,
) -> Rows:
    """The rows of a .npz or CSV file; nothing but the header is read yet. Raises ConfigError.

    `label` and `key` name columns, in an .npz other arrays beside X (its `label` is y by default); all other columns
    are features, those of X are named f0, f1, ... Without `key` row i belongs to model-{i mod n_keys}. `has_numbers`
    tells of a model key whether its labels are numbers; those of others are classes.
    """
    kind = _NpzRows if Path(path).suffix == ".npz" else _CsvRows
    return kind(Path(path), label, key, n_keys, lru_cache(maxsize=10_000)(has_numbers))


class _Message(msgspec.Struct, omit_defaults=True):
    id: str
    features: dict[str, float | str | None]
    label: Label | None = None


_ENCODE = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}


def message(row: Row, codec: str = "json") -> bytes:
    """The row as JSON or MessagePack: floats keep their bits, and there is no label where the file has none.

    Raises ConfigError for a codec whose values need a schema.
    """
    if codec not in _ENCODE:
        raise ConfigError(f"input.codec is {codec}: rows of a file can be written as {' or '.join(_ENCODE)} only")
    return _ENCODE[codec](_Message(str(row.number), row.features, row.label))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever reading the file may raise, as a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected text in UTF-8, found other bytes") from None


# --- CSV --------------------------------------------------------------------------------------------------------------


class _CsvRows(Rows):
    total = None

    def __init__(
        self, path: Path, label: str | None, key: str | None, n_keys: int, has_numbers: Callable[[str], bool]
    ) -> None:
        self.path, self.labelled = path, label is not None
        self._label, self._key, self._n_keys, self._has_numbers = label, key, n_keys, has_numbers
        with self._open() as (_, reader):
            self.columns = self._header(reader)

    def __iter__(self) -> Iterator[Row]:
        with self._open() as (file, reader):
            names = self._header(reader)
            features = [column for column, name in enumerate(names) if name not in (self._label, self._key)]
            feature_names = [names[column] for column in features]
            label = names.index(self._label) if self._label is not None else None
            key = names.index(self._key) if self._key is not None else None
            size = max(self.path.stat().st_size, 1)
            number = 0
            for cells in reader:
                if not cells:
                    continue  # a blank line
                if len(cells) != len(names):
                    raise self._error(reader, f"expected {len(names)} cells as in the header, found {len(cells)}")
                values = self._values(reader, feature_names, [cells[column] for column in features])
                if number % _BLOCK_ROWS == 0:
                    self.fraction = file.tell() / size
                model = f"model-{number % self._n_keys}" if key is None else cells[key]
                yield Row(
                    number,
                    model,
                    dict(zip(feature_names, values, strict=True)),
                    None if label is None else _label_of(cells[label], number=self._has_numbers(model)),
                )
                number += 1
        self.fraction = 1.0

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], Any]]:
        """The file, which knows how far it was read, and the reader of its records."""
        with _readable(self.path), self.path.open("rb") as file:
            reader = csv.reader(TextIOWrapper(file, "utf-8-sig", newline=""), strict=True, skipinitialspace=True)
            try:
                yield file, reader
            except csv.Error as error:
                raise self._error(reader, f"expected CSV with commas, found something else: {error}") from None

    def _header(self, reader: Any) -> list[str]:
        names: list[str] = next(reader, [])
        if not names:
            raise ConfigError(f"{self.path}: expected a header with the names of the columns, found nothing")
        for column, name in enumerate(names):
            if not name or name in names[:column]:
                problem = "has no name" if not name else f"has the name {name!r}, which another one has"
                raise self._error(reader, f"column {column + 1} {problem}; give every column a name of its own")
        for wanted, option in ((self._label, "--label"), (self._key, "--key")):
            if wanted is not None and wanted not in names:
                raise self._error(reader, f"there is no column {wanted!r} for {option}; {_choice(names)}")
        if not set(names) - {self._label, self._key}:
            raise self._error(reader, "there is no column left for the features")
        return names

    def _values(self, reader: Any, names: list[str], texts: list[str]) -> Sequence[float | str | None]:
        """The features of a row."""
        numbers = _numbers(texts)
        if numbers is not None:
            return numbers
        values = [_value(text) for text in texts]
        for name, text, value in zip(names, texts, values, strict=True):
            if isinstance(value, float) and not isfinite(value):
                problem = f"column {name!r}: expected a finite number or text, found {text[:40]!r}"
                raise self._error(reader, f"{problem}; leave the cell empty where the value is missing")
        return values

    def _error(self, reader: Any, problem: str) -> ConfigError:
        return ConfigError(f"{self.path}:{reader.line_num}: {problem}")


def _numbers(texts: list[str]) -> list[float | None] | None:
    """The cells as finite numbers, None where empty; None if a cell is anything else, such as nan, inf or 1_000."""
    try:
        values = [float(text) if text else None for text in texts]
    except ValueError:
        return None
    # Two looks at the whole row instead of two at each cell; a finite sum has finite terms.
    return values if isfinite(sum(filter(None, values))) and "_" not in "".join(texts) else None


@lru_cache(maxsize=10_000)
def _value(text: str) -> float | str | None:
    """One cell by itself. NaN or infinite where it is no finite number and no text either."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return text if "_" in text else value  # to Python alone 1_000 is a number


def _label_of(text: str, *, number: bool) -> Label | None:
    """An integer where the text is the usual way to write one (the class is the same), else the text itself.

    Where it is to be a `number`, any way to write one will do, as long as JSON has it.
    """
    if not text:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    value = _value(text) if number else text
    return value if isinstance(value, float) and isfinite(value) else text


def _choice(names: list[str]) -> str:
    shown = ", ".join(names[:20])
    return f"there are {shown}{', ...' if len(names) > 20 else ''}"


# --- .npz -------------------------------------------------------------------------------------------------------------


class _NpzRows(Rows):
    def __init__(
        self, path: Path, label: str | None, key: str | None, n_keys: int, has_numbers: Callable[[str], bool]
    ) -> None:
        self.path = path
        self._label, self._key, self._n_keys, self._has_numbers = label, key, n_keys, has_numbers
        with self._open() as archive:
            self.columns = [name.removesuffix(".npy") for name in archive.namelist()]
            if self._label is None and "y" in self.columns:
                self._label = "y"
            for wanted, what in (("X", "the features"), (self._label, "--label"), (self._key, "--key")):
                if wanted is not None and wanted not in self.columns:
                    raise ConfigError(f"{self.path}: there is no array {wanted!r} for {what}; {_choice(self.columns)}")
            x = _Column(archive, "X", 2, "biuf")
            if x.shape[1] == 0:
                raise ConfigError(f"{self.path}: X has no columns, so there are no features")
            self.labelled, self.total = self._label is not None, x.shape[0]
            for name, kinds in ((self._label, "biufU"), (self._key, "iuU")):
                if name is not None and _Column(archive, name, 1, kinds).shape[0] != self.total:
                    raise ConfigError(f"{self.path}: {name} has not as many entries as X has rows, {self.total}")

    def __iter__(self) -> Iterator[Row]:
        with self._open() as archive:
            x = _Column(archive, "X", 2, "biuf")
            labels = _Column(archive, self._label, 1, "biufU") if self._label is not None else None
            keys = _Column(archive, self._key, 1, "iuU") if self._key is not None else None
            names = [f"f{column}" for column in range(x.shape[1])]
            n = x.shape[0]
            for start in range(0, n, _BLOCK_ROWS):
                self.fraction = start / n
                numbers = range(start, min(start + _BLOCK_ROWS, n))
                count = len(numbers)
                values = self._values(x.read(count), start)
                row_keys = (
                    [f"model-{i % self._n_keys}" for i in numbers]
                    if keys is None
                    else [str(key) for key in keys.read(count).tolist()]
                )
                row_labels = [None] * count if labels is None else self._labels(labels.read(count), start, row_keys)
                for number, key, row, label in zip(numbers, row_keys, values, row_labels, strict=True):
                    yield Row(number, key, dict(zip(names, row, strict=True)), label)
        self.fraction = 1.0

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        with _readable(self.path):
            try:
                with zipfile.ZipFile(self.path) as archive:
                    yield archive
            except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
                raise ConfigError(f"{self.path}: expected an .npz file as numpy.savez writes it: {error}") from None

    def _values(self, block: NDArray[Any], start: int) -> list[list[Any]]:
        """Rows of numbers, None where NaN."""
        numbers = block.astype(np.float64)
        infinite = np.argwhere(np.isinf(numbers))
        if len(infinite):
            row, column = infinite[0]
            raise ConfigError(f"{self.path}: X[{start + row}, {column}] is infinite; NaN stands for a missing value")
        rows: list[list[Any]] = numbers.tolist()
        for row in np.flatnonzero(np.isnan(numbers).any(axis=1)):
            rows[row] = [None if value != value else value for value in rows[row]]
        return rows

    def _labels(self, block: NDArray[Any], start: int, keys: list[str]) -> list[Label | None]:
        """Labels as JSON has them. NaN stands for none; another float is an integer where labels are classes."""
        if block.dtype.kind != "f":
            return [None if label == "" else label for label in block.tolist()]
        labels: list[Label | None] = []
        for row, (label, key) in enumerate(zip(block.tolist(), keys, strict=True), start):
            number = self._has_numbers(key)
            if label != label:
                labels.append(None)
            elif isfinite(label) and (number or (label.is_integer() and abs(label) < 2.0**63)):
                labels.append(label if number else int(label))
            else:
                expected = "a finite number" if number else "text, an integer or a boolean"
                raise ConfigError(f"{self.path}: {self._label}[{row}] is {label}; a label is {expected}")
        return labels


class _Column:
    """One array of an archive, read from the first row to the last in pieces."""

    def __init__(self, archive: zipfile.ZipFile, name: str, n_dims: int, kinds: str) -> None:
        self._file = archive.open(f"{name}.npy")
        version = np.lib.format.read_magic(self._file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, column_major, self._dtype = read_header(self._file)
        if len(self.shape) != n_dims or self._dtype.kind not in kinds:
            allowed = "numbers" if n_dims == 2 else "integers or text" if "b" not in kinds else "numbers or text"
            raise ConfigError(
                f"{archive.filename}: expected {name} to be {allowed} in {n_dims}-d, found {self._dtype} in "
                f"{len(self.shape)}-d; Python objects (pickle) are never read"
            )
        self._row_bytes = self._dtype.itemsize * int(np.prod(self.shape[1:]))
        self._next = 0
        self._whole: NDArray[Any] | None = None
        self._open_again = partial(archive.open, f"{name}.npy") if column_major and n_dims > 1 else None

    def read(self, count: int) -> NDArray[Any]:
        """The next rows. Raises ValueError where the file ends before."""
        start, self._next = self._next, self._next + count
        if self._open_again is not None:
            # Columns stand one after the other, so each row is spread over the whole file: all or nothing.
            if self._whole is None:
                self._whole = np.lib.format.read_array(self._open_again(), allow_pickle=False)
            return self._whole[start : self._next]
        data = self._file.read(count * self._row_bytes)
        return np.frombuffer(data, self._dtype).reshape(count, *self.shape[1:])
