"""Rows of a Parquet file. Needs the extra `parquet`: `pip install '.[parquet]'`.

Numbers are numbers, a boolean is 0 or 1, a date or a time is its seconds since 1970, text is a category; null and NaN
are missing values. Columns of anything else (lists, structs, bytes) have to be left out with --drop.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from worker.base.errors import ConfigError
from worker.cli.dataset.rows import BLOCK_ROWS, NO_TIME, Columns, FileRows, Line, readable, text_of, time_ms_of

try:
    import pyarrow as pa
    from pyarrow import compute
    from pyarrow import parquet as pq
except ImportError as error:
    raise ConfigError("a Parquet file needs pyarrow: pip install '.[parquet]'") from error


class ParquetRows(FileRows):
    """The rows of a Parquet file, a batch at a time."""

    def __init__(self, path: Path, columns: Columns, n_keys: int, has_numbers: Callable[[str], bool]) -> None:
        super().__init__(path, columns, n_keys, has_numbers)
        with self._open() as file:
            schema = file.schema_arrow
            self.columns, self.total = list(schema.names), file.metadata.num_rows
            self.labelled = columns.label is not None
            self.require_columns(self.columns, str(path))
            self.feature_names = columns.features(self.columns)
            for name in self.feature_names:
                if not _is_feature(schema.field(name).type):
                    raise ConfigError(
                        f"{path}: column {name!r} is of type {schema.field(name).type}, which no feature can have; "
                        f"--drop {shlex.quote(name)} leaves it out"
                    )
            for option, name in columns._replace(drop=()).options():
                if not _is_feature(schema.field(name).type):
                    raise ConfigError(
                        f"{path}: column {name!r} is of type {schema.field(name).type}, which nothing can be for "
                        f"{option}; write it as text, a number, a boolean or a time"
                    )

    def _lines(self) -> Iterator[Line]:
        roles = self.roles
        others = [name for name in (roles.label, roles.key, roles.id, roles.time) if name is not None]
        done = 0
        with self._open() as file:
            for batch in file.iter_batches(BLOCK_ROWS, columns=[*self.feature_names, *others]):
                self.fraction = done / max(self.total or 0, 1)
                columns = {name: self._values(batch.column(name), name, done) for name in self.feature_names}
                cells = {name: batch.column(name) for name in others}
                none = [None] * batch.num_rows
                labels = none if roles.label is None else _labels(cells[roles.label])
                keys, ids = (
                    none if name is None else [text_of(cell) for cell in cells[name].to_pylist()]
                    for name in (roles.key, roles.id)
                )
                times = [NO_TIME] * batch.num_rows if roles.time is None else self._times(cells[roles.time], done)
                for i, (label, key, of_id, time_ms) in enumerate(zip(labels, keys, ids, times, strict=True)):
                    features = {name: column[i] for name, column in columns.items()}
                    yield Line(features, label, key, of_id, time_ms)
                done += batch.num_rows

    def _values(self, column: Any, name: str, start: int) -> list[Any]:
        """A feature of some rows, None where missing."""
        if _is_text(column.type):
            texts: list[Any] = column.cast(pa.string()).to_pylist()
            return texts
        if pa.types.is_temporal(column.type):
            column = compute.divide(_ms_of(column).cast(pa.float64()), 1000.0)
        # Integers beyond 2**53 are rounded, as everywhere.
        values: list[Any] = column.cast(pa.float64(), safe=False).to_pylist()
        for row, value in enumerate(values):
            if value is not None and not isfinite(value):
                values[row] = None
                if value == value:
                    self.count_not_finite(f"row {start + row}, column {name!r}")
        return values

    def _times(self, column: Any, start: int) -> list[int]:
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return [NO_TIME if ms is None else ms for ms in _ms_of(column).to_pylist()]
        if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ConfigError(f"{self.path}: expected a time for --time, found {kind}")
        return [time_ms_of(cell, f"{self.path}: row {start + i}") for i, cell in enumerate(column.to_pylist())]

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with readable(str(self.path)):
            try:
                with pq.ParquetFile(self.path) as file:
                    yield file
            except pa.ArrowException as error:
                problem = str(error).splitlines()[0]
                raise ConfigError(f"{self.path}: expected a Parquet file, found something else: {problem}") from None


def _is_text(kind: Any) -> bool:
    of_values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(of_values) or pa.types.is_large_string(of_values))


def _is_feature(kind: Any) -> bool:
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_time or is_number or pa.types.is_boolean(kind) or _is_text(kind))


def _ms_of(column: Any) -> Any:
    """Times as ms since the epoch."""
    return compute.cast(column, pa.timestamp("ms"), safe=False).cast(pa.int64())


def _labels(column: Any) -> list[Any]:
    """Decimals as floats, so that a label is what JSON has."""
    plain: list[Any] = (column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column).to_pylist()
    return plain
