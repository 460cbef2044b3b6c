"""JSON Schema: what a schema says of an event, and which schemas are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.schemas import JSON_EVENT, framed, open_codec
from tests.worker.support.values import outcome
from worker.base.records import Event, Reject


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
def test_json_behind_a_schema_is_judged_by_it(stub_registry: StubRegistry, text: bytes, expected: Event | str) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    decoded = outcome(events.decode(framed(stub_registry.add("events-value", JSON_EVENT, "JSON"), text), MAX_BYTES))
    assert decoded == (expected if isinstance(expected, str) else outcome(expected))


@pytest.mark.parametrize("schema", ['{"$ref": "http://example.com/other.json"}', '{"items": [{"$ref": "other"}]}', "{"])
def test_a_json_schema_that_needs_other_documents_is_refused(stub_registry: StubRegistry, schema: str) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    number = stub_registry.add("events-value", schema, "JSON")
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
        (doubled(16), "more than 100000 parts"),
        (doubled(60), "more than 100000 parts"),
        ({"properties": {"id": {"enum": [*range(100_001)]}}}, "more than 100000 parts"),
        ({"properties": {"id": {"pattern": "^(?=a)"}}}, "properties/id/pattern"),
        ({"properties": {"id": {"pattern": "(a)\\1"}}}, "without looking ahead or back"),
        ({"patternProperties": {"^(?!x)": {}}}, "without looking ahead or back"),
        ({"properties": {"id": {"pattern": "((a{1000}){1000}){1000}"}}}, "properties/id/pattern"),
        ({"type": "nonsense"}, "type"),
    ],
)  # fmt: skip
def test_a_json_schema_by_which_reading_might_not_end_is_refused(
    stub_registry: StubRegistry, schema: dict[str, Any], reason: str
) -> None:
    """It is the schema that is refused, before a record is judged by it, however deep the stack is by then."""
    events, _ = open_codec("json-schema", stub_registry.url)
    value = framed(stub_registry.add("events-value", text_of(schema), "JSON"), b'{"features": [1], "label": "yes"}')
    decoded = events.decode(value, MAX_BYTES)
    assert isinstance(decoded, Reject)
    assert decoded.code == "unusable-schema"
    assert reason in decoded.reason


@pytest.mark.parametrize(
    "items", [{"enum": [[i] for i in range(9_000)]}, {"allOf": [{"minimum": -i} for i in range(9_000)]}]
)
def test_a_value_that_would_take_minutes_is_too_large_for_its_schema(
    stub_registry: StubRegistry, items: dict[str, Any]
) -> None:
    """Each of its items is judged by all of these parts."""
    events, _ = open_codec("json-schema", stub_registry.url)
    schema = json.dumps({"properties": {"rest": {"items": items}}})
    number = stub_registry.add("events-value", schema, "JSON")
    small, large = (b'{"features": [1], "rest": [%s]}' % (b"[1]," * n + b"[1]") for n in (1, 100_000))
    for value, code in ((small, None), (large, "too-large")):
        decoded = events.decode(framed(number, value), len(large) + 10)
        assert (decoded.code if isinstance(decoded, Reject) else None) == code


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
        {"components": {"default": {"type": ["string", "null"]}, "enum": {"allOf": [{"$ref": "#/components/default"}]}},
         "properties": {"id": {"$ref": "#/components/enum"}, "label": {"$ref": "#/components/default"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$id": "#a"}},
         "properties": {"id": {"$ref": "#a"}, "label": {"$ref": "#a"}}},
    ],
)  # fmt: skip
def test_a_json_schema_may_refer_to_what_is_in_it(stub_registry: StubRegistry, schema: dict[str, Any]) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    value = framed(stub_registry.add("events-value", json.dumps(schema), "JSON"), b'{"features": [1], "label": "yes"}')
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
        ({"properties": {"x": {"anyOf": [{"minItems": 10**6 + i} for i in range(200)]}}}, {"x": [0] * 300_000}),
    ],
)  # fmt: skip
def test_what_a_backtracking_or_comparing_validator_would_not_end_is_judged(
    stub_registry: StubRegistry, schema: dict[str, Any], more: dict[str, Any]
) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    number = stub_registry.add("events-value", json.dumps(schema), "JSON")
    value = framed(number, json.dumps({"features": [1], **more}).encode())
    assert outcome(events.decode(value, MAX_BYTES)) == "schema-mismatch"


def test_a_mismatch_says_where_it_is(stub_registry: StubRegistry) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    value = framed(stub_registry.add("events-value", JSON_EVENT, "JSON"), b'{"features": [1], "label": "maybe"}')
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
def test_judging_by_the_deepest_schema_leaves_the_stack_room(
    stub_registry: StubRegistry, keyword: str, draft: str
) -> None:
    events, _ = open_codec("json-schema", stub_registry.url)
    schema, data = deepest(keyword, draft)
    number = stub_registry.add("events-value", json.dumps(schema), "JSON")
    value = framed(number, json.dumps({"features": [1], "x": data}).encode())
    verdict = deeper(300, lambda: outcome(events.decode(value, MAX_BYTES)))
    assert verdict == outcome(events.decode(value, MAX_BYTES))
    assert verdict != "unusable-schema"


def deeper(calls: int, call: Any) -> Any:
    """What a call gives where the stack is so much deeper."""
    return deeper(calls - 1, call) if calls else call()
