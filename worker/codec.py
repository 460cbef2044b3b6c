"""Bytes to events, predictions to bytes. Pure: no I/O, no clock, no state.

What counts as an event is decided here once, for live work and for replay alike: a record that was learned live must
be learned by replay, so nothing in `decode` depends on anything but the bytes and `max_bytes`. Good messages take one
typed msgspec decode and a few cheap tests; whatever fails them goes to `rejects.diagnose`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from worker.records import Event, Label, Prediction, Reject
from worker.rejects import (
    MAX_DEPTH,
    MAX_FEATURE_NAME_CHARS,
    MAX_ID_CHARS,
    MAX_KEY_BYTES,
    MAX_LABEL,
    MAX_LABEL_CHARS,
    MIN_LABEL,
    diagnose,
    is_too_deep,
    is_utf8,
)


class _Message(msgspec.Struct, gc=False):
    """The value of an input record. The limits are checked by msgspec, at no cost to good messages."""

    features: dict[Annotated[str, Meta(max_length=MAX_FEATURE_NAME_CHARS)], float | None] | list[float | None]
    label: Annotated[str, Meta(max_length=MAX_LABEL_CHARS)] | int | bool | None = None
    id: Annotated[str, Meta(max_length=MAX_ID_CHARS)] | None = None


_decode_message = msgspec.json.Decoder(_Message).decode


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
        message = _decode_message(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return diagnose(value)
    label = message.label
    if (
        not message.features
        or (type(label) is int and not MIN_LABEL <= label <= MAX_LABEL)
        # msgspec does not look into strings that it skips, be they invalid UTF-8.
        or not (value.isascii() or is_utf8(value))
        # The brackets bound the depth from above, so that only messages with many are measured.
        or (value.count(b"[") + value.count(b"{") > MAX_DEPTH and is_too_deep(value))
    ):
        return diagnose(value)
    return Event(message.features, label, message.id)


class _PredictionValue(msgspec.Struct, gc=False):
    """The value of an output record, its fields in the published order."""

    id: str | None
    model: str
    prediction: Label | None
    probabilities: dict[str, float]
    label: Label | UnsetType
    loss: float | UnsetType
    learned: int


_encode = msgspec.json.Encoder().encode


def encode_prediction(model: str, prediction: Prediction) -> bytes:
    """The JSON text of a prediction of `model`.

    Floats are written in the fewest digits that give back the same bits. `label` and `loss` are left out where the
    event had no label; `id`, and `prediction` before the first label, are null.
    """
    return _encode(
        _PredictionValue(
            prediction.id,
            model,
            prediction.prediction,
            # The model may know more classes by now than this forecast did.
            dict(zip(prediction.classes, prediction.probabilities, strict=False)),
            UNSET if prediction.label is None else prediction.label,
            UNSET if prediction.loss is None else prediction.loss,
            prediction.learned,
        )
    )
