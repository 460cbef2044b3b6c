"""What the batches of one turn may take together, in time and in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from worker.base.records import Record, Reject
from worker.state.model_store import ModelStore


class Allowance:
    """Shared by the partitions of a turn, which ask one after the other: each for its part of what is left."""

    def __init__(self, partitions: int, copying: int, copied_bytes: int, model_bytes: float) -> None:
        """copied_bytes: for copies of models that wait to be saved, of which `copying` of the partitions have some.

        model_bytes: for copies and all models in use.
        """
        self._partitions = partitions
        self._copying = copying
        self._copied_bytes = copied_bytes
        self._model_bytes = model_bytes
        self.coming_bytes = 0
        """Memory of what is not there yet: of models that are away, or new, and of copies."""

    def affordable(
        self, records: Sequence[Record], model_key: Callable[[bytes | None], str | Reject], models: ModelStore
    ) -> int:
        """How many of these records of a partition may be taken, at least one; their models are the last to leave."""
        copying, most_copied, most_used = models.in_copy_on_write, 0, self._model_bytes / self._partitions
        self._partitions -= 1
        if copying:
            most_copied = self._copied_bytes // self._copying
            self._copying -= 1
        elif math.isinf(most_used):
            return len(records)
        n, copied_bytes, used_bytes = len(records), 0, 0
        met: set[bytes | None] = set()
        for i, record in enumerate(records):
            if record.key in met:
                continue
            met.add(record.key)
            key = model_key(record.key)
            if isinstance(key, Reject):
                continue
            copied, (here, coming) = models.waiting_bytes(key), models.memory(key)
            used = here + coming + copied
            if i and ((copied and copied_bytes + copied > most_copied) or used_bytes + used > most_used):
                n = i
                break
            models.note_use(key)
            copied_bytes += copied
            used_bytes += used
            self.coming_bytes += coming + copied
        self._copied_bytes -= copied_bytes
        self._model_bytes -= used_bytes
        return n
