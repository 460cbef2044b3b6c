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

from collections.abc import Sequence
from enum import Enum

import amf
from worker.config import Config
from worker.errors import CorruptCheckpoint
from worker.intake import BatchResult, Intake
from worker.models import Models
from worker.records import Record
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

    def __init__(self, number: int, config: Config, max_message_bytes: int) -> None:
        self.number = number
        self.state = State.RESTORE
        self.models = Models(config.models.params_for)
        self.position = -1
        self.live_from = -1
        self._config = config
        self._intake = Intake(number, config, max_message_bytes)
        self._saved_position = -1

    @property
    def dirty(self) -> bool:
        """Whether the last snapshot is not of this state, or not of this offset, from which replay would start."""
        return self.position != self._saved_position or self.models.dirty

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
        changed = [model.key for model in self.models if self.models.has_changed_spec(model)]
        for key in changed:
            self.models.drop(key)
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
        return self._intake.affordable(records, self.models, copied_bytes)

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
        result = self._intake.take(records, self.models, publish=publish)
        if records:
            self.position = records[-1].offset + 1
        return result
