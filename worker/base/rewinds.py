"""A broker that has the group before where it had it: a coordinator that comes back and has not read all of its log yet
answers so for a while, one that has lost commits for good."""

from __future__ import annotations

from collections.abc import Mapping

from worker.base.errors import PartitionStopped
from worker.base.ports import Clock
from worker.base.refusals import commit_forgotten

REWOUND_S = 120.0
"""Longest time that the broker may have a group before what this worker committed: one that comes back and has not read
all of its log yet has the rest of it by then, or never."""


class Rewinds:
    """Partitions that the broker has before where they were known to be, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: dict[int, float] = {}

    @property
    def partitions(self) -> list[int]:
        """Those of the last look."""
        return list(self._since_s)

    def look(self, found: Mapping[int, int], known: Mapping[int, int]) -> dict[int, PartitionStopped]:
        """Compare all offsets that the broker says with those that are known; gives the partitions that it has before
        them for good."""
        now_s = self._clock.monotonic()
        rewound = [number for number, offset in found.items() if offset < known.get(number, 0)]
        self._since_s = {number: self._since_s.get(number, now_s) for number in rewound}
        lost = [number for number, since_s in self._since_s.items() if now_s - since_s >= REWOUND_S]
        return {number: commit_forgotten(number, found[number], known[number]) for number in lost}

    def forget(self, number: int) -> None:
        """The partition is somebody else's."""
        self._since_s.pop(number, None)
