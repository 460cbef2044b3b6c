"""Predict, then learn: samples through trees of cells ([AMF] Alg. 1-3), whatever their labels are.

A tree is a part of an infinite partition that never changes (cells.py): the cells that hold samples. Of these only
those are stored that branch, with samples on both sides of their cut. A node stands for a chain of cells that hold the
same samples: the other sides of the cuts in the chain are empty, up to the last cell, which branches. The box of an
inner node is that last cell, the box of a leaf its point: a sample outside of a node's box leaves the chain on the way.

All cells of a chain have the same forecast and the same weight w. A pruning stops in one of n cells with the prior
probability 1 - 2**-n, so that the odds of stopping are (2**n - 1) * w / (averaged weight of left * that of right). ODDS
holds those of a single cell; that a chain may have several is all in which the averaging differs from [AMF] Alg. 4-6.
N_CUTS are the cuts that have made the child of the node's last cell; at a leaf they mean nothing.
The parent whose forecast can be a node's prior is the chain above.

Where a sample leaves a chain, the chain is divided and a fresh leaf appears. A forecast is made in the tree extended
so, for the moment ([AMF] Alg. 3). That changes no averaged weight: with `charge_first` the cumulative log-loss of a
tree is minus the logarithm of its root's averaged weight, exactly. Where forecasts see the partition at a lifetime, the
extended tree ends at the first node that branches then or later, and no chain is left then or later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.geometry.boxes import holds
from amf.geometry.cells import MAX_CUTS, cut_of, enter_child, word_of
from amf.geometry.descent import descend
from amf.geometry.interface import become_leaf, become_parent, become_root
from amf.jit.decorators import called, index, inlined, kernel
from amf.jit.elementary import power_of_two
from amf.kernels.aggregation import SMALLEST_ODDS, chain_odds, stop_probability
from amf.kernels.forgetting import make_keep_in_bounds
from amf.kernels.walk import DEPTH, revise, scratch
from amf.memory.arena import CHILD, FEATURE, N_CUTS, ODDS, ROOT, THRESHOLD, TIME, Nodes, row_of
from amf.statistics.interface import Statistics, without_prunings


@inlined
def never(nodes, root, rules):
    """Lifetime of the partition that forecasts see, where they see all of it."""
    return np.inf


@inlined
def _cuts_above(nodes, path, k):
    """Cuts that have made the first cell of the node at this place of a path, whose root stands at 0."""
    return np.int64(nodes.ints[path[k - index(1)] * nodes.words + N_CUTS]) if k > index(0) else 0


@inlined
def _odds_above(nodes, row, n_cuts):
    """ODDS of the upper part of a chain that is divided after `n_cuts` cuts: weight over the lower part's average."""
    if nodes.ints[row * nodes.words + CHILD] == 0:
        return 1.0
    odds = nodes.reals[row * nodes.words // index(2) + ODDS]
    passes = power_of_two(n_cuts - np.int64(nodes.ints[row * nodes.words + N_CUTS]))
    return odds / (passes + (1.0 - passes) * odds)


@called
def _first_cell(nodes, path, k, n_features, cell):
    """Make `cell` the first cell of the node at this place of a path."""
    for j in range(n_features):
        cell[j] = 0.0
        cell[n_features + j] = 1.0
    if k > index(0):
        low, head = path[k - index(1)] * nodes.width, path[k - index(1)] * nodes.words
        for j in range(n_features):
            cell[j] = nodes.boxes[low + j]
            cell[n_features + j] = nodes.boxes[low + nodes.width // index(2) + j]
        goes_right, feature = path[k] != index(nodes.ints[head + CHILD]), index(nodes.ints[head + FEATURE])
        enter_child(cell, n_features, np.uint64(0), feature, nodes.floats[head + THRESHOLD], goes_right)


@called
def _leave(nodes, path, length, x, at, n_features, tree_word, cell):
    """Where the sample leaves the chains of a path, and by which cut.

    Returns (place of the node on the path, cuts with that one, its time, feature, threshold), and `cell` is the one
    that is cut; place = length where the sample counts as the point of the leaf.
    """
    place, half = length, nodes.width // index(2)
    while place > index(0):
        low = path[place - index(1)] * nodes.width
        if holds(nodes.boxes, low, low + half, x, at, n_features):
            break
        place -= index(1)
    if place < length:
        _first_cell(nodes, path, place, n_features, cell)
        time = 0.0
        if place > index(0):
            time = nodes.reals[path[place - index(1)] * nodes.words // index(2) + TIME]
        word = word_of(cell, tree_word)
        held = path[place] * nodes.width
        for n_cuts in range(_cuts_above(nodes, path, place) + 1, MAX_CUTS + 1):
            duration, feature, threshold = cut_of(cell, n_features, word)
            time += duration
            goes_right = x[at + feature] > threshold
            if goes_right != (nodes.boxes[held + feature] > threshold):
                return place, n_cuts, time, feature, threshold
            word = enter_child(cell, n_features, word, feature, threshold, goes_right)
    return length, 0, 0.0, index(0), np.float32(0.0)


@called
def _divide(nodes, row, pair, n_cuts, time, feature, threshold, odds, cell, x, at):
    """Make a node the parent of its old self and of a leaf for the sample, whose label is not counted yet.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`. Returns the
    row of the leaf.
    """
    n_features = index(cell.shape[0]) // index(2)
    low, half, here = row * nodes.width, nodes.width // index(2), row * nodes.words
    box_goes_left = nodes.boxes[low + feature] <= threshold
    _, fresh = become_parent(nodes, row, pair, box_goes_left, time)
    for j in range(n_features):
        nodes.boxes[low + j] = cell[j]
        nodes.boxes[low + half + j] = cell[n_features + j]
    nodes.ints[here + FEATURE] = np.int32(feature)
    nodes.ints[here + N_CUTS] = np.int32(n_cuts)
    nodes.floats[here + THRESHOLD] = threshold
    nodes.reals[here // index(2) + ODDS] = odds
    become_leaf(nodes, fresh, x, at, n_features)
    return fresh


@kernel
def is_partition(ints, floats, reals, boxes, hulls, used, words, width, n_features, random):
    """Whether the nodes are cells of the partitions that the words of the trees fix, and the leaves points in them."""
    nodes = Nodes(ints, floats, reals, boxes, hulls, words, width)
    n_trees, half = index(used.shape[0]), width // index(2)
    cell = np.empty(index(2) * n_features, np.float32)
    for tree in range(n_trees):
        path = np.zeros((int(used[tree]), 2), np.uint64)  # (parent, node) on the way to each node
        path[0, 1], length = row_of(ROOT, tree, n_trees), index(used[tree] > ROOT)
        while length > index(0):
            length -= index(1)
            place, row = index(path[length, 0] != index(0)), path[length, 1]
            here, low = row * words, row * width
            child = index(ints[here + CHILD])
            if child != index(0):
                way = path[length, index(1) - place :].copy()
                if not _is_chain(nodes, way, place, n_features, random[tree], cell):
                    return False
                for side in range(index(2)):
                    path[length, 0], path[length, 1] = row, child + side
                    length += index(1)
            else:
                for j in range(n_features):
                    if boxes[low + j] != boxes[low + half + j]:
                        return False
    return True


@called
def _is_chain(nodes, path, place, n_features, tree_word, cell):
    """Whether the inner node at this place of a path stands for the cells that the partition has there."""
    boxes, here, low = nodes.boxes, path[place] * nodes.words, path[place] * nodes.width
    high = low + nodes.width // index(2)
    _first_cell(nodes, path, place, n_features, cell)
    time = nodes.reals[path[place - index(1)] * nodes.words // index(2) + TIME] if place > index(0) else 0.0
    word = word_of(cell, tree_word)
    n_cuts, last = _cuts_above(nodes, path, place) + 1, np.int64(nodes.ints[here + N_CUTS])
    while True:
        for j in range(n_features):
            if not (cell[j] <= boxes[low + j] and boxes[high + j] <= cell[n_features + j]):
                return False
        duration, feature, threshold = cut_of(cell, n_features, word)
        time += duration
        if n_cuts >= last:
            break
        goes_right = boxes[low + feature] > threshold
        word = enter_child(cell, n_features, word, feature, threshold, goes_right)
        n_cuts += 1
    for j in range(n_features):
        if cell[j] != boxes[low + j] or cell[n_features + j] != boxes[high + j]:
            return False
    same_cut = index(nodes.ints[here + FEATURE]) == feature and nodes.floats[here + THRESHOLD] == threshold
    return same_cut and n_cuts == last and nodes.reals[here // index(2) + TIME] == time


@inlined
def _fill_stopping(aggregates, nodes, path, length, odds, stopping):
    """Fill `odds` with those of a single cell of each inner node, and `stopping` with the probability of its chain.

    Both may be the same array, which then holds the probabilities.
    """
    for k in range(length - index(1)):
        if not aggregates:
            stopping[k] = 0.0
            continue
        here = path[k] * nodes.words
        n_cells = np.int64(nodes.ints[here + N_CUTS]) - _cuts_above(nodes, path, k)
        odds[k] = nodes.reals[here // index(2) + ODDS]
        stopping[k] = stop_probability(chain_odds(odds[k], n_cells))


@inlined
def _share_out(aggregates, nodes, path, length, end, n_cuts, odds, stopping, stops, fresh):
    """Fill the shares of the nodes of the extended path, as modes.share_out does; returns (depth, weighted depth)."""
    reach, weighted_depth = 1.0, 0.0
    for k in range(end):
        stop = stopping[k] if k < length - index(1) else 1.0
        stops[k] = reach * stop
        fresh[k] = 0.0
        reach *= 1.0 - stop
        weighted_depth += reach
    if end == length:
        return np.float64(max(length, index(1)) - index(1)), weighted_depth
    stop = 0.0
    if aggregates:
        stop = stop_probability(chain_odds(odds, n_cuts - _cuts_above(nodes, path, end)))
    stops[end] = reach * stop
    fresh[end] = reach * (1.0 - stop)
    return np.float64(end + index(1)), weighted_depth + fresh[end]


def _make_learn(statistics: Statistics, *, aggregates: bool) -> Any:
    """The function by which one tree learns a sample that has gone down it, for kernels."""
    likelihoods, likelihood_of_empty = statistics.likelihoods, statistics.likelihood_of_empty
    update, keep_in_bounds = statistics.update, make_keep_in_bounds(statistics.halve)

    @inlined
    def learn(
        nodes, used, tree, limit, path, length, end, n_cuts, time, feature, threshold, upper, cell, x, at, rules,
        first, second, odds, stopping, given, averaged, label,
    ):  # fmt: skip
        """end: where the sample leaves a chain. upper: odds of what is above that. averaged: float64, used up."""
        if length == index(0):
            become_root(nodes, used, tree, path[0], x, at, index(cell.shape[0]) // index(2))
            update(nodes, path[0] * nodes.words, rules, label)
            return
        sharing = min(end + index(1), length)
        likelihoods(nodes, path, index(0), sharing, rules, first, second, label, given)
        above = sharing - index(1)
        leaf, below = path[above], given[above]
        if end < length:
            leaf = _divide(
                nodes, leaf, row_of(used[tree], tree, index(used.shape[0])), n_cuts, time, feature, threshold, upper,
                cell, x, at,
            )  # fmt: skip
            used[tree] += index(2)
            above += index(1)
            below = likelihood_of_empty(rules, first[end], second[end], below, label)
            odds[end] = upper
            stopping[end] = stop_probability(chain_odds(upper, n_cuts - _cuts_above(nodes, path, end)))
        update(nodes, leaf * nodes.words, rules, label)
        for k in range(above):
            update(nodes, path[k] * nodes.words, rules, label)
        if aggregates:
            revise(nodes, path, index(0), above, odds, stopping, given, averaged, below)
        keep_in_bounds(nodes, used, tree, path[0], limit, rules)

    return learn


def make_cell_walk(statistics: Statistics, lifetime_of: Any, *, aggregates: bool) -> Any:
    """The walk for one kind of statistics, a function for kernels; arguments: see composition.py."""
    if not aggregates:
        statistics = without_prunings(statistics)
    derive, predict, shown = statistics.derive, statistics.predict, statistics.shown
    learn = _make_learn(statistics, aggregates=aggregates)

    @called
    def walk(
        rules, nodes, used, random, first_tree, last_tree, limit,
        x, stride, n_features, weights, ends, y, labelled, growth, mode, publish, forecasts, depths, gains,
    ):  # fmt: skip
        """Pass samples through the trees [first_tree, last_tree), one by one.

        As the walk of walk.py, with x: numbers from 0 to 1. random: the words of the trees, which never change here.
        weights, mode, growth and gains mean nothing: features have no weights, and the partition leaves nothing to
        choose.
        """
        room = DEPTH
        one, lengths = np.empty(1, np.uint64), np.empty(1, np.uint64)
        path, (first, second, odds, stopping, stops, fresh, given, _) = scratch(room)
        cell = np.empty(index(2) * n_features, np.float32)
        for i in range(index(y.shape[0])):
            at, learns = i * stride, labelled[i]
            for tree in range(first_tree, last_tree):
                while not descend(nodes, used, tree, index(1), x, at, True, path, room, one, lengths):
                    room *= index(2)
                    path, (first, second, odds, stopping, stops, fresh, given, _) = scratch(room)
                length = lengths[0]
                end, n_cuts, time, feature, threshold = length, 0, 0.0, index(0), np.float32(0.0)
                if limit > index(0) and length > index(0):
                    end, n_cuts, time, feature, threshold = _leave(
                        nodes, path, length, x, at, n_features, random[tree], cell
                    )
                upper = SMALLEST_ODDS
                if aggregates:
                    upper = _odds_above(nodes, path[end], n_cuts) if end < length else 1.0
                seen = shown(nodes, path, index(0), length, rules)
                # Where forecasts see it leave.
                left = end if end < seen and time < lifetime_of(nodes, path[0], rules) else seen
                # Nodes of the path that have a share in the forecast: those below a division have none.
                sharing = min(left + index(1), seen)
                derive(nodes, path, index(0), sharing, rules, first, second)
                if length > index(0):
                    _fill_stopping(aggregates, nodes, path, length, odds, stopping)
                if publish:
                    depths[tree, i, 0], depths[tree, i, 1] = _share_out(
                        aggregates, nodes, path, seen, left, n_cuts, upper, stopping, stops, fresh
                    )
                    predict(nodes, path, index(0), sharing, rules, first, second, stops, fresh, forecasts, tree, i)
                if learns:
                    learn(
                        nodes, used, tree, limit, path, length, end, n_cuts, time, feature, threshold, upper, cell,
                        x, at, rules, first, second, odds, stopping, given, stops, y[i],
                    )  # fmt: skip

    return walk


def make_cell_way(lifetime_of: Any, *, aggregates: bool) -> Any:
    """The way through a tree extended by the sample (attributions.py), for kernels; arguments: see composition.py."""

    @called
    def way(rules, nodes, tree_word, limit, path, start, length, x, at, cell, stopping, stops, fresh):
        """Fill the shares in the tree extended by the sample, as attributions.py does in the tree as it is.

        The empty leaf is the sample's own, where it leaves a chain. cell: float32 (2 d,), used up. length: nodes shown.
        """
        n_features = index(cell.shape[0]) // index(2)
        path, end, n_cuts, feature = path[start : start + length], length, 0, index(0)
        if limit > index(0):
            end, n_cuts, time, feature, _ = _leave(nodes, path, length, x, at, n_features, tree_word, cell)
            if time >= lifetime_of(nodes, path[0], rules):
                end = length
        odds = 1.0
        if aggregates and end < length:
            odds = _odds_above(nodes, path[end], n_cuts)
        _fill_stopping(aggregates, nodes, path, length, stopping, stopping)
        _share_out(aggregates, nodes, path, length, end, n_cuts, odds, stopping, stops, fresh)
        return min(end + index(1), length), feature

    return way
