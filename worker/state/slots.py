"""What the loop keeps of each model of a partition, in columns: a model that is not touched costs nothing.

A model has a slot, its place in every column. What is rarely asked for is in its entry (entry.py), and an entry shows
the numbers of its slot as if they were its own.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.state.rules import Rulebook, Rules

TRAFFIC_S = 3600.0
"""An hour: with less, the models that have series of their own would change all the time."""

UNKNOWN_MS = -1
_SUMS = 4
_COLUMNS: dict[str, tuple[Any, Any]] = {
    "used": (np.int64, 0),
    "nbytes": (np.int64, 0),
    "answer_bytes": (np.int64, 0),
    "nodes": (np.int64, 0),
    "samples": (np.int64, 0),
    "counted": (np.int64, 0),
    "recent": (np.float64, -math.inf),
    "last_ms": (np.int64, UNKNOWN_MS),
    "changed": (np.bool_, False),
    "clean": (np.bool_, False),
    "placed": (np.bool_, False),
    "untimed": (np.bool_, False),
    "learned": (np.bool_, False),
    "watched": (np.bool_, False),
}
"""Their types, and what is there of a new model."""


class SlotTable:
    """The columns of one partition.

    The thread that has the partition alone takes slots; the one that has models leave memory may write meanwhile, and
    holds the lock then.
    """

    used: NDArray[np.int64]
    """When the model was last used, counted in uses; 0 while it is not in memory."""
    nbytes: NDArray[np.int64]
    """Memory of its forest, as of when it last changed or was there."""
    answer_bytes: NDArray[np.int64]
    """What an answer of it takes at most, about, until it is published."""
    nodes: NDArray[np.int64]
    samples: NDArray[np.int64]
    counted: NDArray[np.int64]
    """Samples as of the last `note_traffic`."""
    recent: NDArray[np.float64]
    """How much the model learned of late in this process: see `note_traffic`."""
    last_ms: NDArray[np.int64]
    """Newest timestamp of what it learned, in ms since the epoch."""
    changed: NDArray[np.bool_]
    """Since the last snapshot."""
    clean: NDArray[np.bool_]
    """Whether the last checkpoint has it as it is."""
    placed: NDArray[np.bool_]
    """Whether its bytes are elsewhere as well."""
    untimed: NDArray[np.bool_]
    """Whether it learned since the last `note_times`."""
    learned: NDArray[np.bool_]
    """Whether it learned since the last `leaders`."""
    watched: NDArray[np.bool_]
    """Whether it is asked how well it ranks."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self._lock = lock or threading.Lock()
        self.entries: list[Any] = []
        """An Entry each, None where the slot is free."""
        self.rules: list[Rules | None] = []
        """Of models whose events may join those of others; None where the model has to be looked at."""
        self.book = Rulebook()
        self.scores = np.zeros((0, _SUMS))
        """How good its answers were since it came into this process, for the metrics: see `Scores.of`."""
        self._free: list[int] = []
        for name, (kind, _) in _COLUMNS.items():
            setattr(self, name, np.zeros(0, kind))

    def take(self, entry: Any) -> int:
        """A slot for a new model."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.entries[slot] = entry
        for name, (_, empty) in _COLUMNS.items():
            getattr(self, name)[slot] = empty
        self.scores[slot] = 0.0
        return slot

    def give_back(self, slot: int) -> None:
        """The model is no part of the state any more."""
        self.separate(slot)
        self.entries[slot] = None
        # What is looked for over all slots: `take` sets the rest of a slot.
        for name in ("used", "changed", "learned"):
            getattr(self, name)[slot] = 0
        self._free.append(slot)

    def note_traffic(self, slots: NDArray[np.int64], now_s: float) -> None:
        """Count what these models learned since the last call; what came TRAFFIC_S earlier counts 1 / e.

        Kept is the logarithm of a sum in which later samples weigh more, not earlier ones less: so it does not change
        while nothing is learned.
        """
        slots = slots[self.samples[slots] > self.counted[slots]]
        more = np.log(self.samples[slots] - self.counted[slots]) + now_s / TRAFFIC_S
        self.recent[slots] = np.logaddexp(self.recent[slots], more)
        self.counted[slots] = self.samples[slots]

    def have_learned(self, slots: int | NDArray[np.int64]) -> None:
        """The models in these slots have learned, which the next snapshot, `note_times` and `leaders` are to know."""
        for column in (self.changed, self.untimed, self.learned):
            column[slots] = True

    def separate(self, slot: int) -> None:
        """The model in the slot, or what it takes, is not what it was: it is looked at before it joins others again."""
        rules = self.rules[slot]
        if rules is not None:
            self.rules[slot] = None
            rules.group.remove(slot)

    def _grow(self) -> None:
        n = len(self.entries)
        more = max(16, n // 4)
        with self._lock:
            for name, (kind, _) in _COLUMNS.items():
                setattr(self, name, np.append(getattr(self, name), np.zeros(more, kind)))
            self.scores = np.append(self.scores, np.zeros((more, _SUMS)), axis=0)
            self.entries += [None] * more
            self.rules += [None] * more
        self._free += range(n + more - 1, n - 1, -1)
