"""What must come of the records of a partition: the rules, one record after the other, on forests of `amf` alone.

It shares nothing with what it judges but the decoder and the parameters of a configuration: no batch, no cache, no
replay, no worker.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec
import numpy as np

import amf
from worker.base.records import Event, Label, Outgoing, Record, Reject
from worker.codec import decode, decode_key
from worker.codec.dead_letters import DECODER
from worker.config import Config, ModelParams

LARGEST_CLASS = 2**63
MOST_NEW, YOUNG = 256, 256
"""Columns that one event may bring to a model that has learned so many labels."""


class Rejected(Exception):
    """The record is a dead letter: under this code, and by the model that was made with this spec, if by any."""

    def __init__(self, code: str, spec: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.spec = spec


class Reference:
    """The models of one partition. `config` may be another one from some record on."""

    def __init__(self, number: int, config: Config) -> None:
        self._number = number
        self._config = config
        self._models: dict[str, _Model] = {}

    def state(self) -> dict[str, str]:
        """Model key -> hash of the model's bytes."""
        return {key: model.hash() for key, model in self._models.items()}

    def deploy(self, config: Config) -> None:
        """What follows is worked off under this configuration."""
        self._config = config
        if config.models.on_spec_change == "restart":
            self._models = {key: model for key, model in self._models.items() if model.spec == self._spec(key)}

    def take(self, record: Record, lineage: str) -> Outgoing:
        """Predict and learn a record: what is published of it. The reason in a dead letter is left out."""
        topic, code = self._config.output.topic, []
        try:
            value, spec = self._outcome(record)
        except Rejected as rejected:
            topic, value, spec = self._config.dead_letter.topic, record.value, rejected.spec
            code = [("error-code", rejected.code.encode())]
        headers = [
            *record.headers,
            ("source-topic", self._config.input.topic.encode()),
            ("source-partition", b"%d" % self._number),
            ("source-offset", b"%d" % record.offset),
            ("spec", None if spec is None else spec.encode()),
            ("engine", amf.ENGINE.encode()),
            ("lineage", lineage.encode()),
        ]
        return Outgoing(topic, record.key, value, [*headers, *code], record.timestamp_ms)

    def _outcome(self, record: Record) -> tuple[bytes | None, str]:
        """The value of a prediction, and the spec of its model."""
        key = self._config.models.null_key if record.key is None else decode_key(record.key)
        if not isinstance(key, str):
            raise Rejected("null-key" if key is None else key.code)
        configured = self._spec(key)
        if record.value is None and self._config.input.tombstones == "reset":
            self._models.pop(key, None)
            return None, configured
        event = decode(record.value, self._config.input.max_bytes)
        if isinstance(event, Reject):
            raise Rejected(event.code, configured)
        model = self._models.get(key)
        if model is None:
            if event.label is not None and len(self._models) >= self._config.models.max_models:
                raise Rejected("too-many-models", configured)
            model = _Model(key, self._config.models.params_for(key), configured)
        answer, code = {}, None
        try:
            answer = model.apply(event)
        except Rejected as rejected:
            code = rejected.code
        if model.forest.n_samples:
            self._models[key] = model
        if model.spec != configured:  # It learns all the same, so that going back loses nothing.
            raise Rejected("spec-changed", model.spec)
        if code is not None:
            raise Rejected(code, model.spec)
        return msgspec.json.encode({"id": event.id, "model": key, **answer}), configured

    def _spec(self, key: str) -> str:
        parts = {"params": self._config.models.params_for(key).determining(), "key": key, "decoder": DECODER}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Model:
    """One forest, and what it takes."""

    def __init__(self, key: str, params: ModelParams, spec: str) -> None:
        seed = hashlib.blake2b(f"{params.seed}:{key}".encode(), digest_size=8).digest()
        system = amf.SYSTEMS[params.algorithm]
        self.spec = spec
        self.forest: Any = system.from_params(params.of_forest(int.from_bytes(seed, "little")))
        self._columns = amf.Columns(self.forest)
        self._kind: type[Any] | None = None
        self._is_regressor = params.labels_are_numbers

    def hash(self) -> str:
        return hashlib.sha256(self.forest.dumps()).hexdigest()

    def apply(self, event: Event) -> dict[str, Any]:
        """Predict the event, then learn it: the fields of what is published. Raises Rejected, with nothing learned."""
        features, label, learned = event.features, event.label, self.forest.n_samples
        new = [] if label is None or isinstance(features, list) else self._columns.new(features)
        self._check_features(features, sum(not column.of_missing for column in new))
        if label is not None:
            self._check_label(label)
        elif self._kind is None:
            return self._blind()
        self._kind = type(features)
        if new:
            self._columns.add(new)
        row = np.array([features if isinstance(features, list) else self._columns.cells(features)], np.float64)
        row = row if isinstance(features, list) else self._columns.rows(row)
        return self._estimate(row, label, learned) if self._is_regressor else self._classify(row, label, learned)

    def _check_features(self, features: dict[str, Any] | list[Any], n_new: int) -> None:
        most = self.forest.params.max_features
        if self._kind is not None and type(features) is not self._kind:
            raise Rejected("feature-kind")
        if isinstance(features, list):
            if self._kind is not None and len(features) != self.forest.n_features:
                raise Rejected("feature-count")
            if len(features) > most:
                raise Rejected("too-many-features")
        elif n_new:
            known = len(self._columns)
            if known + n_new > most or (n_new > max(known, MOST_NEW) and self.forest.n_samples >= YOUNG):
                raise Rejected("too-many-features")

    def _check_label(self, label: Label) -> None:
        if self._is_regressor:
            if isinstance(label, str | bool):
                raise Rejected("wrong-type")
        elif isinstance(label, float):
            raise Rejected("wrong-type")
        elif not isinstance(label, str) and not -LARGEST_CLASS <= label < LARGEST_CLASS:
            raise Rejected("number-out-of-range")
        else:
            known = [amf.class_text(each) for each in self.forest.class_labels]
            if amf.class_text(label) not in known and len(known) >= self.forest.params.max_classes:
                raise Rejected("too-many-classes")

    def _blind(self) -> dict[str, Any]:
        if self._is_regressor:
            return {"prediction": None, "std": None, "quantiles": None, "learned": 0}
        return {"prediction": None, "probabilities": {}, "learned": 0}

    def _classify(self, row: Any, label: Label | None, learned: int) -> dict[str, Any]:
        labels = list(self.forest.class_labels)
        texts = [amf.class_text(each) for each in labels]
        said = self.forest.predict_learn(row, [label])[0].tolist()[: len(labels)]
        best = labels[max(range(len(labels)), key=said.__getitem__)] if labels else None
        answer: dict[str, Any] = {"prediction": best, "probabilities": dict(zip(texts, said, strict=True))}
        if label is not None:
            code = texts.index(amf.class_text(label)) if amf.class_text(label) in texts else None
            loss = math.log(learned + 2) if code is None else 0.0 - math.log(said[code] or 5e-324)
            answer |= {"label": label, "loss": loss}
        return {**answer, "learned": learned}

    def _estimate(self, row: Any, label: Label | None, learned: int) -> dict[str, Any]:
        forecast = self.forest.prequential(row, np.array([label], np.float64))
        answer: dict[str, Any] = {"prediction": None, "std": None, "quantiles": None}
        loss = None
        if learned:
            mean, std, quantiles = forecast.mean[0].item(), forecast.std[0].item(), forecast.quantiles[0].tolist()
            answer = {"prediction": mean, "std": std}
            answer["quantiles"] = dict(zip(("0.05", "0.5", "0.95"), quantiles, strict=True))
            loss = None if label is None else (float(label) - mean) ** 2
        if label is not None:
            answer |= {"label": label, "loss": loss}
        return {**answer, "learned": learned}
