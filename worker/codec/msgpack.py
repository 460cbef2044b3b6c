"""Events and predictions as MessagePack: the same values as in JSON, with the same limits and codes.

Good messages take one typed msgspec decode, two where features are text or booleans. Those with fields beside
`features`, `label` and `id`, and those that are refused, are read again by a parser in Python, since msgspec does not
look into what it skips: the value may be nested deeper there than everybody can follow, or hold no UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from worker.base.limits import MAX_DEPTH
from worker.base.records import Answer, Event, Reject
from worker.codec.answers import EstimateValue, PredictionValue, fitting, value_of
from worker.codec.dead_letters import Object
from worker.codec.message import (
    FAULTS,
    AnyFeature,
    AnyItem,
    Item,
    Message,
    Number,
    Value,
    event_of,
    event_or_reject,
    reject_unread,
)


class _Message(Message[Value, Item], forbid_unknown_fields=True, gc=False):
    """A message without other fields, of which msgspec has then seen every byte."""


_Decode = Callable[[bytes], Message[Any, Any]]
_decode_numbers: _Decode = msgspec.msgpack.Decoder(_Message[Number, Number]).decode
_decode_mixed: _Decode = msgspec.msgpack.Decoder(_Message[AnyFeature, AnyItem]).decode
_decode_parsed: _Decode = msgspec.msgpack.Decoder(Message[AnyFeature, AnyItem]).decode
"""Skips other fields, of which the parser has seen every byte by then."""
_encode = msgspec.msgpack.Encoder().encode
_INTEGERS = range(-(2**63), 2**64)


def decode(value: bytes | None, max_bytes: int) -> Event | Reject:
    """The event in a record value of at most `max_bytes` bytes, or why there is none. Never raises."""
    if value is None or len(value) > max_bytes:
        return reject_unread(value, max_bytes)
    for typed in (_decode_numbers, _decode_mixed):
        try:
            event = event_of(typed(value))
        except (*FAULTS, RecursionError):
            # The parser below counts levels itself and finds the same event, if there is one.
            continue
        return event or _parsed(value)
    found = _parsed(value)
    if isinstance(found, Event) or found.code == "malformed-msgpack":
        return found
    # Of a name that occurs twice the typed decoders judge the last number alone, which nothing that is ignored beside
    # it must change.
    try:
        return event_of(_decode_parsed(value)) or found
    except (*FAULTS, RecursionError):
        return found


def encode_answers(models: Iterable[str], answers: Iterable[Answer]) -> list[bytes]:
    """What models said, one each, as MessagePack with the fields of the JSON."""
    return [_written(value) for value in map(value_of, models, answers)]


def prepare() -> None:
    """Nothing has to be asked."""


def _written(value: PredictionValue | EstimateValue) -> bytes:
    try:
        return _encode(value)
    except OverflowError:  # an integer beyond 64 bits, which events in JSON may have
        if isinstance(value, EstimateValue):
            return _encode(replace(value, label=float(value.label)))  # type: ignore[arg-type]
        label = UNSET if value.label is UNSET else fitting(value.label, _INTEGERS)
        return _encode(replace(value, prediction=fitting(value.prediction, _INTEGERS), label=label))


# --- every byte of a value, in Python ---------------------------------------------------------------------------------


class _Malformed(Exception):
    """The bytes are no MessagePack that could be an event."""


def fault_of(value: bytes) -> str | None:
    """Why the bytes cannot be read as an event, such as that they are nested too deep; None where they can."""
    try:
        _Parser(value).whole()
    except _Malformed as fault:
        return str(fault)
    return None


def _parsed(value: bytes) -> Event | Reject:
    try:
        return event_or_reject(_Parser(value).whole())
    except _Malformed as fault:
        return Reject("malformed-msgpack", str(fault))


_FIXED = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_TEXT = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_BINARY = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_ARRAY = {0xDC: ">H", 0xDD: ">I"}
_MAP = {0xDE: ">H", 0xDF: ">I"}
_EXTENSION = {0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
_FIXED_EXTENSION = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_CONSTANT = {0xC0: None, 0xC2: False, 0xC3: True}


class _Parser:
    """From bytes to what Python has for JSON; binary data and extensions stay bytes. Raises _Malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def whole(self) -> object:
        """The one object that the bytes are."""
        value = self._object(MAX_DEPTH)
        if self._at != len(self._data):
            raise _Malformed(f"the value goes on at byte {self._at}, where it should end")
        return value

    def _object(self, levels: int) -> object:
        """The next object, which may be nested so deep."""
        kind = self._take(1)[0]
        if kind <= 0x7F or kind >= 0xE0:
            return kind if kind <= 0x7F else kind - 0x100
        if kind <= 0x8F or kind in _MAP:
            return self._map(kind & 0x0F if kind <= 0x8F else self._number(_MAP[kind]), levels)
        if kind <= 0x9F or kind in _ARRAY:
            return self._array(kind & 0x0F if kind <= 0x9F else self._number(_ARRAY[kind]), levels)
        if kind <= 0xBF or kind in _TEXT:
            return self._text(kind & 0x1F if kind <= 0xBF else self._number(_TEXT[kind]))
        if kind in _CONSTANT:
            return _CONSTANT[kind]
        if kind in _FIXED:
            return self._number(_FIXED[kind])
        if kind in _BINARY:
            return self._take(self._number(_BINARY[kind]))
        if kind in _EXTENSION:
            return self._take(self._number(_EXTENSION[kind]) + 1)
        if kind in _FIXED_EXTENSION:
            return self._take(_FIXED_EXTENSION[kind] + 1)
        raise _Malformed(f"the value is not MessagePack at byte {self._at - 1}")

    def _map(self, n: int, levels: int) -> Object:
        members = Object()
        self._require(levels)
        for _ in range(n):
            name = self._object(levels - 1)
            if not isinstance(name, str):
                raise _Malformed(f"the value has a key that is no text before byte {self._at}")
            members.append((name, self._object(levels - 1)))
        return members

    def _array(self, n: int, levels: int) -> list[object]:
        self._require(levels)
        return [self._object(levels - 1) for _ in range(n)]

    def _text(self, n: int) -> str:
        start = self._at
        try:
            return self._take(n).decode()
        except UnicodeDecodeError as error:
            raise _Malformed(f"the value is not UTF-8 at byte {start + error.start}") from None

    def _number(self, layout: str) -> Any:
        [number] = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return number

    def _take(self, n: int) -> bytes:
        taken = self._data[self._at : self._at + n]
        if len(taken) < n:
            raise _Malformed(f"the value ends after {len(self._data)} bytes, within an object")
        self._at += n
        return taken

    def _require(self, levels: int) -> None:
        if not levels:
            raise _Malformed(f"the value is nested deeper than {MAX_DEPTH} levels")
