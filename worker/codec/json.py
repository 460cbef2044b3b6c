"""Events and predictions as JSON.

Good messages take one typed msgspec decode, two where features are text or booleans, and a few cheap tests; whatever
fails goes to `dead_letters.diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from worker.base.limits import MAX_DEPTH
from worker.base.records import Answer, Event, Reject
from worker.codec.answers import value_of
from worker.codec.dead_letters import diagnose, is_non_finite, is_too_deep, is_utf8
from worker.codec.message import (
    FAULTS,
    AnyFeature,
    AnyItem,
    Message,
    Number,
    id_text,
    is_good_id,
    is_good_label,
    reject_unread,
    without_booleans,
)

_Decode = Callable[[bytes], Message[Any, Any]]
_decode_numbers: _Decode = msgspec.json.Decoder(Message[Number, Number]).decode
_decode_mixed: _Decode = msgspec.json.Decoder(Message[AnyFeature, AnyItem]).decode
_encode_lines = msgspec.json.Encoder().encode_lines


def decode(value: bytes | None, max_bytes: int) -> Event | Reject:
    """The event in a record value of at most `max_bytes` bytes, or why there is none.

    It raises nothing, but RecursionError where the stack has no room for a value that is as deep as it may be.
    """
    if value is None or len(value) > max_bytes:
        return reject_unread(value, max_bytes)
    try:
        try:
            message = _decode_numbers(value)
        except FAULTS:
            mixed = _mixed(value)
            if mixed is None:
                return diagnose(value)
            message = mixed
    except RecursionError:
        # How deep msgspec can follow depends on the stack; what becomes of the value must not.
        if is_too_deep(value):
            return diagnose(value)
        raise
    if (
        not message.features
        or not is_good_label(message.label)
        or not is_good_id(message.id)
        # msgspec does not look into strings that it skips, be they invalid UTF-8.
        or not (value.isascii() or is_utf8(value))
        # The brackets bound the depth from above, so that only messages with many are measured.
        or (len(value) > 2 * MAX_DEPTH and value.count(b"[") + value.count(b"{") > MAX_DEPTH and is_too_deep(value))
    ):
        return diagnose(value)
    return Event(message.features, message.label, id_text(message.id))


def _mixed(value: bytes) -> Message[Any, Any] | None:
    """The message where texts and booleans among its features are all that makes it none of numbers, else None.

    Numbers alone are the rule: they are not looked at one by one.
    """
    try:
        message = _decode_mixed(value)
    except FAULTS:
        return None
    features = message.features
    if type(features) is dict and any(type(each) is str and is_non_finite(each) for each in features.values()):
        return None
    message.features = without_booleans(features)
    return message


def encode_answers(models: Iterable[str], answers: Iterable[Answer]) -> list[bytes]:
    """The JSON texts of what models said, one each. Floats have the fewest digits that give back the same bits."""
    # No text of JSON holds a bare line feed, so one call can write them all. It takes a list: msgspec 0.22 never
    # lets go of an iterator again.
    return _encode_lines([*map(value_of, models, answers)]).split(b"\n")[:-1]


def prepare() -> None:
    """Nothing has to be asked."""
