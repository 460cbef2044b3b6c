"""Which schema a value was written with: the framing of serialisers that use a Schema Registry.

A value begins with a zero byte and the 4 bytes of a schema id, or with a one and the 16 bytes of a schema's GUID. A
GUID may also stand in the header `__value_schema_id`, in the same form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from worker.base.ports import SchemaRegistry
from worker.base.records import Event, Record, Reject
from worker.codec.message import reject_unread

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


class RegistryCodec(ABC):
    """Events from, and predictions to, values with a framing; `topic` is where the predictions go."""

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self._writer: Callable[[object], bytes] | None = None

    def decode(self, value: bytes | None, max_bytes: int) -> Event | Reject:
        """The event in a framed value of at most `max_bytes` bytes, or why there is none. Raises Transient."""
        if value is None or len(value) > max_bytes:
            return reject_unread(value, max_bytes)
        n = framing_of(value)
        return n if isinstance(n, Reject) else self._decode_framed(value, n)

    def prepare(self) -> None:
        """Have the schema of predictions registered. Raises Transient, and WorkerError where it is refused."""
        if self._writer is None:
            self._writer = self._register()

    @property
    def _write(self) -> Callable[[object], bytes]:
        assert self._writer is not None, "prepare comes first"
        return self._writer

    @abstractmethod
    def _decode_framed(self, value: bytes, n: int) -> Event | Reject:
        """What a value holds whose first `n` bytes are its framing: an event, or why it is refused."""

    @abstractmethod
    def _register(self) -> Callable[[object], bytes]:
        """Register the schema of predictions; returns what writes with it."""
