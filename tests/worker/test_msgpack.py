"""MessagePack: the events, the limits and the codes of JSON, whatever the bytes."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.values import MESSAGES, outcome, prediction
from worker import codec
from worker.base.errors import ConfigError
from worker.base.records import Estimate, Event, Reject
from worker.cli.dataset import Row, message
from worker.codec import msgpack
from worker.codec.dead_letters import DECODER, DECODERS, REJECT_CODES
from worker.codec.msgpack import decode, encode_answers

packed = msgspec.msgpack.encode


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"features": {"a": 1.5, "b": None}, "label": "x", "id": "7"}, Event({"a": 1.5, "b": None}, "x", "7")),
        ({"features": {"a": True, "b": "x"}, "id": 7, "more": 1}, Event({"a": 1.0, "b": "x"}, None, "7")),
        ({"features": [False, 1.5], "id": -7}, Event([0.0, 1.5], None, "-7")),
        ({"features": [1, -2000, None]}, Event([1.0, -2000.0, None], None, None)),
        ({"features": {"a": "red", "b": 2}, "label": True}, Event({"a": "red", "b": 2.0}, True, None)),
        ({"features": [2**64 - 1, -(2**63)], "label": 1}, Event([float(2**64), -float(2**63)], 1, None)),
        (
            {"features": [127, 128, 255, 256, -1, -32, -33, -128, -129], "more": None},
            Event([127.0, 128.0, 255.0, 256.0, -1.0, -32.0, -33.0, -128.0, -129.0], None, None),
        ),
        ({"features": [0.5], "label": 1.0, "meta": [{"deep": [b"\xff", {}]}]}, Event([0.5], 1.0, None)),
        (
            {"features": {"größe": 1}, "label": "", "x": datetime(2026, 1, 1, tzinfo=UTC)},
            Event({"größe": 1.0}, "", None),
        ),
    ],
)
def test_a_good_value_is_this_event(message: dict[str, Any], event: Event) -> None:
    assert outcome(decode(packed(message), MAX_BYTES)) == outcome(event)


@given(MESSAGES)
@settings(max_examples=500)
def test_the_same_content_is_the_same_event_as_json(message: dict[str, Any]) -> None:
    fits = all(-(2**63) <= n < 2**64 for n in integers_in(message))
    if fits:
        as_json = codec.decode(json.dumps(message).encode(), MAX_BYTES)
        assert outcome(decode(packed(message), MAX_BYTES)) == outcome(as_json)


def integers_in(value: Any) -> list[int]:
    if isinstance(value, dict | list):
        return [n for each in (value.values() if isinstance(value, dict) else value) for n in integers_in(each)]
    return [value] if isinstance(value, int) else []


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


FEATURES = b"\x81\xa8features"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "null-value"),
        (packed({"features": [1], "x": "y" * MAX_BYTES}), "too-large"),
        (b"", "malformed-msgpack"),
        (b"\xc1", "malformed-msgpack"),
        (packed({"features": [1]}) + b"\xc0", "malformed-msgpack"),
        (packed({"features": [1]})[:-1], "malformed-msgpack"),
        (FEATURES + b"\xdd\xff\xff\xff\xff", "malformed-msgpack"),
        (b"\xdf\xff\xff\xff\xff", "malformed-msgpack"),
        (b"\xc6\xff\xff\xff\xff", "malformed-msgpack"),
        (b"\x91" * 100_000 + b"\x90", "malformed-msgpack"),
        (packed({"features": [1], "x": nested(64)}), "malformed-msgpack"),
        (b"\x82\xa8features\x91\x01\xa1x" + b"\x81\xa1x" * 64 + b"\xc0", "malformed-msgpack"),
        (b"\x82\xa8features\x91\x01\xa1x\xa1\xff", "malformed-msgpack"),
        (b"\x82\xa8features\x91\x01\x07\x07", "malformed-msgpack"),
        (packed([1]), "wrong-type"),
        (packed(math.nan), "wrong-type"),
        (packed({"features": math.nan}), "wrong-type"),
        (packed({"features": [1], "id": math.inf}), "wrong-type"),
        (packed({"features": [1], "id": 7.0}), "wrong-type"),
        (packed({"features": {"a": []}}), "wrong-type"),
        (packed({"features": {"a": b"bytes"}}), "wrong-type"),
        (packed({"features": [datetime(2026, 1, 1, tzinfo=UTC)]}), "wrong-type"),
        (packed({"features": ["text"]}), "wrong-type"),
        (packed({"features": [1], "label": []}), "wrong-type"),
        (packed({"features": [1, math.nan]}), "non-finite-number"),
        (packed({"features": {"a": "x", "b": -math.inf}}), "non-finite-number"),
        (packed({"features": {"a": " -Infinity"}}), "non-finite-number"),
        (packed({"features": [1], "label": math.nan}), "non-finite-number"),
        (packed({"features": [1], "label": 2e75}), "number-out-of-range"),
        (packed({"label": 1}), "missing-features"),
        (packed({"features": None}), "wrong-type"),
        (packed({"features": {}}), "empty-features"),
        (packed({"features": {"ä" * 257: 1}}), "feature-name-too-long"),
        (packed({"features": {"a": "ä" * 257}}), "category-too-long"),
        (packed({"features": [1], "label": "ä" * 129}), "label-too-long"),
        (packed({"features": [1], "id": "ä" * 1025}), "id-too-long"),
    ],
)
def test_a_bad_value_gets_its_code(value: bytes | None, code: str) -> None:
    assert outcome(decode(value, MAX_BYTES)) == code


def test_a_value_may_be_as_deep_as_json() -> None:
    assert outcome(decode(packed({"features": [1], "x": nested(63)}), MAX_BYTES)) == outcome(Event([1.0], None, None))


def test_a_name_that_occurs_twice_must_be_right_twice() -> None:
    twice = b"\x82\xa8features\x91\x01\xa8features\x91\x02"
    assert decode(twice, MAX_BYTES) == Event([2.0], None, None)
    assert outcome(decode(twice.replace(b"\x91\x01", b"\x91\x90"), MAX_BYTES)) == "wrong-type"


@pytest.mark.parametrize(
    "twice",
    [
        b"\xa8features\x91\xcb\x7f\xf8\0\0\0\0\0\0\xa8features\x91\x02",  # NaN
        b"\xa8features\x82\xa1a\xa3nan\xa1a\x02\xa2id\xc0",
        b"\xa8features\x91\x02\xa5label" + packed(2e75) + b"\xa5label\x01",
    ],
)
def test_of_a_name_that_occurs_twice_the_last_number_counts_whatever_is_ignored_beside_it(twice: bytes) -> None:
    n = 3 if b"label" in twice else 2
    alone, beside = bytes([0x80 + n]) + twice, bytes([0x81 + n]) + twice + b"\xa7ignored\x01"
    assert isinstance(decode(alone, MAX_BYTES), Event)
    assert decode(beside, MAX_BYTES) == decode(alone, MAX_BYTES)


edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3)), max_size=4)
packable = MESSAGES.filter(lambda message: all(-(2**63) <= n < 2**64 for n in integers_in(message)))


@given(packable, edits)
@settings(max_examples=1000)
def test_any_bytes_are_an_event_or_a_code_and_both_decoders_agree(
    message: dict[str, Any], edits: list[tuple[float, int, bytes]]
) -> None:
    value = packed(message)
    for place, removed, inserted in edits:
        at = round(place * len(value))
        value = value[:at] + inserted + value[at + removed :]
    decoded = decode(value, MAX_BYTES)
    assert not isinstance(decoded, Reject) or (decoded.code in REJECT_CODES and decoded.reason.encode())
    # Every fast answer is the one that the parser in Python gives.
    assert outcome(decoded) == outcome(msgpack._parsed(value))


@given(st.binary(max_size=200))
@settings(max_examples=1000)
def test_random_bytes_never_raise(value: bytes) -> None:
    decoded = decode(value, MAX_BYTES)
    assert isinstance(decoded, Event) or decoded.code in REJECT_CODES


def test_predictions_have_the_fields_of_the_json() -> None:
    answers = [
        prediction(),
        prediction(label=None, loss=None, id=None),
        Estimate(1.5, 0.25, [1.0, 1.5, 2.0], 2, 0.25, 9, "7"),
        Estimate(None, None, None, None, None, 0, None),
    ]
    for answer in answers:
        value = msgspec.msgpack.decode(encode_answers(["m"], [answer])[0])
        assert value == json.loads(codec.encode_answers(["m"], [answer])[0])
        assert list(value) == list(json.loads(codec.encode_answers(["m"], [answer])[0]))


def test_integers_that_messagepack_does_not_have_are_published_all_the_same() -> None:
    """JSON has them, and so the labels of events in JSON: the class is its text, the number a float."""
    wide, wider = 2**64 - 1, 10**20
    for label, published in ((wide, wide), (-(2**63), -(2**63)), (wider, str(wider)), (-wider, str(-wider))):
        answer = prediction(label=label, prediction=label)
        value = msgspec.msgpack.decode(encode_answers(["m"], [answer])[0])
        assert (value["label"], value["prediction"]) == (published, published)
        assert value | {"label": label, "prediction": label} == json.loads(codec.encode_answers(["m"], [answer])[0])
    unlabelled = prediction(label=None, loss=None, prediction=wider)
    assert "label" not in msgspec.msgpack.decode(encode_answers(["m"], [unlabelled])[0])
    estimate = Estimate(1.5, 0.25, [1.0, 1.5, 2.0], wider, 0.25, 9, "7")
    assert msgspec.msgpack.decode(encode_answers(["m"], [estimate])[0])["label"] == 1e20


def test_rows_of_a_file_are_the_same_events_in_both() -> None:
    row = Row(3, "k", {"a": 0.1, "b": None, "c": "red"}, "yes")
    event = decode(message(row, "msgpack"), MAX_BYTES)
    assert event == codec.decode(message(row), MAX_BYTES) == Event({"a": 0.1, "b": None, "c": "red"}, "yes", "3")
    with pytest.raises(ConfigError, match=r"input\.codec is avro"):
        message(row, "avro")


def test_floats_of_32_bits_keep_their_value() -> None:
    assert decode(FEATURES + b"\x91\xca" + struct.pack(">f", 0.1), MAX_BYTES) == Event(
        [struct.unpack(">f", struct.pack(">f", 0.1))[0]], None, None
    )


def test_each_codec_has_a_version_that_names_its_limits() -> None:
    assert DECODERS["json"] == DECODER == "json-4 512 256 256 128 1024 64 1e+75 256 256"
    assert len(set(DECODERS.values())) == 4
