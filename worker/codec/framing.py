"""Which schema a value was written with: the framing of serialisers that use a Schema Registry.

A value begins with a zero byte and the 4 bytes of a schema id, or with a one and the 16 bytes of a schema's GUID. A
GUID may also stand in the header `__value_schema_id`, in the same form.
"""

from __future__ import annotations

from worker.records import Record, Reject

SCHEMA_HEADER = "__value_schema_id"
_LENGTHS = {0: 1 + 4, 1: 1 + 16}
"""Bytes of the framing, by the first of them."""


def framed_value(record: Record) -> bytes | None:
    """The value with its framing before it, wherever the producer put that."""
    if record.value is None or not record.headers:
        return record.value
    header = next((value for name, value in record.headers if name == SCHEMA_HEADER), None)
    return record.value if header is None else header + record.value


def framing_of(value: bytes) -> int | Reject:
    """How many bytes of the value are its framing."""
    length = _LENGTHS.get(value[0]) if value else None
    if length is None or len(value) < length:
        return Reject("no-schema", f"the value begins with {value[:5].hex() or 'nothing'}, not with a schema id")
    return length
