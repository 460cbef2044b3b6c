"""What was read of each partition and is not taken yet; and which partitions are read again from where they are."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from worker.errors import Transient
from worker.partition import Partition
from worker.ports import Clock, Input
from worker.records import Record
from worker.until import Until

_log = logging.getLogger(__name__)

WAIT_S = 1.0
"""Between two attempts at records that need something that is away."""


class Backlog:
    """Records between consumer and models. A partition that waits has none: they are read again, from its position."""

    def __init__(self, source: Input, clock: Clock, until: Until | None) -> None:
        self._input = source
        self._clock = clock
        self._until = until
        self._records: dict[int, list[Record]] = defaultdict(list)
        self._waiting: dict[int, float] = {}
        """Partitions whose last records could not be taken, and when to read them again; then infinity."""
        self.gone: dict[int, str] = {}
        """Partitions whose next record does not exist any more, and what the broker says."""

    def __len__(self) -> int:
        """Records of all partitions."""
        return sum(map(len, self._records.values()))

    def __contains__(self, number: int) -> bool:
        """Whether there is any record of a partition."""
        return bool(self._records.get(number))

    @property
    def any_waiting(self) -> bool:
        """Whether any partition waits."""
        return bool(self._waiting)

    def add(self, number: int, records: Sequence[Record]) -> None:
        """Records that have come, as far as they are wanted."""
        if self._waiting.get(number, math.inf) != math.inf:
            return
        wanted = records if self._until is None else self._until.before_end(number, records)
        if len(wanted) < len(records):
            self._input.pause(number)
        self._records[number] += wanted

    def take(self) -> dict[int, list[Record]]:
        """All records, which are here no more."""
        taken, self._records = self._records, defaultdict(list)
        return taken

    def put_back(self, number: int, records: list[Record]) -> None:
        """Records that were too many for now."""
        self._records[number] = records

    def wait(self, partition: Partition, error: Transient) -> None:
        """Something that the next records need is away: they are read again later, for as long as it takes."""
        number = partition.number
        if number not in self._waiting:
            _log.warning("partition %d waits at offset %d: %s", number, partition.position, error)
        self.forget(number)
        self._input.pause(number)
        self._waiting[number] = self._clock.monotonic() + WAIT_S

    def read_again(self, partitions: Mapping[int, Partition]) -> None:
        """Have the partitions read on that have waited long enough."""
        now = self._clock.monotonic()
        due = {number: partitions[number].position for number, until_s in self._waiting.items() if until_s <= now}
        if due:
            self._input.assign(due)
            self._waiting |= dict.fromkeys(due, math.inf)

    def wait_no_more(self, number: int) -> bool:
        """A partition has taken its records, or never will; whether it waited."""
        return self._waiting.pop(number, None) is not None

    def forget(self, number: int) -> None:
        """Drop what was read of a partition, which is read anew, or by somebody else."""
        self._records.pop(number, None)
        self.gone.pop(number, None)
        if self._until is not None:
            self._until.forget(number)
