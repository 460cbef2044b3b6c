"""JSON that is an event: what it becomes, up to every limit, whatever the stack."""

from __future__ import annotations

import json
import math
import sys
import time
from random import Random
from typing import Any

import pytest

from tests.worker.support.malformed import MAX_BYTES, good_fields, text_of
from tests.worker.support.values import code_of
from worker.base.limits import MAX_DEPTH
from worker.base.records import Event, Reject
from worker.codec import decode, decode_key
from worker.codec import json as json_codec
from worker.codec.dead_letters import is_too_deep


@pytest.mark.parametrize(
    ("value", "event"),
    [
        (b'{"features": {"a": 1.5, "b": null}, "label": "x", "id": "7"}', Event({"a": 1.5, "b": None}, "x", "7")),
        (b'{"features": [1, -2e3, null]}', Event([1.0, -2000.0, None], None, None)),
        (b' {"id": null, "label": null, "features": [0]}\n', Event([0.0], None, None)),
        (b'{"features": [0], "label": true}', Event([0.0], True, None)),
        (b'{"features": {"a": true, "b": false, "c": 2}}', Event({"a": 1.0, "b": 0.0, "c": 2.0}, None, None)),
        (b'{"features": {"a": "x", "b": true}}', Event({"a": "x", "b": 1.0}, None, None)),
        (b'{"features": [true, null, 2]}', Event([1.0, None, 2.0], None, None)),
        (b'{"features": [0], "id": 4711}', Event([0.0], None, "4711")),
        (b'{"features": {"a": "x"}, "id": -9223372036854775808}', Event({"a": "x"}, None, "-9223372036854775808")),
        (b'{"features": [0], "id": 18446744073709551615}', Event([0.0], None, "18446744073709551615")),
        (b'{"features": [0], "label": 1}', Event([0.0], 1, None)),
        (b'{"features": [0], "label": 1.0}', Event([0.0], 1.0, None)),
        (b'{"features": [0], "label": -2.5e3}', Event([0.0], -2500.0, None)),
        (b'{"features": [0], "label": 100000000000000000000}', Event([0.0], 10**20, None)),
        (b'{"features": [0], "label": ""}', Event([0.0], "", None)),
        (b'{"features": [0], "label": "NaN"}', Event([0.0], "NaN", None)),
        (b'{"features": [99999999999999999999999, 1e-400]}', Event([1e23, 0.0], None, None)),
        (b'{"features": {"": 1}, "\\u006cabel": "\\ud83d\\ude00"}', Event({"": 1.0}, "\U0001f600", None)),
        (b'{"features": [0], "other": [{"features": "x"}, 1e999]}', Event([0.0], None, None)),
        (b'{"features": {"a": 1, "b": 2, "a": 3}}', Event({"a": 3.0, "b": 2.0}, None, None)),
        (b'{"features": {"a": "x", "b": 2, "c": null}}', Event({"a": "x", "b": 2.0, "c": None}, None, None)),
        (b'{"features": {"a": "12.5", "b": ""}}', Event({"a": "12.5", "b": ""}, None, None)),
        (
            b'{"features": {"a": "nano", "b": "in", "c": "NaN1"}}',
            Event({"a": "nano", "b": "in", "c": "NaN1"}, None, None),
        ),
        (b'{"features": {"a": "x", "a": 3}}', Event({"a": 3.0}, None, None)),
        (b'{"features": {"a": 3, "a": "\\u0078"}}', Event({"a": "x"}, None, None)),
        (b'{"features": [], "label": 1, "features": {"a": 0}, "label": 2}', Event({"a": 0.0}, 2, None)),
    ],
)
def test_a_good_value_is_this_event(value: bytes, event: Event) -> None:
    decoded = decode(value, MAX_BYTES)
    assert decoded == event
    assert type(decoded.label) is type(event.label)


def test_integers_and_booleans_become_floats() -> None:
    event = decode(b'{"features": {"a": 1, "b": true}}', MAX_BYTES)
    assert [type(value) for value in event.features.values()] == [float, float]
    event = decode(b'{"features": [1, false]}', MAX_BYTES)
    assert [type(value) for value in event.features] == [float, float]


def test_generated_good_messages_decode() -> None:
    random = Random(0)
    values = [text_of(good_fields(random), random).encode() for _ in range(500)]
    assert [value for value in values if isinstance(decode(value, MAX_BYTES), Reject)] == []


def json_message(**fields: Any) -> bytes:
    return json.dumps({"features": [1]} | fields, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("largest", "beyond", "code"),
    [
        (json_message(features={"ä" * 256: 1}), json_message(features={"ä" * 257: 1}), "feature-name-too-long"),
        (json_message(features={"a": "ä" * 256}), json_message(features={"a": "ä" * 257}), "category-too-long"),
        (json_message(label="ä" * 128), json_message(label="ä" * 129), "label-too-long"),
        (json_message(id="\U0001f600" * 1024), json_message(id="\U0001f600" * 1025), "id-too-long"),
        (json_message(label=1e75), json_message(label=math.nextafter(1e75, 2e75)), "number-out-of-range"),
        (json_message(id=2**64 - 1), json_message(id=2**64), "number-out-of-range"),
        (json_message(id=-(2**63)), json_message(id=-(2**63) - 1), "number-out-of-range"),
        (json_message(label=-1e75), json_message(label=-1.1e75), "number-out-of-range"),
        (json_message(label=int(1e75)), json_message(label=int(1e75) + 1), "number-out-of-range"),
        (json_message(features=[int(sys.float_info.max)]), json_message(features=[2**1024]), "number-out-of-range"),
    ],
)
def test_what_is_beyond_a_limit_is_rejected_and_the_limit_itself_is_not(
    largest: bytes, beyond: bytes, code: str
) -> None:
    assert code_of(decode(largest, MAX_BYTES)) is None
    assert code_of(decode(beyond, MAX_BYTES)) == code
    assert code_of(decode(largest, len(largest))) is None
    assert code_of(decode(largest, len(largest) - 1)) == "too-large"


def test_what_is_within_the_limits_is_not_the_fault() -> None:
    assert code_of(decode(json_message(features={"a" * 256: 1, "b": "NaN"}), MAX_BYTES)) == "non-finite-number"
    assert code_of(decode(json_message(features={"a": "x" * 256, "b": []}), MAX_BYTES)) == "wrong-type"
    for label in ("x" * 128, 1e75, -int(1e75), 1.5, None, True):
        assert code_of(decode(json_message(label=label, id=7.5), MAX_BYTES)) == "wrong-type"
    for name in ("i" * 1024, -(2**63), 2**64 - 1, None):
        assert code_of(decode(json_message(id=name, label=[]), MAX_BYTES)) == "wrong-type"


def nested(levels: int) -> bytes:
    """A message whose deepest value is `levels` deep, arrays and objects mixed."""
    pairs, odd = divmod(levels - 1, 2)
    return b'{"features": [1], "x": ' + b'[{"a":' * pairs + b"[" * odd + b"0" + b"]" * odd + b"}]" * pairs + b"}"


def test_a_value_deeper_than_the_limit_is_malformed() -> None:
    assert code_of(decode(nested(MAX_DEPTH), MAX_BYTES)) is None
    assert code_of(decode(nested(MAX_DEPTH + 1), MAX_BYTES)) == "malformed-json"


def test_brackets_are_nesting_only_where_they_nest() -> None:
    wide = b'{"features": [1], "x": [' + b"[{}], " * 500 + b"0]}"
    text = b'{"features": [1], "x": "' + b'[{\\"' * 500 + b'\\\\"}'
    assert code_of(decode(wide, MAX_BYTES)) is None
    assert code_of(decode(text, MAX_BYTES)) is None


def test_verdict_does_not_depend_on_the_stack() -> None:
    def decode_below(frames: int, value: bytes) -> Event | Reject:
        return decode(value, MAX_BYTES) if frames == 0 else decode_below(frames - 1, value)

    for levels in (MAX_DEPTH, MAX_DEPTH + 1, 300, 600):
        for value in (nested(levels), nested(levels)[:-1], b'"' + nested(levels), b"]" + nested(levels)):
            assert decode_below(500, value) == decode(value, MAX_BYTES)


@pytest.mark.parametrize(
    "value", [json_message(), json_message(features={"a": "x"}), nested(MAX_DEPTH), b'{"features": [1']
)
def test_a_stack_without_room_makes_no_dead_letter(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the levels of the value that count, not those of the stack."""

    def exhausted(_: bytes) -> object:
        raise RecursionError

    monkeypatch.setattr(json_codec, "_decode_numbers", exhausted)
    with pytest.raises(RecursionError):
        decode(value, MAX_BYTES)
    assert code_of(decode(nested(MAX_DEPTH + 1), MAX_BYTES)) == "malformed-json"


def test_a_string_without_an_end_is_looked_at_once() -> None:
    """In a text of escaped quotes each might begin another string."""
    started = time.perf_counter()
    assert is_too_deep(b"[" * (MAX_DEPTH + 1) + b'"' + b'\\"' * 500_000)
    assert time.perf_counter() - started < 5


def test_a_key_is_text_of_bounded_length() -> None:
    assert decode_key("größe ".encode()) == "größe "
    assert decode_key(b"k" * 512) == "k" * 512
    assert code_of(decode_key(b"k" * 513)) == "invalid-key"
    assert code_of(decode_key(b"")) == "invalid-key"
    assert code_of(decode_key(b"a\xff")) == "invalid-key"
