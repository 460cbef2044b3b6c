"""What all forests have in common: parameters, an arena, the state of the features, and batches through the kernels.

A batch is cut into segments in which everything but the trees is constant: a segment ends where the labels or the
feature weights change what a tree computes. Where it ends follows from the samples, never from the batch, and within it
trees are independent, so neither the batch size nor the number of threads can change a bit.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf import serialize
from amf._kernel import index
from amf.addresses import address_of
from amf.arena import LARGEST_BLOCK, ROOT, Arena, Layout, room_for, whole_chunks
from amf.attributions import Attributions
from amf.batches import SEGMENTS, Kernels
from amf.binding import LARGEST, Binding
from amf.boxes import LARGEST as LARGEST_VALUE
from amf.explain import Description, mean_depth, survey
from amf.forgetting import shrink
from amf.labels import Label
from amf.losses import Losses
from amf.modes import MODES
from amf.packing import heads_of
from amf.params import ForestParams, check_whole
from amf.rng import seed_words
from amf.scaling import Scaling, first_infinite
from amf.vectors import LANES

ROWS_PER_CALL = 1024
"""Rows of a forest in one call of a kernel, for which memory is reserved before."""
MOST_FORECASTS = 1 << 18
"""Numbers in the buffer of what trees say, which so has 2 MB at most, or room for one row."""
_SMALLEST_TREE = 16  # rows, below which a tree never splits
_ONE_NODE = 8  # rows of a tree that never splits

Params = TypeVar("Params", bound=ForestParams)


class LostForestError(RuntimeError):
    """The state of a forest is gone, since a call that was to change it could not be finished."""


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
        """Some rows, none of which brings a label of a new kind."""
        return Labels(self.values[rows], self.labelled[rows], {}, self.n_outputs)

    def hidden(self, rows: slice) -> Labels:
        """Some rows without their labels."""
        return Labels(self.values[rows], np.zeros_like(self.labelled[rows]), {}, self.n_outputs)


class BatchForecasts(NamedTuple):
    """What a forest says of a batch."""

    outputs: NDArray[np.float64]
    """(n, n_outputs), calibrated where the forest is."""
    raw: NDArray[np.float64]
    """(n, n_outputs), of the trees alone."""
    depths: NDArray[np.float64]
    """(n, 2): depth at which the sample ends and weighted depth, means over trees."""

    def part(self, rows: slice) -> BatchForecasts:
        """Some rows: views."""
        return BatchForecasts(self.outputs[rows], self.raw[rows], self.depths[rows])

    def copy(self) -> BatchForecasts:
        """All that is said, in arrays of its own: what is written to one is not seen in the other."""
        return BatchForecasts(self.outputs.copy(), self.raw.copy(), self.depths.copy())


class _Scratch(threading.local):
    """Buffers that live from call to call: fresh pages for each of them would cost more than small batches do."""

    def __init__(self) -> None:
        self._floats, self._reals = np.empty(0, np.float32), np.empty(0)

    def floats(self, size: int) -> NDArray[np.float32]:
        """So many float32 with anything in them, until the next call."""
        if self._floats.size < size:
            self._floats = np.empty(size, np.float32)
        return self._floats[:size]

    def reals(self, size: int) -> NDArray[np.float64]:
        """So many float64 with anything in them, until the next call."""
        if self._reals.size < size:
            self._reals = np.empty(size)
        return self._reals[:size]


SCRATCH = _Scratch()


_UNCALIBRATED = np.empty(0)
_LARGEST = int(LARGEST)


@lru_cache(maxsize=1024)
def _spans(number: int, n_threads: int) -> tuple[tuple[Any, Any], ...]:
    """(first, last) of each thread, of so many trees or rows."""
    n = min(n_threads, number)
    return tuple(pairwise(index(number * k // n) for k in range(n + 1)))


@cache
def thread_pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="amf-trees")


def side_by_side(n_threads: int, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
    """Call a function in threads, once with each of these arguments, and wait for all of them.

    An exception that comes meanwhile, such as KeyboardInterrupt, is raised once they have ended: kernels cannot be
    stopped, and until then the memory that they work on has to stay where it is.
    """
    jobs: list[Future[Any]] = []
    interruption: BaseException | None = None
    try:
        for arguments in calls:
            jobs.append(thread_pool(n_threads).submit(function, *arguments))  # those so far count
    except BaseException as error:
        interruption = error
    while True:
        try:
            if interruption is not None:
                for job in jobs:
                    job.cancel()
            wait(jobs)
            break
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption
    for job in jobs:
        job.result()


if hasattr(os, "register_at_fork"):
    # The child has none of the threads that the pools of its parent wait for.
    os.register_at_fork(after_in_child=thread_pool.cache_clear)


class _Lost:
    """What stands for the state of a forest that an exception has cut short: whoever asks for any of it is told so."""

    def __init__(self, error: BaseException) -> None:
        self._reason = repr(error)

    def __getattr__(self, name: str) -> Any:
        raise LostForestError(
            f"this forest was cut short while it learned, by {self._reason}: some of its trees have learned rows that "
            "others have not. Go on with its last checkpoint, by amf.loads, or with its last copy"
        )


def _unpickled(system: type[Any], data: bytes, n_threads: int) -> Any:
    return serialize.loads(data, {system.family: system}, n_threads=n_threads)


class Forest(ABC, Generic[Params]):
    """A forest of Mondrian trees that learns one sample at a time.

    State is a pure function of the parameters and the labelled samples in their order: batches, threads and save-load
    do not change a bit.
    """

    Parameters: ClassVar[type[Any]]
    family: ClassVar[str]
    """Name of the system (registry.py)."""
    _code: ClassVar[type[Any]]
    """Type of labels as kernels take them."""
    _kernels: ClassVar[Kernels]
    _fixed: ClassVar[bool] = False
    """Whether features are taken as they are, neither centred nor weighted."""
    _bounds: ClassVar[tuple[float, float]] = (-float(LARGEST_VALUE), float(LARGEST_VALUE))
    """Within which the values lie that trees see."""

    def __init__(self, n_estimators: int = 10, *, n_threads: int = 1, **parameters: Any) -> None:
        self._set_up(self.Parameters(n_estimators=n_estimators, **parameters), n_threads)
        self._start()

    def _set_up(self, params: Params, n_threads: int) -> None:
        self.params: Params = params
        self.n_threads = n_threads
        self.feature_names: tuple[str, ...] | None = None
        self._scaling = Scaling(adaptive=self.params.scaling == "auto", fixed=self._fixed)
        self._prepare()
        self._arena = Arena(params.n_estimators, self._layout())
        self._calibration = self._fresh_calibration() if params.calibration else _UNCALIBRATED
        self._binding = Binding()

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
        return int(self._scaling.n_labelled[0])

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
        anything, before anything is learned. Whatever else cuts a call short, such as MemoryError or KeyboardInterrupt,
        leaves no forest: it gives its memory back, and every later use raises LostForestError. Half of a batch cannot
        be taken back, and to keep the state before each call would cost the memory of the forest once more.
        """
        self._learn(X, y, publish=self.params.calibration)  # which follows what the forest said before
        return self

    def weighted_depth(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior mean depth (n,) at which the averaged prunings end ([000] Sec. 5.1). Changes nothing."""
        return self._ask(X).depths[:, 1]

    def attribute(self, X: ArrayLike) -> Attributions:  # noqa: N803
        """How much each feature moved the forecast of each row, (n, d) rows, on the ways through the trees.

        Forecasts are those of the trees alone as they are, without calibration and whatever the `mode`; in an
        unrestricted forest those of the trees extended by the row, as always there. The step from a node to its child
        moves the forecast by the difference of what the two say, times the posterior probability that a pruning goes
        that far ([000] Eq. 21-27), and belongs to the feature of the split, also where its value is missing. So the
        forecast is what the roots say plus the sum over all features, up to rounding. Says what the forecast rests on,
        not what would happen if a value were another one. Takes about as long as a forecast. Changes nothing.
        """
        x = self._question(X)
        n, d = x.shape
        attributions = Attributions(*(np.zeros((n, *shape, self._n_said)) for shape in ((), (), (d,))))
        known = slice(self.n_features)  # before the first sample a row has no features that a tree could ask for
        arrays = x[:, known], attributions.forecasts, attributions.prior, attributions.features[:, known]
        words, attribute = self._bind(room=0).words, self._kernels.attribute
        spans = _spans(n, self._n_threads) if n > 1 else ()
        if len(spans) < 2:
            attribute(words, *arrays)
            return attributions
        parts = ([array[int(first) : int(last)] for array in arrays] for first, last in spans)
        side_by_side(self._n_threads, attribute, [(words, *part) for part in parts])
        return attributions

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
        self._require_room_for_features(len(names))
        try:
            self._grow_features(like)
        except BaseException as error:
            self._lose(error)
            raise
        self.feature_names = (*known, *names) or None

    def dumps(self) -> bytes:
        """Versioned canonical bytes (serialize.py): equal states give equal bytes. `amf.loads` reads them."""
        return serialize.dumps(self)

    def copy(self) -> Self:
        """The same forest in memory of its own: both go on bit for bit, and neither sees what the other learns.

        Takes as long as copying `nbytes` bytes does. Nothing may learn in this forest meanwhile; afterwards another
        thread may do with the copy whatever it likes.
        """
        twin = self.__new__(type(self))
        vars(twin).update(vars(self))
        twin._binding = Binding()
        twin._scaling, twin._arena = self._scaling.copy(), self._arena.copy()
        twin._recall(self.class_labels)
        twin._words, twin._calibration = self._words.copy(), self._calibration.copy()
        return twin

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.dumps(), self.n_threads)

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
    def _n_said(self) -> int:
        """Numbers in a tree's forecast that are means of what its nodes say: the first ones."""
        return self._n_outputs

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

    @property
    def _lifetime(self) -> float:
        """Time from which on no node splits."""
        return math.inf

    def _admit(self, label: Any) -> None:
        """Prepare for a label of a new kind: its row has been forecast and is about to be learned."""
        raise NotImplementedError

    # Batches through the kernels.

    def _learn(self, X: ArrayLike, y: Any, *, publish: bool) -> BatchForecasts:  # noqa: N803
        x = self._rows(X)
        labels = self._encode(y, x.shape[0])
        try:
            if not self.n_features:
                if labels.labelled.any():
                    self._grow_features([None] * x.shape[1])
                else:
                    x = x[:, :0]
            return self._pass(x, labels, publish=publish)
        except BaseException as error:
            if labels.labelled.any():
                self._lose(error)
            raise

    def _lose(self, error: BaseException) -> None:
        """Give up a state that is no forest's: some trees have learned rows that others have not."""
        self._arena = self._scaling = cast(Any, _Lost(error))

    def _question(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        if self._knows_nothing:
            raise ValueError("this forest has seen no label yet and was given no classes: call partial_fit first")
        return self._rows(X)

    def _ask(self, X: ArrayLike) -> BatchForecasts:  # noqa: N803
        x = self._question(X)
        if not self.n_features:
            x = x[:, :0]
        return self._pass(x, self._unlabelled(x.shape[0]), publish=True)

    def _unlabelled(self, n: int) -> Labels:
        return Labels(np.zeros(n, self._code), np.zeros(n, np.bool_), {}, self._n_outputs)

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

    def _pass(self, x: NDArray[np.float64], labels: Labels, *, publish: bool) -> BatchForecasts:
        n = x.shape[0]
        outputs = np.zeros((n, labels.n_outputs))
        forecasts = BatchForecasts(outputs, np.zeros_like(outputs), np.zeros((n, 2)))
        start = 0
        for row, label in labels.arrivals.items():
            self._batches(x, labels, forecasts, start, row, publish=publish)
            # A label of a new kind may not show in the forecast of the row that brings it.
            one = slice(row, row + 1)
            self._batches(x[one], labels.hidden(one), forecasts.part(one), 0, 1, publish=publish)
            before = forecasts.part(one).copy()
            self._admit(label)
            self._batches(x, labels, forecasts, row, row + 1, publish=publish)
            forecasts.outputs[one], forecasts.raw[one], forecasts.depths[one] = before
            start = row + 1
        self._batches(x, labels, forecasts, start, n, publish=publish)
        return forecasts

    def _batches(
        self, x: NDArray[np.float64], labels: Labels, forecasts: BatchForecasts, start: int, stop: int, *, publish: bool
    ) -> None:
        """Pass rows [start, stop) through the kernels, some at a time, with memory for what those may need."""
        if not self._n_outputs:
            return  # nothing to forecast yet, and no row here has a label
        for first in range(start, stop, ROWS_PER_CALL):
            last = min(first + ROWS_PER_CALL, stop)
            if last - first == x.shape[0]:
                self._batch(x, labels, forecasts, publish=publish)
            else:
                part = slice(first, last)
                self._batch(x[part], labels.part(part), forecasts.part(part), publish=publish)

    def _batch(self, x: NDArray[np.float64], labels: Labels, forecasts: BatchForecasts, *, publish: bool) -> None:
        n, n_trees, n_outputs = x.shape[0], self.params.n_estimators, self._n_outputs
        binding = self._bind(room=2 * int(np.count_nonzero(labels.labelled)))
        if self._n_threads > 1 and n_trees > 1:
            self._run_threads(binding.words, x, labels, forecasts, publish=publish)
            binding.words[_LARGEST] = self._arena.used.max()
            self._arena.give_up_room(int(binding.words[_LARGEST]))
            return
        at_once = max(1, min(n, MOST_FORECASTS // (n_trees * n_outputs)))
        self._kernels.run(
            np.array([binding.address], np.uint64), 0, 1, np.zeros(1, np.int64), np.array([n]),
            x, labels.values, labels.labelled, publish,
            SCRATCH.floats((n + SEGMENTS + 1) * self._scaling.weights.shape[0]),
            SCRATCH.reals(at_once * n_trees * (n_outputs + 2)),
            *forecasts,
        )  # fmt: skip
        self._arena.give_up_room(int(binding.words[_LARGEST]))

    def _bind(self, room: int) -> Binding:
        """The forest as kernels see it (binding.py), with so many free rows in every tree, up to its limit.

        It holds until the forest learns a label of a new kind, takes up features, or is bound with more room.
        """
        arena, binding, allowed = self._arena, self._binding, self._allowed or _ONE_NODE
        while True:
            arrays = arena.used, self._scaling.weights, self._words, self._calibration
            state = arena.generation, self._allowed, self._n_outputs
            if not binding.holds(arrays, state):
                self._write_binding(arrays, state)
            if int(binding.words[_LARGEST]) + room <= arena.capacity or arena.capacity >= allowed:
                return binding
            arena.make_room(room, allowed)

    def _write_binding(self, arrays: tuple[NDArray[Any], ...], state: tuple[int, ...]) -> None:
        arena, scaling = self._arena, self._scaling
        reached: tuple[NDArray[Any], ...] = (
            arena.ints, arena.boxes, arena.used, self._words, self._calibration, scaling.origin, scaling.lowest,
            scaling.highest, scaling.last, scaling.moves, scaling.strides, scaling.pairs, scaling.weights,
            scaling.n_labelled,
        )  # fmt: skip
        wholes = (
            arena.n_trees, arena.layout.head, arena.layout.box, arena.capacity, self._allowed, int(arena.used.max()),
            self.n_features, scaling.pairs.shape[1], scaling.adaptive, self._n_outputs, self._calibration.shape[0],
            MODES.index(self.params.mode),
        )  # fmt: skip
        fractions = (float(self.params.purity), *self._pauses, self._lifetime, *self._rules)
        self._binding.write(arrays, state, map(address_of, reached), wholes, fractions)

    def _run_threads(
        self,
        words: NDArray[np.uint64],
        x: NDArray[np.float64],
        labels: Labels,
        forecasts: BatchForecasts,
        *,
        publish: bool,
    ) -> None:
        """As `run` of batches.py for this forest, with its trees spread over threads."""
        kernels, n_trees, n_outputs = self._kernels, self.params.n_estimators, self._n_outputs
        start, n, stride = 0, x.shape[0], self._scaling.weights.shape[0]
        bite = max(1, MOST_FORECASTS // (n_trees * (n_outputs + 2)))
        rows, weights = np.empty((min(n, bite), stride), np.float32), np.empty((SEGMENTS + 1, stride), np.float32)
        ends = np.empty(SEGMENTS, np.int64)
        while start < n:
            stop, n_segments, strays = kernels.prepare(
                words, x[: start + bite], labels.labelled, start, rows, weights, ends
            )
            part = slice(start, stop)
            y, known, here = labels.values[part], labels.labelled[part], forecasts.part(part)
            of_trees, depths = np.empty((n_trees, stop - start, n_outputs)), np.empty((n_trees, stop - start, 2))
            of_rows = rows[: stop - start], weights, ends[:n_segments], y, known, publish, of_trees, depths
            spans = _spans(n_trees, self._n_threads)
            side_by_side(self._n_threads, kernels.walk, [(words, *span, *of_rows) for span in spans])
            if publish:
                kernels.gather(words, of_trees, depths, y, known, here.outputs, here.raw, here.depths)
            if strays:
                kernels.recentre(words)
            start = stop

    def _shrink(self, tree: int, limit: int) -> None:
        """Let a tree forget until it may split again within so many rows."""
        arena, layout = self._arena, self._arena.layout
        blocks = arena.ints, arena.floats, arena.reals, arena.boxes, arena.used
        shrink(*blocks, index(layout.head), index(layout.box), index(tree), index(limit))

    def _needs_to_forget(self, n_nodes: int) -> bool:
        """Whether a tree with so many nodes is one that learning would not leave."""
        return n_nodes + int(ROOT) + 2 > max(self._allowed, _SMALLEST_TREE)

    def _layout(self) -> Layout:
        return Layout(self._stats_room, room_for(self.n_features))

    def _relayout(self) -> None:
        """Give rows the rooms they need now; rows that are too long then for `max_bytes` get fewer."""
        arena, layout = self._arena, self._layout()
        beside_rows = self._scaling.nbytes + arena.used.nbytes + 4 * LANES
        rows = (self.params.max_bytes - beside_rows) // (layout.nbytes * arena.n_trees)
        rows = whole_chunks(min(rows, LARGEST_BLOCK // arena.n_trees))
        self._allowed = rows if rows >= _SMALLEST_TREE else 0
        at_least = max(self._allowed, _SMALLEST_TREE)
        for tree in np.flatnonzero(arena.used + index(2) > at_least).tolist():
            self._shrink(tree, at_least)
        if arena.capacity > at_least:
            arena.reserve(at_least)
        arena.relayout(layout)

    def _require_room_for_features(self, n_more: int) -> None:
        """Raises ValueError where the forest cannot take up so many more features."""
        n_features = self.n_features + n_more
        if n_features > self.params.max_features:
            raise ValueError(f"{n_features} features are more than max_features={self.params.max_features}")

    def _grow_features(self, like: Sequence[int | None]) -> None:
        known = self.n_features
        self._scaling.grow(like)
        self._relayout()
        self._arena.imitate(known, like)
