"""Bytes to events, predictions to bytes.

What counts as an event is decided here once, for live work and for replay alike: a record that was learned live must
be learned by replay, so nothing in `decode` depends on anything but the bytes, the schema that they name, which never
changes, and `max_bytes`. All codecs have the same events, limits and reject codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from worker.base.errors import ConfigError
from worker.base.ports import SchemaRegistry
from worker.base.records import Answer, Event, Reject
from worker.codec import json, msgpack
from worker.codec.avro import AvroCodec
from worker.codec.json import decode, encode_answers
from worker.codec.json_schema import JsonSchemaCodec
from worker.codec.key import decode_key

__all__ = ["Codec", "codec_of", "decode", "decode_key", "encode_answers"]


class Codec(Protocol):
    """One way to write values. A module is one where nothing has to be remembered."""

    def decode(self, value: bytes | None, max_bytes: int, /) -> Event | Reject:
        """The event in a record value of at most `max_bytes` bytes, or why there is none.

        Raises nothing but Transient, and that only where a schema registry must be asked and cannot be.
        """
        ...

    def prepare(self) -> None:
        """Do what `encode_answers` needs, once. Raises Transient, and WorkerError where it can never be done."""
        ...

    def encode_answers(self, models: Iterable[str], answers: Iterable[Answer], /) -> list[bytes]:
        """What models said, one each. It never fails once prepared, since by then they have learned."""
        ...


_PLAIN: dict[str, Codec] = {"json": json, "msgpack": msgpack}


def codec_of(name: str, topic: str, registry: SchemaRegistry | None) -> Codec:
    """The codec of that name, whose predictions go to `topic`. Raises ConfigError where it lacks its registry."""
    plain = _PLAIN.get(name)
    if plain is not None:
        return plain
    if registry is None:
        raise ConfigError(f"codec {name} needs schema_registry.url")
    return (AvroCodec if name == "avro" else JsonSchemaCodec)(registry, topic)
