"""Batches of rows through forests: prepare the rows, walk them through the trees, gather what the trees say.

Preparing notes what features are like and centres the rows. It cuts the batch into segments, in each of which the
features have the same weights. Where a segment ends follows from the samples, never from the batch, and between two
rows trees need nothing of each other, so neither the batch size nor the number of threads can change a bit. In a forest
that adapts (adaptation/) the rows that are prepared end where a review is due, and after each label while new trees
are compared with old ones (change_detection.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from amf.adaptation import change_detection, tree_roles
from amf.adaptation.rehearsal import make_remember
from amf.adaptation.state import COMPARES
from amf.calibration.interface import Calibration
from amf.geometry.planes import shift_cuts
from amf.geometry.scaling import centre, observe, recentre
from amf.geometry.shifting import shift
from amf.jit.decorators import called, exported, index, inlined, kernel
from amf.jit.linking import address_of_kernel, call_kernel
from amf.kernels.aggregation import mean_over_trees
from amf.kernels.attributions import find_unexplained, n_forecasting
from amf.kernels.prefetch import fetch_ahead
from amf.kernels.reviews import Adapting, make_review_if_due
from amf.kernels.views import adaptation_of, features_of, nodes_of, padded, weigh
from amf.kernels.walk import Batch, Growth, Said, Trees
from amf.memory.addresses import longs_at, reals_at, words_at
from amf.memory.arena import ROOT
from amf.memory.binding import (
    CALIBRATION,
    FULL_PAUSE,
    GATHER,
    HULL_WORDS,
    LARGEST,
    LIFETIME,
    LIMIT,
    MODE,
    N_ADAPTATION,
    N_CALIBRATION,
    N_FEATURES,
    N_KEPT,
    N_LABELLED,
    N_NODES,
    N_OUTPUTS,
    N_SAMPLES,
    N_TREES,
    N_WORDS,
    PAIR_WORDS,
    PAUSE,
    PURITY,
    RANDOM,
    REVIEW_EVERY,
    USED,
    WALK,
)

SEGMENTS = 64
"""Segments in a stretch of rows that is prepared at a time, at most."""


class Kernels(NamedTuple):
    """The kernels of one system, of which the first three are those of all.

    Forests are handed over as arrays of words (binding.py), or as the addresses of these.
    """

    prepare: Callable[..., tuple[int, int, bool]]
    """(words, x, labelled, start, rows, weights, ends) -> (stop, number of segments, whether an origin has to move
    after these rows): prepare the rows [start, stop) of x.

    rows: float32 (n, padded d), filled from 0 on. weights: float32 (SEGMENTS + 1, padded d): those before the rows, and
    those of each segment. ends: int64 (SEGMENTS,): where each ends, counted from `start`."""
    recentre: Callable[..., None]
    """(words): move origins that are far from the values, and the trees with them."""
    run: Callable[..., None]
    """(forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths):
    pass rows through forests [first, last), each through its own, and learn them.

    forests: uint64, the address of the words of each. starts, stops: int64 (forests,), where the rows of each begin and
    end. x: float64 (n, d), NaN where missing; labels, labelled: (n,). For each label two rows of memory are free in
    every tree, up to its limit. row_scratch: float32, room for the padded rows of a forest and SEGMENTS + 1 more.
    scratch: float64, room at least for what all trees say of one row. outputs, raw: float64 (n, >= n_outputs), depths:
    float64 (n, 2): filled where `publish` is set."""
    walk: Callable[..., None]
    """(words, first_tree, last_tree, rows, weights, ends, labels, labelled, publish, forecasts, depths): pass prepared
    rows through the trees [first_tree, last_tree), see `walk` of walk.py."""
    gather: Callable[..., None]
    """(words, x, forecasts, depths, labels, labelled, outputs, raw, mean_depths): what the forest says, of what its
    trees say, and what follows from it for the calibration, and from the rows x for the adaptation."""
    attribute: Callable[..., None]
    """(words, x, forecasts, found): what each feature moved of what trees say of the rows x, float64 (n, d), see
    `attribute` of attributions.py. Changes nothing of the forest."""
    explain: Callable[..., None]
    """(words, x, forecasts, found): of this, and of the forecasts in `found`, what each feature moved of these, see
    Calibration.explain, and what none did."""
    survey: Callable[..., None]
    """(words, asked, found): what the trees that are asked, bool (n_trees,), look like, see survey.py."""
    link: Callable[[type], tuple[int, int]]
    """(type of the labels) -> the addresses of `walk` and `gather`, which the words of a forest have to hold when
    `run` or `gather` is called: each of the two is compiled once, and not into all that calls it."""


@inlined
def _next_roles(words, labelled, start, n_labelled):
    """Number of the row after the one with which trees get new roles, at most n."""
    n = labelled.shape[0]
    if words[N_ADAPTATION] != index(0):
        left = np.int64(words[REVIEW_EVERY]) - n_labelled % np.int64(words[REVIEW_EVERY])
        if adaptation_of(words).phase[0] == COMPARES:
            # After each label other trees may speak.
            left = np.int64(1)
        for i in range(start, n):
            left -= labelled[i]
            if left == 0:
                return i + 1
    return n


@called
def prepare(words, x, labelled, start, rows, weights, ends):
    """Note and centre the rows [start, stop) of x, see Kernels.

    Returns (stop, number of segments, whether an origin has to move after these rows).
    """
    features, learned = features_of(words), adaptation_of(words).weights
    n = _next_roles(words, labelled[: x.shape[0]], start, features.n_labelled[0])
    x, stop, n_segments, strays = x[:n], start, np.int64(0), False
    weigh(features.weights, learned, weights, np.int64(0))
    while stop < n and n_segments < SEGMENTS and not strays:
        first = stop
        if words[PAIR_WORDS] == index(0):
            for i in range(first, n):
                features.n_labelled[0] += labelled[i]
            stop = n
        else:
            stop, strays = observe(x, labelled, first, features)
        centre(x, first, stop, features.origin, rows, first - start)
        ends[n_segments] = stop - start
        n_segments += 1
        weigh(features.weights, learned, weights, n_segments)
    return stop, n_segments, strays


@called
def count(words):
    """Note the sizes of a forest in its words."""
    largest, n_nodes, used = index(0), index(0), words_at(words[USED], words[N_TREES])
    for tree in range(words[N_TREES]):
        largest = max(largest, used[tree])
        n_nodes += used[tree] - ROOT
    words[LARGEST], words[N_NODES] = largest, n_nodes
    words[N_SAMPLES] = index(longs_at(words[N_LABELLED], index(1))[0])


@called
def recentre_trees(words):
    """Move the origins that are far from the values, and the trees with them."""
    nodes, shifts = nodes_of(words), recentre(features_of(words))
    shift(nodes, shifts)
    if words[HULL_WORDS] > index(0):
        shift_cuts(nodes, shifts)


@called
def pass_rows(words, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths):
    """Pass rows through one forest, a stretch of them at a time, see Kernels.run."""
    stride, table = np.intp(padded(words[N_FEATURES])), SEGMENTS + 1
    weights = row_scratch[: table * stride].reshape((table, stride))
    n_trees, n_outputs = np.intp(words[N_TREES]), np.intp(words[N_OUTPUTS])
    at_once = max(scratch.shape[0] // (n_trees * (n_outputs + 2)), 1)
    ends, start, n = np.empty(SEGMENTS, np.int64), np.int64(0), x.shape[0]
    rows = row_scratch[table * stride : (table + n) * stride].reshape((n, stride))
    while start < n:
        stop, n_segments, strays = prepare(words, x[: start + at_once], labelled, start, rows, weights, ends)
        here, size = slice(start, stop), n_trees * (stop - start)
        forecasts = scratch[: size * n_outputs].reshape((n_trees, stop - start, n_outputs))
        tree_depths = scratch[size * n_outputs : size * (n_outputs + 2)].reshape((n_trees, stop - start, 2))
        call_kernel(
            words[WALK],
            (
                words, index(0), words[N_TREES], rows[: stop - start], weights, ends[:n_segments],
                labels[here], labelled[here], publish, forecasts, tree_depths,
            ),
        )  # fmt: skip
        if publish:
            call_kernel(
                words[GATHER],
                (
                    words, x[here], forecasts, tree_depths, labels[here], labelled[here],
                    outputs[here], raw[here], depths[here],
                ),
            )  # fmt: skip
        if strays:
            recentre_trees(words)
        start = stop
    count(words)


def run(
    forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
):  # fmt: skip
    """Pass rows through forests, see Kernels."""
    for forest in range(first, last):
        words = words_at(forests[forest], index(N_WORDS))
        if forest + 1 < last:
            fetch_ahead(words_at(forests[forest + 1], index(N_WORDS)))
        here = slice(starts[forest], stops[forest])
        pass_rows(
            words, x[here], labels[here], labelled[here], publish, row_scratch, scratch,
            outputs[here], raw[here], depths[here],
        )  # fmt: skip


_PREPARE, _RECENTRE, _RUN = exported(prepare), exported(recentre_trees), kernel(run)


_WORDS, _FLAGS, _ENDS = np.empty(0, np.uint64), np.empty(0, np.bool_), np.empty(0, np.int64)
_ROWS, _TABLE, _STACK = np.empty((0, 0), np.float32), np.empty((0, 0)), np.empty((0, 0, 0))
_X = np.empty((0, 0))
_X.flags.writeable = False


def _link(walk: Any, gather: Any, labels: Any) -> tuple[int, int]:
    """Kernels.link of these two, for labels of the type of those in this array."""
    tree = index(0)
    return (
        address_of_kernel(walk, _WORDS, tree, tree, _ROWS, _ROWS, _ENDS, labels, _FLAGS, True, _STACK, _STACK),
        address_of_kernel(gather, _WORDS, _X, _STACK, _STACK, labels, _FLAGS, _TABLE, _TABLE, _TABLE),
    )


def _make_gather(calibrate: Any) -> Any:
    """The function that makes of what trees say what the forest says, for kernels."""

    def gather(words, x, forecasts, depths, labels, labelled, outputs, raw, mean_depths):
        state = reals_at(words[CALIBRATION], words[N_CALIBRATION])
        calibrate(x, forecasts, labels, labelled, state, raw, outputs)
        mean_over_trees(depths, mean_depths)

    return gather


def _make_adapting_gather(calibrate: Any, adapting: Adapting) -> Any:
    """The function that makes of what trees say what a forest that adapts says, and has it adapt; for kernels."""
    loss_of, kind = adapting
    gather, judge = called(_make_gather(calibrate)), tree_roles.make_judge(loss_of)
    compare = change_detection.make_compare(loss_of)
    remember, review_if_due = make_remember(kind), make_review_if_due(adapting)

    def adapting_gather(words, x, forecasts, depths, labels, labelled, outputs, raw, mean_depths):
        state = adaptation_of(words)
        lag = state.lag[0]
        for i in range(labels.shape[0]):
            if labelled[i]:
                if state.phase[0] == COMPARES:
                    lag = compare(state, forecasts, i, labels[i])
                state.current[0] += judge(state, forecasts, i, labels[i], index(0), words[N_TREES], words[REVIEW_EVERY])
        gather(
            words, x, tree_roles.of_forecasting_trees(forecasts, state.roles),
            tree_roles.of_forecasting_trees(depths, state.roles), labels, labelled, outputs, raw, mean_depths,
        )  # fmt: skip
        if state.phase[0] == COMPARES:
            change_detection.let_the_better_forecast(state, lag)
        remember(state, x, labels, labelled, longs_at(words[N_LABELLED], index(1))[0])
        review_if_due(words, state, labels, labelled)
        words[N_KEPT] = index(longs_at(words[N_LABELLED], index(1))[0] - np.int64(state.beginning[0]))

    return adapting_gather


@cache
def _make_gather_kernel(calibrate: Any, adapting: Adapting | None) -> Any:
    gather = _make_gather(calibrate) if adapting is None else _make_adapting_gather(calibrate, adapting)
    return kernel(gather)


@cache
def _make_explanation(explain: Any) -> Any:
    """The kernel `Kernels.explain` of a kind of labels."""

    def explain_rows(words, x, forecasts, found):
        n_asked = n_forecasting(words[N_TREES], adaptation_of(words).roles)
        state = reals_at(words[CALIBRATION], words[N_CALIBRATION])
        explain(x, forecasts[:n_asked], state, found.prior, found.features)
        find_unexplained(found)

    return kernel(explain_rows)


@cache
def _make_tree_kernels(walk: Any, rules_of: Any, attribute: Any, survey: Any) -> Any:
    """(walk, attribute, survey) as kernels: those of one kind of trees are the same in forests that adapt or do not."""

    @called
    def trees_of(words):
        numbers = words.view(np.float64)
        limits = Growth(words[LIMIT], numbers[PURITY], numbers[PAUSE], numbers[FULL_PAUSE], numbers[LIFETIME])
        random, gains = words_at(words[RANDOM], words[N_TREES]), adaptation_of(words).tree_gains
        return Trees(nodes_of(words), random, rules_of(numbers), limits, words[MODE], gains)

    def walk_trees(
        words, first_tree, last_tree, rows, weights, ends, labels, labelled, publish, forecasts, depths
    ):  # fmt: skip
        stride, n_features = index(rows.shape[1]), words[N_FEATURES]
        batch = Batch(rows.reshape(-1), stride, n_features, weights.reshape(-1), ends, labels, labelled)
        walk(trees_of(words), first_tree, last_tree, batch, publish, Said(forecasts, depths))

    def attribute_rows(words, x, forecasts, found):
        origin, roles = features_of(words).origin, adaptation_of(words).roles
        attribute(trees_of(words), origin, x, padded(words[N_FEATURES]), roles, forecasts, found)

    def survey_trees(words, asked, found):
        survey(trees_of(words), asked, found)

    return kernel(walk_trees), kernel(attribute_rows), kernel(survey_trees)


def make_kernels(
    walk: Any, rules_of: Any, calibration: Calibration, attribute: Any, survey: Any, adapting: Adapting | None = None
) -> Kernels:
    """The kernels of one system. walk: see walk.py. rules_of(numbers): the rules of its statistics.

    attribute, survey: see attributions.py, survey.py. adapting: of systems whose forests do.
    """
    walk, attribute, survey = _make_tree_kernels(walk, rules_of, attribute, survey)
    gather, explain = _make_gather_kernel(calibration.calibrate, adapting), _make_explanation(calibration.explain)
    link = cache(lambda labels: _link(walk, gather, np.empty(0, labels)))
    return Kernels(_PREPARE, _RECENTRE, _RUN, walk, gather, attribute, explain, survey, link)
