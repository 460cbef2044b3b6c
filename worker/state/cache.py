"""The models of a worker in bounded memory: which of them are there, and which leave when there are too many.

All partitions share it. Models come into memory when they are used, from any thread; they leave in `shrink` alone,
which is called between two batches. What leaves is kept by the spill as bytes. Where that is full only models
leave that the last checkpoint has as they are, and come back from there; the others wait for the next checkpoint.
Nothing of this is part of the state: any limit gives the same outputs and the same checkpoints.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import amf
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Place, Spill
from worker.state.copy_on_write import CopyOnWrite
from worker.state.entry import Entry, Remote
from worker.state.slots import SlotTable

_log = Log(__name__)

MODEL_BYTES = 6_000
"""Memory of a model beside its forest's arrays, measured: the objects that hold them and what events are checked by."""

HOLES_BYTES = 64 * 2**20
"""Memory of models that have left with which the system is given back what they leave free. What is too small for the
models that stay and grow would be held for good: a third of the limit was. To give it back takes 10 to 25 ms."""

_FIRST_LOOK = 1024
"""Models that are put in order at first, when some are to leave."""


class Cache:
    """Which models are in memory, and when each was used. Without a limit none leaves."""

    def __init__(
        self,
        limit_bytes: int | None = None,
        spill: Spill | None = None,
        give_back: Callable[[], object] = lambda: None,
    ) -> None:
        """give_back: has the C library return to the system what lies free among the memory in use."""
        self.nbytes = 0
        """Memory of the models, and of copies of them that wait to be saved."""
        self.nodes = 0
        """Their nodes."""
        self.turn_bytes = math.inf if limit_bytes is None else limit_bytes // 2
        """Memory that the models of a turn may take together: half of the limit, so that others stay."""
        self._limit_bytes = limit_bytes
        self._spill = spill
        self._give_back = give_back
        self._tables: list[SlotTable] = []
        self._here = self._most_fitting = self._uses = 0
        """How many models are in memory, and were at most within the limit; how often any was used."""
        self._lock = threading.Lock()
        self._moving = threading.Lock()
        """A model moves in one piece: a partition may be restored, or given up, while others let go of theirs."""
        self._copies: dict[CopyOnWrite, int] = {}
        """Copies of models that wait to be saved, and their memory."""
        self._away = self._evictions = 0
        self._left_bytes = 0
        """Memory of what has left since the system was given memory back."""
        self.any_remote = False
        """Whether a model ever went that only the last checkpoint has."""
        self._loads: Counter[bool] = Counter()
        self._is_full = False

    @property
    def is_over(self) -> bool:
        """Whether the models take more memory than they may."""
        return self._limit_bytes is not None and self._taken_bytes > self._limit_bytes

    @property
    def _taken_bytes(self) -> int:
        """Memory of the models, and what is left of those that have left: their objects lay among others that stay, so
        the interpreter keeps their places for new ones. Where models grow, fewer and fewer of them are in memory. What
        those leave that were beyond the limit does not count: as many as fitted once would not fit again."""
        left = max(0, self._most_fitting - self._here) if self._here else 0
        return self.nbytes + MODEL_BYTES * left

    def new_table(self) -> SlotTable:
        """A table for the models of a partition."""
        table = SlotTable(self._moving)
        with self._lock:
            self._tables.append(table)
        return table

    def drop_table(self, table: SlotTable) -> None:
        """The models of the table are all forgotten, and no more will come."""
        with self._lock:
            if table in self._tables:
                self._tables.remove(table)

    def use(self, entry: Entry) -> None:
        """The model is in use, it will be among the last to leave."""
        with self._lock:
            entry.used = self._next_use()

    def enter(self, entry: Entry) -> None:
        """The model is in memory: it is new, it came back or it has changed."""
        with self._lock:
            self._enter(entry)

    def have_changed(self, table: SlotTable, slots: NDArray[np.int64], sizes: amf.Sizes) -> None:
        """These models, which are in memory, were used, and are as large as that now."""
        with self._lock:
            self.nbytes += int(sizes.nbytes.sum() - table.nbytes[slots].sum())
            self.nodes += int(sizes.nodes.sum() - table.nodes[slots].sum())
            table.nbytes[slots], table.nodes[slots], table.samples[slots] = sizes.nbytes, sizes.nodes, sizes.samples
            table.used[slots] = self._next_use()

    def hold(self, copy: CopyOnWrite, n_bytes: int) -> None:
        """The copy takes memory, from now on."""
        with self._lock:
            self._copies[copy] = n_bytes
            self.nbytes += n_bytes

    def release(self, copy: CopyOnWrite) -> None:
        """The copy takes none any more."""
        with self._lock:
            self.nbytes -= self._copies.pop(copy, 0)

    def came_back(self, entry: Entry, *, from_store: bool) -> None:
        """The model was away and is in memory."""
        with self._lock:
            self._enter(entry)
            self._away -= 1
            self._loads[from_store] += 1

    def admit(self, entry: Entry, data: bytes) -> None:
        """The entry has a model that was made from these bytes; it does not stay in memory where there is no room."""
        with self._moving:
            self.enter(entry)
            if self.is_over:
                self.put_away(entry, data)

    def put_away(self, entry: Entry, data: bytes) -> bool:
        """Let a model leave memory whose bytes are these; False where there is nowhere to go."""
        place = self._place_for(entry, data)
        if place is None:
            return False
        with self._lock:
            self._left_bytes += entry.nbytes
            self._uncount(entry)
            self._away += 1
        entry.leave(place)
        return True

    def forget(self, entry: Entry) -> None:
        """The model is no part of the state any more."""
        with self._moving:
            with self._lock:
                if entry.model is None:
                    self._away -= 1
                else:
                    self._left_bytes += entry.nbytes
                    self._uncount(entry)
            entry.outdate()
            entry.table.give_back(entry.slot)

    def shrink(self, coming_bytes: int = 0) -> None:
        """Have models leave until the others fit, and so much that is to come. Not while any of them is in use."""
        if self._limit_bytes is not None:
            self._shrink_to(self._limit_bytes - coming_bytes)
        if self._left_bytes >= HOLES_BYTES:
            self._give_back()
            self._left_bytes = 0
        if self.is_over and not self._is_full:
            _log.warning(
                "cache-full",
                f"models take {self._taken_bytes} bytes and not models.cache_bytes={self._limit_bytes}",
                detail="models.spill has no room, and what is not in a checkpoint yet must stay in memory",
                hint="Give it room: raise models.spill_bytes, or free its disk. If checkpoints fail see to the store",
            )
        self._is_full = self.is_over

    def show(self, metrics: Metrics) -> None:
        """Figures as of now, for the next scrapes."""
        with self._lock:
            loads, evictions = self._loads, self._evictions
            self._loads, self._evictions = Counter(), 0
        metrics.models.set(self._here)
        metrics.models_away.set(self._away)
        metrics.nodes.set(self.nodes)
        metrics.model_bytes.set(self.nbytes)
        metrics.spill_bytes.set(0 if self._spill is None else self._spill.used_bytes)
        metrics.loads_total.add(loads[False], source="spill")
        metrics.loads_total.add(loads[True], source="checkpoint")
        metrics.evictions_total.add(evictions)

    def _shrink_to(self, n_bytes: int) -> None:
        # Copies first: they are not used before their turn to be written comes.
        if self._taken_bytes > n_bytes and self._spill is not None:
            with self._lock:
                copies = [*self._copies]
            for copy in copies:
                if self._taken_bytes <= n_bytes or not copy.leave(self._spill):
                    break
        for entry in self._oldest() if self._taken_bytes > n_bytes else ():
            if self._taken_bytes <= n_bytes:
                break
            with self._moving:
                if entry.used:  # Else it was forgotten since.
                    self._evict(entry)

    def _oldest(self) -> Iterator[Entry]:
        """The models in memory, least recently used first."""
        with self._lock:
            tables = [*self._tables]
        if not tables:
            return
        here = [(table, np.flatnonzero(table.used)) for table in tables]
        owners = np.repeat(np.arange(len(here)), [slots.size for _, slots in here])
        slots = np.concatenate([slots for _, slots in here])
        uses = np.concatenate([table.used[slots] for table, slots in here])
        for places in _ascending(uses):
            for owner, slot in zip(owners[places].tolist(), slots[places].tolist(), strict=True):
                entry = tables[owner].entries[slot]
                if entry is not None:
                    yield entry

    def _evict(self, entry: Entry) -> None:
        assert entry.model is not None
        # A model that came back and has not changed is still where it was.
        data = b"" if entry.place is not None else entry.model.forest.dumps()
        self._evictions += self.put_away(entry, data)

    def _place_for(self, entry: Entry, data: bytes) -> Place | None:
        if entry.place is not None or self._spill is None:
            return entry.place
        place: Place | None = self._spill.put(data)
        if place is None and entry.clean and entry.fetch is not None:
            place = Remote(entry.fetch, entry.key)
            self.any_remote = True
        return place

    def _enter(self, entry: Entry) -> None:
        self._uncount(entry)
        entry.measure()
        self.nbytes += entry.nbytes + MODEL_BYTES
        self.nodes += entry.nodes
        self._here += 1
        if not self.is_over:
            self._most_fitting = max(self._most_fitting, self._here)
        entry.used = self._next_use()

    def _uncount(self, entry: Entry) -> None:
        """The model is not in memory, or not as it was measured."""
        if entry.used:
            self.nbytes -= entry.nbytes + MODEL_BYTES
            self.nodes -= entry.nodes
            self._here -= 1
            entry.used = 0

    def _next_use(self) -> int:
        self._uses += 1
        return self._uses


def _ascending(numbers: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """The places of the numbers, the smallest first: some, then twice as many.

    Few models leave at a time: to sort all of 100,000 took longer than to write what left.
    """
    left, n = np.arange(numbers.size), _FIRST_LOOK
    while left.size > n:
        order = np.argpartition(numbers[left], n)
        some, left = left[order[:n]], left[order[n:]]
        yield some[np.argsort(numbers[some], kind="stable")]
        n *= 2
    yield left[np.argsort(numbers[left], kind="stable")]
