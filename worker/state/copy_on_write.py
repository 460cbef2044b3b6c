"""The models of a snapshot: as they were at one offset, though the loop goes on with them while they are written.

What either thread makes of a model, while the other one waits, is a copy at most, or the bytes of a small one.
Copies that the loop makes are part of the memory of all models (cache.py), and the first to leave it: a store may take
minutes for a snapshot, by the end of which most models may have changed.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol

from worker.base.ports import Spill
from worker.checkpoint import SavedModel
from worker.state.entry import CopyToSave, Entry


class Memory(Protocol):
    """Counts the memory of copies."""

    def hold(self, copy: CopyOnWrite, n_bytes: int) -> None:
        """The copy takes memory, from now on."""

    def release(self, copy: CopyOnWrite) -> None:
        """The copy takes none any more."""


class CopyOnWrite:
    """One model as it was when the snapshot was taken.

    Its slot is still the one that the loop works with. Either the thread that writes comes first, or the loop, which
    has it `hold` the model before it lets it learn: whoever does puts a copy aside.
    """

    __slots__ = ("_aside", "_entry", "_lock", "_memory")

    def __init__(self, entry: Entry, memory: Memory) -> None:
        self._lock = Lock()
        self._entry: Entry | None = entry
        self._aside: CopyToSave | None = None
        self._memory = memory

    @property
    def waiting_bytes(self) -> int:
        """What there is to copy if the model is not put aside yet, else 0."""
        entry = self._entry
        return 0 if entry is None else entry.copied_bytes

    def hold(self) -> None:
        """Keep the model as of now, unless it was taken: it is about to change. Raises StateLost."""
        with self._lock:
            if self._entry is not None:
                self._aside, self._entry = self._entry.put_aside(), None
                if self._aside.nbytes:
                    self._memory.hold(self, self._aside.nbytes)

    def leave(self, spill: Spill) -> bool:
        """Have a copy leave memory; False where there is no room for its bytes."""
        with self._lock:
            if self._aside is None or self._aside.place is not None:
                return True
            saved = self._aside.saved()
            place = spill.put(saved.data)
            if place is None:
                return False
            self._aside = CopyToSave.on_disk(saved, place)
            self._memory.release(self)
            return True

    def take(self) -> SavedModel:
        """The bytes of the model, which is let go of: for one caller, once. Raises StateLost."""
        with self._lock:
            aside = self._aside if self._entry is None else self._entry.copy()
            assert aside is not None, "a model is taken once"
            self._aside, self._entry = aside, None
        saved = aside.saved()
        self.drop()
        return saved

    def drop(self) -> None:
        """The model is taken, or will not be: give back what is held of it."""
        with self._lock:
            aside, self._aside, self._entry = self._aside, None, None
            self._memory.release(self)
        if aside is not None and aside.place is not None:
            aside.place.free()
