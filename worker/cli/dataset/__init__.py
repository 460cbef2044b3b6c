"""Files of rows as events: text with a header (CSV and its kin), .npz or Parquet. Read in pieces, whatever the size.

A row is what a producer would send: its number from 0 is the id where no column is, its columns are the features.
`message` writes it as the value of an input record; it is what `produce` publishes and `evaluate` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from worker.base.errors import ConfigError
from worker.base.records import Label, Record
from worker.cli.dataset.rows import Columns, FileRows, Row, Rows, Value

__all__ = ["FileRows", "Row", "Rows", "key_of", "message", "open_rows", "record_of"]


def open_rows(
    path: str | Path,
    label: str | None = None,
    key: str | None = None,
    n_keys: int = 1,
    has_numbers: Callable[[str], bool] = lambda key: False,
    *,
    id: str | None = None,
    time: str | None = None,
    drop: Sequence[str] = (),
    thousands: str | None = None,
) -> FileRows:
    """The rows of a file, or of stdin where it is `-`; nothing but the header is read yet. Raises ConfigError.

    `label`, `key`, `id`, `time` and `drop` name columns, in an .npz other arrays beside X (its label is y by default);
    all other columns are features, those of X are named f0, f1, ... Without `key` row i belongs to model-{i mod
    n_keys}. `has_numbers` tells of a model key whether its labels are numbers; those of others are classes. `thousands`
    is what stands between the thousands of numbers in a file of text.
    """
    rows = _format_of(path)(Path(path), Columns(label, key, id, time, tuple(drop)), n_keys, has_numbers)
    if key is not None and key == rows.roles.label:
        raise ConfigError(
            f"{rows.name}: {key!r} is the column of the labels and, by --key, that of the keys: each model would "
            "see one label alone, and what names a model must be known before the label is"
        )
    if thousands is not None:
        rows.use_thousands(thousands)
    return rows


def _format_of(path: str | Path) -> type[FileRows]:
    match Path(path).suffix.lower():
        case ".npz":
            from worker.cli.dataset.npz import NpzRows

            return NpzRows
        case ".parquet" | ".pq":
            from worker.cli.dataset.parquet import ParquetRows

            return ParquetRows
    from worker.cli.dataset.delimited import DelimitedRows

    return DelimitedRows


class _Message(msgspec.Struct, omit_defaults=True):
    id: str
    features: dict[str, Value]
    label: Label | None = None


_ENCODE = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}


def message(row: Row, codec: str = "json", key_field: str | None = None) -> bytes:
    """The row as JSON or MessagePack: floats keep their bits, and there is no label where the file has none.

    `key_field` is the field of the model key, where that is not the record's key alone.
    Raises ConfigError for a codec whose values need a schema.
    """
    if codec not in _ENCODE:
        raise ConfigError(f"input.codec is {codec}: rows of a file can be written as {' or '.join(_ENCODE)} only")
    event = _Message(str(row.number) if row.id is None else row.id, row.features, row.label)
    if key_field is None or row.key is None:
        return _ENCODE[codec](event)
    return _ENCODE[codec]({**msgspec.to_builtins(event), key_field: row.key})


def key_of(row: Row) -> bytes | None:
    """The key of a row as that of a record."""
    return None if row.key is None else row.key.encode()


def record_of(row: Row, codec: str) -> Record:
    """A row as the input record that `produce` makes of it, in a partition that holds nothing else."""
    return Record(row.number, row.time_ms, key_of(row), message(row, codec), [])
