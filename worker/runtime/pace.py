"""When records are predicted, and when what came of them is committed."""

from __future__ import annotations

from worker.base.ports import Clock

LEAST_PIECE_S = 0.005
"""Least time for which records are gathered before they are predicted."""


class Pace:
    """Cuts the interval of the transactions into pieces: records are predicted with each, and committed with the last.

    So an event waits for the commit alone, and little is left to do when that is due.
    """

    pieces = 4

    def __init__(self, interval_s: float, clock: Clock) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._began_s = self._read_s = clock.monotonic()
        self.is_due = True
        """Whether what is gathered is to be committed with this turn of the loop."""

    def next_piece_s(self) -> float:
        """How long to wait for records now; `is_due` says afterwards whether this piece is the last one."""
        now, piece_s = self._clock.monotonic(), max(self._interval_s / self.pieces, LEAST_PIECE_S)
        until_s, ends_s = max(now, self._read_s + piece_s), self._began_s + self._interval_s
        self.is_due = until_s + piece_s / 2 > ends_s
        return max(0.0, (ends_s if self.is_due else until_s) - now)

    def has_read(self) -> None:
        """The records of this piece are here; after the last one another interval begins."""
        self._read_s = self._clock.monotonic()
        if self.is_due:
            self._began_s = self._read_s
