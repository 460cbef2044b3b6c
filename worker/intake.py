"""Records of one partition through its models: what each is, whose it is, and what is to be published of it. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from worker import envelope
from worker.codec import codec_of, decode_key
from worker.codec.framing import framed_value
from worker.config import REGISTRY_CODECS, Config
from worker.errors import PartitionStopped
from worker.model import Applied, Model
from worker.models import Models
from worker.ports import SchemaRegistry
from worker.records import Answer, ClassScores, Event, NumberScores, Outgoing, Record, Reject
from worker.rejects import REJECT_CODES

_REMEMBERED_KEYS = 100_000


class Arrivals(NamedTuple):
    """What was read of some records, in their order."""

    keys: list[str | Reject]
    """Their model keys."""
    events: list[Event | Reject | None]
    """None where there is no key, and where a tombstone resets the model."""

    def part(self, part: slice) -> Arrivals:
        """The same of some of the records."""
        return Arrivals(self.keys[part], self.events[part])


@dataclass(slots=True)
class BatchResult:
    """What a batch of one partition asks for: records to publish, and figures for the metrics."""

    outgoing: list[Outgoing] = field(default_factory=list)
    events: int = 0
    predictions: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    learned: int = 0
    class_scores: ClassScores = field(default_factory=ClassScores)
    number_scores: NumberScores = field(default_factory=NumberScores)
    depths: list[NDArray[np.float64]] = field(default_factory=list)
    weighted_depth: float = 0.0
    stop: PartitionStopped | None = None
    """The partition must stop once this batch is committed."""

    def add(self, later: BatchResult) -> None:
        """Add what the records after these ask for."""
        self.outgoing += later.outgoing
        self.events += later.events
        self.predictions += later.predictions
        self.rejects += later.rejects
        self.learned += later.learned
        self.class_scores.add(later.class_scores)
        self.number_scores.add(later.number_scores)
        self.depths += later.depths
        self.weighted_depth += later.weighted_depth
        self.stop = self.stop or later.stop


class Intake:
    """Takes records in their order. Beside the models it remembers only how many dead letters came in a row."""

    def __init__(
        self, partition: int, config: Config, max_message_bytes: int, registry: SchemaRegistry | None = None
    ) -> None:
        self._partition = partition
        self._config = config
        self._is_framed = config.input.codec in REGISTRY_CODECS
        self._decode = codec_of(config.input.codec, config.output.topic, registry).decode
        self._answers = codec_of(config.output.codec, config.output.topic, registry)
        self._max_message_bytes = max_message_bytes
        self._provenance = envelope.Provenance(config.input.topic, partition, amf.ENGINE, config.checkpoint.lineage)
        self._rejects_in_a_row = 0
        self._keys: dict[bytes, str] = {}

    def go_by(self, lineage: str) -> None:
        """Name this lineage in everything that is published from now on."""
        self._provenance = envelope.Provenance(self._config.input.topic, self._partition, amf.ENGINE, lineage)

    def affordable(self, records: Sequence[Record], models: Models, copied_bytes: int) -> tuple[int, int]:
        """How many of the records may be taken for so many bytes of copying what a snapshot waits for, at least one.

        The second number says what is left of the bytes.
        """
        counted: set[str] = set()
        for i, record in enumerate(records if models.in_snapshot else ()):
            key = self._model_key(record)
            if isinstance(key, str) and key not in counted and (waiting := models.waiting_bytes(key)):
                if waiting > copied_bytes and i:
                    return i, copied_bytes
                counted.add(key)
                copied_bytes = max(0, copied_bytes - waiting)
        return len(records), copied_bytes

    def read(self, records: Sequence[Record], *, publish: bool) -> Arrivals:
        """Model key and event of every record, and all that it takes to publish answers if `publish` is set.

        Raises Transient where a codec cannot do that yet. Once a model has learned, a batch cannot be taken again, so
        this comes before.
        """
        if publish:
            self._answers.prepare()
        decode, max_bytes = self._decode, self._config.input.max_bytes
        resets = self._config.input.tombstones == "reset"
        known = self._keys
        keys = [known.get(record.key) or self._model_key(record) for record in records]  # type: ignore[arg-type]
        values = [framed_value(record) if self._is_framed else record.value for record in records]
        events = [
            Reject("invalid-headers", record.headers_fault)
            if record.headers_fault is not None
            else None
            if isinstance(key, Reject) or (value is None and resets)
            else decode(value, max_bytes)
            for record, key, value in zip(records, keys, values, strict=True)
        ]
        return Arrivals(keys, events)

    def take(self, records: Sequence[Record], arrivals: Arrivals, models: Models, *, publish: bool) -> BatchResult:
        """Predict and learn what was read of the records; with `publish` False only learn (replay)."""
        result = BatchResult()
        outcomes: list[bytes | Reject | None] = [None] * len(records)
        specs: list[str | None] = [None] * len(records)
        groups: dict[str, list[int]] = {}

        def finish(key: str, rows: Sequence[int]) -> None:
            events = [arrivals.events[row] for row in rows]
            model, applied = _through_model(models, key, events, publish=publish)  # type: ignore[arg-type]
            for row, outcome in zip(rows, self._encoded(key, applied.outcomes), strict=True):
                outcomes[row] = outcome
                specs[row] = model.spec
            _count(result, applied)

        for row, (key, event) in enumerate(zip(*arrivals, strict=True)):
            if isinstance(key, Reject):
                outcomes[row] = key
            elif isinstance(event, Event):
                if key in groups:
                    groups[key].append(row)
                else:
                    groups[key] = [row]
            else:
                specs[row] = models.configured_spec(key)
                outcomes[row] = event
                if event is None:
                    if key in groups:
                        finish(key, groups.pop(key))
                    models.drop(key)
        for key, rows in groups.items():
            finish(key, rows)

        self._watch_rejects(records, outcomes, result)
        if publish:
            result.events = len(records)
            result.outgoing = self._publish(records, specs, outcomes)
        return result

    def dead_letter_for(self, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        """What goes out in place of a record that the broker refuses; None where that is a dead letter already."""
        dead = self._config.dead_letter.topic
        if refused.topic == dead:
            return None
        spec = dict(refused.headers)["spec"]
        ours = self._provenance.headers(record.offset, None if spec is None else spec.decode())
        return envelope.dead_letter(dead, record, Reject("unpublishable", why), ours, self._max_message_bytes)

    def _encoded(self, key: str, outcomes: Sequence[Answer | Reject | None]) -> Sequence[bytes | Reject | None]:
        """The same with every answer as it is published."""
        answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
        values = self._answers.encode_answers(key, answers) if answers else []
        if len(values) == len(outcomes):
            return values
        remaining = iter(values)
        return [next(remaining) if isinstance(outcome, Answer) else outcome for outcome in outcomes]

    def _model_key(self, record: Record) -> str | Reject:
        if record.key is None:
            name = self._config.models.null_key
            return Reject("null-key", REJECT_CODES["null-key"]) if name is None else name
        known = self._keys.get(record.key)
        if known is not None:
            return known
        key = decode_key(record.key)
        if isinstance(key, str):
            if len(self._keys) == _REMEMBERED_KEYS:
                self._keys.clear()
            self._keys[record.key] = key
        return key

    def _watch_rejects(
        self, records: Sequence[Record], outcomes: Sequence[bytes | Reject | None], result: BatchResult
    ) -> None:
        most = self._config.dead_letter.max_consecutive
        longest = 0
        for outcome in outcomes:
            if isinstance(outcome, Reject):
                result.rejects[outcome.code] += 1
                self._rejects_in_a_row += 1
                longest = max(longest, self._rejects_in_a_row)
            else:
                self._rejects_in_a_row = 0
        if longest > most:
            result.stop = PartitionStopped(
                "too-many-dead-letters",
                f"partition {self._partition}: {longest} records in a row up to offset {records[-1].offset} ended as "
                f"dead letters ({dict(result.rejects)}), dead_letter.max_consecutive is {most}. They are all in "
                f"{self._config.dead_letter.topic}; repair the producer, then start the worker again",
            )

    def _publish(
        self, records: Sequence[Record], specs: Sequence[str | None], outcomes: Sequence[bytes | Reject | None]
    ) -> list[Outgoing]:
        """Exactly one record for every record taken; a tombstone that reset its model is passed on as one."""
        out, dead, most = self._config.output.topic, self._config.dead_letter.topic, self._max_message_bytes
        headers = self._provenance.headers
        return [
            envelope.dead_letter(dead, record, outcome, headers(record.offset, spec), most)
            if isinstance(outcome, Reject)
            else envelope.prediction_record(out, record, outcome, headers(record.offset, spec), most)
            for record, spec, outcome in zip(records, specs, outcomes, strict=True)
        ]


def _through_model(models: Models, key: str, events: list[Event], *, publish: bool) -> tuple[Model, Applied]:
    model = models.get(key)
    refused = publish and models.has_changed_spec(model)
    models.hold(key)
    applied = model.apply(events, publish=publish and not refused)
    if refused:
        # It learns all the same: a replay, which cannot know since when the model is refused, will do so too.
        was, now = model.spec, models.configured_spec(key)
        reason = f"model {key!r} was made with spec {was}, the configuration now says {now}"
        applied.outcomes = [Reject("spec-changed", reason)] * len(events)
    if applied.learned:
        models.keep(model)
    return model, applied


def _count(result: BatchResult, applied: Applied) -> None:
    result.predictions += applied.predicted
    result.learned += applied.learned
    if isinstance(applied.scores, ClassScores):
        result.class_scores.add(applied.scores)
    elif isinstance(applied.scores, NumberScores):
        result.number_scores.add(applied.scores)
    result.depths += applied.depths
    result.weighted_depth += applied.weighted_depth
