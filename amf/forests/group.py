"""Many forests in one call: rows, each for a forest of its own, at little more than the price of the walks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.forests.forest import Forest
from amf.geometry.boxes import padded_width
from amf.inputs.batch import MOST_FORECASTS, ROWS_PER_CALL, SCRATCH, BatchForecasts
from amf.inputs.scalars import plain, whole_numbers
from amf.kernels.pipeline import SEGMENTS
from amf.memory.addresses import gather_words
from amf.memory.binding import (
    IS_CURRENT,
    LARGEST,
    N_ADAPTATION,
    N_BYTES,
    N_CALIBRATION,
    N_FEATURES,
    N_KEPT,
    N_NODES,
    N_OUTPUTS,
    N_SAMPLES,
    N_TREES,
    N_WORDS,
)
from amf.params import check_whole
from amf.state.room import have_room_to_spare, need_room
from amf.state.threads import side_by_side
from amf.state.turns import TakesTurns, one_call, take_turns, together

_MOST_SLOTS = 1 << 26


class Sizes(NamedTuple):
    """How large forests are, one number each."""

    samples: NDArray[np.int64]
    """Labelled samples learned."""
    nodes: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    """Bytes of memory, as the forests' own `nbytes`."""


class _Rows(NamedTuple):
    """Rows for forests, as the kernel `run` takes them (Kernels.run of pipeline.py)."""

    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    x: NDArray[np.float64]
    labels: NDArray[Any]
    labelled: NDArray[np.bool_]
    publish: bool


class Group(TakesTurns):
    """Forests of one `variant`, each under a number, its slot: rows pass through many of them in one call.

    A call asks nothing of a forest but whether it has moved since the last one: it does not matter how many forests the
    group has, and little how many get a row. Each of them may be used by itself in between.

    Calls on a group take turns, and so do those on its forests: one that is in a call of the group cannot be used by
    another thread until that has ended.

    Copies go on by themselves: one by `copy.deepcopy` or `pickle` has copies of the forests, one by `copy.copy` has the
    same ones.
    """

    def __init__(self) -> None:
        take_turns(self)
        self._forests: list[Forest[Any] | None] = []
        self._addresses = np.zeros(0, np.uint64)
        """Of their words (binding.py), 0 where a slot is empty."""
        self._slots: dict[int, int] = {}
        """Id of a forest -> its slot."""

    def __getstate__(self) -> dict[int, Forest[Any]]:
        # Addresses are those of these very forests in this very process: forests that come back are bound anew.
        with self._turn:
            return {slot: self._forest(slot) for slot in self._slots.values()}

    def __setstate__(self, forests: dict[int, Forest[Any]]) -> None:
        self.__init__()  # type: ignore[misc]
        for slot, forest in forests.items():
            self.put(slot, forest)

    def put(self, slot: int, forest: Any) -> None:
        """Take a forest in, in place of the one that has the slot.

        Slots up to the largest take 16 bytes each, be they empty. Raises ValueError where the forest does not fit.
        """
        slot = plain(slot)
        check_whole("slot", slot, 0, _MOST_SLOTS - 1)
        if not isinstance(forest, Forest):
            raise TypeError(f"slot {slot} is for a forest, got a {type(forest).__name__}")
        with self._turn:
            self._require_fit(slot, forest)
            self.remove(slot)
            if slot >= len(self._forests):
                more = max(slot + 1 - len(self._forests), len(self._forests) // 8)
                self._forests += [None] * more
                self._addresses = np.append(self._addresses, np.zeros(more, np.uint64))
            self._forests[slot], self._addresses[slot] = forest, forest._binding.address
            self._slots[id(forest)] = slot

    def _require_fit(self, slot: int, forest: Any) -> None:
        """Raises ValueError where a forest cannot be the one of this slot."""
        if self._slots.get(id(forest), slot) != slot:
            raise ValueError("a forest stands in two slots: what it may need is reserved for one of them alone")
        had = self._forests[slot] if slot < len(self._forests) else None
        if len(self._slots) > (had is not None):
            other, name = self._any(), f"the forest of slot {slot}"
            if type(forest) is not type(other):
                raise ValueError(f"{name} is a {type(forest).__name__}, another one a {type(other).__name__}")
            if forest._kernels is not other._kernels:
                raise ValueError(f"{name} is {forest!r}, another one {other!r}: they have other kernels")

    def remove(self, slot: int) -> None:
        """Let go of the forest in a slot, if there is one."""
        with self._turn:
            forest = self._forests[slot] if 0 <= slot < len(self._forests) else None
            if forest is not None:
                self._forests[slot], self._addresses[slot] = None, 0
                del self._slots[id(forest)]

    def sizes(self, slots: ArrayLike) -> Sizes:
        """How large the forests in these slots are, int (n,). Raises ValueError where there is none."""
        place = _places(slots)
        with self._turn:
            self._require(place)
            for forest in self._those(place):
                forest._require_idle()
            words = self._words(place)
        return Sizes(words[:, N_SAMPLES], words[:, N_NODES], words[:, N_BYTES])

    def predict_learn(
        self,
        X: ArrayLike,  # noqa: N803
        slots: ArrayLike,
        labels: ArrayLike,
        *,
        predict: bool = True,
        n_threads: int = 1,
    ) -> Any:
        """Predict each row by its own forest, then learn it there: bit for bit as a call for each row in their order.

        X: (n, d), NaN where missing, of forests with d features. slots: int (n,), of each row's forest; it takes a
        little less time where they are sorted. labels: (n,); for classes their places in `class_labels`, -1 where a
        row has none; for numbers the numbers, NaN where there is none. predict: False where the rows are only to be
        learned. n_threads: over which forests are spread.

        Returns what `prequential` of these forests returns (`Forecasts`, `RegressionForecasts`), row i for row i of X,
        with probabilities of 0 beyond the classes of the row's forest; anything at all without `predict`.

        What a forest has not met goes through its own methods first: features through `add_features`, and a class,
        after its row has been forecast without a label, through `add_classes`. Raises ValueError for anything that does
        not fit, before anything is learned. Whatever else cuts the call short leaves none of those forests that have a
        label in it (see `partial_fit`). No other thread can use these forests until the call has ended.
        """
        n_threads = plain(n_threads)
        check_whole("n_threads", n_threads, 1, 10_000)
        return self._predict_learn(X, _places(slots), labels, predict, n_threads)

    @one_call
    def _predict_learn(
        self,
        X: ArrayLike,  # noqa: N803
        place: NDArray[np.int64],
        labels: ArrayLike,
        predict: bool,
        n_threads: int,
    ) -> Any:
        self._require(place)
        some = self._forest(place[0]) if place.size else self._any()
        x = some._rows(X)
        n = x.shape[0]
        y, labelled = some._given(labels)
        if place.shape != (n,):
            raise ValueError(f"X has shape {x.shape}, slots {place.shape}; they must be (n, d) and (n,)")
        if y.shape != (n,):
            raise ValueError(f"labels have shape {y.shape} for {n} rows of X")
        order = None if (place[1:] >= place[:-1]).all() else np.argsort(place, kind="stable")
        if order is not None:
            x, y, labelled, place = x[order], y[order], labelled[order], place[order]
            x.flags.writeable = False  # kernels are compiled anew for each type, and know this one
        starts, ends = _runs(place)
        mine = place[starts]
        forests = self._those(mine)
        with together(forests):
            words = self._words(mine)
            _require_features(mine, words, x.shape[1])
            if type(X) is not np.ndarray:
                for forest in forests:
                    forest._require_names(X)
            if some.class_labels is not None:
                _require_known(y, words[:, N_OUTPUTS].repeat(ends - starts), order)
            width = int(words[:, N_OUTPUTS].max()) if n else some._n_outputs
            said = BatchForecasts.empty(n, width)
            try:
                self._pass(mine, words, x, y, labelled, starts, ends, said, predict, n_threads)
            except BaseException as error:
                for forest, start, end in zip(forests, starts, ends, strict=True):
                    if labelled[start:end].any():  # else it has changed nothing
                        forest._lose(error)
                raise
        if order is not None:
            for array in said:
                array[order] = array.copy()
        return some._published(said)

    def _pass(
        self,
        mine: NDArray[np.int64],
        words: NDArray[np.int64],
        x: NDArray[np.float64],
        y: NDArray[Any],
        labelled: NDArray[np.bool_],
        starts: NDArray[np.intp],
        ends: NDArray[np.intp],
        said: BatchForecasts,
        predict: bool,
        n_threads: int,
    ) -> None:
        """Pass the rows [start, end) of each of these forests, of which these are the words, through it."""
        publish = predict or bool(words[:, [N_CALIBRATION, N_ADAPTATION]].any())
        of_a_row = int((words[:, N_TREES] * (words[:, N_OUTPUTS] + 2)).max(initial=0))
        learned = np.append(0, np.cumsum(labelled))
        # Memory is reserved for what the rows of a call may need: a forest with more rows than that takes several.
        while starts.size:
            stops = np.minimum(starts + ROWS_PER_CALL, ends)
            self._reserve(mine, words, 2 * (learned[stops] - learned[starts]))
            rows = _Rows(starts, stops, x, y, labelled, publish)
            self._run(self._addresses[mine], rows, of_a_row, said, n_threads)
            self._give_up_room(mine)
            left = stops < ends
            mine, starts, ends = mine[left], stops[left], ends[left]
            if mine.size:
                words = self._words(mine)

    def _run(
        self,
        addresses: NDArray[np.uint64],
        rows: _Rows,
        of_a_row: int,
        said: BatchForecasts,
        n_threads: int,
    ) -> None:
        """Pass rows through the forests at these addresses. of_a_row: numbers that all trees of a forest say of one."""
        lengths, kernel = rows.stops - rows.starts, self._any()._kernels.run
        longest = int(lengths.max())

        def run(first: int, last: int) -> None:
            kernel(
                addresses, first, last, *rows,
                SCRATCH.floats((longest + SEGMENTS + 1) * padded_width(rows.x.shape[1])),
                SCRATCH.reals(max(of_a_row, min(longest * of_a_row, MOST_FORECASTS))),
                said.outputs, said.raw, said.depths,
            )  # fmt: skip

        if n_threads == 1:
            run(0, len(addresses))
        else:
            # By rows, not by forests: threads should end together.
            shares = np.linspace(0, lengths.sum(), n_threads + 1)[1:-1]
            bounds = np.searchsorted(np.cumsum(lengths), shares, "left").tolist()
            side_by_side(n_threads, run, pairwise([0, *bounds, len(addresses)]))

    def _reserve(self, mine: NDArray[np.int64], words: NDArray[np.int64], rooms: NDArray[np.int64]) -> None:
        """See to so many free rows in every tree of these forests, up to its limit."""
        # One by one, and all of them before anything is learned: memory that cannot be had ends the call here.
        for i in need_room(words, rooms).nonzero()[0].tolist():
            self._forest(mine[i])._bind(int(rooms[i]))

    def _give_up_room(self, mine: NDArray[np.int64]) -> None:
        """Give up memory that these forests have to spare."""
        words = self._words(mine)
        for i in have_room_to_spare(words).nonzero()[0].tolist():
            self._forest(mine[i])._give_up_room(int(words[i, LARGEST]), int(words[i, N_KEPT]))

    def _words(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The words of the forests in these slots as they are now, (n, N_WORDS); whole numbers but for some reals."""
        words = np.empty((slots.size, N_WORDS), np.uint64)
        gather_words(self._addresses[slots], words)
        for i in (words[:, IS_CURRENT] == 0).nonzero()[0].tolist():
            forest = self._forest(slots[i])
            with forest._lock:  # where a call of the group has its turn already
                words[i] = forest._current().words
        return words.view(np.int64)

    def _lose(self, error: BaseException) -> None:
        """Go on where another thread was in the middle of a call that will never end (turns.py)."""
        self.__setstate__({slot: forest for slot, forest in enumerate(self._forests) if forest is not None})

    def _require(self, slots: NDArray[np.int64]) -> None:
        """Raises ValueError unless there is a forest in each of these slots."""
        if not self._slots:
            raise ValueError("there is no forest")
        known = slots.view(np.uint64) < len(self._addresses)  # a negative one is a large one
        known[known] = self._addresses[slots[known]] > 0
        if not known.all():
            row = np.flatnonzero(~known)[0]
            raise ValueError(f"slots[{row}] is {slots[row]}, where there is no forest")

    def _forest(self, slot: Any) -> Forest[Any]:
        forest: Forest[Any] | None = self._forests[slot]
        assert forest is not None
        return forest

    def _those(self, slots: NDArray[np.int64]) -> list[Forest[Any]]:
        return list(map(self._forests.__getitem__, slots.tolist()))  # type: ignore[arg-type]

    def _any(self) -> Forest[Any]:
        """One of them: of what follows from the variant they all say the same."""
        return self._forest(next(iter(self._slots.values())))


def predict_learn_many(
    forests: Sequence[Forest[Any]],
    X: ArrayLike,  # noqa: N803
    slots: ArrayLike,
    labels: ArrayLike,
    *,
    predict: bool = True,
    n_threads: int = 1,
) -> Any:
    """Predict each row by its own forest, then learn it there, as `Group.predict_learn` of a group of these forests.

    slots: int (n,), the place of each row's forest.
    """
    group = Group()
    for slot, forest in enumerate(forests):
        group.put(slot, forest)
    return group.predict_learn(X, slots, labels, predict=predict, n_threads=n_threads)


def _places(slots: ArrayLike) -> NDArray[np.int64]:
    """Slots as kernels take them. Raises ValueError for what is no row of whole numbers."""
    place = whole_numbers("slots", slots)
    if place.ndim != 1:
        raise ValueError(f"slots have shape {place.shape}, they must be (n,)")
    return place


def _runs(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where runs of equal values begin, and where they end."""
    bounds = np.ones(values.size + 1, np.bool_)
    np.not_equal(values[1:], values[:-1], out=bounds[1:-1])
    places = bounds.nonzero()[0]
    return places[:-1], places[1:]


def _require_features(slots: NDArray[np.int64], words: NDArray[np.int64], n_columns: int) -> None:
    """Raises ValueError where a forest has another number of features."""
    strange = (words[:, N_FEATURES] != n_columns).nonzero()[0]
    if strange.size:
        n_features, slot = words[strange[0], N_FEATURES], slots[strange[0]]
        hint = "" if n_features else ": it has learned no label yet, which takes a call of its own (partial_fit)"
        raise ValueError(f"the forest of slot {slot} has {n_features} features, X has {n_columns} columns{hint}")


def _require_known(codes: NDArray[np.int64], known: NDArray[np.int64], order: NDArray[np.intp] | None) -> None:
    """Raises ValueError where the code of a row's class is none of its forest, which knows so many classes.

    order: where each row was given, None where they are as they were given.
    """
    strange = ((codes < -1) | (codes >= known)).nonzero()[0]
    if strange.size:
        given = strange if order is None else order[strange]
        first = np.argmin(given)
        row = strange[first]
        raise ValueError(f"labels[{given[first]}] is {codes[row]}, its forest has the classes 0 to {known[row] - 1}")
