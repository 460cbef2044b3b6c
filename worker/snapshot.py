"""The models of a snapshot: as they were at one offset, though the loop goes on with them while they are written.

Bytes are copied only if they have to be: most models have been written by the time that their next event comes.
"""

from __future__ import annotations

from threading import Lock

from worker.checkpoint import Model as Saved
from worker.slot import Slot


class Frozen:
    """One model as it was when the snapshot was taken.

    Its slot is still the one that the loop works with. Either the thread that writes takes the bytes first, or the
    loop has it `hold` them before it lets the model learn; whoever comes second waits for the other.
    """

    __slots__ = ("_lock", "_saved", "_slot")

    def __init__(self, slot: Slot) -> None:
        self._lock = Lock()
        self._slot: Slot | None = slot
        self._saved: Saved | None = None

    @property
    def waiting_bytes(self) -> int:
        """What there is to copy if the bytes are still to be taken, else 0."""
        slot = self._slot
        return 0 if slot is None else slot.copied_bytes

    def hold(self) -> None:
        """Keep the bytes of the model as of now, unless they were taken: it is about to change. Raises StateLost."""
        with self._lock:
            if self._slot is not None:
                self._saved, self._slot = self._slot.saved(), None

    def take(self) -> Saved:
        """The bytes of the model, which are let go of: for one caller, once. Raises StateLost."""
        with self._lock:
            saved = self._saved if self._slot is None else self._slot.saved()
            self._slot = self._saved = None
        assert saved is not None, "a model is taken once"
        return saved
