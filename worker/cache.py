"""The models of a worker in bounded memory: which of them are there, and which leave when there are too many.

All partitions share it. Models come into memory when they are used, from any thread; they leave in `shrink` alone,
which the loop calls between two batches. What leaves is kept by the spill as bytes. Where that is full only models
leave that the last checkpoint has as they are, and come back from there; the others wait for the next checkpoint.
Nothing of this is part of the state: any limit gives the same outputs and the same checkpoints.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict

from worker.metrics import Metrics
from worker.ports import Place, Spill
from worker.slot import Remote, Slot

_log = logging.getLogger(__name__)

MODEL_BYTES = 6_000
"""Memory of a model beside its forest's arrays, measured: the objects that hold them and what events are checked by."""


class Cache:
    """The slots whose models are in memory, least recently used first. Without a limit none leaves."""

    def __init__(self, limit_bytes: int | None = None, spill: Spill | None = None) -> None:
        self.nbytes = 0
        """Memory of the models."""
        self.nodes = 0
        """Their nodes."""
        self._limit_bytes = limit_bytes
        self._spill = spill
        self._order: OrderedDict[Slot, None] = OrderedDict()
        self._lock = threading.Lock()
        self._moving = threading.Lock()
        """A model moves in one piece: a partition may be restored while others let go of theirs."""
        self._away = self._evictions = 0
        self._last_nbytes = 0
        """Memory of the models after the last `shrink`."""
        self.any_remote = False
        """Whether a model ever went that only the last checkpoint has."""
        self._loads: Counter[bool] = Counter()
        self._is_full = False

    @property
    def is_over(self) -> bool:
        """Whether the models take more memory than they may."""
        return self._limit_bytes is not None and self.nbytes > self._limit_bytes

    def use(self, slot: Slot) -> None:
        """The model of the slot is in use, it will be among the last to leave."""
        with self._lock:
            self._order.move_to_end(slot)

    def enter(self, slot: Slot) -> None:
        """The model of the slot is in memory: it is new, it came back or it has changed."""
        with self._lock:
            self._enter(slot)

    def came_back(self, slot: Slot, *, from_store: bool) -> None:
        """The model of the slot was away and is in memory."""
        with self._lock:
            self._enter(slot)
            self._away -= 1
            self._loads[from_store] += 1

    def admit(self, slot: Slot, data: bytes) -> None:
        """The slot has a model that was made from these bytes; it does not stay in memory where there is no room."""
        with self._moving:
            self.enter(slot)
            if not (self.is_over and self.put_away(slot, data)):
                self._last_nbytes += slot.nbytes + MODEL_BYTES  # It came with no batch.

    def put_away(self, slot: Slot, data: bytes) -> bool:
        """Let a model leave memory whose bytes are these; False where there is nowhere to go."""
        place = self._place_for(slot, data)
        if place is None:
            return False
        with self._lock:
            self._uncount(slot)
            self._away += 1
        slot.leave(place)
        return True

    def forget(self, slot: Slot) -> None:
        """The slot is no part of the state any more."""
        with self._lock:
            if slot.model is None:
                self._away -= 1
            else:
                self._uncount(slot)
        if slot.place is not None:
            slot.place.free()

    def shrink(self) -> None:
        """Have models leave until the others fit, and what the next batch brings. Not while any of them is in use.

        Nothing leaves while a batch is taken, so this is when there has to be room for its models: as much as the last
        batch took, but never more than half of all.
        """
        if self._limit_bytes is not None:
            room_bytes = min(max(self.nbytes - self._last_nbytes, 0), self._limit_bytes // 2)
            self._shrink_to(self._limit_bytes - room_bytes)
        self._last_nbytes = self.nbytes
        if self.is_over and not self._is_full:
            _log.warning(
                "models take %d bytes and not models.cache_bytes=%s: models.spill has no room, and what is not in a "
                "checkpoint yet must stay in memory", self.nbytes, self._limit_bytes,
            )  # fmt: skip
        self._is_full = self.is_over

    def show(self, metrics: Metrics) -> None:
        """Figures as of now, for the next scrapes."""
        with self._lock:
            loads, evictions = self._loads, self._evictions
            self._loads, self._evictions = Counter(), 0
        metrics.models.set(len(self._order))
        metrics.models_away.set(self._away)
        metrics.nodes.set(self.nodes)
        metrics.model_bytes.set(self.nbytes)
        metrics.spill_bytes.set(0 if self._spill is None else self._spill.used_bytes)
        metrics.loads_total.add(loads[False], source="spill")
        metrics.loads_total.add(loads[True], source="checkpoint")
        metrics.evictions_total.add(evictions)

    def _shrink_to(self, n_bytes: int) -> None:
        for slot in list(self._order) if self.nbytes > n_bytes else ():
            if self.nbytes <= n_bytes:
                break
            with self._moving:
                if slot.model is not None:
                    self._evict(slot)

    def _evict(self, slot: Slot) -> None:
        assert slot.model is not None
        # A model that came back and has not changed is still where it was.
        data = b"" if slot.place is not None else slot.model.forest.dumps()
        self._evictions += self.put_away(slot, data)

    def _place_for(self, slot: Slot, data: bytes) -> Place | None:
        if slot.place is not None or self._spill is None:
            return slot.place
        place: Place | None = self._spill.put(data)
        if place is None and slot.clean and slot.fetch is not None:
            place = Remote(slot.fetch, slot.key)
            self.any_remote = True
        return place

    def _enter(self, slot: Slot) -> None:
        self._uncount(slot)
        slot.measure()
        self.nbytes += slot.nbytes + MODEL_BYTES
        self.nodes += slot.nodes
        self._order[slot] = None

    def _uncount(self, slot: Slot) -> None:
        """The model of the slot is not in memory, or not as it was measured."""
        if slot in self._order:
            self.nbytes -= slot.nbytes + MODEL_BYTES
            self.nodes -= slot.nodes
            del self._order[slot]
