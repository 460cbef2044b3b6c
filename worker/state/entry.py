"""One model of the state, be it in memory or away. No I/O of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from amf import OnlineForest
from worker.base.metrics import TOP_FEATURES, Traffic
from worker.base.ports import Place
from worker.base.records import ClassScores, Figures, RecentLosses, Scores
from worker.checkpoint import SavedModel
from worker.state.auc import BinnedAuc
from worker.state.model import Model
from worker.state.slots import UNKNOWN_MS, SlotTable

SMALL_BYTES = 128 * 2**10
"""Memory of a forest whose bytes are made about as soon as a copy, which would have to become bytes later."""

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


class CopyToSave(NamedTuple):
    """A model as it was, to be written: in memory, or on disk."""

    saved: Callable[[], SavedModel]
    """Gives it as it is written. Raises StateLost where its bytes do not come back."""
    nbytes: int
    """Memory that it takes."""
    place: Place | None = None
    """Where its bytes are, if not in memory."""

    @classmethod
    def of(cls, saved: SavedModel) -> CopyToSave:
        """The model as it is written already."""
        return cls(lambda: saved, len(saved.data))

    @classmethod
    def on_disk(cls, saved: SavedModel, place: Place) -> CopyToSave:
        """The model with the bytes that are there."""
        rest = msgspec.structs.replace(saved, data=b"")
        return cls(lambda: msgspec.structs.replace(rest, data=place.read()), 0, place)


class _Cell:
    """A number or a flag of an entry: what the table has in its column."""

    def __set_name__(self, owner: type[Entry], name: str) -> None:
        self._name = name

    def __get__(self, entry: Entry, owner: type[Entry]) -> Any:
        return getattr(entry.table, self._name)[entry.slot].item()

    def __set__(self, entry: Entry, value: float) -> None:
        getattr(entry.table, self._name)[entry.slot] = value


class Entry:
    """A model in memory (`model`), or its bytes elsewhere (`place`), or both: it came back and has not changed since.

    The bytes do not change but by `learned`. A thread that saves may read a slot at any moment before that: `place` is
    there before `model` is let go of.
    """

    __slots__ = (
        "_depth",
        "_depth_samples",
        "_losses",
        "_of_scores",
        "_place",
        "configured_spec",
        "fetch",
        "key",
        "model",
        "names_given",
        "slot",
        "spec",
        "table",
    )  # fmt: skip

    used, nbytes, answer_bytes, nodes, samples, counted, recent, last_ms, clean, watched = (_Cell() for _ in range(10))
    """See SlotTable."""

    def __init__(self, key: str, spec: str, fetch: Fetch | None, table: SlotTable | None = None) -> None:
        """table: where its figures are kept; one of its own where there is none."""
        self.table = SlotTable() if table is None else table
        self.slot = self.table.take(self)
        self.key = key
        self.spec = spec
        self.configured_spec: str | None = None
        """Spec that the configuration gives to the key; None before anybody asked."""
        self.names_given: bool | None = None
        """As the model's."""
        self.fetch = fetch
        self.model: Model | None = None
        self._place: Place | None = None
        self._depth = 0.0
        self._depth_samples = 0
        self._losses: RecentLosses | None = None
        """Of the model when it left memory."""
        self._of_scores: type[Scores] = ClassScores

    @property
    def place(self) -> Place | None:
        """Where its bytes are, other than in memory."""
        return self._place

    @place.setter
    def place(self, place: Place | None) -> None:
        self._place = place
        self.table.placed[self.slot] = place is not None

    @property
    def is_remote(self) -> bool:
        """Whether nothing but the store has the model."""
        return self.model is None and isinstance(self.place, Remote)

    @property
    def copied_bytes(self) -> int:
        """What it takes to copy the model: nothing where its bytes are on disk, see `put_aside`."""
        return self.nbytes if self.place is None or isinstance(self.place, Remote) else 0

    def come_back(self, model: Model) -> None:
        """The model is in memory."""
        self.model, self._of_scores, self.answer_bytes = model, model.kind_of_scores, model.answer_bytes

    def learned(self, model: Model) -> None:
        """The model has changed, or is new."""
        self.come_back(model)
        self.clean = False
        self.outdate()

    def outdate(self) -> None:
        """The bytes elsewhere are not those of the model any more."""
        if self.place is not None:
            self.place.free()
            self.place = None

    def measure(self) -> None:
        """Take the figures that change with every sample and cost little."""
        assert self.model is not None
        forest = self.model.forest
        self.nbytes, self.nodes, self.samples = forest.nbytes, forest.n_nodes, forest.n_samples

    def saved(self) -> SavedModel:
        """The model as it is written. Raises StateLost where its bytes do not come back."""
        return self.copy().saved()

    def copy(self) -> CopyToSave:
        """The model as it is now: its bytes, or of a large one a copy.

        Raises StateLost where its bytes do not come back.
        """
        # Read once: the loop may let go of the model meanwhile, or have it back, which changes no byte.
        model, place, last_ms = self.model, self.place, self.last_ms
        if model is None:
            assert place is not None
            # Now: later the model may be back, and its figures those of another state.
            data = place.read()
            figures = self._summary(len(data), self.samples, self.nodes, self._depth, last_ms)
            return CopyToSave.of(SavedModel(self.spec, data, figures))

        def dumped(forest: OnlineForest) -> SavedModel:
            (data, sha256), depth = forest.dumps_hashed(), self._depth_of(forest)
            summary = self._summary(len(data), forest.n_samples, forest.n_nodes, depth, last_ms)
            return SavedModel(self.spec, data, summary, sha256)

        if model.forest.nbytes <= SMALL_BYTES:
            return CopyToSave.of(dumped(model.forest))
        forest = model.forest.copy()
        return CopyToSave(partial(dumped, forest), forest.nbytes)

    def put_aside(self) -> CopyToSave:
        """The model as it is now, which is about to change: so its bytes on disk, if it has any, are given away.

        Raises StateLost where its bytes do not come back.
        """
        place = self.place
        if place is None or isinstance(place, Remote):
            return self.copy()
        depth = self._depth if self.model is None else self._depth_of(self.model.forest)
        summary = self._summary(place.length, self.samples, self.nodes, depth, self.last_ms)
        self.place = None
        return CopyToSave.on_disk(SavedModel(self.spec, b"", summary), place)

    def _summary(self, n_bytes: int, samples: int, nodes: int, depth: float, last_ms: int) -> dict[str, int]:
        summary = {"samples": samples, "nodes": nodes, "depth": round(depth), "bytes": n_bytes}
        if last_ms != UNKNOWN_MS:
            summary["last_ms"] = last_ms
        if self.names_given is not None:
            summary["names_given"] = int(self.names_given)
        return summary

    def recall(self, saved: SavedModel) -> None:
        """Take what was written with a model."""
        self.samples, self.nodes = saved.summary.get("samples", 0), saved.summary.get("nodes", 0)
        self._depth, self.last_ms = saved.summary.get("depth", 0), saved.summary.get("last_ms", UNKNOWN_MS)
        self._depth_samples = self.counted = self.samples
        given = saved.summary.get("names_given")
        self.names_given = None if given is None else bool(given)

    def leave(self, place: Place) -> None:
        """Let go of the model, whose bytes are there."""
        assert self.model is not None
        self._depth_of(self.model.forest)
        self._losses = self.losses
        self.table.separate(self.slot)
        self.place = place
        self.model, self.watched = None, False

    def figures(self) -> Figures:
        """What the metrics show of the model, also while it is away."""
        if self.model is None:
            return Figures(self.samples, self.nodes, self._depth, 0, self.scores, self.losses)
        model, forest = self.model, self.model.forest
        auc = math.nan if model.ranking is None else model.ranking.auc
        depth = self._depth_of(forest)
        return Figures(forest.n_samples, forest.n_nodes, depth, forest.nbytes, self.scores, self.losses, auc)

    def count(self, scores: Scores) -> None:
        """Add what more answers scored."""
        sums = scores.sums()
        self.table.scores[self.slot, : len(sums)] += sums

    @property
    def scores(self) -> Scores:
        """How good its answers were since it came into this process."""
        return self._of_scores.of(*self.table.scores[self.slot].tolist())

    def watch(self) -> Figures:
        """Its figures, with what only models are asked for that have series of their own.

        From now on that is also how well it ranks.
        """
        model, figures = self.model, self.figures()
        if model is None:
            return figures
        if model.ranking is None:
            model.ranking, self.watched = BinnedAuc(), True
        adaptation = model.forest.adaptation
        if adaptation is None:
            return figures
        weights = model.features.largest(model.feature_weights(adaptation), TOP_FEATURES)
        return figures._replace(swaps=adaptation.n_swaps, feature_weights=weights)

    @property
    def losses(self) -> RecentLosses | None:
        """Recent mean losses of the model, and those of a baseline; None where its forest does not keep them."""
        if self.model is None:
            return self._losses
        losses = self.model.forest.losses
        return None if losses is None else RecentLosses(losses.calibrated, losses.raw, losses.baseline)

    @property
    def traffic(self) -> Traffic:
        """What it learned of late in this process, as of the last `note_traffic` of the table, and in all."""
        return self.recent, self.samples

    def _depth_of(self, forest: OnlineForest) -> float:
        """Mean depth of the model's trees: as of when they had more than half of their samples.

        It grows with the logarithm of that number, and to look at it takes a tenth of the time to save the model.
        """
        samples = forest.n_samples
        if samples >= 2 * self._depth_samples:
            self._depth, self._depth_samples = forest.mean_depth, samples
        return self._depth
