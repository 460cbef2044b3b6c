"""Bytes to events, predictions to bytes. Pure: no I/O, no clock, no state.

What counts as an event is decided here once, for live work and for replay alike: a record that was learned live must
be learned by replay, so nothing in `decode` depends on anything but the bytes and `max_bytes`. Good messages take one
typed msgspec decode, two where features are text, and a few cheap tests; whatever fails goes to `rejects.diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from worker.records import QUANTILES, Answer, Estimate, Event, Label, Reject
from worker.rejects import (
    MAX_CATEGORY_CHARS,
    MAX_DEPTH,
    MAX_FEATURE_NAME_CHARS,
    MAX_ID_CHARS,
    MAX_KEY_BYTES,
    MAX_LABEL_CHARS,
    MAX_NUMBER,
    diagnose,
    is_non_finite,
    is_too_deep,
    is_utf8,
)

_Name = Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS)]
_Category = Annotated[str, Meta(max_length=MAX_CATEGORY_CHARS)]
_Value = TypeVar("_Value")


class _Message(msgspec.Struct, Generic[_Value], gc=False):
    """The value of an input record. The limits are checked by msgspec, at no cost to good messages."""

    features: dict[_Name, _Value] | list[float | None]
    label: Annotated[str, Meta(max_length=MAX_LABEL_CHARS)] | int | float | bool | None = None
    id: Annotated[str, Meta(max_length=MAX_ID_CHARS)] | None = None


_Decode = Callable[[bytes], _Message[Any]]
_decode_numbers: _Decode = msgspec.json.Decoder(_Message[float | None]).decode
_decode_mixed: _Decode = msgspec.json.Decoder(_Message[float | _Category | None]).decode
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_key(key: bytes) -> str | Reject:
    """The model key of a record key: 1 to 512 bytes of UTF-8, kept as they are."""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        return Reject("invalid-key", f"the record key has {len(key)} bytes, expected 1 to {MAX_KEY_BYTES}")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        return Reject("invalid-key", f"the record key is not UTF-8 at byte {error.start}")


def decode(value: bytes | None, max_bytes: int) -> Event | Reject:
    """The event in a record value of at most `max_bytes` bytes, or why there is none. Never raises."""
    if value is None:
        return Reject("null-value", "the record has no value")
    if len(value) > max_bytes:
        return Reject("too-large", f"the value has {len(value)} bytes, expected at most {max_bytes}")
    try:
        message = _decode_numbers(value)
    except _FAULTS:
        mixed = _with_text(value)
        if mixed is None:
            return diagnose(value)
        message = mixed
    label = message.label
    if (
        not message.features
        or (not (label is None or isinstance(label, str)) and not -MAX_NUMBER <= label <= MAX_NUMBER)
        # msgspec does not look into strings that it skips, be they invalid UTF-8.
        or not (value.isascii() or is_utf8(value))
        # The brackets bound the depth from above, so that only messages with many are measured.
        or (value.count(b"[") + value.count(b"{") > MAX_DEPTH and is_too_deep(value))
    ):
        return diagnose(value)
    return Event(message.features, label, message.id)


def _with_text(value: bytes) -> _Message[Any] | None:
    """The message where text among its features is all that makes it no message of numbers, else None.

    Numbers alone are the rule: they are not looked at one by one.
    """
    try:
        message = _decode_mixed(value)
    except _FAULTS:
        return None
    features = message.features
    if type(features) is dict and any(type(each) is str and is_non_finite(each) for each in features.values()):
        return None
    return message


class _PredictionValue(msgspec.Struct, gc=False):
    """The value of an output record of classes, its fields in the published order."""

    id: str | None
    model: str
    prediction: Label | None
    probabilities: dict[str, float]
    label: Label | UnsetType
    loss: float | UnsetType
    learned: int


class _EstimateValue(msgspec.Struct, gc=False):
    """The value of an output record of numbers, its fields in the published order."""

    id: str | None
    model: str
    prediction: float | None
    std: float | None
    quantiles: dict[str, float] | None
    label: float | UnsetType
    loss: float | UnsetType | None
    learned: int


_encode = msgspec.json.Encoder().encode


def encode_answer(model: str, answer: Answer) -> bytes:
    """The JSON text of what `model` said.

    Floats are written in the fewest digits that give back the same bits. `label` and `loss` are left out where the
    event had no label; `id` is null where it had none, `prediction` and what follows from it before the first label.
    """
    if isinstance(answer, Estimate):
        return _encode(_estimate_value(model, answer))
    return _encode(
        _PredictionValue(
            answer.id,
            model,
            answer.prediction,
            # The model may know more classes by now than this forecast did.
            dict(zip(answer.classes, answer.probabilities, strict=False)),
            UNSET if answer.label is None else answer.label,
            UNSET if answer.loss is None else answer.loss,
            answer.learned,
        )
    )


def _estimate_value(model: str, estimate: Estimate) -> _EstimateValue:
    quantiles = estimate.quantiles
    return _EstimateValue(
        estimate.id,
        model,
        estimate.prediction,
        estimate.std,
        None if quantiles is None else dict(zip(QUANTILES, quantiles, strict=True)),
        UNSET if estimate.label is None else estimate.label,
        UNSET if estimate.label is None else estimate.loss,
        estimate.learned,
    )
