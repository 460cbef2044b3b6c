"""Rows of an .npz: a matrix X, whose columns are the features f0, f1, ..., and arrays beside it."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.base.errors import ConfigError
from worker.cli.dataset.rows import BLOCK_ROWS, NO_TIME, Columns, FileRows, Line, choice, readable, time_ms_of

_LABELS, _NAMES, _TIMES = "biufU", "iuU", "iufU"


class NpzRows(FileRows):
    """The rows of an archive of arrays. NaN is a missing value; the label is y by default."""

    def __init__(self, path: Path, columns: Columns, n_keys: int, has_numbers: Callable[[str], bool]) -> None:
        super().__init__(path, columns, n_keys, has_numbers)
        with self._open() as archive:
            self.columns = [name.removesuffix(".npy") for name in archive.namelist()]
            if columns.label is None and "y" in self.columns:
                self.roles = columns = columns._replace(label="y")
            for what, wanted in (("the features", "X"), *columns._replace(drop=()).options()):
                if wanted not in self.columns:
                    raise ConfigError(f"{path}: there is no array {wanted!r} for {what}; {choice(self.columns)}")
            x = _Array(archive, "X", 2, "biuf")
            if x.shape[1] == 0:
                raise ConfigError(f"{path}: X has no columns, so there are no features")
            names = [f"f{column}" for column in range(x.shape[1])]
            for wanted in columns.drop:
                if wanted not in names:
                    raise ConfigError(f"{path}: there is no column {wanted!r} for --drop; {choice(names)}")
            self.feature_names = Columns(drop=columns.drop).features(names)
            if not self.feature_names:
                raise ConfigError(f"{path}: there is no column left for the features")
            self._kept = [names.index(name) for name in self.feature_names]
            self.labelled, self.total = columns.label is not None, x.shape[0]
            for name, kinds in self._others():
                if _Array(archive, name, 1, kinds).shape[0] != self.total:
                    raise ConfigError(f"{path}: {name} has not as many entries as X has rows, {self.total}")

    def _others(self) -> list[tuple[str, str]]:
        """The arrays beside X, and what may be in them."""
        roles = self.roles
        kinds = ((roles.label, _LABELS), (roles.key, _NAMES), (roles.id, _NAMES), (roles.time, _TIMES))
        return [(name, kind) for name, kind in kinds if name is not None]

    def _lines(self) -> Iterator[Line]:
        roles = self.roles
        with self._open() as archive:
            x = _Array(archive, "X", 2, "biuf")
            others = {name: _Array(archive, name, 1, kinds) for name, kinds in self._others()}
            n = x.shape[0]
            for start in range(0, n, BLOCK_ROWS):
                self.fraction = start / n
                count = min(BLOCK_ROWS, n - start)
                values = self._values(x.read(count), start)
                read = {name: _plain(array.read(count)) for name, array in others.items()}
                for i in range(count):
                    label, key, of_id, time = (
                        None if name is None else read[name][i]
                        for name in (roles.label, roles.key, roles.id, roles.time)
                    )
                    if isinstance(label, float) and np.isinf(label):
                        self.count_not_finite(f"{roles.label}[{start + i}]")
                    yield Line(
                        dict(zip(self.feature_names, values[i], strict=True)),
                        label,
                        None if key is None else str(key),
                        None if of_id is None else str(of_id),
                        NO_TIME if time is None else time_ms_of(time, f"{self.path}: {roles.time}[{start + i}]"),
                    )

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        with readable(str(self.path)):
            try:
                with zipfile.ZipFile(self.path) as archive:
                    yield archive
            except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
                raise ConfigError(f"{self.path}: expected an .npz file as numpy.savez writes it: {error}") from None

    def _values(self, block: NDArray[Any], start: int) -> list[list[Any]]:
        """Rows of numbers, None where NaN or infinite."""
        numbers = block.astype(np.float64)[:, self._kept]
        infinite = np.argwhere(np.isinf(numbers))
        if len(infinite):
            row, column = infinite[0]
            self.count_not_finite(f"X[{start + row}, {self._kept[column]}]", len(infinite))
        rows: list[list[Any]] = numbers.tolist()
        for row in np.flatnonzero(~np.isfinite(numbers).all(axis=1)):
            rows[row] = [value if np.isfinite(value) else None for value in rows[row]]
        return rows


def _plain(block: NDArray[Any]) -> list[Any]:
    """Entries as Python has them, also those of a float that is longer than Python's."""
    entries: list[Any] = (block.astype(np.float64) if block.dtype.kind == "f" else block).tolist()
    return entries


class _Array:
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
