"""Events under schemas of a registry: their schemas, their bytes, and a codec that reads them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from tests.worker.support.configurations import document
from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.values import outcome
from worker.adapters.kafka.registry import ConfluentRegistry
from worker.codec import Codec, codec_of
from worker.config import loads

LABEL = ["null", "boolean", "long", "double", "string"]
MAP = {"type": "map", "values": ["null", "double", "long", "boolean", "string"]}


def event_schema(features: Any, *more: dict[str, Any]) -> str:
    """An Avro schema of events."""
    label, id = {"name": "label", "type": LABEL, "default": None}, {"name": "id", "type": ["null", "string"]}
    fields = [{"name": "features", "type": features}, label, {**id, "default": None}, *more]
    return json.dumps({"type": "record", "name": "Event", "fields": fields})


def open_codec(name: str, url: str, more: str = "", timeout: str = "30s") -> tuple[Codec, ConfluentRegistry]:
    """The codec of this name and the registry that it asks; `more` goes into the section of the configuration."""
    text = document(
        input=f"{{topic: events, codec: {name}}}",
        output=f"{{topic: predictions, codec: {name}}}",
        schema_registry=f'{{url: "{url}", timeout: {timeout}{more}}}',
    )
    registry = ConfluentRegistry(loads(text, {}))
    return codec_of(name, "predictions", registry), registry


def framed(number: int, payload: bytes) -> bytes:
    """A value that names its schema by the id."""
    return b"\0" + number.to_bytes(4) + payload


def avro_bytes(schema: str, datum: object) -> bytes:
    """A datum as Avro writes it."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(schema)), datum)
    return file.getvalue()


def avro_outcome(stub_registry: StubRegistry, schema: str, payload: bytes) -> Any:
    """What becomes of a value under an Avro schema."""
    events, _ = open_codec("avro", stub_registry.url)
    return outcome(events.decode(framed(stub_registry.add("events-value", schema), payload), MAX_BYTES))


JSON_EVENT = json.dumps(
    {"type": "object", "properties": {"label": {"enum": ["yes", "no"]}}, "required": ["features", "label"]}
)
