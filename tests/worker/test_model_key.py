"""Model keys from records: the record's own, or a field of the value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.worker.support.fakes import config
from worker.base.records import Record, Reject
from worker.repartition.model_key import KeyOf, key_reader


def reader(model_key: str, *, codec: Any = "json", null_key: str | None = None) -> KeyOf:
    given = config(null_key=null_key)
    return key_reader(replace(given, input=replace(given.input, model_key=model_key, codec=codec)))


def record(value: bytes | None, key: bytes | None = b"record key") -> Record:
    return Record(7, 0, key, value, [])


def test_the_record_key_is_taken_as_it_is() -> None:
    key_of = reader("key")
    assert key_of(record(b"{", b"\xff")) == b"\xff"
    assert key_of(record(b"{", None)) is None


def test_records_without_a_key_come_through_one_partition_where_they_have_one_model() -> None:
    assert reader("key", null_key="nobody")(record(b"{}", None)) == b"nobody"


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (b'"shop-7"', "shop-7"),
        (b'"caf\\u00e9 \\"x\\""', 'caf\u00e9 "x"'),
        (b'"1"', "1"),
        (b" 1 ", "1"),
        (b"-12", "-12"),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b"true", "true"),
        (b"false", "false"),
    ],
)
def test_a_field_is_text_or_the_json_text_of_an_integer_or_boolean(field: bytes, key: str) -> None:
    value = b'{"features": {"shop": 3}, "shop": %s, "label": "a"}' % field
    assert reader("field:shop")(record(value)) == key.encode()


@pytest.mark.parametrize(
    ("field", "key"), [("shop-7", "shop-7"), (5, "5"), (2**64 - 1, str(2**64 - 1)), (True, "true")]
)
def test_a_field_of_message_pack_makes_the_same_key(field: object, key: str) -> None:
    value = msgspec.msgpack.encode({"features": [1.0], "shop": field})
    assert reader("field:shop", codec="msgpack")(record(value)) == key.encode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"{}", "absent"),
        (b'{"features": {"shop": 1}}', "absent"),
        (b'{"shop": null}', "null"),
        (b'{"shop": 1.0}', "neither"),
        (b'{"shop": 1e3}', "neither"),
        (b'{"shop": ["a"]}', "neither"),
        (b'{"shop": {"shop": 1}}', "neither"),
        (b'{"shop": "a"', "cannot be read"),
        (b'{"shop": "\xff"}', "cannot be read"),
        (b'{"shop": "\\ud800"}', "cannot be read"),
        (b'{"shop": 1, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "cannot be read"),
        (b"[1]", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_field_that_is_no_key_is_a_dead_letter(value: bytes | None, why: str) -> None:
    found = reader("field:shop")(record(value))
    assert isinstance(found, Reject)
    assert found.code == "missing-model-key"
    assert "'shop'" in found.reason
    assert why in found.reason


@pytest.mark.parametrize("field", [None, 1.5, b"bytes", ["a"], msgspec.msgpack.Ext(1, b"x")])
def test_a_field_of_message_pack_that_is_no_key_is_a_dead_letter(field: object) -> None:
    found = reader("field:shop", codec="msgpack")(record(msgspec.msgpack.encode({"shop": field})))
    assert isinstance(found, Reject)
    assert found.code == "missing-model-key"


def test_a_value_of_message_pack_that_is_too_deep_to_be_read_is_a_dead_letter() -> None:
    found = reader("field:shop", codec="msgpack")(record(b"\x82\xa4shop\x01\xa1x" + b"\x91" * 5000 + b"\x01"))
    assert isinstance(found, Reject)
    assert (found.code, found.reason.rpartition(": ")[2]) == (
        "missing-model-key",
        "it is nested deeper than 64 levels",
    )


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_stack_without_room_makes_no_dead_letter(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key_of = reader("field:shop", codec=codec)

    def exhausted(_: bytes) -> object:
        raise RecursionError

    monkeypatch.setattr(key_of, "_decode", exhausted)
    value = {"shop": 1, "x": [[1]]}
    with pytest.raises(RecursionError):
        key_of(record(msgspec.json.encode(value) if codec == "json" else msgspec.msgpack.encode(value)))


@pytest.mark.parametrize("text", ["", "x" * 513])
def test_a_field_must_be_a_model_key_in_length(text: str) -> None:
    found = reader("field:shop")(record(msgspec.json.encode({"shop": text})))
    assert isinstance(found, Reject)
    assert found.code == "invalid-key"
