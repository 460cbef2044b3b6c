"""The models of a snapshot: as they were at one offset, though the loop goes on with them while they are written.

A forest is copied only if it has to be: most have been written by the time that their next event comes.
"""

from __future__ import annotations

from threading import Lock

from worker.checkpoint import Model as Saved
from worker.model import Model


class Frozen:
    """One model as it was when the snapshot was taken.

    It is still the model that the loop works with. Either the thread that writes takes its bytes first, or the loop
    has it `hold` them before it lets the model learn; whoever comes second waits for the other.
    """

    __slots__ = ("_lock", "_model", "_saved")

    def __init__(self, model: Model) -> None:
        self._lock = Lock()
        self._model: Model | None = model
        self._saved: Saved | None = None

    @property
    def waiting_bytes(self) -> int:
        """Memory of the model if its bytes are still to be taken, else 0."""
        model = self._model
        return 0 if model is None else model.forest.nbytes

    def hold(self) -> None:
        """Keep the bytes of the model as of now, unless they were taken: it is about to change."""
        with self._lock:
            if self._model is not None:
                self._saved, self._model = _saved(self._model), None

    def take(self) -> Saved:
        """The bytes of the model, which are let go of: for one caller, once."""
        with self._lock:
            saved = self._saved if self._model is None else _saved(self._model)
            self._model = self._saved = None
        assert saved is not None, "a model is taken once"
        return saved


def _saved(model: Model) -> Saved:
    forest = model.forest
    data = forest.dumps()
    summary = {
        "samples": forest.n_samples,
        "nodes": forest.n_nodes,
        "depth": round(forest.mean_depth),
        "bytes": len(data),
    }
    return Saved(model.spec, data, summary)
