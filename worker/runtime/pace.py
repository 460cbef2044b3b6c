"""When records are predicted, and when what came of them is committed."""

from __future__ import annotations

from worker.base.ports import Clock

LEAST_PIECE_S = 0.005
"""Least time for which records are gathered before they are predicted."""
CALM_PIECE_S = 1.0
"""Longest of a piece where there is little to do: a signal to stop waits for its end, and questions about models do."""


class Pace:
    """Cuts the interval of the transactions into pieces: records are predicted with each, and committed with the last.

    So an event waits for the commit alone, and little is left to do when that is due. Where there is little to do at
    all it is done at once: a piece has a price of its own, about a millisecond for each partition, and in a calm stream
    that would be most of what a worker does.
    """

    pieces = 4
    worth_s = 0.01
    """How long it takes to predict the records of an interval from which on they are taken piece by piece."""
    calm_records = 256
    """Records that end a calm spell at once: who waited for the end of the interval with all that a burst brings would
    have no time left for pieces in the next one either."""

    def __init__(self, interval_s: float, clock: Clock) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._began_s = self._read_s = clock.monotonic()
        self._work_s = self._work_before_s = 0.0
        """How long records took since the last interval ended, and in the one before."""
        self.is_due = True
        """Whether what is gathered is to be committed with this turn of the loop."""

    def next_piece_s(self) -> float:
        """How long to wait for records now; `is_due` says afterwards whether this piece is the last one."""
        now, piece_s = self._clock.monotonic(), max(self._interval_s / self.pieces, LEAST_PIECE_S)
        if self._is_calm:
            piece_s = max(piece_s, CALM_PIECE_S)
        until_s, ends_s = max(now, self._read_s + piece_s), self._began_s + self._interval_s
        self.is_due = until_s + piece_s / 2 > ends_s
        return max(0.0, (ends_s if self.is_due else until_s) - now)

    def most_records(self, most: int) -> int:
        """How many records to wait for now, of so many that are wanted."""
        return min(most, self.calm_records) if self._is_calm else most

    def has_read(self, n_records: int, turn_s: float) -> None:
        """So many records of this piece are here; after the last one another interval begins.

        turn_s: how long those took that were here before.
        """
        if self._is_calm and n_records >= self.calm_records:
            self.is_due, self._work_before_s = False, self.worth_s
        self._read_s = self._clock.monotonic()
        self._work_s += turn_s
        if self.is_due:
            self._began_s = self._read_s
            self._work_before_s, self._work_s = self._work_s, 0.0

    @property
    def _is_calm(self) -> bool:
        return self._work_before_s < self.worth_s
