"""Events and predictions as Avro, with schemas from a Schema Registry.

An event is a record with the fields of the JSON; what it is written with is the producer's own schema:

    features   a map, a record, or an array (numbers alone); values are int, long, float, double, decimal, string, enum,
               null or a union of those
    label      string, enum, int, long, float, double, boolean, null or a union of those; it may be absent
    id         string, null or the union; it may be absent

Other fields are ignored. A prediction is written with SCHEMA, whatever the algorithm of its model: what a model of
classes or of numbers does not say is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from worker.codec.framing import framing_of
from worker.codec.message import FAULTS, Category, Message, event_of, judged, unread
from worker.ports import SchemaRegistry
from worker.records import QUANTILES, Answer, Estimate, Event, Label, Prediction, Reject
from worker.rejects import DECODERS

_CLASS = ["null", "boolean", "long", "double", "string"]


def _nullable(kind: object) -> dict[str, object]:
    return {"type": ["null", kind], "default": None}


SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Prediction",
        "namespace": "amf.worker",
        "fields": [
            {"name": "id", **_nullable("string")},
            {"name": "model", "type": "string"},
            {"name": "prediction", "type": _CLASS, "default": None},
            {"name": "probabilities", **_nullable({"type": "map", "values": "double"})},
            {"name": "std", **_nullable("double")},
            {"name": "quantiles", **_nullable({"type": "map", "values": "double"})},
            {"name": "label", "type": _CLASS, "default": None},
            {"name": "loss", **_nullable("double")},
            {"name": "learned", "type": "long"},
        ],
    }
)
"""What predictions are written with. Part of the contract: a field may be added with a default, none may change."""

_LONGS = range(-(2**63), 2**63)


class AvroCodec:
    """Events from, and predictions to, Avro; `topic` is where the predictions go."""

    version = DECODERS["avro"]

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self._write: Callable[[object], bytes] | None = None

    def decode(self, value: bytes | None, max_bytes: int) -> Event | Reject:
        """The event in a framed value of at most `max_bytes` bytes, or why there is none. Raises Transient."""
        if value is None or len(value) > max_bytes:
            return unread(value, max_bytes)
        n = framing_of(value)
        if isinstance(n, Reject):
            return n
        datum = self._registry.read_avro(value, n)
        if isinstance(datum, Reject):
            return datum
        try:
            event = event_of(msgspec.convert(datum, Message[float | Category | None]))
        except FAULTS:
            event = None
        return event or judged(datum)

    def prepare(self) -> None:
        """Have the schema of predictions registered. Raises Transient, and WorkerError where it is refused."""
        if self._write is None:
            self._write = self._registry.avro_writer(self._topic, SCHEMA, _datum("", _NOTHING))

    def encode_answers(self, model: str, answers: Sequence[Answer]) -> list[bytes]:
        """What `model` said, framed; `prepare` comes first."""
        assert self._write is not None
        return [self._write(_datum(model, answer)) for answer in answers]


_NOTHING = Prediction(None, [], [], None, None, 0, None)


def _datum(model: str, answer: Answer) -> dict[str, Any]:
    datum: dict[str, Any] = {
        "id": answer.id,
        "model": model,
        "prediction": _fitting(answer.prediction),
        "label": _fitting(answer.label),
        "loss": answer.loss,
        "learned": answer.learned,
    }
    if isinstance(answer, Estimate):
        quantiles = answer.quantiles
        datum["std"] = answer.std
        datum["quantiles"] = None if quantiles is None else dict(zip(QUANTILES, quantiles, strict=True))
        # The numbers of a regression have one type, whatever the type that the label came with.
        datum["label"] = None if answer.label is None else float(answer.label)
    else:
        datum["probabilities"] = dict(zip(answer.classes, answer.probabilities, strict=False))
    return datum


def _fitting(label: Label | None) -> Label | None:
    """A class that no long can be is published as its text, which is the same class."""
    return str(label) if type(label) is int and label not in _LONGS else label
