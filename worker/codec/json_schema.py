"""Events and predictions as JSON text behind the framing of a Schema Registry.

The text is decoded as all JSON is, with the same limits and codes; an event must also be what its schema demands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from worker.codec.framing import framing_of
from worker.codec.json import decode, encode_answers
from worker.codec.message import unread
from worker.ports import SchemaRegistry
from worker.records import Answer, Event, Reject
from worker.rejects import DECODERS

_CLASS = {"type": ["null", "boolean", "number", "string"]}
_NUMBER = {"type": ["null", "number"]}
_NUMBERS = {"type": ["null", "object"], "additionalProperties": {"type": "number"}}

SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Prediction",
        "type": "object",
        "properties": {
            "id": {"type": ["null", "string"]},
            "model": {"type": "string"},
            "prediction": _CLASS,
            "probabilities": _NUMBERS,
            "std": _NUMBER,
            "quantiles": _NUMBERS,
            "label": _CLASS,
            "loss": _NUMBER,
            "learned": {"type": "integer"},
        },
        "required": ["id", "model", "prediction", "learned"],
    }
)
"""What predictions are written with. Part of the contract: a property may be added, none may change."""


class JsonSchemaCodec:
    """Events from, and predictions to, JSON with a schema; `topic` is where the predictions go."""

    version = DECODERS["json-schema"]

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self._frame: Callable[[object], bytes] | None = None

    def decode(self, value: bytes | None, max_bytes: int) -> Event | Reject:
        """The event in a framed value of at most `max_bytes` bytes, or why there is none. Raises Transient."""
        if value is None or len(value) > max_bytes:
            return unread(value, max_bytes)
        n = framing_of(value)
        if isinstance(n, Reject):
            return n
        event = decode(value[n:], max_bytes)
        if isinstance(event, Reject):
            return event
        return self._registry.check_json(value, n) or event

    def prepare(self) -> None:
        """Have the schema of predictions registered. Raises Transient, and WorkerError where it is refused."""
        if self._frame is None:
            self._frame = self._registry.json_writer(self._topic, SCHEMA)

    def encode_answers(self, model: str, answers: Sequence[Answer]) -> list[bytes]:
        """What `model` said, framed; `prepare` comes first."""
        assert self._frame is not None
        return [self._frame(text.decode()) for text in encode_answers(model, answers)]
