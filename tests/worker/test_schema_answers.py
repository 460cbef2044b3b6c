"""Predictions under a schema."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from tests.worker.support.registry import StubRegistry
from tests.worker.support.schemas import framed, open_codec
from tests.worker.support.values import prediction
from worker import codec
from worker.base.errors import Transient, WorkerError
from worker.base.records import Estimate
from worker.codec import avro, json_schema

ANSWERS = [
    prediction(),
    prediction(prediction=None, probabilities=[], label=None, loss=None, id=None, learned=0),
    prediction(prediction=True, label=2**64 - 1),
    Estimate(1.5, 0.25, [1.0, 1.5, 2.0], 2, 0.25, 9, "7"),
    Estimate(None, None, None, 10**20, None, 0, None),
]


@pytest.mark.parametrize("auto", ["true", "false"])
def test_avro_predictions_are_read_back_as_the_json_says(stub_registry: StubRegistry, auto: str) -> None:
    if auto == "false":
        stub_registry.add("predictions-value", avro.SCHEMA)
    answers, _ = open_codec("avro", stub_registry.url, f", auto_register: {auto}")
    answers.prepare()
    [number] = stub_registry.subjects["predictions-value"]
    stub_registry.fault = "down"  # From here on the registry is not asked.
    reader = fastavro.parse_schema(json.loads(stub_registry.schema(number)["schema"]))
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


def test_json_schema_predictions_are_the_json_behind_an_id(stub_registry: StubRegistry) -> None:
    import jsonschema

    answers, _ = open_codec("json-schema", stub_registry.url)
    answers.prepare()
    [number] = stub_registry.subjects["predictions-value"]
    stub_registry.fault = "down"
    assert stub_registry.schema(number) == {"schema": json_schema.SCHEMA, "schemaType": "JSON"}
    for answer in ANSWERS:
        assert answers.encode_answers(["m"], [answer])[0] == framed(number, codec.encode_answers(["m"], [answer])[0])
        jsonschema.validate(json.loads(codec.encode_answers(["m"], [answer])[0]), json.loads(json_schema.SCHEMA))


@pytest.mark.parametrize("name", ["avro", "json-schema"])
def test_a_refused_schema_of_predictions_is_no_passing_trouble(stub_registry: StubRegistry, name: str) -> None:
    answers, _ = open_codec(name, stub_registry.url)
    stub_registry.refuses_schemas = True
    with pytest.raises(WorkerError, match=r"subject predictions-value.*incompatible") as caught:
        answers.prepare()
    assert not isinstance(caught.value, Transient)
    unregistered, _ = open_codec(name, stub_registry.url, ", auto_register: false")
    with pytest.raises(WorkerError, match="auto_register is false"):
        unregistered.prepare()
