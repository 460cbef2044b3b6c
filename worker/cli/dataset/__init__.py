"""Files of rows as events: text with a header (CSV and its kin), JSON lines, .npz or Parquet. Read in pieces, whatever
the size.

A row is what a producer would send: its number from 0 is the id where no column is, its columns are the features.
`message` writes it as the value of an input record; it is what `produce` publishes and `evaluate` takes. A line that is
an event already stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from worker.base.errors import ConfigError
from worker.base.limits import MAX_CLASS, MIN_CLASS
from worker.base.records import Label, Record
from worker.cli.dataset.rows import Columns, FileRows, Row, Rows, Value, float_of

__all__ = ["FileRows", "Row", "Rows", "key_of", "message", "open_rows", "record_of"]

_BY_FIELD = "input.model_key (or --key COLUMN, or --keys N)"
"""What named the column of the key, and what else may."""


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
    key_field: str | None = None,
) -> FileRows:
    """The rows of a file, or of stdin where it is `-`; nothing but the header is read yet. Raises ConfigError.

    `label`, `key`, `id`, `time` and `drop` name columns, in an .npz other arrays beside X (its label is y by default);
    all other columns are features, those of X are named f0, f1, ... Without `key` row i belongs to model-{i mod
    n_keys}. `has_numbers` tells of a model key whether its labels are numbers; those of others are classes. `thousands`
    is what stands between the thousands of numbers in a file of text. `key_field` is the column of the key where
    `key` is None.
    """
    path, columns = Path(path), Columns(label, key, id, time, tuple(drop))
    if key is None and key_field is not None:
        columns = columns._replace(key=key_field, key_from=_BY_FIELD)
    rows = _format_of(path)(path, columns, n_keys, has_numbers)
    roles = rows.roles
    if roles.key is not None and roles.key == roles.label:
        raise ConfigError(
            f"{rows.name}: {roles.key!r} is the column of the labels and, by {roles.key_from}, that of the keys: each "
            "model would see one label alone, and what names a model must be known before the label is"
        )
    if key_field == "id" and roles.id not in (None, roles.key):
        raise ConfigError(
            f"{rows.name}: the field id of an event is its model key, as input.model_key says, and has no room for "
            f"{roles.id!r}: leave --id out"
        )
    if thousands is not None:
        rows.use_thousands(thousands)
    return rows


def _format_of(path: Path) -> type[FileRows]:
    match path.suffix.lower():
        case ".npz":
            from worker.cli.dataset.npz import NpzRows

            return NpzRows
        case ".parquet" | ".pq":
            from worker.cli.dataset.parquet import ParquetRows

            return ParquetRows
    from worker.cli.dataset.json_lines import JsonRows, holds_json

    if holds_json(path):
        return JsonRows
    from worker.cli.dataset.delimited import DelimitedRows

    return DelimitedRows


class _Message(msgspec.Struct, omit_defaults=True):
    id: str
    features: dict[str, Value]
    label: Label | None = None


_ENCODE = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}


def message(row: Row, codec: str = "json", key_field: str | None = None) -> bytes:
    """The row as JSON or MessagePack: floats keep their bits, and there is no label where the file has none.

    `key_field` is the field of the model key, where that is not the record's key alone. An event stays as it stands but
    for that. Raises ConfigError for a codec whose values need a schema, and for an event that would have to be another
    than JSON.
    """
    if row.value is not None:
        return _event(row.value, row.key, codec, key_field)
    if codec not in _ENCODE:
        raise ConfigError(f"input.codec is {codec}: rows of a file can be written as {' or '.join(_ENCODE)} only")
    label = row.label
    if codec == "msgpack" and isinstance(label, int) and not MIN_CLASS <= label <= MAX_CLASS:
        label = float_of(label)  # MessagePack has no such integer, and it is no class
    event = _Message(str(row.number) if row.id is None else row.id, row.features, label)
    if key_field is None or row.key is None:
        return _ENCODE[codec](event)
    return _ENCODE[codec]({**msgspec.to_builtins(event), key_field: row.key})


def _event(value: bytes, key: str | None, codec: str, key_field: str | None) -> bytes:
    if codec != "json":
        raise ConfigError(f"input.codec is {codec}: lines that are events are JSON, and are published as they stand")
    if key_field is None or key is None:
        return value
    from worker.cli.dataset.json_lines import with_field

    return with_field(value, key_field, key)


def key_of(row: Row) -> bytes | None:
    """The key of a row as that of a record."""
    return None if row.key is None else row.key.encode()


def record_of(row: Row, codec: str) -> Record:
    """A row as the input record that `produce` makes of it, in a partition that holds nothing else."""
    return Record(row.number, row.time_ms, key_of(row), message(row, codec), [])
