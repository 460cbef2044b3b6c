"""Since when the records of a partition wait."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low


class Lag:
    """By the time of the last records that were taken, as long as others are behind them."""

    def __init__(self) -> None:
        self._up_to_ms: int | None = None
        """Until when all there was is taken, in ms since the epoch: the time of a record, or of the clock."""

    def took(self, times_ms: Sequence[int]) -> None:
        """Records of these times are taken, and all before them; a time that is not known is negative."""
        # The one in the middle: the clock of one producer may be ahead for good, and that of another behind.
        if (middle_ms := median_low(times_ms)) >= 0:
            self._up_to_ms = max(self._up_to_ms or 0, middle_ms)

    def seconds(self, n: int, now_ms: int) -> float | None:
        """Since how many seconds n records wait. Where nothing was ever taken it is not known."""
        if n == 0:
            # What comes later cannot have waited before, however long ago the last record came.
            self._up_to_ms = now_ms
        if self._up_to_ms is None:
            return None
        # A producer's clock may be ahead, be it by years: what is behind its record waits from now on at the latest.
        self._up_to_ms = min(self._up_to_ms, now_ms)
        return (now_ms - self._up_to_ms) / 1000
