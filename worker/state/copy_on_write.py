"""The models of a snapshot: as they were at one offset, though the loop goes on with them while they are written.

Nobody waits for bytes to be made: what either thread makes of a model, while the other one waits, is a copy at most.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from worker.checkpoint import SavedModel
from worker.state.entry import Entry


class CopyOnWrite:
    """One model as it was when the snapshot was taken.

    Its slot is still the one that the loop works with. Either the thread that writes comes first, or the loop, which
    has it `hold` the model before it lets it learn: whoever does puts a copy aside.
    """

    __slots__ = ("_aside", "_entry", "_lock")

    def __init__(self, entry: Entry) -> None:
        self._lock = Lock()
        self._entry: Entry | None = entry
        self._aside: Callable[[], SavedModel] | None = None

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

    def take(self) -> SavedModel:
        """The bytes of the model, which is let go of: for one caller, once. Raises StateLost."""
        self.hold()
        aside, self._aside = self._aside, None
        assert aside is not None, "a model is taken once"
        return aside()
