"""Avro and JSON Schema: what is an event by its bytes and its schema; a registry that fails decides nothing."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.worker.support.configurations import document
from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.values import outcome, prediction
from worker import codec
from worker.adapters.kafka import reading
from worker.adapters.kafka import registry as adapter
from worker.adapters.kafka.reading import JsonValidator
from worker.adapters.kafka.registry import ConfluentRegistry
from worker.base.errors import ConfigError, Transient, WorkerError
from worker.base.records import Estimate, Event, Record, Reject
from worker.codec import Codec, avro, codec_of, json_schema
from worker.codec.dead_letters import REJECT_CODES
from worker.codec.framing import framed_value
from worker.config import effective, loads

LABEL = ["null", "boolean", "long", "double", "string"]
MAP = {"type": "map", "values": ["null", "double", "long", "boolean", "string"]}


def record(features: Any, *more: dict[str, Any]) -> str:
    """An Avro schema of events."""
    label, id = {"name": "label", "type": LABEL, "default": None}, {"name": "id", "type": ["null", "string"]}
    fields = [{"name": "features", "type": features}, label, {**id, "default": None}, *more]
    return json.dumps({"type": "record", "name": "Event", "fields": fields})


def open_codec(name: str, url: str, more: str = "", timeout: str = "30s") -> tuple[Codec, ConfluentRegistry]:
    text = document(
        input=f"{{topic: events, codec: {name}}}",
        output=f"{{topic: predictions, codec: {name}}}",
        schema_registry=f'{{url: "{url}", timeout: {timeout}{more}}}',
    )
    registry = ConfluentRegistry(loads(text, {}))
    return codec_of(name, "predictions", registry), registry


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with StubRegistry() as stub:
        yield stub


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that failed is asked again at once."""
    monkeypatch.setattr(adapter, "REST_S", 0.0)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + payload


def written(schema: str, datum: object) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(schema)), datum)
    return file.getvalue()


def avro_outcome(stub: StubRegistry, schema: str, payload: bytes) -> Any:
    events, _ = open_codec("avro", stub.url)
    return outcome(events.decode(framed(stub.add("events-value", schema), payload), MAX_BYTES))


# --- Avro -------------------------------------------------------------------------------------------------------------

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
def test_an_avro_record_is_an_event(stub: StubRegistry, features: Any, datum: dict[str, Any], event: Event) -> None:
    schema = record(features)
    assert avro_outcome(stub, schema, written(schema, datum)) == outcome(event)


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
def test_an_avro_record_that_is_no_event(stub: StubRegistry, features: Any, datum: Any, code: str) -> None:
    schema = record(features)
    assert avro_outcome(stub, schema, written(schema, datum)) == code


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "x", "type": "null"}]}


def chain(length: int) -> list[dict[str, Any]]:
    """Fields of records, each with the one before it inside."""
    kinds: list[Any] = ["int", *(f"R{i}" for i in range(length))]
    return [
        {"name": f"f{i}", "type": {"type": "record", "name": f"R{i}", "fields": [{"name": "x", "type": kinds[i]}]}}
        for i in range(length)
    ]


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "nonsense"}',
        "{",
        '"other.Event"',
        '{"type": "record", "name": "Event"}',
        record(MAP, {"name": "list", "type": NODE}),
        record(MAP, {"name": "nothing", "type": {"type": "array", "items": "null"}}),
        record(MAP, {"name": "nothing", "type": {"type": "array", "items": EMPTY}}),
        record(MAP, *chain(70)),
        json.dumps({"type": "array", "items": json.loads("[" * 70 + '"int"' + "]" * 70)}),
    ],
)
def test_a_schema_by_which_reading_might_not_end_or_not_be_known_is_refused(stub: StubRegistry, schema: str) -> None:
    assert avro_outcome(stub, schema, b"\x02" * 1000) == "unusable-schema"


def decimal(precision: Any, scale: Any = 0, **kind: Any) -> dict[str, Any]:
    """An Avro type of decimals."""
    return {**({"type": "bytes"} | kind), "logicalType": "decimal", "precision": precision, "scale": scale}


FIXED = {"type": "fixed", "name": "Amount", "size": 16}


def test_why_bytes_are_malformed_is_the_same_each_time(stub: StubRegistry) -> None:
    """Dead letters are made again, byte for byte; what the library says holds the address of an object."""
    events, _ = open_codec("avro", stub.url)
    value = framed(stub.add("events-value", record(MAP)), b"\x04\x02a")
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
def test_a_decimal_of_all_digits_is_read_exactly(stub: StubRegistry, kind: dict[str, Any], number: str) -> None:
    schema = record({"type": "map", "values": "int"}, {"name": "amount", "type": decimal(37, 2, **kind)})
    _, registry = open_codec("avro", stub.url)
    value = framed(stub.add("s", schema), written(schema, {"features": {"a": 1}, "amount": Decimal(number)}))
    datum = registry.read_avro(value, 5)
    assert isinstance(datum, dict)
    assert datum["amount"] == Decimal(number)


@pytest.mark.parametrize("unscaled", [10**6, -(10**6), 256**990_000], ids=["just", "negative", "huge"])
def test_a_decimal_beyond_its_precision_is_malformed_before_it_has_digits(
    stub: StubRegistry, unscaled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million bytes of it would take minutes to become digits."""
    made = []

    def counted(number: int) -> Decimal:
        made.append(number)
        return Decimal(number)

    monkeypatch.setattr(reading, "Decimal", counted)
    schema = record({"type": "map", "values": decimal(6, 2)})
    size = unscaled.bit_length() // 8 + 1
    plain = written(
        record({"type": "map", "values": "bytes"}), {"features": {"a": unscaled.to_bytes(size, signed=True)}}
    )
    assert avro_outcome(stub, schema, plain) == "malformed-avro"
    assert not made
    good = written(schema, {"features": {"a": Decimal("-9999.99")}})
    assert avro_outcome(stub, schema, good) == outcome(Event({"a": -9999.99}, None, None))
    assert made == [-999999]


@pytest.mark.parametrize("kind", [{}, FIXED])
@pytest.mark.parametrize(("precision", "scale"), [(501, 0), (10**9, 0), (0, 0), (None, 0), ("6", 0), (6, 7), (6, -1)])
def test_a_decimal_that_is_none_makes_the_schema_unusable(
    stub: StubRegistry, kind: dict[str, Any], precision: Any, scale: Any
) -> None:
    schema = record({"type": "map", "values": decimal(precision, scale, **kind)})
    assert avro_outcome(stub, schema, b"\x02\x02a\x20" + b"\0" * 20) == "unusable-schema"


def test_a_schema_may_be_as_deep_as_a_value(stub: StubRegistry) -> None:
    schema = record(MAP, *chain(62))
    payload = written(record(MAP), {"features": {"a": 1.0}})
    assert avro_outcome(stub, schema, payload + b"\x02" * 62) == outcome(Event({"a": 1.0}, None, None))


def test_a_schema_of_another_kind_or_with_references_is_refused(stub: StubRegistry) -> None:
    events, _ = open_codec("avro", stub.url)
    other = stub.add("s", "{}", "JSON")
    references = [{"name": "X", "subject": "x-value", "version": 1}]
    referring = stub.add("s", record(MAP), references=references)
    for number in (other, referring):
        assert outcome(events.decode(framed(number, b"\x02"), MAX_BYTES)) == "unusable-schema"


@given(st.binary(max_size=60), st.integers(0, 40), st.binary(max_size=4))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_an_event_or_a_code(stub: StubRegistry, garbage: bytes, at: int, inserted: bytes) -> None:
    schema = record(MAP)
    number = stub.add("events-value", schema)
    events, _ = OPEN.setdefault(stub.url, open_codec("avro", stub.url))
    good = written(schema, {"features": {"a": 1.5, "b": "x"}, "label": "x", "id": "7"})
    for payload in (garbage, good[:at] + inserted + good[at:]):
        decoded = events.decode(framed(number, payload), MAX_BYTES)
        assert isinstance(decoded, Event) or decoded.code in REJECT_CODES


OPEN: dict[str, tuple[Codec, ConfluentRegistry]] = {}


# --- JSON Schema ------------------------------------------------------------------------------------------------------

JSON_EVENT = json.dumps(
    {"type": "object", "properties": {"label": {"enum": ["yes", "no"]}}, "required": ["features", "label"]}
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"features": {"a": 1, "b": "x"}, "label": "yes"}', Event({"a": 1.0, "b": "x"}, "yes", None)),
        (b'{"features": [1], "label": "maybe"}', "schema-mismatch"),
        (b'{"features": [1]}', "schema-mismatch"),
        (b'{"features": [NaN], "label": "yes"}', "non-finite-number"),
        (b'{"features": [1], "label": ', "malformed-json"),
        (b'{"features": [1], "label": "yes", "x": ' + b"9" * 5000 + b"}", "schema-mismatch"),
    ],
)
def test_json_behind_a_schema(stub: StubRegistry, text: bytes, expected: Event | str) -> None:
    events, _ = open_codec("json-schema", stub.url)
    decoded = outcome(events.decode(framed(stub.add("events-value", JSON_EVENT, "JSON"), text), MAX_BYTES))
    assert decoded == (expected if isinstance(expected, str) else outcome(expected))


@pytest.mark.parametrize("schema", ['{"$ref": "http://example.com/other.json"}', '{"items": [{"$ref": "other"}]}', "{"])
def test_a_json_schema_that_needs_other_documents_is_refused(stub: StubRegistry, schema: str) -> None:
    events, _ = open_codec("json-schema", stub.url)
    number = stub.add("events-value", schema, "JSON")
    assert outcome(events.decode(framed(number, b'{"features": [1]}'), MAX_BYTES)) == "unusable-schema"


def all_of(levels: int) -> dict[str, Any]:
    """A schema that takes twice as many levels, and one."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema


def chained(references: int) -> dict[str, Any]:
    """Definitions each of which is the next one, in a schema of a few levels."""
    definitions = {f"d{i}": {"$ref": f"#/definitions/d{i + 1}"} for i in range(references)}
    return {"definitions": {**definitions, f"d{references}": {}}, "$ref": "#/definitions/d0"}


def doubled(levels: int) -> dict[str, Any]:
    """Definitions each of which is the next one, twice: a few lines that lead to 2**levels parts."""
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/definitions/d{i + 1}"}] * 2} for i in range(levels)}
    return {"definitions": {**definitions, f"d{levels}": False}, "$ref": "#/definitions/d0"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "refers to itself"),
        ({"properties": {"label": {"$ref": "#"}}}, "refers to itself"),
        ({"properties": {"features": {"$ref": "#/definitions/a"}},
          "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"anyOf": [{"$ref": "#/definitions/a"}, {}]}}},
         "refers to itself"),
        ({"$defs": {"a": {"$anchor": "again", "not": {"$ref": "#again"}}}}, "refers to itself"),
        ({"definitions": {"a": {"$id": "#again", "not": {"$ref": "#again"}}}}, "refers to itself"),
        ({"definitions": {"a~/b": {"items": [{"$ref": "#/definitions/a~0~1b/items"}]}}}, "refers to itself"),
        ({"definitions": {"ä": {"items": {"$ref": "#/definitions/%C3%A4"}}}}, "refers to itself"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}},
         "refers to itself"),
        ({"$defs": {"a": {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}}}, "refers to itself"),
        ({"$ref": "#/definitions/nothing"}, "leads nowhere"),
        ({"$ref": "#nothing"}, "leads nowhere"),
        ({"definitions": {"a": {"$id": "http://example.com/other.json", "$ref": "#"}}}, "name of its own"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"a": {"id": "other.json"}}},
         "name of its own"),
        (all_of(32), "deeper than 64 levels"),
        (all_of(5_000), "deeper than 64 levels"),
        (chained(64), "deeper than 64 levels"),
        (doubled(12), "more than 10000 parts"),
        (doubled(60), "more than 10000 parts"),
        ({"properties": {"id": {"pattern": "^(?=a)"}}}, "properties/id/pattern"),
        ({"properties": {"id": {"pattern": "(a)\\1"}}}, "without looking ahead or back"),
        ({"patternProperties": {"^(?!x)": {}}}, "without looking ahead or back"),
        ({"properties": {"id": {"pattern": "((a{1000}){1000}){1000}"}}}, "properties/id/pattern"),
        ({"type": "nonsense"}, "type"),
    ],
)  # fmt: skip
def test_a_json_schema_by_which_reading_might_not_end_is_refused(
    stub: StubRegistry, schema: dict[str, Any], reason: str
) -> None:
    """It is the schema that is refused, before a record is judged by it, however deep the stack is by then."""
    events, _ = open_codec("json-schema", stub.url)
    value = framed(stub.add("events-value", text_of(schema), "JSON"), b'{"features": [1], "label": "yes"}')
    decoded = events.decode(value, MAX_BYTES)
    assert isinstance(decoded, Reject)
    assert decoded.code == "unusable-schema"
    assert reason in decoded.reason


def text_of(schema: object) -> str:
    """The JSON text of a schema that may be nested deeper than json.dumps can follow."""
    head, levels = "", 0
    while isinstance(schema, dict) and list(schema) == ["allOf"]:
        [schema], levels = schema["allOf"], levels + 1
        head += '{"allOf": ['
    return head + json.dumps(schema) + "]}" * levels


@pytest.mark.parametrize(
    "schema",
    [
        all_of(31),
        chained(60),
        {"definitions": doubled(9)["definitions"]},
        {"$id": "http://example.com/event.json", "properties": {"id": {"$ref": "#/definitions/id"}},
         "definitions": {"id": {"type": ["string", "null"]}}},
        {"properties": {"$anchor": {"type": "string"}, "$id": {"type": "string"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$id": "#a"}},
         "properties": {"id": {"$ref": "#a"}, "label": {"$ref": "#a"}}},
    ],
)  # fmt: skip
def test_a_json_schema_may_refer_to_what_is_in_it(stub: StubRegistry, schema: dict[str, Any]) -> None:
    events, _ = open_codec("json-schema", stub.url)
    value = framed(stub.add("events-value", json.dumps(schema), "JSON"), b'{"features": [1], "label": "yes"}')
    assert outcome(events.decode(value, MAX_BYTES)) == outcome(Event([1.0], "yes", None))


LETTERS = "a" * 900_000
NESTED_QUANTIFIER = "^(a+)+$"


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ({"properties": {"x": {"pattern": NESTED_QUANTIFIER}}}, {"x": LETTERS + "!"}),
        ({"properties": {"x": {"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}}},
         {"x": {LETTERS + "!": 1}}),
        ({"properties": {"x": {"propertyNames": {"pattern": NESTED_QUANTIFIER}}}}, {"x": {LETTERS + "!": 1}}),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema",
          "properties": {"x": {"patternProperties": {NESTED_QUANTIFIER: {}}, "unevaluatedProperties": False}}},
         {"x": {LETTERS + "!": 1}}),
        ({"properties": {"x": {"uniqueItems": True}}}, {"x": [*({"a": i} for i in range(70_000)), {"a": 0}]}),
        ({"properties": {"x": {"not": {"contains": {"const": -1}}}}}, {"x": [*range(100_000), -1]}),
        ({"properties": {"x": {"anyOf": [{"minItems": 10**6 + i} for i in range(1_000)]}}}, {"x": [0] * 300_000}),
    ],
)  # fmt: skip
def test_what_a_backtracking_or_comparing_validator_would_not_end_is_judged(
    stub: StubRegistry, schema: dict[str, Any], more: dict[str, Any]
) -> None:
    events, _ = open_codec("json-schema", stub.url)
    number = stub.add("events-value", json.dumps(schema), "JSON")
    value = framed(number, json.dumps({"features": [1], **more}).encode())
    assert outcome(events.decode(value, MAX_BYTES)) == "schema-mismatch"


def test_a_mismatch_says_where_it_is(stub: StubRegistry) -> None:
    events, _ = open_codec("json-schema", stub.url)
    value = framed(stub.add("events-value", JSON_EVENT, "JSON"), b'{"features": [1], "label": "maybe"}')
    decoded = events.decode(value, MAX_BYTES)
    assert isinstance(decoded, Reject)
    assert decoded.reason == ('the value is not what its schema demands: at label: "maybe" is not one of "yes" or "no"')


def deepest(keyword: str, draft: str) -> tuple[dict[str, Any], Any]:
    """The deepest schema of one keyword that is not refused, and data that are judged by all of it."""
    schema: dict[str, Any] = {}
    data: Any = 0
    steps = 30 if keyword in ("allOf", "properties") else 58
    for _ in range(steps):
        match keyword:
            case "allOf":
                schema = {"allOf": [schema], "unevaluatedProperties": False}
            case "properties":
                schema, data = {"properties": {"a": schema}, "unevaluatedProperties": False}, {"a": data}
            case _:
                schema, data = {keyword: schema}, [data]
    return {"$schema": draft, "properties": {"x": schema}}, data


@pytest.mark.parametrize(
    "draft", ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
)
@pytest.mark.parametrize("keyword", ["allOf", "properties", "items", "not", "contains"])
def test_judging_by_the_deepest_schema_leaves_the_stack_room(stub: StubRegistry, keyword: str, draft: str) -> None:
    events, _ = open_codec("json-schema", stub.url)
    schema, data = deepest(keyword, draft)
    number = stub.add("events-value", json.dumps(schema), "JSON")
    value = framed(number, json.dumps({"features": [1], "x": data}).encode())
    verdict = deeper(300, lambda: outcome(events.decode(value, MAX_BYTES)))
    assert verdict == outcome(events.decode(value, MAX_BYTES))
    assert verdict != "unusable-schema"


def deeper(calls: int, call: Any) -> Any:
    """What a call gives where the stack is so much deeper."""
    return deeper(calls - 1, call) if calls else call()


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize("shortage", [MemoryError, RecursionError])
def test_a_machine_without_memory_or_stack_makes_no_dead_letters(
    stub: StubRegistry, name: str, shortage: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What becomes of a record follows from its bytes: a replay, with more of it, would learn what was refused."""
    events, registry = open_codec(name, stub.url)
    schema, payload = record(MAP), written(record(MAP), {"features": {"a": 1.0}})
    if name == "json-schema":
        schema, payload = JSON_EVENT, b'{"features": [1], "label": "yes"}'
    value = framed(stub.add("events-value", schema, "AVRO" if name == "avro" else "JSON"), payload)
    assert isinstance(events.decode(value, MAX_BYTES), Event)

    def exhausted(*_: object) -> object:
        raise shortage

    with monkeypatch.context() as patched:
        patched.setattr(registry._schemas, "read_avro", exhausted)
        patched.setattr(JsonValidator, "refusal", exhausted)
        with pytest.raises(shortage):
            events.decode(value, MAX_BYTES)
    assert isinstance(events.decode(value, MAX_BYTES), Event)


# --- framing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "null-value"),
        (b"\0" * (MAX_BYTES + 1), "too-large"),
        (b"", "no-schema"),
        (b"\0\0\0\0", "no-schema"),
        (b"\1" * 16, "no-schema"),
        (b'{"features": [1]}', "no-schema"),
        (b"\0\xff\xff\xff\xff" + b'{"features": [1]}', "unknown-schema"),
    ],
)
def test_what_names_no_schema_is_a_dead_letter(stub: StubRegistry, name: str, value: bytes | None, code: str) -> None:
    events, _ = open_codec(name, stub.url)
    assert outcome(events.decode(value, MAX_BYTES)) == code


NOT_REGISTERED = [b"\0\0\0\0\7", b"\1" + b"\xab" * 16]


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize("frame", NOT_REGISTERED)
@pytest.mark.parametrize("knows_guids", [True, False])
def test_a_value_waits_for_a_schema_that_is_not_registered(
    stub: StubRegistry, name: str, frame: bytes, knows_guids: bool
) -> None:
    """A replay may find the schema there: what it would learn must not have been refused. Partitions wait for each
    answer, so for some seconds the registry is not asked again."""
    stub.knows_guids = knows_guids
    events, _ = open_codec(name, stub.url)
    for _ in range(2):
        with pytest.raises(Transient, match=r"has no schema of .*register it.*on_unknown: dead-letter"):
            events.decode(frame + b'{"features": [1]}', MAX_BYTES)
    assert stub.asked.total() == 1
    weaker, _ = open_codec(name, stub.url, ", on_unknown: dead-letter")
    assert outcome(weaker.decode(frame + b'{"features": [1]}', MAX_BYTES)) == "unknown-schema"


def test_it_goes_on_once_the_schema_is_registered(stub: StubRegistry, at_once: None) -> None:
    events, _ = open_codec("avro", stub.url)
    schema = record(MAP)
    value = framed(1, written(schema, {"features": {"a": 1.5}}))
    with pytest.raises(Transient):
        events.decode(value, MAX_BYTES)
    assert stub.add("events-value", schema) == 1
    assert outcome(events.decode(value, MAX_BYTES)) == outcome(Event({"a": 1.5}, None, None))


def test_a_guid_in_the_header_names_the_schema(stub: StubRegistry) -> None:
    schema = record(MAP)
    number = stub.add("events-value", schema)
    payload = written(schema, {"features": {"a": 1.5}})
    header = b"\1" + bytes.fromhex(stub.guid(number).replace("-", ""))
    value = framed_value(Record(0, 0, b"k", payload, [("a", b"b"), ("__value_schema_id", header)]))
    events, _ = open_codec("avro", stub.url)
    assert outcome(events.decode(value, MAX_BYTES)) == outcome(Event({"a": 1.5}, None, None))


# --- a registry that cannot be asked ----------------------------------------------------------------------------------

FAULTS = ["down", "silent", "endless", "drop by drop", "page", "empty", 500, 503, 429, 401, 404]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_registry_that_cannot_be_asked_decides_nothing(stub: StubRegistry, at_once: None, fault: str | int) -> None:
    schema = record(MAP)
    known, unknown = (
        stub.add("events-value", schema),
        stub.add("events-value", record({"type": "map", "values": "int"})),
    )
    payload = written(schema, {"features": {"a": 1.5}})
    events, _ = open_codec("avro", stub.url, timeout="200ms" if fault in ("silent", "drop by drop") else "30s")
    good = outcome(Event({"a": 1.5}, None, None))
    assert outcome(events.decode(framed(known, payload), MAX_BYTES)) == good
    stub.fault = fault
    with pytest.raises(Transient, match="schema registry"):
        events.decode(framed(unknown, b"\2\2a\2\0\0\0"), MAX_BYTES)
    with pytest.raises(Transient):
        events.prepare()
    if fault != "empty":  # An answer without a schema makes the client itself forget.
        assert outcome(events.decode(framed(known, payload), MAX_BYTES)) == good
    stub.fault = None
    stub.release()
    assert outcome(events.decode(framed(unknown, b"\2\2a\2\0\0\0"), MAX_BYTES)) == outcome(
        Event({"a": 1.0}, None, None)
    )


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("endless", "more than 16,777,216 bytes"),
        ("drop by drop", "has not come to its end"),
        ("compressed", "compressed, which was not asked for"),
    ],
)
def test_an_answer_that_takes_too_much_is_named(stub: StubRegistry, fault: str, why: str) -> None:
    events, _ = open_codec("avro", stub.url, timeout="200ms" if fault == "drop by drop" else "30s")
    stub.fault = fault
    with pytest.raises(Transient, match=why):
        events.decode(framed(1, b"x"), MAX_BYTES)


def test_a_registry_that_failed_is_left_alone_for_a_while(stub: StubRegistry) -> None:
    events, _ = open_codec("avro", stub.url)
    stub.fault = 503
    for number in (1, 2, 3):
        with pytest.raises(Transient):
            events.decode(framed(number, b"x"), MAX_BYTES)
    assert stub.asked.total() == 1


def test_a_schema_is_asked_for_once(stub: StubRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = [record({"type": "map", "values": kind}) for kind in ("int", "long", "double")]
    numbers = [stub.add("events-value", schema) for schema in schemas]
    events, _ = open_codec("avro", stub.url)
    payload = written(schemas[0], {"features": {"a": 1}})
    for number in numbers[:2] * 3:
        assert isinstance(events.decode(framed(number, payload), MAX_BYTES), Event)
    assert stub.asked.total() == 2
    # The bound: one more, and all are asked for again.
    monkeypatch.setattr(adapter, "MAX_SCHEMAS", 2)
    for number in (numbers[2], numbers[0]):
        events.decode(framed(number, payload), MAX_BYTES)
    assert stub.asked.total() == 4


# --- predictions ------------------------------------------------------------------------------------------------------

ANSWERS = [
    prediction(),
    prediction(prediction=None, probabilities=[], label=None, loss=None, id=None, learned=0),
    prediction(prediction=True, label=2**64 - 1),
    Estimate(1.5, 0.25, [1.0, 1.5, 2.0], 2, 0.25, 9, "7"),
    Estimate(None, None, None, 10**20, None, 0, None),
]


@pytest.mark.parametrize("auto", ["true", "false"])
def test_avro_predictions_are_read_back_as_the_json_says(stub: StubRegistry, auto: str) -> None:
    if auto == "false":
        stub.add("predictions-value", avro.SCHEMA)
    answers, _ = open_codec("avro", stub.url, f", auto_register: {auto}")
    answers.prepare()
    [number] = stub.subjects["predictions-value"]
    stub.fault = "down"  # From here on the registry is not asked.
    reader = fastavro.parse_schema(json.loads(stub.schema(number)["schema"]))
    for answer in ANSWERS:
        value = answers.encode_answers(["m"], [answer])[0]
        assert value[:5] == framed(number, b"")
        read = fastavro.schemaless_reader(io.BytesIO(value[5:]), reader, None)
        expected = json.loads(codec.encode_answers(["m"], [answer])[0])
        if expected.get("label") == 2**64 - 1:
            expected["label"] = "18446744073709551615"
        assert {name: each for name, each in read.items() if each is not None} == {
            name: each for name, each in expected.items() if each is not None
        }


def test_json_schema_predictions_are_the_json_behind_an_id(stub: StubRegistry) -> None:
    import jsonschema

    answers, _ = open_codec("json-schema", stub.url)
    answers.prepare()
    [number] = stub.subjects["predictions-value"]
    stub.fault = "down"
    assert stub.schema(number) == {"schema": json_schema.SCHEMA, "schemaType": "JSON"}
    for answer in ANSWERS:
        assert answers.encode_answers(["m"], [answer])[0] == framed(number, codec.encode_answers(["m"], [answer])[0])
        jsonschema.validate(json.loads(codec.encode_answers(["m"], [answer])[0]), json.loads(json_schema.SCHEMA))


@pytest.mark.parametrize("name", ["avro", "json-schema"])
def test_a_refused_schema_of_predictions_is_no_passing_trouble(stub: StubRegistry, name: str) -> None:
    answers, _ = open_codec(name, stub.url)
    stub.refuses_schemas = True
    with pytest.raises(WorkerError, match=r"subject predictions-value.*incompatible") as caught:
        answers.prepare()
    assert not isinstance(caught.value, Transient)
    unregistered, _ = open_codec(name, stub.url, ", auto_register: false")
    with pytest.raises(WorkerError, match="auto_register is false"):
        unregistered.prepare()


# --- the way there ----------------------------------------------------------------------------------------------------


def test_it_goes_in_with_user_and_password_and_tells_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with StubRegistry(user_info="amf:hunter2") as stub:
        _, registry = open_codec("avro", stub.url, ', user_info: "amf:hunter2"')
        assert registry.probe() == "answers, and has schemas of the types AVRO, JSON"
        events, wrong = open_codec("avro", stub.url, ', user_info: "amf:hunter3"')
        with pytest.raises(WorkerError) as caught:
            wrong.probe()
        with pytest.raises(Transient):
            events.decode(framed(1, b"x"), MAX_BYTES)
    assert "401" in str(caught.value)
    assert "hunter" not in caplog.text + str(caught.value) + repr(caught.value)


def test_a_missing_library_and_a_missing_file_are_errors_of_the_configuration(
    stub: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"schema_registry.*No such file"):
        open_codec("avro", stub.url, ", ca_location: /nowhere/ca.pem")
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[registry\]'"):
        open_codec("avro", stub.url)
    with pytest.raises(ConfigError, match=r"codec avro needs schema_registry\.url"):
        codec_of("avro", "predictions", None)


@pytest.mark.parametrize(
    ("name", "section", "problem"),
    [
        ("avro", "{}", "schema_registry.url: expected a URL, which codecs avro and json-schema need"),
        ("json", '{url: "ftp://registry"}', "schema_registry.url: expected http:// or https:// URLs without user info"),
        ("avro", '{url: "http://amf:hunter2@registry"}', "URLs without user info, or null, found something else"),
        (
            "avro",
            '{url: "http://registry", user_info: hunter2}',
            "expected user:password, or null, found something else",
        ),
    ],
)
def test_a_section_that_cannot_be_used_is_refused_without_showing_it(name: str, section: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(document(input=f"{{topic: events, codec: {name}}}", schema_registry=section), {})
    assert problem in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_the_user_info_is_masked_wherever_the_configuration_is_shown() -> None:
    section = '{url: "http://one:8081, https://two/registry", user_info: "${USER_INFO}"}'
    text = document(input="{topic: events, codec: avro}", schema_registry=section)
    config = loads(text, {"USER_INFO": "amf:hunter2"})
    assert config.schema_registry.user_info == "amf:hunter2"
    assert "hunter" not in effective(config) + repr(config)
    assert "url: http://one:8081, https://two/registry" in effective(config)
