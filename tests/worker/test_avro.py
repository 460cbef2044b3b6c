"""Avro: what is an event by its bytes and its schema, and which schemas are refused."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.schemas import MAP, avro_bytes, avro_outcome, event_schema, framed, open_codec
from tests.worker.support.values import outcome
from worker.adapters.kafka import reading
from worker.adapters.kafka.registry import ConfluentRegistry
from worker.base.records import Event, Reject
from worker.codec import Codec
from worker.codec.dead_letters import REJECT_CODES

NESTED = {"type": "record", "name": "Features", "fields": [
    {"name": "a", "type": "int"},
    {"name": "b", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
    {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
]}  # fmt: skip
DATED = {"type": "record", "name": "Dated", "fields": [
    {"name": "a", "type": {"type": "int", "logicalType": "date"}},
    {"name": "b", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "c", "type": {"type": "string", "logicalType": "uuid"}},
]}  # fmt: skip
DATES = {"a": 18262.0, "b": 1577836800000.0}


@pytest.mark.parametrize(
    ("features", "datum", "event"),
    [
        (MAP, {"features": {"a": 1.5, "b": None, "c": "red"}}, Event({"a": 1.5, "b": None, "c": "red"}, None, None)),
        (MAP, {"features": {"a": 3}, "label": "x", "id": "7"}, Event({"a": 3.0}, "x", "7")),
        (MAP, {"features": {"a": True, "b": False}}, Event({"a": 1.0, "b": 0.0}, None, None)),
        ({"type": "map", "values": "null"}, {"features": {"a": None}}, Event({"a": None}, None, None)),
        (MAP, {"features": {"a": 3}, "label": True}, Event({"a": 3.0}, True, None)),
        (MAP, {"features": {"a": 3}, "label": 2}, Event({"a": 3.0}, 2, None)),
        (MAP, {"features": {"a": 3}, "label": 2.5}, Event({"a": 3.0}, 2.5, None)),
        ({"type": "array", "items": ["null", "double"]}, {"features": [1.0, None]}, Event([1.0, None], None, None)),
        (
            NESTED,
            {"features": {"a": 1, "b": "BLUE", "c": Decimal("1.25")}},
            Event({"a": 1.0, "b": "BLUE", "c": 1.25}, None, None),
        ),
        (DATED, {"features": {"a": 18262, "b": 1577836800000, "c": "red"}}, Event(DATES | {"c": "red"}, None, None)),
        (
            DATED,
            {"features": {"a": -(2**31), "b": 0, "c": ""}},
            Event({"a": -(2.0**31), "b": 0.0, "c": ""}, None, None),
        ),
    ],
)
def test_an_avro_record_is_an_event(
    stub_registry: StubRegistry, features: Any, datum: dict[str, Any], event: Event
) -> None:
    schema = event_schema(features)
    assert avro_outcome(stub_registry, schema, avro_bytes(schema, datum)) == outcome(event)


@pytest.mark.parametrize(
    ("features", "datum", "code"),
    [
        (MAP, {"features": {}}, "empty-features"),
        (MAP, {"features": {"a": math.nan}}, "non-finite-number"),
        (MAP, {"features": {"a": "NaN"}}, "non-finite-number"),
        (MAP, {"features": {"a": "x" * 257}}, "category-too-long"),
        (MAP, {"features": {"x" * 257: 1.0}}, "feature-name-too-long"),
        (MAP, {"features": {"a": 1.0}, "label": "x" * 129}, "label-too-long"),
        (MAP, {"features": {"a": 1.0}, "label": -1e76}, "number-out-of-range"),
        (MAP, {"features": {"a": 1.0}, "label": math.inf}, "non-finite-number"),
        ("string", {"features": "abc"}, "wrong-type"),
        ("bytes", {"features": b"abc"}, "wrong-type"),
        ({"type": "array", "items": "string"}, {"features": ["a"]}, "wrong-type"),
        ({"type": "map", "values": "bytes"}, {"features": {"a": b"1"}}, "wrong-type"),
    ],
)
def test_an_avro_record_that_is_no_event_gets_its_code(
    stub_registry: StubRegistry, features: Any, datum: Any, code: str
) -> None:
    schema = event_schema(features)
    assert avro_outcome(stub_registry, schema, avro_bytes(schema, datum)) == code


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "x", "type": "null"}]}


def chain(length: int) -> list[dict[str, Any]]:
    """Fields of records, each with the one before it inside."""
    kinds: list[Any] = ["int", *(f"R{i}" for i in range(length))]
    return [
        {"name": f"f{i}", "type": {"type": "record", "name": f"R{i}", "fields": [{"name": "x", "type": kinds[i]}]}}
        for i in range(length)
    ]


def doubled(levels: int) -> dict[str, Any]:
    """Records without bytes, each of which has the one before twice: a few lines that lead to 2**levels parts."""
    schema: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, levels + 1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


def beside_an_int(schema: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "n", "type": "int"}, {"name": "rest", "type": schema}]
    return {"type": "record", "name": "Item", "fields": fields}


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "nonsense"}',
        "{",
        '"other.Event"',
        '{"type": "record", "name": "Event"}',
        event_schema(MAP, {"name": "kind", "type": {"type": "enum", "name": "Kind"}}),
        event_schema(MAP, {"name": "n", "type": "int", "default": "none"}),
        event_schema(MAP, {"name": "list", "type": NODE}),
        event_schema(MAP, {"name": "nothing", "type": {"type": "array", "items": "null"}}),
        event_schema(MAP, {"name": "nothing", "type": {"type": "array", "items": EMPTY}}),
        event_schema(MAP, {"name": "nothing", "type": doubled(10)}),
        event_schema(MAP, {"name": "nothing", "type": doubled(60)}),
        event_schema(MAP, {"name": "hardly", "type": {"type": "array", "items": beside_an_int(doubled(4))}}),
        event_schema(MAP, {"name": "hardly", "type": {"type": "map", "values": beside_an_int(doubled(5))}}),
        event_schema(MAP, *chain(70)),
        json.dumps({"type": "array", "items": json.loads("[" * 70 + '"int"' + "]" * 70)}),
    ],
)
def test_a_schema_by_which_reading_might_not_end_or_not_be_known_is_refused(
    stub_registry: StubRegistry, schema: str
) -> None:
    assert avro_outcome(stub_registry, schema, b"\x02" * 1000) == "unusable-schema"


def test_bytes_behind_a_datum_make_it_malformed(stub_registry: StubRegistry) -> None:
    schema = event_schema(MAP)
    payload = avro_bytes(schema, {"features": {"a": 1.0}})
    assert avro_outcome(stub_registry, schema, payload) == outcome(Event({"a": 1.0}, None, None))
    assert avro_outcome(stub_registry, schema, payload + b"\0") == "malformed-avro"


def decimal(precision: Any, scale: Any = 0, **kind: Any) -> dict[str, Any]:
    """An Avro type of decimals."""
    return {**({"type": "bytes"} | kind), "logicalType": "decimal", "precision": precision, "scale": scale}


FIXED = {"type": "fixed", "name": "Amount", "size": 16}


def test_why_bytes_are_malformed_is_the_same_each_time(stub_registry: StubRegistry) -> None:
    """Dead letters are made again, byte for byte; what the library says holds the address of an object."""
    events, _ = open_codec("avro", stub_registry.url)
    value = framed(stub_registry.add("events-value", event_schema(MAP)), b"\x04\x02a")
    others, reasons = [], set()
    for size in range(3):
        others.append(bytearray(200 * size))
        refused = events.decode(value, MAX_BYTES)
        assert isinstance(refused, Reject)
        reasons.add(refused.reason)
    assert len(reasons) == 1
    assert " at 0x" not in reasons.pop()


@pytest.mark.parametrize("kind", [{}, FIXED])
@pytest.mark.parametrize("number", ["0", "-0.01", "12345678901234567890.12", "-99999999999999999999999999999999999.99"])
def test_a_decimal_of_all_digits_is_read_exactly(
    stub_registry: StubRegistry, kind: dict[str, Any], number: str
) -> None:
    schema = event_schema({"type": "map", "values": "int"}, {"name": "amount", "type": decimal(37, 2, **kind)})
    _, registry = open_codec("avro", stub_registry.url)
    value = framed(
        stub_registry.add("s", schema), avro_bytes(schema, {"features": {"a": 1}, "amount": Decimal(number)})
    )
    datum = registry.read_avro(value, 5)
    assert isinstance(datum, dict)
    assert datum["amount"] == Decimal(number)


@pytest.mark.parametrize("unscaled", [10**6, -(10**6), 256**990_000], ids=["just", "negative", "huge"])
def test_a_decimal_beyond_its_precision_is_malformed_before_it_has_digits(
    stub_registry: StubRegistry, unscaled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million bytes of it would take minutes to become digits."""
    made = []

    def counted(number: int) -> Decimal:
        made.append(number)
        return Decimal(number)

    monkeypatch.setattr(reading, "Decimal", counted)
    schema = event_schema({"type": "map", "values": decimal(6, 2)})
    size = unscaled.bit_length() // 8 + 1
    plain = avro_bytes(
        event_schema({"type": "map", "values": "bytes"}), {"features": {"a": unscaled.to_bytes(size, signed=True)}}
    )
    assert avro_outcome(stub_registry, schema, plain) == "malformed-avro"
    assert not made
    good = avro_bytes(schema, {"features": {"a": Decimal("-9999.99")}})
    assert avro_outcome(stub_registry, schema, good) == outcome(Event({"a": -9999.99}, None, None))
    assert made == [-999999]


@pytest.mark.parametrize("kind", [{}, FIXED])
@pytest.mark.parametrize(("precision", "scale"), [(501, 0), (10**9, 0), (0, 0), (None, 0), ("6", 0), (6, 7), (6, -1)])
def test_a_decimal_that_is_none_makes_the_schema_unusable(
    stub_registry: StubRegistry, kind: dict[str, Any], precision: Any, scale: Any
) -> None:
    schema = event_schema({"type": "map", "values": decimal(precision, scale, **kind)})
    assert avro_outcome(stub_registry, schema, b"\x02\x02a\x20" + b"\0" * 20) == "unusable-schema"


def test_parts_without_bytes_that_are_few_are_no_reason_to_refuse_a_schema(stub_registry: StubRegistry) -> None:
    item = {"type": "array", "items": beside_an_int({"type": "record", "name": "Mark", "fields": []})}
    optional = [{"name": f"f{i}", "type": ["null", "double"], "default": None} for i in range(2_000)]
    schema = event_schema(MAP, {"name": "nothing", "type": doubled(8)}, {"name": "items", "type": item}, *optional)
    value = {"features": {"a": 1.0}, "nothing": empty(8), "items": [{"n": 1, "rest": {}}] * 3}
    assert avro_outcome(stub_registry, schema, avro_bytes(schema, value)) == outcome(Event({"a": 1.0}, None, None))


def empty(levels: int) -> dict[str, Any]:
    """A value of `doubled`."""
    return {"a": empty(levels - 1), "b": empty(levels - 1)} if levels else {}


def test_a_schema_may_be_as_deep_as_a_value(stub_registry: StubRegistry) -> None:
    schema = event_schema(MAP, *chain(62))
    payload = avro_bytes(event_schema(MAP), {"features": {"a": 1.0}})
    assert avro_outcome(stub_registry, schema, payload + b"\x02" * 62) == outcome(Event({"a": 1.0}, None, None))


def test_a_schema_of_another_kind_or_with_references_is_refused(stub_registry: StubRegistry) -> None:
    events, _ = open_codec("avro", stub_registry.url)
    other = stub_registry.add("s", "{}", "JSON")
    references = [{"name": "X", "subject": "x-value", "version": 1}]
    referring = stub_registry.add("s", event_schema(MAP), references=references)
    for number in (other, referring):
        assert outcome(events.decode(framed(number, b"\x02"), MAX_BYTES)) == "unusable-schema"


@given(st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=4))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_an_event_or_a_code(
    stub_registry: StubRegistry, garbage: bytes, at: int, inserted: bytes
) -> None:
    schema = event_schema(MAP)
    number = stub_registry.add("events-value", schema)
    events, _ = OPEN.setdefault(stub_registry.url, open_codec("avro", stub_registry.url))
    good = avro_bytes(schema, {"features": {"a": 1.5, "b": "x"}, "label": "x", "id": "7"})
    for payload in (garbage, good[:at] + inserted + good[at:]):
        decoded = events.decode(framed(number, payload), MAX_BYTES)
        assert isinstance(decoded, Event) or decoded.code in REJECT_CODES


OPEN: dict[str, tuple[Codec, ConfluentRegistry]] = {}
