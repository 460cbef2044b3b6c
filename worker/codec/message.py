"""What the value of an input record holds, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from worker.records import Event, Features, Reject
from worker.rejects import (
    MAX_CATEGORY_CHARS,
    MAX_FEATURE_NAME_CHARS,
    MAX_ID_CHARS,
    MAX_LABEL_CHARS,
    MAX_NUMBER,
    Object,
    is_non_finite,
    refusal,
)

_Name = Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS)]
Category = Annotated[str, Meta(max_length=MAX_CATEGORY_CHARS)]
Value = TypeVar("Value")


class Message(msgspec.Struct, Generic[Value], gc=False):
    """The value of an input record. The limits are checked by msgspec, at no cost to good messages."""

    features: dict[_Name, Value] | list[float | None]
    label: Annotated[str, Meta(max_length=MAX_LABEL_CHARS)] | int | float | bool | None = None
    id: Annotated[str, Meta(max_length=MAX_ID_CHARS)] | None = None


FAULTS = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoders of messages raise of the bytes. RecursionError is none of them: it tells of the stack, too."""


def unread(value: bytes | None, max_bytes: int) -> Reject:
    """Why a value is refused before it is read: it is none, or too large."""
    if value is None:
        return Reject("null-value", "the record has no value")
    return Reject("too-large", f"the value has {len(value)} bytes, expected at most {max_bytes}")


def event_of(message: Message[Any]) -> Event | None:
    """The event in a message whose types are right already, None where something else is wrong.

    JSON needs less: it has no numbers that are not finite.
    """
    features, label = message.features, message.label
    values = features.values() if type(features) is dict else features
    if (
        not features
        or (not (label is None or isinstance(label, str)) and not -MAX_NUMBER <= label <= MAX_NUMBER)
        or not all(map(_is_good, values))
    ):
        return None
    return Event(features, label, message.id)


def _is_good(value: float | str | None) -> bool:
    if type(value) is float:
        return isfinite(value)
    return value is None or not is_non_finite(value)


def judged(value: object) -> Event | Reject:
    """The event in a decoded value of any shape, or why there is none, with the codes that its JSON would get.

    Slow: for what the typed decoders refuse. The value is as `worker.rejects.refusal` takes it.
    """
    refused = refusal(value)
    if refused is not None:
        return refused
    fields = dict(value)  # type: ignore[call-overload]
    return Event(_as_features(fields["features"]), fields.get("label"), fields.get("id"))


def _as_features(features: Any) -> Features:
    if isinstance(features, Object | Mapping):
        return {name: _as_feature(value) for name, value in dict(features).items()}
    return [_as_feature(value) for value in features]


def _as_feature(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else float(value)
