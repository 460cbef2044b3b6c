"""Events and predictions as Avro, with schemas from a Schema Registry.

An event is a record with the fields of the JSON; what it is written with is the producer's own schema:

    features   a map, a record, or an array (numbers alone); values are boolean, int, long, float, double, decimal,
               string, enum, null or a union of those; a date, a time or a uuid is the number or text it is written as
    label      string, enum, int, long, float, double, boolean, null or a union of those; it may be absent
    id         string, int, long, null or a union of those; it may be absent

Other fields are ignored. A prediction is written with SCHEMA, whatever the algorithm of its model: what a model of
classes or of numbers does not say is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from worker.base.records import Answer, Estimate, Event, Prediction, Reject
from worker.codec.answers import fitting, value_of
from worker.codec.framing import RegistryCodec
from worker.codec.message import FAULTS, AnyFeature, AnyItem, Message, event_of, event_or_reject

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
            {"name": "explanation", **_nullable({"type": "map", "values": "double"})},
            {"name": "unexplained", **_nullable("double")},
        ],
    }
)
"""What predictions are written with. Part of the contract: a field may be added with a default, none may change."""

_LONGS = range(-(2**63), 2**63)
_EVENT = Message[AnyFeature, AnyItem]
# Known to msgspec before there are threads: version 0.22 crashes where two of them are the first to ask for a type.
msgspec.json.Decoder(_EVENT)


class AvroCodec(RegistryCodec):
    """Events from, and predictions to, Avro."""

    def encode_answers(self, models: Iterable[str], answers: Iterable[Answer]) -> list[bytes]:
        """What models said, one each, framed; `prepare` comes first."""
        return [self._write(datum) for datum in map(_datum, models, answers)]

    def _decode_framed(self, value: bytes, n: int) -> Event | Reject:
        datum = self._registry.read_avro(value, n)
        if isinstance(datum, Reject):
            return datum
        try:
            event = event_of(msgspec.convert(datum, _EVENT))
        except FAULTS:
            event = None
        return event or event_or_reject(datum)

    def _register(self) -> Callable[[object], bytes]:
        return self._registry.avro_writer(self._topic, SCHEMA, _datum("", _NOTHING))


_NOTHING = Prediction(None, [], [], None, None, 0, None)


def _datum(model: str, answer: Answer) -> dict[str, Any]:
    datum: dict[str, Any] = msgspec.to_builtins(value_of(model, answer))
    datum["prediction"] = fitting(answer.prediction, _LONGS)
    if isinstance(answer, Estimate):
        # The numbers of a regression have one type, whatever the type that the label came with.
        datum["label"] = None if answer.label is None else float(answer.label)
    else:
        datum["label"] = fitting(answer.label, _LONGS)
    return datum
