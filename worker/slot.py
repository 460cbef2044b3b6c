"""One model of the state, be it in memory or away. No I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.checkpoint import Model as Saved
from worker.learners import Forest
from worker.model import Figures, Model
from worker.ports import Place
from worker.records import ClassScores, Scores

UNKNOWN_MS = -1

Fetch = Callable[[str], bytes]
"""Gives the bytes of a model that is as the last checkpoint has it. Raises Transient, StateLost."""

Prefetch = Callable[[Sequence[str]], None]
"""Has `Fetch` give these models at once. Raises Transient where that is not so soon: then it is asked again later."""


class Remote:
    """A place in the last checkpoint."""

    __slots__ = ("_fetch", "_key")
    length = 0

    def __init__(self, fetch: Fetch, key: str) -> None:
        self._fetch = fetch
        self._key = key

    def read(self) -> bytes:
        """The bytes. Raises StateLost, and Transient where the store does not answer."""
        return self._fetch(self._key)

    def free(self) -> None:
        """Nothing: checkpoints are not written for this."""


class Slot:
    """A model in memory (`model`), or its bytes elsewhere (`place`), or both: it came back and has not changed since.

    The bytes do not change but by `learned`. A thread that saves may read a slot at any moment before that: `place` is
    there before `model` is let go of.
    """

    __slots__ = (
        "_depth",
        "_depth_samples",
        "clean",
        "fetch",
        "key",
        "last_ms",
        "model",
        "nbytes",
        "nodes",
        "place",
        "samples",
        "scores",
        "spec",
    )  # fmt: skip

    def __init__(self, key: str, spec: str, fetch: Fetch | None) -> None:
        self.key = key
        self.spec = spec
        self.fetch = fetch
        self.model: Model | None = None
        self.place: Place | None = None
        self.clean = False
        """Whether the last checkpoint has the model as it is."""
        self.nbytes = 0
        """Memory of the model, as of when it was last measured; 0 while it is away."""
        self.nodes = self.samples = 0
        """Figures of the model."""
        self._depth = 0.0
        self._depth_samples = 0
        self.last_ms = UNKNOWN_MS
        """Newest timestamp of what it learned, in ms since the epoch."""
        self.scores: Scores | None = None
        """How good its answers were before it left memory; None while it is there, for the model goes on with them."""

    @property
    def is_remote(self) -> bool:
        """Whether nothing but the store has the model."""
        return self.model is None and isinstance(self.place, Remote)

    @property
    def copied_bytes(self) -> int:
        """What it takes to copy the bytes of the model."""
        return self.nbytes if self.place is None else self.place.length

    def come_back(self, model: Model) -> None:
        """The model was away."""
        if self.scores is not None:
            model.scores, self.scores = self.scores, None
        self.model = model

    def learned(self, model: Model) -> None:
        """The model has changed, or is new."""
        self.model = model
        self.clean = False
        if self.place is not None:
            self.place.free()
            self.place = None

    def measure(self) -> None:
        """Take the figures that change with every sample and cost little."""
        assert self.model is not None
        forest = self.model.forest
        self.nbytes, self.nodes, self.samples = forest.nbytes, forest.n_nodes, forest.n_samples

    def saved(self) -> Saved:
        """The model as it is written. Raises StateLost where its bytes do not come back."""
        return self.put_aside()()

    def put_aside(self) -> Callable[[], Saved]:
        """The model as it is now, as cheap as can be: a copy, or its bytes, that becomes `saved` when it is called.

        Raises StateLost where its bytes do not come back.
        """
        # Read once: the loop may let go of the model meanwhile, or have it back, which changes no byte.
        model, last_ms = self.model, self.last_ms
        if model is None:
            assert self.place is not None
            # Now: by the time that it is called the model may be back, and its figures those of a later state.
            saved = self._saved(self.place.read(), self.samples, self.nodes, self._depth, last_ms)
            return lambda: saved
        forest = model.forest.copy()
        return lambda: self._saved(forest.dumps(), forest.n_samples, forest.n_nodes, self._depth_of(forest), last_ms)

    def _saved(self, data: bytes, samples: int, nodes: int, depth: float, last_ms: int) -> Saved:
        summary = {"samples": samples, "nodes": nodes, "depth": round(depth), "bytes": len(data)}
        if last_ms != UNKNOWN_MS:
            summary["last_ms"] = last_ms
        return Saved(self.spec, data, summary)

    def recall(self, saved: Saved) -> None:
        """Take the figures that were written with a model."""
        self.samples, self.nodes = saved.summary.get("samples", 0), saved.summary.get("nodes", 0)
        self._depth, self.last_ms = saved.summary.get("depth", 0), saved.summary.get("last_ms", UNKNOWN_MS)
        self._depth_samples = self.samples

    def leave(self, place: Place) -> None:
        """Let go of the model, whose bytes are there."""
        assert self.model is not None
        self._depth_of(self.model.forest)
        self.scores = self.model.scores
        self.place = place
        self.model, self.nbytes = None, 0

    def figures(self) -> Figures:
        """What the metrics show of the model, also while it is away."""
        if self.model is None:
            return Figures(self.samples, self.nodes, self._depth, 0, self.scores or ClassScores())
        forest = self.model.forest
        depth = self._depth_of(forest)
        return Figures(forest.n_samples, forest.n_nodes, depth, forest.nbytes, self.model.scores)

    def _depth_of(self, forest: Forest) -> float:
        """Mean depth of the model's trees: as of when they had more than half of their samples.

        It grows with the logarithm of that number, and to look at it takes a tenth of the time to save the model.
        """
        samples = forest.n_samples
        if samples >= 2 * self._depth_samples:
            self._depth, self._depth_samples = forest.mean_depth, samples
        return self._depth
