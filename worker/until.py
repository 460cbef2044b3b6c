"""A run with an end: every partition up to an offset, then an orderly stop. For backfills.

What is published and saved is what a worker without an end publishes and saves of the same records. Several workers may
share the work: each stops when all that it holds is done, and so hands that on, with nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.records import Record


class Until:
    """The end of each partition: the offset after its last record. Those without one are left as they are."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends
        self._passed: set[int] = set()

    def before_end(self, partition: int, records: Sequence[Record]) -> list[Record]:
        """Those of the records that are to be taken. Where there are others, the end has been passed."""
        wanted = [record for record in records if record.offset < self._ends.get(partition, 0)]
        if len(wanted) < len(records):
            self._passed.add(partition)
        return wanted

    def is_reached(self, partition: int, offset: int) -> bool:
        """Whether there is nothing to be taken from this offset on.

        The last record's offset may be well below the end: what else has an offset, such as the markers of
        transactions, is never read. A record beyond the end tells, and so does `Input.end_seen`.
        """
        return partition in self._passed or offset >= self._ends.get(partition, 0)

    def forget(self, partition: int) -> None:
        """What was read of the partition is dropped."""
        self._passed.discard(partition)
