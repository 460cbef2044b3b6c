"""What names the model of an event: the record's key, or a field of its value. Pure: no I/O, no clock.

A field is taken as its bytes stand in the value, so that no number is rounded on the way: the characters of a text, or
the JSON text of an integer or a boolean. Text "1" and the number 1 name one model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from worker.base.limits import MAX_DEPTH, MAX_KEY_BYTES
from worker.base.records import Record, Reject
from worker.codec import msgpack
from worker.codec.dead_letters import is_too_deep
from worker.config import Config, repartition

KeyOf = Callable[[Record], bytes | Reject | None]
"""The model key of a record, None where it has none and `models.null_key` names no model, or why it cannot be told."""

_JSON_TEXT = re.compile(rb"-?[0-9]+|true|false")
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError)


def key_reader(config: Config) -> KeyOf:
    """The function that tells model keys as `input.model_key` says."""
    name = repartition.key_field(config)
    if name is None:
        null_key = config.models.null_key
        nobody = None if null_key is None else null_key.encode()
        return lambda record: nobody if record.key is None else record.key
    value = _with_field(name)
    if config.input.codec == "msgpack":
        decode = msgspec.msgpack.Decoder(value).decode
        return _FieldReader(name, decode, _text_in_message_pack, lambda value: msgpack.fault_of(value) is not None)
    return _FieldReader(name, msgspec.json.Decoder(value).decode, _text_in_json, is_too_deep)


class _Keyed(Protocol):
    """A value of which one field is read, and that as the bytes that it is written in; none where it is absent."""

    field: msgspec.Raw


class _FieldReader:
    """Model keys from a field at the top of the value."""

    def __init__(
        self,
        name: str,
        decode: Callable[[bytes], _Keyed],
        text_of: Callable[[bytes], str | None],
        is_too_deep: Callable[[bytes], bool],
    ) -> None:
        self._name = name
        self._decode = decode
        self._text_of = text_of
        self._is_too_deep = is_too_deep

    def __call__(self, record: Record) -> bytes | Reject:
        if record.value is None:
            return self._missing("the record has no value")
        try:
            field = bytes(self._decode(record.value).field)
            text = self._text_of(field) if field else None
        except _FAULTS as error:
            return self._missing(f"the value cannot be read: {error}")
        except RecursionError:
            # How deep msgspec can follow depends on the stack; what becomes of the record must not.
            if self._is_too_deep(record.value):
                return self._missing(f"the value cannot be read: it is nested deeper than {MAX_DEPTH} levels")
            raise
        if text is None:
            return self._missing("it is absent, null, or neither a text nor an integer nor a boolean")
        key = text.encode()
        if not 0 < len(key) <= MAX_KEY_BYTES:
            return Reject(
                "invalid-key", f"field {self._name!r} has {len(key)} bytes, a model key has 1 to {MAX_KEY_BYTES}"
            )
        return key

    def _missing(self, why: str) -> Reject:
        return Reject("missing-model-key", f"no model key in field {self._name!r}: {why}")


def _with_field(name: str) -> Any:
    fields: list[tuple[str, type, Any]] = [("field", msgspec.Raw, msgspec.Raw())]
    return msgspec.defstruct("Keyed", fields, rename={"field": name}, gc=False)


def _text_in_json(field: bytes) -> str | None:
    if field.startswith(b'"'):
        return msgspec.json.decode(field, type=str)
    return field.decode() if _JSON_TEXT.fullmatch(field) else None


def _text_in_message_pack(field: bytes) -> str | None:
    value = msgspec.msgpack.decode(field)
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, int) else None
