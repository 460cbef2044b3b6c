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

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import numpy as np

import amf
from worker.cache import Cache
from worker.checkpoint import Model as Saved
from worker.checkpoint import Source
from worker.config import Config
from worker.errors import CorruptCheckpoint
from worker.intake import Arrivals, BatchResult, Intake
from worker.models import Models
from worker.ports import SchemaRegistry
from worker.records import Event, Outgoing, Record, Reject
from worker.rejects import DECODERS
from worker.slot import Fetch, Prefetch
from worker.snapshot import Frozen


class State(Enum):
    """Where a partition is in its life; the values are metric labels."""

    RESTORE = "restore"
    REPLAY = "replay"
    LIVE = "live"
    STOPPED = "stopped"


class Partition:
    """Models of one partition at an offset of its input.

    `position` is the offset of the next record to take; everything before it is in the models. `live_from` is the
    committed offset found at the start: records before it are replayed.
    """

    def __init__(
        self,
        number: int,
        config: Config,
        max_message_bytes: int,
        cache: Cache | None = None,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.number = number
        self.state = State.RESTORE
        self._cache = cache
        self._config = config
        self.models = self._models()
        self.position = -1
        self.live_from = -1
        self._intake = Intake(number, config, max_message_bytes, registry)
        self._saved_position = -1

    @property
    def dirty(self) -> bool:
        """Whether the last snapshot is not of this state, or not of this offset, from which replay would start."""
        return self.position != self._saved_position or self.models.dirty

    def restore(
        self,
        models: Iterable[tuple[str, Saved]],
        offset: int,
        live_from: int,
        fetch: Fetch | None = None,
        prefetch: Prefetch | None = None,
    ) -> None:
        """Take the state at `offset`, model by model. Raises CorruptCheckpoint; the state is as before then.

        `fetch` gives the bytes of one of these models again, until a snapshot is done; `prefetch` has those of some
        ready for it.
        """
        restored = self._models(fetch, prefetch)
        try:
            for key, saved in models:
                try:
                    restored.restore(key, saved)
                except amf.FormatError as error:
                    raise CorruptCheckpoint(f"model {key!r} at offset {offset}: {error}") from error
        except BaseException:
            restored.close()
            raise
        self.models.close()
        self.models = restored
        self.position, self.live_from, self._saved_position = offset, live_from, offset
        self.state = State.REPLAY

    def go_by(self, lineage: str) -> None:
        """The history goes on under this lineage, which the outputs name: after a gap, not under the configured one."""
        self._intake.go_by(lineage)

    def go_live(self) -> bool:
        """REPLAY is over. True where the state changed by decree and must be saved before anything is committed."""
        self.state = State.LIVE
        if self._config.models.on_spec_change == "fail":
            return False
        return self.models.drop_changed_specs()

    def stop(self) -> None:
        """Take no more records."""
        self.state = State.STOPPED

    def close(self) -> None:
        """Give up the memory of the models: the partition is somebody else's."""
        self.models.close()

    def replay(self, records: Sequence[Record]) -> BatchResult:
        """Learn records that were predicted before; there is nothing to publish. Raises as `apply` does."""
        return self._take(records, publish=False)

    def apply(self, records: Sequence[Record]) -> BatchResult:
        """Predict and learn records in their order.

        Raises Transient where they cannot be read yet; nothing has happened then.
        """
        return self._take(records, publish=True)

    def dead_letter_for(self, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        """What goes out in place of a record that the broker refuses; None where that is a dead letter already."""
        return self._intake.dead_letter_for(record, refused, why)

    def affordable(self, records: Sequence[Record], copied_bytes: int) -> tuple[int, int]:
        """How many of the records to take so that at most so much of the last snapshot has to be copied; at least one.

        A pause for all models at once would be a long one; for some of them in each batch it is not. The second number
        says what is left of the bytes.
        """
        return self._intake.affordable(records, self.models, copied_bytes)

    def sources(self) -> dict[str, Source]:
        """Every model as it is, in memory or not."""
        return self.models.sources()

    def snapshot(self) -> tuple[dict[str, Frozen], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`.
        """
        self._saved_position = self.position
        return self.models.snapshot()

    def snapshot_done(self) -> None:
        """The snapshot is in the store."""
        self.models.snapshot_done()

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        self._saved_position = -1
        self.models.snapshot_failed(removed)

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self.models.mark_all_changed()

    def _take(self, records: Sequence[Record], *, publish: bool) -> BatchResult:
        result, arrivals = BatchResult(), self._intake.read(records, publish=publish)
        self.models.fetch(arrivals.keys)
        for part in self._parts(arrivals):
            result.add(self._intake.take(records[part], arrivals.part(part), self.models, publish=publish))
        if result.depths:
            # Of a batch of a thousand models these are a thousand arrays, and a histogram would take them one by one.
            result.depths = [np.concatenate(result.depths)]
        if records:
            self.position = records[-1].offset + 1
            self._note_times(records)
        return result

    def _parts(self, arrivals: Arrivals) -> Iterator[slice]:
        """Parts of a batch in each of which there is room for all models that it makes, or for none.

        Then the order within a part, which is not that of the records, does not matter, nor do batches.
        """
        start, n = 0, len(arrivals.keys)
        while start < n:
            end = n if self.models.room >= n - start else self._end_of_part(arrivals, start)
            yield slice(start, end)
            start = end

    def _end_of_part(self, arrivals: Arrivals, start: int) -> int:
        room, new = self.models.room, set[str]()
        for i in range(start, len(arrivals.keys)):
            key, event = arrivals.keys[i], arrivals.events[i]
            if isinstance(key, Reject):
                continue
            if room == 0 and event is None:
                return max(i, start + 1)  # A tombstone, alone: behind it there may be room, before it there is none.
            if room > 0 and isinstance(event, Event) and event.label is not None and key not in self.models:
                new.add(key)
                if len(new) > room:
                    return i
        return len(arrivals.keys)

    def _note_times(self, records: Sequence[Record]) -> None:
        times_ms = {record.key: record.timestamp_ms for record in records}
        nobody = self._config.models.null_key
        self.models.note_times(lambda key: times_ms.get(key.encode(), times_ms.get(None) if key == nobody else None))

    def _models(self, fetch: Fetch | None = None, prefetch: Prefetch | None = None) -> Models:
        config, decoder = self._config.models, DECODERS[self._config.input.codec]
        return Models(config.params_for, self._cache, config.max_models, fetch, decoder, prefetch)
