"""Predict, then learn: samples through trees of boxes ([AMF] Alg. 4-6), whatever their labels are.

The structure of a tree follows from one exponential of rate 1 a sample. Going down, the sample can split off above a
node at rate `extension of the node's box` between the node's birth and its split; the rates along the path are one
inhomogeneous Poisson process, so its first arrival needs one draw for the whole path and not one a node: it is spent
as a budget. Forecasts of the sample are made by the tree as it was, the weights are updated in the tree as it becomes.

Samples come one by one, and each of them takes all trees in turn: trees are independent of each other, so that memory
is fetched for one while another one is looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from amf.adaptation.feature_weights import remember_gains
from amf.geometry.boxes import varied
from amf.geometry.interface import Geometry, become_root
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import log1p
from amf.jit.rng import uniform
from amf.kernels.aggregation import average, odds_of_split, revised, stop_probability
from amf.kernels.forgetting import make_keep_in_bounds
from amf.kernels.modes import EXISTING, SAMPLED, draw_of, share_out
from amf.memory.arena import ODDS, TIME, row_of
from amf.statistics.interface import Statistics, without_prunings

LANES = index(16)
"""Trees that a sample descends in at a time."""
DEPTH = index(128)
"""Nodes of a path for which there is room at first."""
_LONG_PATH = index(128)
"""Nodes of a path beyond which its inner nodes split as in a tree that has room."""


class Growth(NamedTuple):
    """When nodes split, of those that a sample is outside of."""

    purity: Any
    """A leaf born before time purity / number of features in which samples differed splits also while it is pure."""
    pause: Any
    """An inner node does not split for a label for which its evidence is at least this."""
    full_pause: Any
    """The same in a tree with more than a quarter of the rows that are allowed, on paths that are not long."""
    lifetime: Any
    """No node splits at this time or later: that of the Mondrian process, inf in most systems."""


@inlined
def _first_split(
    budget, leaf_splits, pure_until, pause, lifetime, given, nodes, path, start, length, outer, extensions
):  # fmt: skip
    """(place on the path of the node above which the sample splits off, when), place = length where there is none."""
    birth = 0.0
    if outer > index(0):
        birth = nodes.reals[path[start + outer - index(1)] * nodes.words // index(2) + TIME]
    for k in range(outer, length):
        # A leaf's own split is still to come, at time inf.
        split_time = min(nodes.reals[path[start + k] * nodes.words // index(2) + TIME], lifetime)
        may_split = (leaf_splits or birth < pure_until) if k == length - index(1) else given[k] < pause
        if may_split and extensions[k] > 0.0:
            hazard = extensions[k] * (split_time - birth)
            if budget < hazard:
                return k, min(birth + budget / extensions[k], split_time)
            budget -= hazard
        birth = split_time
    return length, 0.0


@inlined
def _pure_until(purity, nodes, root, n_features):
    """Before which time a leaf has to be born to split while all its labels agree.

    Features count in which samples differ. What a feature tells that is constant, or that no sample has shown yet, is
    nothing, and so it changes nothing.
    """
    if purity == 0.0:
        return 0.0
    low = root * nodes.width
    return purity / max(varied(nodes.boxes, low, low + nodes.width // index(2), n_features), index(1))


@inlined
def fill_stopping(aggregates, nodes, path, start, length, odds, stopping):
    """Fill `odds` of the inner nodes of a path, and `stopping` with the probabilities that they are, or 0."""
    for k in range(length - index(1)):
        odds[k] = nodes.reals[path[start + k] * nodes.words // index(2) + ODDS]
    for k in range(length - index(1)):
        stopping[k] = stop_probability(odds[k]) if aggregates else 0.0


@inlined
def revise(nodes, path, start, length, odds, stopping, given, averaged, from_below):
    """The upward pass: new odds of the first `length` nodes of a path. from_below: averaged forecast of the next one.

    odds and averaged: float64, used up.
    """
    # In three loops, of which the middle one, with the division, takes several nodes at a time.
    for j in range(length):
        k = length - index(1) - j
        averaged[k] = from_below
        from_below = average(stopping[k], given[k], from_below)
    for k in range(length):
        odds[k] = revised(odds[k], given[k], averaged[k])
    for k in range(length):
        nodes.reals[path[start + k] * nodes.words // index(2) + ODDS] = odds[k]


@called
def scratch(room):
    """(room for the paths of all lanes, for eight numbers of each node on a path)."""
    numbers = np.empty((8, room))
    return np.empty(LANES * room, np.uint64), (
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7],
    )  # fmt: skip


@inlined
def share_by_prunings(
    mode, draw, rules, first, second, nodes, path, start, length, outer, extensions, stopping, stops, fresh
):  # fmt: skip
    """How the average over prunings shares out a forecast, see `tree_kernels` of composition.py."""
    return share_out(mode, draw, nodes, path, start, length, outer, extensions, stopping, stops, fresh)


def _make_insert(statistics: Statistics, geometry: Geometry) -> Any:
    """The function that adds a sample to the boxes and counts of a tree, for kernels."""
    likelihood_of_empty, update = statistics.likelihood_of_empty, statistics.update
    may_split, split, extend = statistics.may_split, geometry.split, geometry.extend

    @inlined
    def insert(
        nodes, used, random, tree, limit, path, start, length, outer, extensions,
        x, at, weights, weights_at, n_features, growth, rules, first, second, given, label,
    ):  # fmt: skip
        """Returns (nodes on the path that stay above the sample's own leaf, the averaged forecast of what is below)."""
        draw = uniform(random, tree)
        end, time = length, 0.0
        if limit > index(0) and outer < length:
            leaf_splits = may_split(nodes, path[start + length - index(1)] * nodes.words, rules, label)
            if leaf_splits or growth.purity > 0.0 or outer < length - index(1):
                # Where samples lie ever further out, paths that only leaves prolong would be as long as trees large.
                is_scarce = index(4) * used[tree] > limit and length <= _LONG_PATH
                pure_until = 0.0
                if not leaf_splits:
                    pure_until = _pure_until(growth.purity, nodes, path[start], n_features)
                end, time = _first_split(
                    -log1p(-draw), leaf_splits, pure_until, growth.full_pause if is_scarce else growth.pause,
                    growth.lifetime, given, nodes, path, start, length, outer, extensions,
                )  # fmt: skip
        for k in range(end):
            update(nodes, path[start + k] * nodes.words, rules, label)
        extend(nodes, used, tree, path, start, outer, end, length, x, at, n_features)
        if end == length:
            return length - index(1), given[length - index(1)]
        row, pair = path[start + end], row_of(used[tree], tree, index(used.shape[0]))
        used[tree] += index(2)
        leaf = split(
            nodes, used, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extensions[end]
        )  # fmt: skip
        odds = row * nodes.words // index(2) + ODDS
        nodes.reals[odds], below = odds_of_split(
            nodes.reals[odds],
            end == length - index(1),
            given[end],
            likelihood_of_empty(rules, first[end], second[end], given[end], label),
        )
        update(nodes, leaf * nodes.words, rules, label)
        update(nodes, row * nodes.words, rules, label)
        return end, below

    return insert


def _make_forecast(statistics: Statistics, share: Any) -> Any:
    """The function that makes the forecast of one tree, for kernels."""
    predict = statistics.predict

    @inlined
    def forecast(
        mode, nodes, word, path, start, length, outer, extensions, x, at, n_features, rules, first, second,
        stopping, stops, fresh, forecasts, depths, tree, i,
    ):  # fmt: skip
        """Fill forecasts[tree, i] and depths[tree, i]. word: the state of the tree's generator. length: nodes shown."""
        depths[tree, i, 0], depths[tree, i, 1] = 0.0, 0.0
        if length > index(0):
            draw = 0.0
            if mode == SAMPLED:
                draw = draw_of(word, nodes.boxes, path[start] * nodes.width, x, at, n_features)
            depths[tree, i, 0], depths[tree, i, 1] = share(
                mode, draw, rules, first, second, nodes, path, start, length, outer, extensions, stopping, stops, fresh
            )
        predict(nodes, path, start, length, rules, first, second, stops, fresh, forecasts, tree, i)

    return forecast


def _make_learn(statistics: Statistics, geometry: Geometry, *, aggregates: bool) -> Any:
    """The function by which one tree learns a sample that has gone down it, for kernels."""
    likelihoods, update, insert = statistics.likelihoods, statistics.update, _make_insert(statistics, geometry)
    keep_in_bounds = make_keep_in_bounds(statistics.halve)

    @inlined
    def learn(
        nodes, used, random, tree, limit, path, start, length, outer, extensions, x, at, weights, weights_at,
        n_features, growth, rules, first, second, odds, stopping, given, averaged, label, gains,
    ):  # fmt: skip
        """averaged: float64 of the length of a path, used up."""
        if length == index(0):
            become_root(nodes, used, tree, path[start], x, at, n_features)
            update(nodes, path[start] * nodes.words, rules, label)
            return
        likelihoods(nodes, path, start, length, rules, first, second, label, given)
        if gains.shape[0] > 0:
            remember_gains(nodes, path, start, length, given, stopping, gains, tree, n_features)
        above, below = insert(
            nodes, used, random, tree, limit, path, start, length, outer, extensions,
            x, at, weights, weights_at, n_features, growth, rules, first, second, given, label,
        )  # fmt: skip
        if aggregates:
            revise(nodes, path, start, above, odds, stopping, given, averaged, below)
        keep_in_bounds(nodes, used, tree, path[start], limit, rules)

    return learn


def _make_visit(statistics: Statistics, share: Any, geometry: Geometry, *, aggregates: bool) -> Any:
    """The function by which one tree predicts, then learns a sample that has gone down it, for kernels."""
    derive, shown, outer_nodes = statistics.derive, statistics.shown, geometry.outer_part
    forecast, learn = _make_forecast(statistics, share), _make_learn(statistics, geometry, aggregates=aggregates)

    @inlined
    def visit(
        rules, nodes, used, random, tree, limit, path, start, length, numbers, x, at, n_features,
        weights, before, by, learns, label, growth, mode, publish, forecasts, depths, i, gains,
    ):  # fmt: skip
        """The sample is row `i`. numbers: room, see `scratch`. before, by: the weights before it and with it."""
        first, second, odds, stopping, stops, fresh, given, extensions = numbers
        seen = shown(nodes, path, start, length, rules)
        derive(nodes, path, start, seen, rules, first, second)
        outer = length
        if length > index(0):
            fill_stopping(aggregates, nodes, path, start, length, odds, stopping)
        if length > index(0) and (learns or mode != EXISTING):
            # Nothing that a row brings along may show in its forecast, nor the weights that it changes.
            known = by if mode == EXISTING else before
            outer = outer_nodes(nodes, used, tree, path, start, length, x, at, weights, known, n_features, extensions)
        if publish:
            forecast(
                mode, nodes, random[tree], path, start, seen, outer, extensions, x, at, n_features,
                rules, first, second, stopping, stops, fresh, forecasts, depths, tree, i,
            )  # fmt: skip
        if learns:
            if mode != EXISTING and before != by:
                outer = outer_nodes(nodes, used, tree, path, start, length, x, at, weights, by, n_features, extensions)
            learn(
                nodes, used, random, tree, limit, path, start, length, outer, extensions, x, at, weights,
                by, n_features, growth, rules, first, second, odds, stopping, given, stops, label, gains,
            )  # fmt: skip

    return visit


def make_walk(statistics: Statistics, share: Any, geometry: Geometry, *, aggregates: bool) -> Any:
    """The walk for one kind of statistics and of trees, a function for kernels; arguments: see composition.py."""
    if not aggregates:
        statistics = without_prunings(statistics)
    down, visit = geometry.descend, _make_visit(statistics, share, geometry, aggregates=aggregates)

    @called
    def walk(
        rules, nodes, used, random, first_tree, last_tree, limit,
        x, stride, n_features, weights, ends, y, labelled, growth, mode, publish, forecasts, depths, gains,
    ):  # fmt: skip
        """Pass samples through the trees [first_tree, last_tree), one by one.

        x: flat float32, n samples of `stride` = padded(n_features) words, NaN where missing. y: (n,) labels; labelled:
        bool (n,): a sample without a label changes nothing. weights: flat float32, `stride` for each segment and
        before the first one; ends: where segments end. With `publish`, forecasts: float64 (n_trees, n, ...) receives
        what each tree says before the sample is learned, and depths: float64 (n_trees, n, 2) the depth at which the
        sample ends and its weighted depth ([AMF] Sec. 5.1). Where `limit` is 0 no node splits. For each label two rows
        beyond those in use are there, up to the limit. gains: State.tree_gains of adaptation/state.py, empty where a
        forest does not adapt.
        """
        n, room = index(y.shape[0]), DEPTH
        lengths, turns = np.empty(LANES, np.uint64), np.empty(LANES, np.uint64)
        path, numbers = scratch(room)
        for block in range(first_tree, last_tree, LANES):
            lanes = min(LANES, last_tree - block)
            segment, before = 0, index(0)  # of the weights: before a row, and with it
            for i in range(n):
                at, learns, by = i * stride, labelled[i], index(segment + 1) * stride
                wants_boxes = learns or mode != EXISTING
                while not down(nodes, used, block, lanes, x, at, wants_boxes, path, room, turns, lengths):
                    room *= index(2)
                    path, numbers = scratch(room)
                for lane in range(lanes):
                    visit(
                        rules, nodes, used, random, block + lane, limit, path, lane * room, lengths[lane], numbers,
                        x, at, n_features, weights, before, by, learns, y[i], growth, mode, publish,
                        forecasts, depths, i, gains,
                    )  # fmt: skip
                before = by
                if segment < ends.shape[0] and i + index(1) == index(ends[segment]):
                    segment += 1

    return walk
