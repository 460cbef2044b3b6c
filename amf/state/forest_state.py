"""The state of a forest, and its batches on their way to the kernels (pipeline.py).

A label of a new kind ends a batch, since it changes what trees compute; memory for what a batch may need is there
before it begins.
"""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.adaptation.state import fresh_state
from amf.geometry.scaling import Scaling, first_infinite
from amf.inputs.batch import (
    ROWS_PER_CALL,
    SCRATCH,
    BatchForecasts,
    Labels,
    Unasked,
    label_of_one,
    names_of,
    numbers_of,
    rows_at_once,
)
from amf.inputs.scalars import plain
from amf.jit.rng import seed_words
from amf.kernels.pipeline import SEGMENTS
from amf.memory.arena import Arena
from amf.memory.binding import LARGEST, N_KEPT, Binding
from amf.params import check_whole
from amf.state.room import ForestMemory
from amf.state.system import NO_STATE, Params
from amf.state.threads import side_by_side, spans
from amf.state.turns import TakesTurns, one_call, take_turns

_FROM_THE_FIRST = np.zeros(1, np.int64)
_LARGEST, _N_KEPT = int(LARGEST), int(N_KEPT)


class LostForestError(RuntimeError):
    """The state of a forest is gone, since a call that was to change it could not be finished."""


class _Lost:
    """What stands for the state of a forest that an exception has cut short: any access to it raises, and says so."""

    def __init__(self, error: BaseException) -> None:
        self._reason = repr(error)

    def __getattr__(self, name: str) -> Any:
        raise LostForestError(
            f"this forest was cut short while it learned, by {self._reason}: some of its trees have learned rows that "
            "others have not. Go on with its last checkpoint, by amf.loads, or with its last copy"
        )


class ForestState(ForestMemory[Params], TakesTurns):
    """A forest, and how rows pass through it."""

    _is_whole: bool
    """Whether a call that was cut short has left whole rows, and no part of another one."""

    @classmethod
    def _bare(cls, params: Params, n_threads: int) -> Self:
        """A forest without generators, and without a bound on its rows: `loads` brings those and finds this."""
        forest = cls.__new__(cls)
        forest._set_up(params, n_threads)
        return forest

    def _set_up(self, params: Params, n_threads: int) -> None:
        take_turns(self)
        self.params: Params = params
        self.n_threads = n_threads
        self._names: tuple[str, ...] | None = None
        self._is_whole = True
        self._scaling = Scaling(adaptive=self.params.scaling == "auto", fixed=self.in_unit_cube)
        self._prepare()
        self._arena = Arena(params.n_estimators, self._layout())
        self._calibration = self._fresh_calibration() if params.calibration else NO_STATE
        self._adaptation = fresh_state(params.n_estimators, self._terms)
        self._binding = Binding()

    def _start(self) -> None:
        self._words = seed_words(self.params.seed, self.params.n_estimators)
        self._relayout()

    def _twin(self) -> Self:
        """A forest with the same parameters, names and labels, whose state is to be replaced: it is this one's."""
        twin = self.__new__(type(self))
        for name, value in vars(self).items():  # one by one: a dictionary that is asked for takes memory of its own
            setattr(twin, name, value)
        take_turns(twin)
        twin._binding = Binding()
        twin._take_over_labels()
        return twin

    @property
    def n_threads(self) -> int:
        """Threads over which the trees are spread. Not part of the state."""
        return self._n_threads

    @n_threads.setter
    def n_threads(self, value: int) -> None:
        value = plain(value)
        check_whole("n_threads", value, 1, 10_000)
        self._n_threads = value

    @one_call
    def _learn(self, X: ArrayLike, y: Any, *, asked: bool) -> BatchForecasts:  # noqa: N803
        x = self._rows(X)
        labels = self._encode(y, x.shape[0])
        if not self._binding.is_linked:
            self._link()  # before anything changes: to compile takes long, and who interrupts that finds a whole forest
        try:
            self._is_whole = False
            if not self.n_features:
                if labels.labelled.any():
                    self._grow_features([None] * x.shape[1])
                    self._names = names_of(X)  # before its rows, of which an interrupt may leave some
                else:
                    x = x[:, :0]
            return self._pass(x, labels, asked=asked)
        except BaseException as error:
            if self._is_whole:
                error.add_note(f"the forest has learned {self.n_samples} labels, no row in part")
            elif labels.labelled.any():
                self._lose(error)
            raise

    def _lose(self, error: BaseException) -> None:
        """Give up a state that is no forest's: some trees have learned rows that others have not."""
        self._binding.expire()
        self._arena = self._scaling = cast(Any, _Lost(error))

    def _question(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        if self._knows_nothing:
            nor_given = "" if self.class_labels is None else " and was given no classes"
            raise ValueError(f"this forest has seen no label yet{nor_given}: call partial_fit first")
        return self._rows(X)

    @one_call
    def _ask(self, X: ArrayLike) -> BatchForecasts:  # noqa: N803
        x = self._question(X)
        if not self.n_features:
            x = x[:, :0]
        return self._pass(x, self._unlabelled(x.shape[0]), asked=True)

    def _unlabelled(self, n: int) -> Labels:
        if n == 1:
            return label_of_one(self._code, None, self._n_outputs)  # type: ignore[arg-type]
        return Labels(np.zeros(n, self._code), np.zeros(n, np.bool_), {}, self._n_outputs)

    def _rows(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        x = numbers_of(X)
        if x.ndim != 2:
            advice = ": give [row] for a single row, X.reshape(-1, 1) for a single feature" if x.ndim == 1 else ""
            raise ValueError(f"X must have two dimensions (rows, features), got shape {x.shape}{advice}")
        if not 1 <= x.shape[1] <= self.params.max_features:
            raise ValueError(f"X has {x.shape[1]} features; it needs 1 to max_features={self.params.max_features}")
        known = self.n_features
        if known and x.shape[1] != known:
            raise ValueError(f"X has {x.shape[1]} features, this forest learned from {known}")
        # Of one type whatever the caller's array is: for each type that they meet, kernels are compiled anew.
        x = x.view() if x.flags.aligned else x.copy()
        x.setflags(write=False)
        infinite = first_infinite(x)
        if infinite >= 0:
            row, column = divmod(infinite, x.shape[1])
            raise ValueError(f"X[{row}, {column}] is infinite; numbers must be finite, NaN stands for missing")
        return x

    def _pass(self, x: NDArray[np.float64], labels: Labels, *, asked: bool) -> BatchForecasts:
        """Pass rows through the forest. asked: whether what is said of them is more than what it learns of."""
        n, publish = x.shape[0], asked or self._follows_forecasts
        if asked:
            forecasts = BatchForecasts.empty(n, labels.n_outputs)
        else:
            forecasts = Unasked.empty(min(n, ROWS_PER_CALL), labels.n_outputs)
        start = 0
        for row, label in labels.arrivals.items():
            self._batches(x, labels, forecasts, start, row, publish=publish)
            # A label of a new kind may not show in the forecast of the row that brings it.
            one = slice(row, row + 1)
            self._batches(x[one], labels.hidden(one), forecasts.part(one), 0, 1, publish=publish)
            before = forecasts.part(one).copy()
            self._admit(label)
            known = self.n_samples
            try:
                self._batches(x, labels, forecasts, row, row + 1, publish=publish)
            except BaseException:
                if self._is_whole and self.n_samples == known:  # and yet it knows the label of this row
                    self._is_whole = False
                    self._batches(x, labels, forecasts, row, row + 1, publish=publish)
                    self._is_whole = True
                raise
            for array, was in zip(forecasts.part(one), before, strict=True):
                array[:] = was
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
            binding.expire()  # these kernels do not count nodes
            self._give_up_room(int(self._arena.used.max()), self._n_kept)
            return
        at_once = max(1, min(n, rows_at_once(n_trees, n_outputs)))
        try:
            self._kernels.run(
                binding.addresses, 0, 1, _FROM_THE_FIRST, np.array([n]),
                x, labels.values, labels.labelled, publish,
                SCRATCH.floats((n + SEGMENTS + 1) * self._scaling.weights.shape[0]),
                SCRATCH.reals(at_once * n_trees * (n_outputs + 2)),
                *forecasts,
            )  # fmt: skip
        except MemoryError:
            raise
        except BaseException:
            # Of a signal: Python looks for one before a kernel begins and after it has ended, and not in between.
            self._give_up_room(int(binding.words[_LARGEST]), int(binding.words[_N_KEPT]))
            self._is_whole = True
            raise
        self._give_up_room(int(binding.words[_LARGEST]), int(binding.words[_N_KEPT]))

    def _run_threads(
        self,
        words: NDArray[np.uint64],
        x: NDArray[np.float64],
        labels: Labels,
        forecasts: BatchForecasts,
        *,
        publish: bool,
    ) -> None:
        """Pass rows through the trees, which are spread over threads: prepare, walk and gather (pipeline.py)."""
        kernels, n_trees, n_outputs = self._kernels, self.params.n_estimators, self._n_outputs
        start, n, stride = 0, x.shape[0], self._scaling.weights.shape[0]
        bite = rows_at_once(n_trees, n_outputs)
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
            trees = spans(n_trees, self._n_threads)
            side_by_side(self._n_threads, kernels.walk, [(words, *some, *of_rows) for some in trees])
            if publish:
                kernels.gather(words, x[part], of_trees, depths, y, known, here.outputs, here.raw, here.depths)
            if strays:
                kernels.recentre(words)
            start = stop
