"""Predict, then learn: samples through trees of boxes ([000] Alg. 4-6), whatever their labels are.

The structure of a tree follows from one exponential of rate 1 a sample. Going down, the sample can split off above a
node at rate `extension of the node's box` between the node's birth and its split; the rates along the path are one
inhomogeneous Poisson process, so its first arrival needs one draw for the whole path and not one a node: it is spent
as a budget. Forecasts of the sample are made by the tree as it was, the weights are updated in the tree as it becomes.

Samples come one by one, and each of them takes all trees in turn: trees are independent of each other, so that memory
is fetched for one while another one is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amf._kernel import called, index, inlined
from amf.aggregation import average, odds_of_split, revised, stop_probability
from amf.arena import CHILD, FEATURE, ODDS, ROOT, THRESHOLD, TIME, row_of
from amf.boxes import enclose, varied, widen
from amf.cuts import gap_cut
from amf.descent import descend, outer_part
from amf.elementary import log1p
from amf.forgetting import forget
from amf.halving import is_full
from amf.modes import EXISTING, SAMPLED, draw_of, share_out
from amf.rng import uniform

LANES = index(16)
"""Trees that a sample descends in at a time."""
DEPTH = index(128)
"""Nodes of a path for which there is room at first."""


class Statistics(NamedTuple):
    """What nodes remember of labels, and what they say of them: functions for kernels.

    rules is a tuple of what the kind of label wants to know. A path are the rows path[start : start + length].
    """

    rules_of: Callable[..., Any]
    """(numbers) -> rules, of the words of a forest (binding.py) as float64."""
    prepare: Callable[..., Any]
    """(nodes, path, start, length, rules, first, second): derive two numbers a node from its statistics."""
    predict: Callable[..., Any]
    """(nodes, path, start, length, rules, first, second, stops, fresh, forecasts, tree, i): make the tree's forecast of
    the shares of the nodes, `stops`, and of empty leaves that branch off above them, `fresh`. Both may be used up."""
    likelihoods: Callable[..., Any]
    """(nodes, path, start, length, rules, first, second, label, given): each node's own forecast of the label."""
    likelihood_of_empty: Callable[..., Any]
    """(rules, first, second, likelihood, label) -> that of a fresh leaf, of its parent's: what it is charged."""
    update: Callable[..., Any]
    """(nodes, here, rules, label): count the label at a node."""
    may_split: Callable[..., Any]
    """(nodes, here, rules, label) -> whether this leaf may split for the label."""
    halve: Callable[..., Any]
    """(nodes, used, tree, rules): halve the counts of a tree (halving.py)."""
    forecast_of: Callable[..., Any]
    """(nodes, here, rules, first, second, value, above, k) -> one number of what the node at place k of a path says by
    itself. value: which one. above: what its parent says."""
    forecast_of_empty: Callable[..., Any]
    """(rules, above) -> that of an empty leaf."""


class Growth(NamedTuple):
    """When nodes split, of those that a sample is outside of."""

    purity: Any
    """A leaf born before time purity / number of features in which samples differed splits also while it is pure."""
    pause: Any
    """An inner node does not split for a label for which its evidence is at least this."""
    full_pause: Any
    """The same in a tree with more than a quarter of the rows that are allowed."""
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


@called
def _split(nodes, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extension):
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    low, here = row * nodes.width, row * nodes.words
    high = low + nodes.width // index(2)
    pick, place = uniform(random, tree), uniform(random, tree)
    feature, threshold, box_goes_left = gap_cut(
        nodes.boxes, low, high, x, at, weights, weights_at, n_features, extension, pick, place
    )
    old, fresh = (pair, pair + index(1)) if box_goes_left else (pair + index(1), pair)
    for word in range(nodes.words):
        nodes.ints[old * nodes.words + word] = nodes.ints[here + word]
    for word in range(nodes.width):
        nodes.boxes[old * nodes.width + word] = nodes.boxes[low + word]
    become_leaf(nodes, fresh, x, at, n_features)
    nodes.ints[here + CHILD] = np.int32(pair)
    nodes.ints[here + FEATURE] = np.int32(feature)
    nodes.floats[here + THRESHOLD] = threshold
    nodes.reals[here // index(2) + TIME] = time
    widen(nodes.boxes, low, high, x, at, n_features)
    return fresh


@inlined
def become_leaf(nodes, row, x, at, n_features):
    """Make an empty row the leaf of one sample, whose label is not counted yet."""
    nodes.reals[row * nodes.words // index(2) + TIME] = np.inf
    nodes.reals[row * nodes.words // index(2) + ODDS] = 1.0
    low = row * nodes.width
    enclose(nodes.boxes, low, low + nodes.width // index(2), x, at, n_features)


@inlined
def _stopping(aggregates, nodes, path, start, length, odds, stopping):
    """Fill `odds` of the inner nodes of a path, and `stopping` with the probabilities that they are, or 0."""
    for k in range(length - index(1)):
        odds[k] = nodes.reals[path[start + k] * nodes.words // index(2) + ODDS]
    for k in range(length - index(1)):
        stopping[k] = stop_probability(odds[k]) if aggregates else 0.0


@inlined
def _revise(nodes, path, start, length, odds, stopping, given, averaged, from_below):
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


def _insert_of(statistics: Statistics) -> Any:
    """The function that adds a sample to the boxes and counts of a tree, for kernels."""
    likelihood_of_empty, update = statistics.likelihood_of_empty, statistics.update
    may_split = statistics.may_split

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
                is_scarce = index(4) * used[tree] > limit
                pure_until = 0.0
                if not leaf_splits:
                    pure_until = _pure_until(growth.purity, nodes, path[start], n_features)
                end, time = _first_split(
                    -log1p(-draw), leaf_splits, pure_until, growth.full_pause if is_scarce else growth.pause,
                    growth.lifetime, given, nodes, path, start, length, outer, extensions,
                )  # fmt: skip
        for k in range(end):
            update(nodes, path[start + k] * nodes.words, rules, label)
        for k in range(outer, end):
            low = path[start + k] * nodes.width
            widen(nodes.boxes, low, low + nodes.width // index(2), x, at, n_features)
        if end == length:
            return length - index(1), given[length - index(1)]
        row, pair = path[start + end], row_of(used[tree], tree, index(used.shape[0]))
        used[tree] += index(2)
        leaf = _split(
            nodes, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extensions[end]
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


def _forecast_of(statistics: Statistics) -> Any:
    """The function that makes the forecast of one tree, for kernels."""
    predict = statistics.predict

    @inlined
    def forecast(
        mode, nodes, word, path, start, length, outer, extensions, x, at, n_features, rules, first, second,
        stopping, stops, fresh, forecasts, depths, tree, i,
    ):  # fmt: skip
        """Fill forecasts[tree, i] and depths[tree, i]. word: the state of the tree's generator."""
        depths[tree, i, 0], depths[tree, i, 1] = 0.0, 0.0
        if length > index(0):
            draw = 0.0
            if mode == SAMPLED:
                draw = draw_of(word, nodes.boxes, path[start] * nodes.width, x, at, n_features)
            depths[tree, i, 0], depths[tree, i, 1] = share_out(
                mode, draw, nodes, path, start, length, outer, extensions, stopping, stops, fresh
            )
        predict(nodes, path, start, length, rules, first, second, stops, fresh, forecasts, tree, i)

    return forecast


def walk_of(statistics: Statistics, *, aggregates: bool = True) -> Any:
    """The walk for one kind of statistics, a function for kernels.

    aggregates: whether a forecast is averaged over prunings; else it is that of the leaf.
    """
    prepare, likelihoods = statistics.prepare, statistics.likelihoods
    update, halve = statistics.update, statistics.halve
    forecast, insert = _forecast_of(statistics), _insert_of(statistics)

    @called
    def walk(
        rules, nodes, used, random, first_tree, last_tree, limit,
        x, stride, n_features, weights, ends, y, labelled, growth, mode, publish, forecasts, depths,
    ):  # fmt: skip
        """Pass samples through the trees [first_tree, last_tree), one by one.

        x: flat float32, n samples of `stride` = padded(n_features) words, NaN where missing. y: (n,) labels; labelled:
        bool (n,): a sample without a label changes nothing. weights: flat float32, `stride` for each segment and
        before the first one; ends: where segments end. With `publish`, forecasts: float64 (n_trees, n, ...) receives
        what each tree says before the sample is learned, and depths: float64 (n_trees, n, 2) the depth at which the
        sample ends and its weighted depth ([000] Sec. 5.1). Where `limit` is 0 no node splits. For each label two rows
        beyond those in use are there, up to the limit.
        """
        n, room = index(y.shape[0]), DEPTH
        lengths, turns = np.empty(LANES, np.uint64), np.empty(LANES, np.uint64)
        path, (first, second, odds, stopping, stops, fresh, given, extensions) = scratch(room)
        for block in range(first_tree, last_tree, LANES):
            lanes = min(LANES, last_tree - block)
            segment, before = 0, index(0)  # of the weights: before a row, and with it
            for i in range(n):
                at, learns, by = i * stride, labelled[i], index(segment + 1) * stride
                wants_boxes = learns or mode != EXISTING
                while not descend(nodes, used, block, lanes, x, at, wants_boxes, path, room, turns, lengths):
                    room *= index(2)
                    path, (first, second, odds, stopping, stops, fresh, given, extensions) = scratch(room)
                for lane in range(lanes):
                    tree, start, length = block + lane, lane * room, lengths[lane]
                    prepare(nodes, path, start, length, rules, first, second)
                    outer = length
                    if length > index(0):
                        _stopping(aggregates, nodes, path, start, length, odds, stopping)
                    if length > index(0) and wants_boxes:
                        # Nothing that a row brings along may show in its forecast, nor the weights that it changes.
                        shown = by if mode == EXISTING else before
                        outer = outer_part(nodes, path, start, length, x, at, weights, shown, n_features, extensions)
                    if publish:
                        forecast(
                            mode, nodes, random[tree], path, start, length, outer, extensions, x, at, n_features,
                            rules, first, second, stopping, stops, fresh, forecasts, depths, tree, i,
                        )  # fmt: skip
                    if learns and length == index(0):
                        used[tree] = ROOT + index(1)
                        become_leaf(nodes, path[start], x, at, n_features)
                        update(nodes, path[start] * nodes.words, rules, y[i])
                    elif learns:
                        if mode != EXISTING and before != by:
                            outer = outer_part(nodes, path, start, length, x, at, weights, by, n_features, extensions)
                        likelihoods(nodes, path, start, length, rules, first, second, y[i], given)
                        above, below = insert(
                            nodes, used, random, tree, limit, path, start, length, outer, extensions,
                            x, at, weights, by, n_features, growth, rules, first, second, given, y[i],
                        )  # fmt: skip
                        if aggregates:
                            _revise(nodes, path, start, above, odds, stopping, given, stops, below)
                        # A tree forgets once it has learned too much, not when it is about to learn: the forecasts that
                        # are made in between must not depend on when they are asked for.
                        if is_full(nodes.ints, path[start], nodes.words):
                            halve(nodes, used, tree, rules)
                        while limit > index(0) and used[tree] + index(2) > limit:
                            forget(nodes, used, tree)
                before = by
                if segment < ends.shape[0] and i + index(1) == index(ends[segment]):
                    segment += 1

    return walk
