"""Events and predictions as JSON text behind the framing of a Schema Registry.

The text is decoded as all JSON is, with the same limits and codes; an event must also be what its schema demands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from worker.base.records import Answer, Event, Reject
from worker.codec.framing import RegistryCodec
from worker.codec.json import decode, encode_answers

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
            "explanation": _NUMBERS,
            "unexplained": _NUMBER,
        },
        "required": ["id", "model", "prediction", "learned"],
    }
)
"""What predictions are written with. Part of the contract: a property may be added, none may change."""


class JsonSchemaCodec(RegistryCodec):
    """Events from, and predictions to, JSON with a schema."""

    def encode_answers(self, models: Iterable[str], answers: Iterable[Answer]) -> list[bytes]:
        """What models said, one each, framed; `prepare` comes first."""
        return [self._write(text.decode()) for text in encode_answers(models, answers)]

    def _decode_framed(self, value: bytes, n: int) -> Event | Reject:
        event = decode(value[n:], len(value))
        if isinstance(event, Reject):
            return event
        return self._registry.check_json(value, n) or event

    def _register(self) -> Callable[[object], bytes]:
        return self._registry.json_writer(self._topic, SCHEMA)
