"""Many forests in one call: rows, each for a forest of its own, at little more than the price of the walks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.batches import SEGMENTS
from amf.binding import LARGEST
from amf.boxes import padded
from amf.forest import Forest
from amf.labels import numbers
from amf.params import check_whole
from amf.samples import MOST_FORECASTS, ROWS_PER_CALL, SCRATCH, BatchForecasts
from amf.threads import side_by_side

_LARGEST = int(LARGEST)


def predict_learn_many(
    forests: Sequence[Forest[Any]],
    X: ArrayLike,  # noqa: N803
    slots: ArrayLike,
    labels: ArrayLike,
    *,
    predict: bool = True,
    n_threads: int = 1,
) -> Any:
    """Predict each row by its own forest, then learn it there: bit for bit as one call a forest in the order of rows.

    forests: at least one, all of one `variant` and each with as many features as X has columns, no forest twice.
    X: (n, d), NaN where missing. slots: int (n,), the place of each row's forest. labels: (n,); for classes their
    places in `class_labels`, -1 where a row has none; for numbers the numbers, NaN where there is none. predict: False
    where the rows are only to be learned. n_threads: over which forests are spread.

    Returns what `prequential` of these forests returns (`Forecasts`, `RegressionForecasts`), row i for row i of X, with
    probabilities of 0 beyond the classes of the row's forest; anything at all without `predict`.

    A label of a new kind, or a new feature, has to go through the forest's own methods. Raises ValueError for such and
    for anything else that does not fit, before anything is learned. Whatever else cuts the call short leaves none of
    the forests (see `partial_fit`).
    """
    check_whole("n_threads", n_threads, 1, 10_000)
    place = _whole("slots", slots)
    x, y = _checked(forests, X, place, labels)
    n = x.shape[0]
    order, is_sorted = np.argsort(place, kind="stable"), bool((place[1:] >= place[:-1]).all())
    if not is_sorted:
        x, y, place = x[order], y[order], place[order]
        x.flags.writeable = False  # kernels are compiled anew for each type, and know this one
    width = max(forest._n_outputs for forest in forests)
    said = BatchForecasts(np.zeros((n, width)), np.zeros((n, width)), np.zeros((n, 2)))
    publish = predict or any(forest._follows_forecasts for forest in forests)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    ends = np.append(starts[1:], n)
    # Memory is reserved for what the rows of a call may need: a forest with more rows than that takes several calls.
    while starts.size:
        stops = np.minimum(starts + ROWS_PER_CALL, ends)
        try:
            _call(forests, place, x, y, starts, stops, said, publish, n_threads)
        except BaseException as error:
            for forest in forests:
                forest._lose(error)
            raise
        left = stops < ends
        starts, ends = stops[left], ends[left]
    if not is_sorted:
        for array in said:
            array[order] = array.copy()
    return forests[0]._published(said)


def _checked(
    forests: Sequence[Forest[Any]], rows: ArrayLike, place: NDArray[np.int64], labels: Any
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Rows and labels as the kernels take them. Raises ValueError where anything does not fit."""
    if not forests:
        raise ValueError("there is no forest")
    x, kind = forests[0]._rows(rows), type(forests[0])
    n = x.shape[0]
    if place.shape != (n,):
        raise ValueError(f"X has shape {x.shape}, slots {place.shape}; they must be (n, d) and (n,)")
    if n and (place.min() < 0 or place.max() >= len(forests)):
        raise ValueError(f"slots must lie from 0 to {len(forests) - 1}, they reach from {place.min()} to {place.max()}")
    if len({*map(id, forests)}) < len(forests):
        raise ValueError("a forest stands in two slots: what it may need is reserved for one of them alone")
    for slot, forest in enumerate(forests):
        if type(forest) is not kind:
            raise ValueError(f"forests[{slot}] is a {type(forest).__name__}, forests[0] a {kind.__name__}")
        if forest._kernels is not forests[0]._kernels:
            raise ValueError(f"forests[{slot}] is {forest!r}, forests[0] {forests[0]!r}: they have other kernels")
        if forest.n_features != x.shape[1]:
            raise ValueError(f"forests[{slot}] has {forest.n_features} features, X has {x.shape[1]} columns")
    y = numbers(labels) if kind._code is np.float64 else _whole("labels", labels)
    if y.shape != (n,):
        raise ValueError(f"labels have shape {y.shape} for {n} rows of X")
    if kind._code is np.int64:
        known = np.array([forest._n_outputs for forest in forests])[place]
        strange = np.flatnonzero((y < -1) | (y >= known))
        if strange.size:
            row = strange[0]
            raise ValueError(f"labels[{row}] is {y[row]}, its forest has the classes 0 to {known[row] - 1}")
    return x, y


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers in memory of their own. Raises ValueError for any others, which would be cut off."""
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "biu":
        raise ValueError(f"{name} must be whole numbers, they are {given.dtype}")
    return np.array(given, np.int64, order="C")


def _call(
    forests: Sequence[Forest[Any]],
    place: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[Any],
    starts: NDArray[np.intp],
    stops: NDArray[np.intp],
    said: BatchForecasts,
    publish: bool,
    n_threads: int,
) -> None:
    """Pass the rows [start, stop) of each forest through it."""
    lengths = (stops - starts).tolist()
    mine = [forests[slot] for slot in place[starts].tolist()]
    labelled = y >= 0 if y.dtype == np.int64 else ~np.isnan(y)
    learned = np.concatenate(([0], np.cumsum(labelled)))
    rooms = (2 * (learned[stops] - learned[starts])).tolist()
    # Bound one by one, and all of them before anything is learned: memory that cannot be had ends the call here.
    addresses = np.array([forest._bind(room).address for forest, room in zip(mine, rooms, strict=True)], np.uint64)
    longest = max(lengths)
    size = max(forest.params.n_estimators * (forest._n_outputs + 2) for forest in forests)
    # By rows, not by forests: threads should end together.
    bounds = np.searchsorted(np.cumsum(lengths), np.linspace(0, sum(lengths), n_threads + 1)[1:-1], "left")
    spans = pairwise([0, *bounds.tolist(), len(mine)])

    def run(first: int, last: int) -> None:
        forests[0]._kernels.run(
            addresses, first, last, starts, stops, x, y, labelled, publish,
            SCRATCH.floats((longest + SEGMENTS + 1) * padded(x.shape[1])),
            SCRATCH.reals(max(size, min(longest * size, MOST_FORECASTS))),
            said.outputs, said.raw, said.depths,
        )  # fmt: skip

    if n_threads == 1:
        run(0, len(mine))
    else:
        side_by_side(n_threads, run, spans)
    for forest in mine:
        forest._arena.give_up_room(int(forest._binding.words[_LARGEST]))
