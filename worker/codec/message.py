"""What the value of an input record holds, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from worker.base.limits import (
    MAX_CATEGORY_CHARS,
    MAX_CLASS,
    MAX_FEATURE_NAME_CHARS,
    MAX_ID_CHARS,
    MAX_LABEL_CHARS,
    MAX_NUMBER,
    MIN_CLASS,
)
from worker.base.records import Event, Features, Reject
from worker.codec.dead_letters import Object, is_non_finite, refusal

_Name = Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS)]
_Category = Annotated[str, Meta(max_length=MAX_CATEGORY_CHARS)]
Number = float | None
"""A feature of most messages."""
AnyFeature = bool | float | _Category | None
"""A feature of an object, whatever it may be."""
AnyItem = bool | float | None
"""The same of an array."""
Value = TypeVar("Value")
Item = TypeVar("Item")


class Message(msgspec.Struct, Generic[Value, Item], gc=False):
    """The value of an input record; `Value` is a feature of an object, `Item` one of an array.

    The limits are checked by msgspec, at no cost to good messages.
    """

    features: dict[_Name, Value] | list[Item]
    label: Annotated[str, Meta(max_length=MAX_LABEL_CHARS)] | int | float | bool | None = None
    id: Annotated[str, Meta(max_length=MAX_ID_CHARS)] | int | None = None


FAULTS = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoders of messages raise of the bytes. RecursionError is none of them: it tells of the stack, too."""


def reject_unread(value: bytes | None, max_bytes: int) -> Reject:
    """Why a value is refused before it is read: it is none, or too large."""
    if value is None:
        return Reject("null-value", "the record has no value")
    return Reject("too-large", f"the value has {len(value)} bytes, expected at most {max_bytes}")


def event_of(message: Message[Any, Any]) -> Event | None:
    """The event in a message whose types are right already, None where something else is wrong.

    JSON needs less: it has no numbers that are not finite.
    """
    features = message.features
    values = features.values() if type(features) is dict else features
    if not features or not is_good_label(message.label) or not is_good_id(message.id) or not all(map(_is_good, values)):
        return None
    return Event(without_booleans(features), message.label, id_text(message.id))


def is_good_label(value: str | float | None) -> bool:
    """Whether a label of a right type is one: a number must not be too large."""
    return value is None or isinstance(value, str) or -MAX_NUMBER <= value <= MAX_NUMBER


def is_good_id(value: str | int | None) -> bool:
    """Whether an id of a right type is one: an integer has to fit 64 bits."""
    return type(value) is not int or MIN_CLASS <= value <= MAX_CLASS


def id_text(value: str | int | None) -> str | None:
    """An id as it is published: an integer as its text."""
    return str(value) if type(value) is int else value  # type: ignore[return-value]


def without_booleans(features: Any) -> Features:
    """The features with 0 and 1 for booleans."""
    values = features.values() if type(features) is dict else features
    return _as_features(features) if bool in map(type, values) else features


def _is_good(value: float | str | None) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, str) or not is_non_finite(value)


def event_or_reject(value: object) -> Event | Reject:
    """The event in a decoded value of any shape, or why there is none, with the codes that its JSON would get.

    Slow: for what the typed decoders refuse. The value is as `worker.codec.dead_letters.refusal` takes it.
    """
    refused = refusal(value)
    if refused is not None:
        return refused
    fields = dict(value)  # type: ignore[call-overload]
    return Event(_as_features(fields["features"]), fields.get("label"), id_text(fields.get("id")))


def _as_features(features: Any) -> Features:
    if isinstance(features, Object | Mapping):
        return {name: _as_feature(value) for name, value in dict(features).items()}
    return [_as_feature(value) for value in features]


def _as_feature(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else float(value)
