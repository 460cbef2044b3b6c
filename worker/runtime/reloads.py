"""Partitions whose state was lost, and when they may be loaded again.

A disk that gives nothing back, or a store that has all models but one, loses the state as often as it is loaded: that
costs a restore and a replay each time, which all partitions pay for. So the first attempt comes at once, the next ones
after longer and longer pauses, and a row of them without a checkpoint in between has an end.
"""

from __future__ import annotations

from worker.base.retry import backoff_s

FIRST_S, LONGEST_S = 1.0, 60.0
"""Pauses before the second attempt, and before the last ones."""
MOST_RELOADS = 10
"""Attempts in a row: five minutes of pauses."""


class Reloads:
    """How often each partition was loaded again since it came, or since a checkpoint newer than the one it had then."""

    def __init__(self) -> None:
        self._row: dict[int, tuple[int, int]] = {}
        """Partition -> offset of its newest checkpoint then, and how often it was loaded since."""

    def next_pause_s(self, number: int, saved_offset: int | None) -> float | None:
        """How long to wait before the partition is loaded again; None where it has been, too often.

        `saved_offset` is that of its newest checkpoint, None where that is not known.
        """
        known, times = self._row.get(number, (-1, 0))
        if saved_offset is not None and saved_offset > known:
            known, times = saved_offset, 0
        if times == MOST_RELOADS:
            return None
        self._row[number] = known, times + 1
        return backoff_s(times, FIRST_S, LONGEST_S)

    def forget(self, number: int) -> None:
        """The partition is somebody else's."""
        self._row.pop(number, None)
