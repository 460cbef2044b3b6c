"""What the batches of one turn may take together, in time and in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from worker.base.records import Record, Reject
from worker.state.model_store import ModelStore


class Allowance:
    """What is left of it for the partitions that come next. Of each at least one record is taken."""

    def __init__(self, copied_bytes: int, model_bytes: float = math.inf) -> None:
        """copied_bytes: for copies of models that wait to be saved. model_bytes: for copies and all models in use."""
        self._copied_bytes = copied_bytes
        self._model_bytes = model_bytes
        self.coming_bytes = 0
        """Memory of what is not there yet: of models that are away, or new, and of copies."""

    def affordable(
        self, records: Sequence[Record], model_key: Callable[[bytes | None], str | Reject], models: ModelStore
    ) -> int:
        """How many of these records of a partition may be taken; their models are in use, the last to leave memory."""
        if math.isinf(self._model_bytes) and not models.in_copy_on_write:
            return len(records)
        met: set[bytes | None] = set()
        for i, record in enumerate(records):
            if record.key in met:
                continue
            met.add(record.key)
            key = model_key(record.key)
            if isinstance(key, Reject):
                continue
            copied, (here, coming) = models.waiting_bytes(key), models.memory(key)
            coming += copied
            if i and (copied > self._copied_bytes or here + coming > self._model_bytes):
                return i
            models.note_use(key)
            self._copied_bytes = max(0, self._copied_bytes - copied)
            self._model_bytes = max(0, self._model_bytes - here - coming)
            self.coming_bytes += coming
        return len(records)
