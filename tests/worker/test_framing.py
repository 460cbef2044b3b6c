"""Which schema a value names, and what becomes of it where there is none."""

from __future__ import annotations

import pytest

from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.schemas import MAP, avro_bytes, event_schema, framed, open_codec
from tests.worker.support.values import outcome
from worker.base.errors import Transient
from worker.base.records import Event, Record
from worker.codec.framing import framed_value, framing_of


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "null-value"),
        (b"\0" * (MAX_BYTES + 1), "too-large"),
        (b"x" * MAX_BYTES, "no-schema"),
        (b"", "no-schema"),
        (b"\0\0\0\0", "no-schema"),
        (b"\1" * 16, "no-schema"),
        (b'{"features": [1]}', "no-schema"),
        (b"\0\xff\xff\xff\xff" + b'{"features": [1]}', "unknown-schema"),
        (b"\0\x80\0\0\0" + b'{"features": [1]}', "unknown-schema"),
    ],
)
def test_what_names_no_schema_is_a_dead_letter(
    stub_registry: StubRegistry, name: str, value: bytes | None, code: str
) -> None:
    events, _ = open_codec(name, stub_registry.url)
    assert outcome(events.decode(value, MAX_BYTES)) == code


@pytest.mark.parametrize("value", [b"\0\0\0\0\7", b"\1" * 17])
def test_a_value_that_ends_with_its_framing_names_a_schema(value: bytes) -> None:
    assert framing_of(value) == len(value)


NOT_REGISTERED = [b"\0\0\0\0\7", b"\0\x7f\xff\xff\xff", b"\1" + b"\xab" * 16]


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize("frame", NOT_REGISTERED)
@pytest.mark.parametrize("knows_guids", [True, False])
def test_a_value_waits_for_a_schema_that_is_not_registered(
    stub_registry: StubRegistry, name: str, frame: bytes, knows_guids: bool
) -> None:
    """A replay may find the schema there: what it would learn must not have been refused. Partitions wait for each
    answer, so for some seconds the registry is not asked again."""
    stub_registry.knows_guids = knows_guids
    events, _ = open_codec(name, stub_registry.url)
    for _ in range(2):
        with pytest.raises(Transient, match=r"has no schema of .*register it.*on_unknown: dead-letter"):
            events.decode(frame + b'{"features": [1]}', MAX_BYTES)
    assert stub_registry.asked.total() == 1
    weaker, _ = open_codec(name, stub_registry.url, ", on_unknown: dead-letter")
    assert outcome(weaker.decode(frame + b'{"features": [1]}', MAX_BYTES)) == "unknown-schema"


def test_a_value_is_read_once_its_schema_is_registered(stub_registry: StubRegistry, asked_at_once: None) -> None:
    events, _ = open_codec("avro", stub_registry.url)
    schema = event_schema(MAP)
    value = framed(1, avro_bytes(schema, {"features": {"a": 1.5}}))
    with pytest.raises(Transient):
        events.decode(value, MAX_BYTES)
    assert stub_registry.add("events-value", schema) == 1
    assert outcome(events.decode(value, MAX_BYTES)) == outcome(Event({"a": 1.5}, None, None))


def test_a_guid_in_the_header_names_the_schema(stub_registry: StubRegistry) -> None:
    schema = event_schema(MAP)
    number = stub_registry.add("events-value", schema)
    payload = avro_bytes(schema, {"features": {"a": 1.5}})
    header = b"\1" + bytes.fromhex(stub_registry.guid(number).replace("-", ""))
    value = framed_value(Record(0, 0, b"k", payload, [("a", b"b"), ("__value_schema_id", header)]))
    events, _ = open_codec("avro", stub_registry.url)
    assert outcome(events.decode(value, MAX_BYTES)) == outcome(Event({"a": 1.5}, None, None))


def test_a_tombstone_is_one_whatever_schema_its_header_names() -> None:
    assert framed_value(Record(0, 0, b"k", None, [("__value_schema_id", b"\0\0\0\0\1")])) is None
