"""What all forests have in common: parameters, an arena, the state of the features, and batches through the kernels.

A batch is cut into segments in which everything but the trees is constant: a segment ends where the labels or the
feature weights change what a tree computes. Where it ends follows from the samples, never from the batch, and within it
trees are independent, so neither the batch size nor the number of threads can change a bit.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf._kernel import index
from amf.arena import Arena, Layout, room_for, whole_chunks
from amf.boxes import LANES
from amf.explain import Description, mean_depth, survey
from amf.forgetting import forget
from amf.labels import Label
from amf.losses import Losses
from amf.modes import MODES
from amf.packing import heads_of
from amf.params import ForestParams, check_whole
from amf.rng import seed_words
from amf.scaling import Scaling, first_infinite

_ROWS_PER_WALK = 1024
_FORECASTS_PER_WALK = 1 << 18  # bounds the buffer of forecasts per tree to 2 MB
_DEPTH = 128
_SMALLEST_TREE = 16  # rows, below which a tree never splits

Params = TypeVar("Params", bound=ForestParams)


class Labels(NamedTuple):
    """Labels of a batch as the kernels take them."""

    values: NDArray[Any]
    """(n,)"""
    labelled: NDArray[np.bool_]
    """(n,)"""
    arrivals: dict[int, Any]
    """Row -> label, for each row whose label the forest has to be prepared for, in order."""
    n_outputs: int
    """Numbers in a forecast after the last row."""

    def part(self, rows: slice) -> Labels:
        """Some rows, of one segment."""
        return Labels(self.values[rows], self.labelled[rows], {}, self.n_outputs)

    def hidden(self, rows: slice) -> Labels:
        """The same without their labels."""
        return Labels(self.values[rows], np.zeros_like(self.labelled[rows]), {}, self.n_outputs)


class Told(NamedTuple):
    """What a forest says of a batch."""

    outputs: NDArray[np.float64]
    """(n, n_outputs), calibrated where the forest is."""
    raw: NDArray[np.float64]
    """(n, n_outputs), of the trees alone; `outputs` itself where the forest is not calibrated."""
    depths: NDArray[np.float64]
    """(n, 2): depth at which the sample ends and weighted depth, means over trees."""

    def part(self, rows: slice) -> Told:
        """Some rows: views."""
        return Told(self.outputs[rows], self.raw[rows], self.depths[rows])

    def copy(self) -> Told:
        """The same, apart."""
        return Told(self.outputs.copy(), self.raw.copy(), self.depths.copy())


class _Scratch(threading.local):
    """Buffers that live from call to call: fresh pages for each of them would cost more than small batches do."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.float64]] = {}

    def array(self, name: str, *shape: int) -> NDArray[np.float64]:
        """An array with anything in it, until the next call with this name."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)


_scratch = _Scratch()


_NOTHING = np.empty((0, 0, 0))
_UNCALIBRATED = np.empty(0)
_ZERO = index(0)


@cache
def _spans(n_trees: int, n_threads: int) -> tuple[tuple[Any, Any], ...]:
    """(first, last) tree of each thread."""
    n = min(n_threads, n_trees)
    return tuple(pairwise(index(n_trees * k // n) for k in range(n + 1)))


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="amf-trees")


class Forest(ABC, Generic[Params]):
    """A forest of Mondrian trees that learns one sample at a time.

    State is a pure function of the parameters and the labelled samples in their order: batches, threads and save-load
    do not change a bit.
    """

    Parameters: ClassVar[type[Any]]
    family: ClassVar[str]
    """Name of the system in the bytes."""
    _kernel: ClassVar[Callable[..., Any]]

    def __init__(self, n_estimators: int = 10, *, n_threads: int = 1, **parameters: Any) -> None:
        self._set_up(self.Parameters(n_estimators=n_estimators, **parameters), n_threads)
        self._start()

    def _set_up(self, params: Params, n_threads: int) -> None:
        self.params: Params = params
        self.n_threads = n_threads
        self.feature_names: tuple[str, ...] | None = None
        self._scaling = Scaling(adaptive=self.params.scaling == "auto")
        self._prepare()
        self._arena = Arena(params.n_estimators, self._layout())
        self._calibration = self._fresh_calibration() if params.calibration else _UNCALIBRATED
        self._deepest_path = _DEPTH  # of the buffers of a walk; no part of the state

    def _start(self) -> None:
        self._words = seed_words(self.params.seed, self.params.n_estimators)
        self._relayout()

    @classmethod
    def preset(cls, name: str, *, n_threads: int = 1, **overrides: Any) -> Self:
        """A forest with the parameters under a name: "default" or "paper" (params.py)."""
        return cls.from_params(cls.Parameters.preset(name, **overrides), n_threads)

    @classmethod
    def from_params(cls, params: Params, n_threads: int = 1) -> Self:
        """A forest that has learned nothing."""
        forest = cls._bare(params, n_threads)
        forest._start()
        return forest

    @classmethod
    def _bare(cls, params: Params, n_threads: int) -> Self:
        """The same without generators, and without a bound on its rows: `loads` brings those and finds this."""
        forest = cls.__new__(cls)
        forest._set_up(params, n_threads)
        return forest

    # What it is.

    @property
    def n_threads(self) -> int:
        """Threads over which the trees are spread. Not part of the state."""
        return self._n_threads

    @n_threads.setter
    def n_threads(self, value: int) -> None:
        check_whole("n_threads", value, 1, 10_000)
        self._n_threads = value

    @property
    def n_samples(self) -> int:
        """Labelled samples learned."""
        return int(self._scaling.counters[2])

    @property
    def n_features(self) -> int:
        """Features d, 0 before the first call that learns."""
        return self._scaling.n_features

    @property
    def n_nodes(self) -> int:
        """Nodes over all trees."""
        return self._arena.n_nodes

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the trees and the per-feature state."""
        return self._arena.nbytes + self._scaling.nbytes

    @property
    def mean_depth(self) -> float:
        """Mean depth of a learned sample's leaf over samples and trees; 0 before the first sample."""
        return mean_depth(self._arena)

    @property
    def losses(self) -> Losses | None:
        """Recent mean losses of the forecasts that were calibrated, those of the trees alone, and of a baseline that
        knows the labels alone (losses.py); None where the forest is not calibrated."""
        return Losses.of(self._losses) if self.params.calibration else None

    def describe(self) -> Description:
        """The forest in numbers; `print` shows them as a sentence."""
        found = survey(self._heads(), self.n_features)
        return Description(
            n_trees=self.params.n_estimators,
            n_samples=self.n_samples,
            n_features=self.n_features,
            n_nodes=self.n_nodes,
            n_leaves=found.n_leaves,
            mean_depth=self.mean_depth,
            max_depth=found.max_depth,
            mean_weighted_depth=found.mean_weighted_depth,
            nbytes=self.nbytes,
            classes=None if self.class_labels is None else tuple(self.class_labels),
            losses=self.losses,
        )

    def feature_usage(self) -> NDArray[np.float64]:
        """How much forecasts of learned samples rest on splits on each feature, (d,); the sum is the weighted depth.

        A diagnostic: a feature that is used much need not be causal, nor one of two equal features be used at all.
        """
        return survey(self._heads(), self.n_features).usage

    def _heads(self) -> Iterator[NDArray[np.int32]]:
        """Heads of the nodes of each tree, with the odds of stopping at a node in ODDS."""
        return heads_of(self._arena)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.params.changed().items())
        return f"{type(self).__name__}({arguments})"

    # What it learns and says.

    def partial_fit(self, X: ArrayLike, y: Any) -> Self:  # noqa: N803
        """Learn the rows in their order. X: (n, d) numbers, NaN where missing. y: (n,) labels, None or NaN: no label.

        Raises ValueError for infinite numbers, wrong shapes, labels that the forest cannot learn, or too many of
        anything, before anything is learned.
        """
        self._learn(X, y, publish=self.params.calibration)  # which follows what the forest said before
        return self

    def weighted_depth(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior mean depth (n,) at which the averaged prunings end ([000] Sec. 5.1). Changes nothing."""
        return self._ask(X).depths[:, 1]

    def add_features(self, names: Sequence[str], *, like: Sequence[int | None] | None = None) -> None:
        """Append named features.

        Every earlier sample lacked the value; or, where `like` names a column, had 0 there if it had a value of that
        column: so does a category that is met for the first time beside the other categories of its feature.
        """
        if self.feature_names is None and self.n_features:
            raise ValueError("the features of this forest have no names: it learned from arrays")
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"the name of a feature is a str, got {list(names)}")
        known = self.feature_names or ()
        if len({*known, *names}) != len(known) + len(names):
            raise ValueError(f"a feature is named twice: {sorted({*known} & {*names}) or list(names)}")
        like = [None] * len(names) if like is None else list(like)
        if len(like) != len(names):
            raise ValueError(f"like has {len(like)} entries for {len(names)} names")
        if not all(column is None or 0 <= column < len(known) + place for place, column in enumerate(like)):
            raise ValueError(f"like names a column that comes later or not at all: {like}")
        self._grow_features(like)
        self.feature_names = (*known, *names) or None

    def dumps(self) -> bytes:
        """Versioned canonical bytes (serialize.py): equal states give equal bytes. `amf.loads` reads them."""
        from amf.serialize import dumps

        return dumps(self)

    def copy(self) -> Self:
        """The same forest in memory of its own: both go on bit for bit, and neither sees what the other learns.

        Takes as long as copying `nbytes` bytes does. Nothing may learn in this forest meanwhile; afterwards another
        thread may do with the copy whatever it likes.
        """
        twin = self.__new__(type(self))
        vars(twin).update(vars(self))
        twin._scaling, twin._arena = self._scaling.copy(), self._arena.copy()
        twin._recall(self.class_labels)
        twin._words, twin._calibration = self._words.copy(), self._calibration.copy()
        return twin

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        from amf.serialize import loads

        return partial(loads, n_threads=self.n_threads), (self.dumps(),)

    # What a kind of label decides.

    @property
    def class_labels(self) -> list[Label] | None:
        """The labels that have columns, None where labels are numbers; the forest's own list, not to be changed."""
        return None

    def _prepare(self) -> None:
        """Make the state of the labels, before anything is learned."""

    @abstractmethod
    def _recall(self, classes: Any) -> None:
        """Take the labels over that the bytes of a forest name. Raises ValueError for any that cannot be its own."""

    @abstractmethod
    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        """Whether the statistics in the heads of a tree could be."""

    @abstractmethod
    def _encode(self, y: Any, n: int) -> Labels:
        """Labels of n rows. Raises ValueError or TypeError for labels that the forest cannot learn."""

    @property
    @abstractmethod
    def _stats_room(self) -> int:
        """Words of label statistics in a node."""

    @property
    @abstractmethod
    def _n_outputs(self) -> int:
        """Numbers in a tree's forecast of one row; 0 while there is nothing to forecast."""

    @abstractmethod
    def _fresh_calibration(self) -> NDArray[np.float64]:
        """State of the calibration of a forest that has learned nothing."""

    @property
    @abstractmethod
    def _losses(self) -> NDArray[np.float64]:
        """The part of the state of the calibration that holds the recent losses (losses.py)."""

    @property
    def _knows_nothing(self) -> bool:
        """Whether there is nothing to forecast yet."""
        return self._n_outputs == 0

    @property
    @abstractmethod
    def _rules(self) -> tuple[Any, ...]:
        """What the kernel wants to know of the labels: its last arguments."""

    @property
    def _pauses(self) -> tuple[float, float]:
        """At which evidence for a label an inner node does not split for it; the same in a tree a quarter full."""
        return math.inf, math.inf

    def _admit(self, label: Any) -> None:
        """Prepare for a label of a new kind: its row has been forecast and is about to be learned."""
        raise NotImplementedError

    @abstractmethod
    def _gather(self, forecasts: NDArray[np.float64], depths: NDArray[np.float64], labels: Labels, told: Told) -> None:
        """Make one forecast a row of those of the trees, float64 (n_trees, n, ...), and fill `told` with it."""

    # Batches through the kernels.

    def _learn(self, X: ArrayLike, y: Any, *, publish: bool) -> Told:  # noqa: N803
        x = self._rows(X)
        labels = self._encode(y, x.shape[0])
        if not self.n_features:
            if labels.labelled.any():
                self._grow_features([None] * x.shape[1])
            else:
                x = x[:, :0]
        return self._pass(x, labels, publish=publish)

    def _ask(self, X: ArrayLike) -> Told:  # noqa: N803
        if self._knows_nothing:
            raise ValueError("this forest has seen no label yet and was given no classes: call partial_fit first")
        x = self._rows(X)
        if not self.n_features:
            x = x[:, :0]
        return self._pass(x, self._encode([None] * x.shape[0], x.shape[0]), publish=True)

    def _rows(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        x = np.ascontiguousarray(X, np.float64)
        if x.ndim != 2:
            raise ValueError(f"X must have two dimensions (rows, features), got shape {x.shape}")
        if not 1 <= x.shape[1] <= self.params.max_features:
            raise ValueError(f"X has {x.shape[1]} features; it needs 1 to max_features={self.params.max_features}")
        if self.n_features and x.shape[1] != self.n_features:
            raise ValueError(f"X has {x.shape[1]} features, this forest learned from {self.n_features}")
        # Of one type whatever the caller's array is: for each type that they meet, kernels are compiled anew.
        x = x.view() if x.flags.aligned else x.copy()
        x.flags.writeable = False
        infinite = first_infinite(x)
        if infinite >= 0:
            row, column = divmod(infinite, x.shape[1])
            raise ValueError(f"X[{row}, {column}] is infinite; numbers must be finite, NaN stands for missing")
        return x

    def _pass(self, x: NDArray[Any], labels: Labels, *, publish: bool) -> Told:
        n = x.shape[0]
        rows = self._scaling.centre(x, labels.labelled)
        outputs = np.zeros((n if publish else 0, labels.n_outputs))
        raw = np.zeros_like(outputs) if self.params.calibration else outputs
        told = Told(outputs, raw, np.zeros((n if publish else 0, 2)))
        # Nothing that a row brings along may show in its forecast: a new label, or a weight that it changes, which
        # matters where samples branch off. The rows after it change neither, up to the end of the segment.
        branches_off = self.params.mode != "existing"
        ends = [*labels.arrivals, n]
        start = 0
        while start < n:
            first = start
            if start in labels.arrivals or branches_off:
                first += 1
                self._forecast_apart(rows, labels, told, start, publish)
            end = next(row for row in ends if row > start) if labels.arrivals else n
            stop = self._scaling.observe(rows[:end], labels.labelled, start)
            if first > start:
                # The calibration learns from what the trees say, and the row has its forecast already.
                one = slice(start, first)
                self._walk(rows[one], labels.part(one), told.part(one).copy() if self.params.calibration else None)
            if stop - first == n:
                self._walk(rows, labels, told if publish else None)
            elif first < stop:
                part = slice(first, stop)
                self._walk(rows[part], labels.part(part), told.part(part) if publish else None)
            start = stop
        return told

    def _forecast_apart(self, rows: NDArray[np.float32], labels: Labels, told: Told, row: int, publish: bool) -> None:
        """Forecast one row without its label, and make ready for a label of a new kind."""
        one = slice(row, row + 1)
        if publish:
            self._walk(rows[one], labels.hidden(one), told.part(one))
        if row in labels.arrivals:
            self._admit(labels.arrivals[row])

    def _walk(self, rows: NDArray[np.float32], labels: Labels, told: Told | None) -> None:
        """Pass rows of one segment through all trees, in bites that bound the memory of the forecasts per tree."""
        n_trees, n_outputs, n = self.params.n_estimators, self._n_outputs, rows.shape[0]
        if not n_outputs:
            return  # nothing to forecast yet, and no row here has a label
        bite = max(1, min(_ROWS_PER_WALK, n, _FORECASTS_PER_WALK // (n_trees * n_outputs)))
        for start in range(0, n, bite):
            if bite < n:
                part = slice(start, min(start + bite, n))
                self._bite(rows[part], labels.part(part), None if told is None else told.part(part))
            else:
                self._bite(rows, labels, told)

    def _bite(self, rows: NDArray[np.float32], labels: Labels, told: Told | None) -> None:
        """Pass rows through every tree, and gather what the trees say."""
        if told is None:
            self._through_trees(rows, labels, False, _NOTHING, _NOTHING)
            return
        n_trees, n = self.params.n_estimators, rows.shape[0]
        forecasts = _scratch.array("forecasts", n_trees, n, self._n_outputs)
        depths = _scratch.array("depths", n_trees, n, 2)
        self._through_trees(rows, labels, True, forecasts, depths)
        self._gather(forecasts, depths, labels, told)

    def _through_trees(
        self,
        rows: NDArray[np.float32],
        labels: Labels,
        publish: bool,
        forecasts: NDArray[np.float64],
        depths: NDArray[np.float64],
    ) -> None:
        """Pass the rows through every tree, and make room whenever a tree asks for it."""
        arena, limit, n = self._arena, self._allowed, rows.shape[0]
        spans = _spans(self.params.n_estimators, self._n_threads)
        done = [_ZERO] * len(spans)
        data = (
            rows.reshape(-1), index(rows.shape[1]), labels.values, labels.labelled,
            index(self.n_features), self._scaling.weights, self._scaling.complete,
            self.params.purity / max(self.n_features, 1), *self._pauses, MODES.index(self.params.mode),
            publish, forecasts, depths,
        )  # fmt: skip
        rules = self._rules
        if arena.capacity == 0:
            arena.grow(max(limit, _SMALLEST_TREE))
        while True:
            blocks = arena.ints, arena.floats, arena.reals, arena.boxes, arena.used, self._words
            room = index(arena.capacity), index(limit), index(arena.layout.head), index(arena.layout.box)
            calls = [
                (*blocks, *span, *room, *data, at, index(self._deepest_path), *rules)
                for span, at in zip(spans, done, strict=True)
            ]
            if len(calls) == 1:
                results = [self._kernel(*calls[0])]
            else:
                pool = _pool(len(calls))
                jobs = [pool.submit(self._kernel, *call) for call in calls]
                wait(jobs)
                results = [job.result() for job in jobs]
            done = [index(passes) for passes, _ in results]
            # A tree forgets once it has learned too much, not when it is about to learn: the forecasts that are made in
            # between must not depend on when they are asked for.
            if arena.capacity == limit:
                for tree in np.flatnonzero(arena.used + index(2) > limit).tolist():
                    self._shrink(tree, limit)
            if all(int(at) == int(last - first) * n for at, (first, last) in zip(done, spans, strict=True)):
                return
            if any(deep for _, deep in results):
                self._deepest_path *= 2
            if int(arena.used.max()) + 2 > arena.capacity:
                arena.grow(limit)

    def _shrink(self, tree: int, limit: int) -> None:
        """Let a tree forget until it may split again within so many rows."""
        while int(self._arena.used[tree]) + 2 > limit:
            self._forget(tree)

    def _forget(self, tree: int) -> None:
        arena, layout = self._arena, self._arena.layout
        blocks = arena.ints, arena.floats, arena.reals, arena.boxes, arena.used
        forget(*blocks, index(tree), index(layout.head), index(layout.box))

    def _layout(self) -> Layout:
        return Layout(self._stats_room, room_for(self.n_features))

    def _relayout(self) -> None:
        """Give rows the rooms they need now; rows that are too long then for `max_bytes` get fewer."""
        arena, layout = self._arena, self._layout()
        beside_rows = self._scaling.nbytes + arena.used.nbytes + 4 * LANES
        rows = whole_chunks((self.params.max_bytes - beside_rows) // (layout.nbytes * arena.n_trees))
        self._allowed = rows if rows >= _SMALLEST_TREE else 0
        at_least = max(self._allowed, _SMALLEST_TREE)
        for tree in range(arena.n_trees if arena.capacity > at_least else 0):
            self._shrink(tree, at_least)
        if arena.capacity > at_least:
            arena.reserve(at_least)
        arena.relayout(layout)

    def _grow_features(self, like: Sequence[int | None]) -> None:
        n_features = self.n_features + len(like)
        if n_features > self.params.max_features:
            raise ValueError(f"{n_features} features are more than max_features={self.params.max_features}")
        known = self.n_features
        self._scaling.grow(like)
        self._relayout()
        self._arena.imitate(known, like)
