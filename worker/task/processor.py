"""Records of one partition through its models: what each is, whose it is, and what is to be published of it. No I/O.

Every rule of what is learned is here and in the models, for live records, for replay and for `evaluate` alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import amf
from worker.base.errors import PartitionStopped, Transient
from worker.base.kind_changes import KindChanges
from worker.base.ports import SchemaRegistry
from worker.base.records import Answer, Event, Outgoing, Record, Reject
from worker.base.rejects import Rejects, Streak
from worker.base.tally import Tally
from worker.base.terms import KindChange
from worker.codec import codec_of, decode_key, envelope
from worker.codec.dead_letters import REJECT_CODES
from worker.codec.framing import framed_value
from worker.config import REGISTRY_CODECS, Config
from worker.state.many_models import Joint, apply_together
from worker.state.model_store import ModelStore
from worker.state.runs import Applied

_WAYS_OUT = {
    "spec-changed": "Set the parameters of these models back, or set models.on_spec_change: restart",
    "too-many-models": "Raise models.max_models, or remove idle models (inspect --idle, reset)",
}
"""What to do where it is not the producer's records that are wrong."""


class Arrivals(NamedTuple):
    """What was read of some records, in their order."""

    keys: list[str | Reject]
    """Their model keys."""
    events: list[Event | Reject | None]
    """None where there is no key, and where a tombstone resets the model."""

    def part(self, part: slice) -> Arrivals:
        """What was read of some of the records."""
        return Arrivals(self.keys[part], self.events[part])


class Outcomes(NamedTuple):
    """What became of some records, in their order."""

    answers: list[Answer | Reject | None]
    """None where a record was only learned, and where a tombstone reset its model."""
    specs: list[str | None]
    """Of their models; None where there is none."""
    kind_changes: list[tuple[int, str | None, KindChange]]
    """The row of a record, and the feature of its model of which it is the first of another kind."""

    def note(self, rows: Iterable[int], specs: Iterable[str], answers: Iterable[Answer | Reject | None]) -> None:
        """These became of the records in these rows."""
        for row, spec, answer in zip(rows, specs, answers, strict=True):
            self.answers[row], self.specs[row] = answer, spec


@dataclass(slots=True)
class BatchResult:
    """What a batch of one partition asks for: records to publish, and figures for the metrics."""

    n_taken: int = 0
    """Records that were taken, the first ones of the batch."""
    n_bytes: int = 0
    """Of the values in `outgoing`, and of those of the records, which are kept until the former are committed."""
    outgoing: list[Outgoing] = field(default_factory=list)
    answers: list[Answer | Reject | None] = field(default_factory=list)
    """What became of each record; only where that is asked for in place of `outgoing`."""
    events: int = 0
    tally: Tally = field(default_factory=Tally)
    rejects: Rejects = field(default_factory=Rejects)
    kind_changes: KindChanges = field(default_factory=KindChanges)
    timestamps_ms: list[int] = field(default_factory=list)
    """Of the records, as far as they are known."""
    stop: PartitionStopped | None = None
    """The partition must stop once this batch is committed."""

    def add(self, later: BatchResult) -> None:
        """Add what the records after these ask for."""
        self.n_taken += later.n_taken
        self.n_bytes += later.n_bytes
        self.outgoing += later.outgoing
        self.answers += later.answers
        self.events += later.events
        self.tally.add(later.tally)
        self.rejects.extend(later.rejects)
        self.kind_changes.extend(later.kind_changes)
        self.timestamps_ms += later.timestamps_ms
        self.stop = self.stop or later.stop


def bytes_of(records: Iterable[Record | Outgoing]) -> int:
    """Of their values."""
    return sum(len(record.value or b"") for record in records)


class Processor:
    """Takes records in their order. Beside the models it remembers only how many dead letters came in a row."""

    def __init__(self, partition: int, config: Config, max_message_bytes: int, registry: SchemaRegistry | None) -> None:
        self._partition = partition
        self._config = config
        self._is_framed = config.input.codec in REGISTRY_CODECS
        self._decode = codec_of(config.input.codec, config.output.topic, registry).decode
        self._answers = codec_of(config.output.codec, config.output.topic, registry)
        self._max_message_bytes = max_message_bytes
        self.go_by(config.checkpoint.lineage)
        self._streak = Streak()

    def go_by(self, lineage: str) -> None:
        """Name this lineage in everything that is published from now on."""
        self._provenance = envelope.Provenance(self._config.input.topic, self._partition, amf.ENGINE, lineage)

    def read(self, records: Sequence[Record], *, publish: bool) -> Arrivals:
        """Model key and event of every record, and all that it takes to publish answers if `publish` is set.

        Of the records before one of which a codec cannot say that yet; raises Transient where that is the first.
        Once a model has learned, a batch cannot be taken again, so this comes before.
        """
        if publish:
            self._answers.prepare()
        decode, max_bytes = self._decode, self._config.input.max_bytes
        resets = self._config.input.tombstones == "reset"
        # Each key once, and remembered for the batch alone: the keys of records are as many as producers like.
        model_keys = {key: self.model_key(key) for key in {record.key for record in records}}
        keys = [model_keys[record.key] for record in records]
        values = [framed_value(record) if self._is_framed else record.value for record in records]
        events: list[Event | Reject | None] = []
        try:
            for record, key, value in zip(records, keys, values, strict=True):
                if record.headers_fault is not None:
                    events.append(Reject("invalid-headers", record.headers_fault))
                elif isinstance(key, str) and not (value is None and resets):
                    events.append(decode(value, max_bytes))
                else:
                    events.append(None)
        except Transient:
            if not events:
                raise
        return Arrivals(keys[: len(events)], events)

    def process(
        self, records: Sequence[Record], arrivals: Arrivals, models: ModelStore, *, predict: bool
    ) -> tuple[Outcomes, BatchResult]:
        """Predict and learn what was read of the records; with `predict` False only learn (replay)."""
        result = BatchResult(len(records))
        outcomes = Outcomes([None] * len(records), [None] * len(records), [])
        odd = [(row, event) for row, event in enumerate(arrivals.events) if not isinstance(event, Event)]
        # What was not passed on yet: the events of these rows, with their keys, and those from `start` on.
        rows: list[int] = []
        waiting: set[str | Reject] = set()
        start = 0
        for row, event in odd:
            rows += range(start, row)
            waiting.update(arrivals.keys[start:row])
            start = row + 1
            key = arrivals.keys[row]
            if isinstance(key, Reject):
                outcomes.answers[row] = key
                continue
            outcomes.answers[row], outcomes.specs[row] = event, models.configured_spec(key)
            if event is None:
                if key in waiting:
                    result.tally.add(self._through(models, arrivals, rows, outcomes, predict=predict))
                    rows, waiting = [], set()
                models.drop(key)
        rows += range(start, len(records))
        result.tally.add(self._through(models, arrivals, rows, outcomes, predict=predict))

        self._watch_rejects(records, outcomes.answers, result)
        if predict:
            result.events = len(records)
            for row, feature, change in sorted(outcomes.kind_changes, key=itemgetter(0)):
                result.kind_changes.add(records[row].offset, str(arrivals.keys[row]), feature, change)
            result.timestamps_ms = [record.timestamp_ms for record in records if record.timestamp_ms >= 0]
        return outcomes, result

    def _through(
        self, models: ModelStore, arrivals: Arrivals, rows: Sequence[int], outcomes: Outcomes, *, predict: bool
    ) -> Tally:
        """Pass the events of these rows through their models; returns the figures of what they were answered."""
        tally = Tally()
        keys: list[Any] = [arrivals.keys[row] for row in rows]
        events: list[Any] = [arrivals.events[row] for row in rows]
        # What is explained is the forecast of one model at a time.
        apart = predict and self._config.output.explain > 0
        joint, left = apply_together(models, keys, events, predict=predict, apart=apart)
        for key, places in left.items():
            spec, applied = self._alone(models, key, [events[place] for place in places], predict=predict)
            joint.append(Joint(places, [spec] * len(places), applied))
        for places, specs, applied in joint:
            outcomes.note((rows[place] for place in places), specs, applied.outcomes)
            tally.add(applied.tally)
            outcomes.kind_changes.extend((rows[places[i]], name, change) for i, name, change in applied.kind_changes)
        return tally

    def _alone(self, models: ModelStore, key: str, events: Sequence[Event], *, predict: bool) -> tuple[str, Applied]:
        """Pass events through their model by itself; returns the model's spec, and what became of them."""
        model = models.get(key)
        models.hold(key)
        # A model that is refused learns all the same: a replay, which cannot know since when it is, will do so too.
        answers = predict and not models.has_changed_spec(model)
        applied = model.apply(events, predict=answers, explain=self._config.output.explain)
        if applied.tally.learned:
            models.keep(model, applied.scores)
        if predict and not answers:
            was, now = model.spec, models.configured_spec(key)
            reason = f"model {key!r} was made with spec {was}, the configuration now says {now}"
            applied.outcomes = [Reject("spec-changed", reason)] * len(events)
        return model.spec, applied

    def publish(self, records: Sequence[Record], keys: Sequence[str | Reject], outcomes: Outcomes) -> list[Outgoing]:
        """Exactly one record for every record that was predicted; a tombstone that reset its model is passed on."""
        out, dead, most = self._config.output.topic, self._config.dead_letter.topic, self._max_message_bytes
        headers = self._provenance.headers
        return [
            envelope.prediction_record(out, record, content, headers(record.offset, spec), most)
            if content is None or isinstance(content, bytes)
            else envelope.dead_letter(dead, record, content, headers(record.offset, spec), most)
            for record, spec, content in zip(records, outcomes.specs, self._encoded(keys, outcomes), strict=True)
        ]

    def dead_letter_for(self, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        """What goes out in place of a record that the broker refuses; None where that is a dead letter already."""
        dead = self._config.dead_letter.topic
        if refused.topic == dead:
            return None
        spec = dict(refused.headers)["spec"]
        ours = self._provenance.headers(record.offset, None if spec is None else spec.decode())
        return envelope.dead_letter(dead, record, Reject("unpublishable", why), ours, self._max_message_bytes)

    def _encoded(self, keys: Sequence[str | Reject], outcomes: Outcomes) -> list[bytes | Reject | None]:
        """What became of each record, every answer as it is published."""
        contents: list[Any] = outcomes.answers.copy()
        answered = [row for row, content in enumerate(contents) if isinstance(content, Answer)]
        models: list[Any] = [keys[row] for row in answered]
        values = self._answers.encode_answers(models, [contents[row] for row in answered])
        for row, value in zip(answered, values, strict=True):
            contents[row] = value
        return contents

    def model_key(self, key: bytes | None) -> str | Reject:
        """Model key of the records with this key, or why there is none."""
        if key is None:
            name = self._config.models.null_key
            return Reject("null-key", REJECT_CODES["null-key"]) if name is None else name
        return decode_key(key)

    def _watch_rejects(
        self, records: Sequence[Record], answers: Sequence[Answer | Reject | None], result: BatchResult
    ) -> None:
        if records and Reject not in map(type, answers):  # nearly always, and soon known
            self._streak.end()
            return
        most = self._config.dead_letter.max_consecutive
        self._streak.begin_batch()
        for record, answer in zip(records, answers, strict=True):
            self._streak.note(is_reject=isinstance(answer, Reject))
            if isinstance(answer, Reject):
                result.rejects.add(record, answer)
        if (longest := self._streak.longest) > most:
            commonest, _ = result.rejects.counts.most_common(1)[0]
            result.stop = PartitionStopped(
                "too-many-dead-letters",
                f"partition {self._partition}: {longest} records in a row up to offset {records[-1].offset} ended as "
                f"dead letters (of the last batch {dict(result.rejects.counts)}), dead_letter.max_consecutive is "
                f"{most}. They are all in {self._config.dead_letter.topic}",
                f"{_WAYS_OUT.get(commonest, 'Repair the producer')}; then start the worker again",
            )
