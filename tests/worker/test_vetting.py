"""Which schemas are refused before anything is read with them, one by one; whatever they are, no other error comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from worker.adapters.kafka.vetting import NO_AVRO, Unusable, vet_avro, vet_json
from worker.base.limits import MAX_DEPTH

NOWHERE = "leads nowhere"
OTHER = "it refers to another document"
ID = "http://example.com/other"


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]}


def decimal(**of: object) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 4, **of}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def chain(n: int) -> list[Any]:
    """Records side by side, each with the one before it in itself."""
    return [record("r0", "int"), *(record(f"r{i}", f"r{i - 1}") for i in range(1, n))]


def chain_of_arrays(n: int) -> list[Any]:
    return [record("r0", "int"), *(record(f"r{i}", array(f"r{i - 1}")) for i in range(1, n))]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (5, NO_AVRO),
        (None, NO_AVRO),
        ({"name": "x"}, NO_AVRO),
        ({"type": "array"}, NO_AVRO),
        ({"type": "record", "name": "r", "fields": {}}, NO_AVRO),
        ({"type": "record", "name": "r", "fields": ["x"]}, NO_AVRO),
        *(({"type": "record", "name": "r", "fields": [{"name": n, "type": "int"}]}, NO_AVRO) for n in (5, "\ud800")),
        ("\ud800", OTHER),
        (record("r", "other"), OTHER),
        (record("r", ["null", "r"]), "nested within itself"),
        (array({"type": "fixed", "name": "f", "size": 0}), "may take no bytes"),
        (array({"type": "fixed", "name": "f"}), "may take no bytes"),
        ({**record("r", record("inner"), "None.inner"), "namespace": None}, OTHER),
        (decimal(scale="2"), "scale 2"),
        (decimal(scale=1.5), "scale 1.5"),
        (decimal(scale=5), "scale 5"),
        (decimal(scale=-1), "scale -1"),
        (decimal(precision=None), "precision None"),
        (chain(MAX_DEPTH), "nested deeper"),
        (chain_of_arrays(MAX_DEPTH // 2 + 1), "nested deeper"),
    ],
)
def test_of_avro_what_cannot_be_read_is_refused(schema: Any, problem: str) -> None:
    # As a registry's answer is read: with half of a surrogate pair in it, where it says so.
    with pytest.raises(Unusable, match=problem):
        vet_avro(json.dumps(schema, ensure_ascii=False))


@pytest.mark.parametrize(
    "schema",
    [
        [],  # of which no value is one
        array({"type": "fixed", "name": "f", "size": 1}),
        decimal(scale=4),
        chain(MAX_DEPTH - 1),
        chain_of_arrays(MAX_DEPTH // 2),
    ],
)
def test_of_avro_what_can_be_read_is_taken(schema: Any) -> None:
    vet_avro(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": 5}, OTHER),
        ({"$ref": "other", "$defs": {"a": {"$anchor": "ther"}}}, OTHER),
        ({"$ref": "#/type/x", "type": "string"}, NOWHERE),
        ({"$ref": "#/allOf/5", "allOf": [{}]}, NOWHERE),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, NOWHERE),
        ({"$ref": "#a"}, NOWHERE),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": ID}}}, "a name of its own"),
        ({"properties": {"a": {"$id": ID}}}, "a name of its own"),
        ({"properties": {"default": {"$id": ID}}}, "a name of its own"),
        ({"properties": {"const": {"$ref": "other"}}}, OTHER),
        ({"$ref": "#/default", "default": {"$ref": "#"}}, "no schema"),
        ({"$ref": "#/enum/0/a", "enum": [{"a": {}}]}, "no schema"),
        ({"$ref": "#/$defs", "$defs": {"not": {}}}, "no schema"),
        ({"$ref": "#a", "default": {"$anchor": "a", "$ref": "#"}}, NOWHERE),
        ({"types": {"default": {"$ref": "other"}}}, OTHER),
        ({"types": {"default": {"items": {"$ref": "#/types"}}}}, "refers to itself"),
        ({"$ref": "#/x/a/properties/b/default", "x": {"a": {"properties": {"b": {"default": {}}}}}}, "no schema"),
        ({"$ref": "#/types/a/not/default", "types": {"a": {"not": {"default": {}}}}}, "no schema"),
    ],
)
def test_of_json_what_leads_elsewhere_or_nowhere_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(Unusable, match=problem):
        vet_json(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        (True, 1),
        (5, 1),
        ({"$id": ID}, 1),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"a": {"id": ID}}}, 3),
        ({"$ref": "#/%24defs/a", "$defs": {"a": {}}}, 4),
        ({"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": {}}}, 4),
        ({"$ref": "#/$defs/default", "$defs": {"default": {}}}, 4),
        ({"$ref": "#/types/enum/const", "types": {"enum": {"const": {"not": {}}}}}, 7),
        ({"types": [{"default": {"properties": {"$ref": {}}}}]}, 6),
        ({"enum": [{"$ref": "#/nowhere", "$id": ID}, 5]}, 4),
        ({"const": {"a": [{"$ref": "#"}]}}, 4),
        ({"examples": [{"$ref": ID}], "default": {"$anchor": "a"}}, 4),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "default": {"id": ID}}, 2),
        ({"properties": {"$ref": {"type": "string"}}, "dependencies": {"$ref": ["a"]}}, 6),
    ],
)
def test_of_json_the_parts_are_counted(schema: Any, parts: int) -> None:
    assert vet_json(json.dumps(schema)) == parts
