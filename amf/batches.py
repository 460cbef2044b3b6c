"""Batches of rows through forests, in one call of a kernel: centre, note, walk, gather; forest after forest.

A batch is cut into segments in which everything but the trees is constant: a segment ends where a row changes the
weights of features. Where it ends follows from the samples, never from the batch, and within it trees are independent,
so neither the batch size nor the number of threads can change a bit.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, spliced
from amf.addresses import floats_at, ints_at, longs_at, reals_at, words_at
from amf.aggregation import mean_over_trees
from amf.arena import ROOT, row_of
from amf.binding import (
    ADAPTIVE,
    BOX_WORDS,
    BOXES,
    CALIBRATION,
    CAPACITY,
    FULL_PAUSE,
    HEAD_WORDS,
    HEADS,
    HIGHEST,
    LARGEST,
    LAST,
    LIMIT,
    LOWEST,
    MODE,
    MOVES,
    N_CALIBRATION,
    N_FEATURES,
    N_LABELLED,
    N_OUTPUTS,
    N_TREES,
    N_WORDS,
    ORIGIN,
    PAIR_WORDS,
    PAIRS,
    PAUSE,
    PURITY,
    RANDOM,
    STRIDES,
    USED,
    WEIGHTS,
)
from amf.boxes import LANES
from amf.forgetting import forget
from amf.halving import is_full
from amf.modes import EXISTING
from amf.scaling import centre, observe, recentre
from amf.shifting import shift

_LANES = index(LANES)
_DEPTH = index(128)
_FORECAST_FIRST, _LEARN_FIRST, _REST = range(3)


@called
def _scaling_of(words):
    """The arrays that `observe` of scaling.py takes, in its order from origin on: views."""
    d, width = words[N_FEATURES], words[PAIR_WORDS]
    return (
        reals_at(words[ORIGIN], d),
        reals_at(words[LOWEST], d),
        reals_at(words[HIGHEST], d),
        reals_at(words[LAST], d),
        longs_at(words[MOVES], d),
        longs_at(words[STRIDES], d),
        reals_at(words[PAIRS], d * width).reshape((np.intp(d), np.intp(width))),
        floats_at(words[WEIGHTS], (d + _LANES - index(1)) // _LANES * _LANES),
        longs_at(words[N_LABELLED], 1),
    )


@called
def _observe(
    words, x, labelled, start, origin, lowest, highest, last, moves, strides, pairs, weights, n_labelled
):  # fmt: skip
    """Note rows from `start` on (scaling.py); returns where the segment ends, and whether an origin moves then."""
    if words[PAIR_WORDS] == index(0):
        for i in range(start, x.shape[0]):
            n_labelled[0] += labelled[i]
        return x.shape[0], False
    return observe(
        x, labelled, start, words[ADAPTIVE] != index(0), origin, lowest, highest, last, moves, strides, pairs, weights,
        n_labelled,
    )  # fmt: skip


@called
def _shift_trees(words, shifts):
    """Move the trees of a forest with the origins of its features, see shifting.py."""
    n_trees, head, box = words[N_TREES], words[HEAD_WORDS], words[BOX_WORDS]
    reserved = n_trees * words[CAPACITY]
    shift(
        ints_at(words[HEADS], reserved * head), floats_at(words[HEADS], reserved * head),
        floats_at(words[BOXES], reserved * box + _LANES), words_at(words[USED], n_trees), head, box, shifts,
    )  # fmt: skip


def batches_of(walk, calibrate, halve, rules_of):
    """The functions `run` and `walk_trees` of one system, to be called by kernels of its own.

    walk: see walk.py. calibrate: see class_calibration.py. halve(ints, reals, used, tree, words, rules): halving.py.
    rules_of(numbers): the rules of the system, of five of the words of a forest as float64.
    """

    @spliced
    def walk_trees(words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths):
        """Pass rows of one segment through the trees [first_tree, last_tree) of a forest.

        rows: float32 (n, padded d). forecasts: float64 (n_trees, n, n_outputs), depths: float64 (n_trees, n, 2), as
        `walk` fills them.
        """
        n_trees, head, box = words[N_TREES], words[HEAD_WORDS], words[BOX_WORDS]
        limit, reserved = words[LIMIT], n_trees * words[CAPACITY]
        ints = ints_at(words[HEADS], reserved * head)
        floats = floats_at(words[HEADS], reserved * head)
        reals = reals_at(words[HEADS], reserved * head // index(2))
        boxes = floats_at(words[BOXES], reserved * box + _LANES)
        used, random = words_at(words[USED], n_trees), words_at(words[RANDOM], n_trees)
        stride = index(rows.shape[1])
        weights = floats_at(words[WEIGHTS], stride)
        passes = (last_tree - first_tree) * index(rows.shape[0])
        done, room = index(0), _DEPTH
        while True:
            done, is_deep = walk(
                rules_of(numbers), ints, floats, reals, boxes, used, random,
                first_tree, last_tree, limit, head, box,
                rows.reshape(-1), stride, labels, labelled, words[N_FEATURES], weights,
                numbers[PURITY], numbers[PAUSE], numbers[FULL_PAUSE], words[MODE],
                publish, forecasts, depths, done, room,
            )  # fmt: skip
            # A tree forgets once it has learned too much, not when it is about to learn: the forecasts that are made in
            # between must not depend on when they are asked for.
            for tree in range(first_tree, last_tree):
                if used[tree] > ROOT and is_full(ints, row_of(ROOT, tree, n_trees), head):
                    halve(ints, reals, used, tree, head, rules_of(numbers))
                while limit > index(0) and used[tree] + index(2) > limit:
                    forget(ints, floats, reals, boxes, used, tree, head, box)
            if done == passes:
                return
            if is_deep:
                room *= index(2)

    @spliced
    def forecast_and_learn(
        words, numbers, rows, labels, labelled, publish, state, scratch, outputs, raw, depths, start
    ):  # fmt: skip
        """Pass rows of one segment through a forest; with `publish`, fill outputs, raw and depths from `start` on.

        scratch: float64, room at least for what all trees say of one row.
        """
        n_trees, n_outputs = np.intp(words[N_TREES]), np.intp(words[N_OUTPUTS])
        bite = max(scratch.shape[0] // (n_trees * (n_outputs + 2)), 1)
        for first in range(0, rows.shape[0], bite):
            last = min(first + bite, rows.shape[0])
            ends = n_trees * (last - first) * n_outputs, n_trees * (last - first) * (n_outputs + 2)
            forecasts = scratch[: ends[0]].reshape((n_trees, last - first, n_outputs))
            tree_depths = scratch[ends[0] : ends[1]].reshape((n_trees, last - first, 2))
            walk_trees(
                words, numbers, index(0), words[N_TREES], rows[first:last],
                labels[first:last], labelled[first:last], publish, forecasts, tree_depths,
            )  # fmt: skip
            if publish:
                here = slice(start + first, start + last)
                calibrate(forecasts, labels[first:last], labelled[first:last], state, raw[here], outputs[here])
                mean_over_trees(tree_depths, depths[here])

    @spliced
    def run(
        forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
    ):  # fmt: skip
        """Pass rows through forests [first, last), each through its own, and learn them.

        forests: uint64, the address of the words (binding.py) of each. starts, stops: int64 (forests,), where the
        rows of each begin and end. x: float64 (n, d), NaN where missing; labels, labelled: (n,). For each row two rows
        of memory are free in every tree, up to its limit. row_scratch: float32, room for the padded rows of a forest.
        """
        spare_outputs, spare_depths = np.empty((1, outputs.shape[1])), np.empty((1, 2))
        for forest in range(first, last):
            words, numbers = words_at(forests[forest], N_WORDS), reals_at(forests[forest], N_WORDS)
            here = slice(starts[forest], stops[forest])
            origin, lowest, highest, last_values, moves, strides, pairs, weights, n_labelled = _scaling_of(words)
            state = reals_at(words[CALIBRATION], words[N_CALIBRATION])
            y, known, n = labels[here], labelled[here], here.stop - here.start
            rows = row_scratch[: n * weights.shape[0]].reshape((n, weights.shape[0]))
            values = x[here]
            # Nothing that a row brings along may show in its forecast: where samples branch off, that are the weights
            # that it changes. So the first row of a segment is forecast by itself before it is learned.
            apart = publish and words[MODE] != EXISTING
            unknown = np.zeros(n if apart else 0, np.bool_)
            start, stop, strays = 0, 0, False
            while start < n:
                for step in range(_FORECAST_FIRST, _REST + 1):
                    if step == _FORECAST_FIRST and apart:
                        centre(values[start : start + 1], origin, rows[start : start + 1])
                    elif step == _LEARN_FIRST:
                        stop, strays = _observe(
                            words, values, known, start, origin, lowest, highest, last_values, moves, strides, pairs,
                            weights, n_labelled,
                        )  # fmt: skip
                        centre(values[start:stop], origin, rows[start:stop])
                    begin, end = (start + apart, stop) if step == _REST else (start, start + apart)
                    if begin == end:
                        continue
                    hears = unknown if step == _FORECAST_FIRST else known
                    aside = step == _LEARN_FIRST
                    forecast_and_learn(
                        words, numbers, rows[begin:end], y[begin:end], hears[begin:end],
                        state.shape[0] > 0 if aside else publish, state, scratch,
                        spare_outputs if aside else outputs, spare_outputs if aside else raw,
                        spare_depths if aside else depths, 0 if aside else here.start + begin,
                    )  # fmt: skip
                if strays:
                    shifts = np.zeros(moves.shape[0])
                    recentre(origin, moves, strides, pairs, shifts)
                    _shift_trees(words, shifts)
                start = stop
            words[LARGEST] = words_at(words[USED], words[N_TREES]).max()

    return run, walk_trees
