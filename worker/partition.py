"""The state of one partition and the only way records change it. No I/O, no clock.

        restored                position reaches the committed offset
    (RESTORE) ------> (REPLAY) --------------------------------------> (LIVE)
        |                 |                                              |
        +-----------------+---------------> (STOPPED) <------------------+
                                 a guarantee would break: under a name

REPLAY learns and says nothing: what these records predicted is already in the output topic. LIVE predicts and learns.
Both take the same records through the same rules, so the state at an offset does not tell how it was reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

import amf
from worker import codec, envelope
from worker.config import Config
from worker.errors import CorruptCheckpoint, PartitionStopped
from worker.models import Applied, Model, Models
from worker.records import Answer, ClassScores, Event, NumberScores, Outgoing, Record, Reject
from worker.rejects import REJECT_CODES
from worker.snapshot import Frozen

_REMEMBERED_KEYS = 100_000


class State(Enum):
    """Where a partition is in its life; the values are metric labels."""

    RESTORE = "restore"
    REPLAY = "replay"
    LIVE = "live"
    STOPPED = "stopped"


@dataclass(slots=True)
class BatchResult:
    """What a batch of one partition asks for: records to publish, the offset to commit, figures for the metrics."""

    next_offset: int
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


class Partition:
    """Models of one partition at an offset of its input.

    `position` is the offset of the next record to take; everything before it is in the models. `live_from` is the
    committed offset found at the start: records before it are replayed.
    """

    def __init__(self, number: int, config: Config, max_message_bytes: int) -> None:
        self.number = number
        self.state = State.RESTORE
        self.models = Models(config.models.params_for)
        self.position = -1
        self.live_from = -1
        self._config = config
        self._max_message_bytes = max_message_bytes
        self._provenance = envelope.Provenance(config.input.topic, number, amf.ENGINE, config.checkpoint.lineage)
        self._dirty: set[str] = set()
        self._removed: set[str] = set()
        self._frozen: dict[str, Frozen] = {}
        self._saved_position = -1
        self._rejects_in_a_row = 0
        self._keys: dict[bytes, str] = {}

    @property
    def dirty(self) -> bool:
        """Whether the last snapshot is not of this state, or not of this offset, from which replay would start."""
        return self.position != self._saved_position or bool(self._dirty or self._removed)

    def restore(self, models: dict[str, tuple[str, bytes]], offset: int, live_from: int) -> None:
        """Take the state at `offset`: model key -> (spec, bytes). Raises CorruptCheckpoint."""
        restored = Models(self._config.models.params_for)
        for key, (spec, data) in models.items():
            try:
                restored.restore(key, spec, data)
            except amf.FormatError as error:
                raise CorruptCheckpoint(f"model {key!r} at offset {offset}: {error}") from error
        self.models = restored
        self.position, self.live_from, self._saved_position = offset, live_from, offset
        self.state = State.REPLAY

    def go_live(self) -> bool:
        """REPLAY is over. True where the state changed by decree and must be saved before anything is committed."""
        self.state = State.LIVE
        if self._config.models.on_spec_change == "fail":
            return False
        changed = [model.key for model in self.models if self._has_changed(model)]
        for key in changed:
            self._drop(key)
        return bool(changed)

    def stop(self) -> None:
        """Take no more records."""
        self.state = State.STOPPED

    def replay(self, records: Sequence[Record]) -> int:
        """Learn records that were predicted before; returns how many labels were learned."""
        return self._take(records, publish=False).learned

    def apply(self, records: Sequence[Record]) -> BatchResult:
        """Predict and learn records in their order."""
        return self._take(records, publish=True)

    def affordable(self, records: Sequence[Record], copied_bytes: int) -> int:
        """How many of the records to take so that at most so much of the last snapshot has to be copied; at least one.

        A pause for all models at once would be a long one; for some of them in each batch it is not.
        """
        counted: set[str] = set()
        for i, record in enumerate(records if self._frozen else ()):
            key = self._model_key(record)
            if isinstance(key, str) and key in self._frozen and key not in counted:
                counted.add(key)
                copied_bytes -= self._frozen[key].waiting_bytes
                if copied_bytes < 0 and i:
                    return i
        return len(records)

    def snapshot(self) -> tuple[dict[str, Frozen], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`.
        """
        self._frozen = {key: Frozen(self.models.get(key)) for key in self._dirty}
        removed = self._removed
        self._dirty, self._removed, self._saved_position = set(), set(), self.position
        return self._frozen, removed

    def snapshot_done(self) -> None:
        """The snapshot is in the store."""
        self._frozen = {}

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        self._dirty |= {key for key in self._frozen if key in self.models}
        self._removed |= {key for key in removed | self._frozen.keys() if key not in self.models}
        self._saved_position = -1
        self._frozen = {}

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self._dirty = {model.key for model in self.models}

    def _has_changed(self, model: Model) -> bool:
        return model.spec != self.models.configured_spec(model.key)

    def _drop(self, key: str) -> None:
        if key in self.models:
            self.models.forget(key)
            self._dirty.discard(key)
            self._removed.add(key)

    def _take(self, records: Sequence[Record], *, publish: bool) -> BatchResult:
        result = BatchResult(next_offset=records[-1].offset + 1 if records else self.position)
        keys: list[str] = [""] * len(records)
        specs: list[str | None] = [None] * len(records)
        outcomes: list[Answer | Reject | None] = [None] * len(records)
        groups: dict[str, tuple[list[int], list[Event]]] = {}

        def finish(key: str) -> None:
            rows, events = groups.pop(key, ([], []))
            if rows:
                model, applied = self._through_model(key, events, publish=publish)
                for row, outcome in zip(rows, applied.outcomes, strict=True):
                    outcomes[row] = outcome
                    specs[row] = model.spec
                self._count(result, applied)

        for row, record in enumerate(records):
            key = self._model_key(record)
            if isinstance(key, Reject):
                outcomes[row] = key
                continue
            keys[row] = key
            if record.value is None and self._config.input.tombstones == "reset":
                finish(key)
                specs[row] = self.models.configured_spec(key)
                self._drop(key)
                continue
            event = codec.decode(record.value, self._config.input.max_bytes)
            if isinstance(event, Reject):
                outcomes[row] = event
                specs[row] = self.models.configured_spec(key)
                continue
            group = groups.get(key)
            if group is None:
                group = groups[key] = ([], [])
            group[0].append(row)
            group[1].append(event)
        for key in list(groups):
            finish(key)

        self._watch_rejects(outcomes, result)
        if publish:
            self._publish(records, keys, specs, outcomes, result)
        self.position = result.next_offset
        return result

    def _model_key(self, record: Record) -> str | Reject:
        if record.key is None:
            name = self._config.models.null_key
            return Reject("null-key", REJECT_CODES["null-key"]) if name is None else name
        known = self._keys.get(record.key)
        if known is not None:
            return known
        key = codec.decode_key(record.key)
        if isinstance(key, str):
            if len(self._keys) == _REMEMBERED_KEYS:
                self._keys.clear()
            self._keys[record.key] = key
        return key

    def _through_model(self, key: str, events: list[Event], *, publish: bool) -> tuple[Model, Applied]:
        model = self.models.get(key)
        refused = publish and self._has_changed(model)
        if key in self._frozen:
            self._frozen[key].hold()
        applied = model.apply(events, publish=publish and not refused)
        if refused:
            # It learns all the same: a replay, which cannot know since when the model is refused, will do so too.
            was, now = model.spec, self.models.configured_spec(key)
            reason = f"model {key!r} was made with spec {was}, the configuration now says {now}"
            applied.outcomes = [Reject("spec-changed", reason)] * len(events)
        if applied.learned:
            self.models.keep(model)
            self._dirty.add(key)
            self._removed.discard(key)
        return model, applied

    @staticmethod
    def _count(result: BatchResult, applied: Applied) -> None:
        result.predictions += applied.predicted
        result.learned += applied.learned
        if isinstance(applied.scores, ClassScores):
            result.class_scores.add(applied.scores)
        elif isinstance(applied.scores, NumberScores):
            result.number_scores.add(applied.scores)
        result.depths += applied.depths
        result.weighted_depth += applied.weighted_depth

    def _watch_rejects(self, outcomes: Sequence[Answer | Reject | None], result: BatchResult) -> None:
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
                f"partition {self.number}: {longest} records in a row up to offset {result.next_offset - 1} ended as "
                f"dead letters ({dict(result.rejects)}), dead_letter.max_consecutive is {most}. They are all in "
                f"{self._config.dead_letter.topic}; repair the producer, then start the worker again",
            )

    def _publish(
        self,
        records: Sequence[Record],
        keys: list[str],
        specs: list[str | None],
        outcomes: list[Answer | Reject | None],
        result: BatchResult,
    ) -> None:
        """Exactly one record to publish for every record taken."""
        result.events = len(records)
        out, dead = self._config.output.topic, self._config.dead_letter.topic
        for record, key, spec, outcome in zip(records, keys, specs, outcomes, strict=True):
            ours = self._provenance.headers(record.offset, spec)
            if isinstance(outcome, Reject):
                outgoing = envelope.dead_letter(dead, record, outcome, ours, self._max_message_bytes)
            else:
                # A tombstone that reset its model is passed on as a tombstone.
                value = None if outcome is None else codec.encode_answer(key, outcome)
                outgoing = envelope.prediction_record(out, record, value, ours, self._max_message_bytes)
            result.outgoing.append(outgoing)
