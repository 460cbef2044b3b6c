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

from typing import Any, NamedTuple

import numpy as np

from amf.geometry.boxes import holds
from amf.geometry.cells import MAX_CUTS, cut_of, enter_child, word_of
from amf.geometry.descent import descend
from amf.geometry.interface import become_leaf, become_parent, become_root
from amf.geometry.samples import Sample, value_of
from amf.jit.decorators import called, index, inlined, kernel
from amf.jit.elementary import power_of_two
from amf.kernels.aggregation import SMALLEST_ODDS, chain_odds, cuts_above, fill_stopping, revise, stop_probability
from amf.kernels.forgetting import make_keep_in_bounds
from amf.kernels.walk import DEPTH
from amf.memory.arena import CHILD, FEATURE, N_CUTS, ODDS, ROOT, THRESHOLD, TIME, row_of
from amf.memory.paths import Path, head_at, row_at, scratch_of, upper_part
from amf.statistics.interface import Statistics, make_shown, without_prunings


@called
def _first_cell(nodes, path, k, n_features, cell):
    """Make `cell` the first cell of the node at this place of a path."""
    for j in range(n_features):
        cell[j] = 0.0
        cell[n_features + j] = 1.0
    if k > index(0):
        low, head = row_at(path, k - index(1)) * nodes.width, head_at(nodes, path, k - index(1))
        for j in range(n_features):
            cell[j] = nodes.boxes[low + j]
            cell[n_features + j] = nodes.boxes[low + nodes.width // index(2) + j]
        goes_right, feature = row_at(path, k) != index(nodes.ints[head + CHILD]), index(nodes.ints[head + FEATURE])
        enter_child(cell, n_features, np.uint64(0), feature, nodes.floats[head + THRESHOLD], goes_right)


class Exit(NamedTuple):
    """Where a sample leaves the chains of a path, and by which cut."""

    place: Any
    """Of the node whose chain it leaves; the length of the path where it leaves none."""
    n_cuts: Any
    """Cuts in the chains down to that one, with it."""
    time: Any
    feature: Any
    threshold: Any


@inlined
def _no_exit(path):
    return Exit(path.length, np.int64(0), 0.0, index(0), np.float32(0.0))


@called
def _leave(nodes, path, sample, tree_word, cell):
    """Where the sample leaves; `cell` becomes the one that is cut. One that leaves nowhere is the point of the leaf."""
    place, half, n_features = path.length, nodes.width // index(2), sample.n_features
    while place > index(0):
        low = row_at(path, place - index(1)) * nodes.width
        if holds(nodes.boxes, low, low + half, sample.values, sample.at, n_features):
            break
        place -= index(1)
    if place < path.length:
        _first_cell(nodes, path, place, n_features, cell)
        time = 0.0
        if place > index(0):
            time = nodes.reals[head_at(nodes, path, place - index(1)) // index(2) + TIME]
        word = word_of(cell, tree_word)
        held = row_at(path, place) * nodes.width
        for n_cuts in range(cuts_above(nodes, path, place) + 1, MAX_CUTS + 1):
            duration, feature, threshold = cut_of(cell, n_features, word)
            time += duration
            goes_right = value_of(sample, feature) > threshold
            if goes_right != (nodes.boxes[held + feature] > threshold):
                return Exit(place, n_cuts, time, feature, threshold)
            word = enter_child(cell, n_features, word, feature, threshold, goes_right)
    return _no_exit(path)


@inlined
def _exit_of(trees, tree, path, sample, cell):
    """An Exit. A tree that may not grow is left nowhere."""
    if trees.growth.limit > index(0) and path.length > index(0):
        return _leave(trees.nodes, path, sample, trees.random[tree], cell)
    return _no_exit(path)


@inlined
def _odds_above(aggregates, nodes, path, left):
    """ODDS of the upper part of the chain that a sample leaves, once it is divided: weight over the lower's average."""
    if not aggregates:
        return SMALLEST_ODDS
    if left.place == path.length or nodes.ints[head_at(nodes, path, left.place) + CHILD] == 0:
        return 1.0
    here = head_at(nodes, path, left.place)
    odds, passes = nodes.reals[here // index(2) + ODDS], power_of_two(left.n_cuts - np.int64(nodes.ints[here + N_CUTS]))
    return odds / (passes + (1.0 - passes) * odds)


@called
def _divide(nodes, row, pair, left, odds, cell, sample):
    """Make a node the parent of its old self and of a leaf for the sample, whose label is not counted yet.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`. left: an
    Exit. Returns the row of the leaf.
    """
    n_features, feature, threshold = sample.n_features, left.feature, left.threshold
    low, half, here = row * nodes.width, nodes.width // index(2), row * nodes.words
    box_goes_left = nodes.boxes[low + feature] <= threshold
    _, fresh = become_parent(nodes, row, pair, box_goes_left, left.time)
    for j in range(n_features):
        nodes.boxes[low + j] = cell[j]
        nodes.boxes[low + half + j] = cell[n_features + j]
    nodes.ints[here + FEATURE] = np.int32(feature)
    nodes.ints[here + N_CUTS] = np.int32(left.n_cuts)
    nodes.floats[here + THRESHOLD] = threshold
    nodes.reals[here // index(2) + ODDS] = odds
    become_leaf(nodes, fresh, sample)
    return fresh


@kernel
def is_partition(nodes, n_features, random):
    """Whether the nodes are cells of the partitions that the words of the trees fix, and the leaves points in them."""
    n_trees, half = index(nodes.used.shape[0]), nodes.width // index(2)
    cell = np.empty(index(2) * n_features, np.float32)
    for tree in range(n_trees):
        path = np.zeros((int(nodes.used[tree]), 2), np.uint64)  # (parent, node) on the way to each node
        path[0, 1], length = row_of(ROOT, tree, n_trees), index(nodes.used[tree] > ROOT)
        while length > index(0):
            length -= index(1)
            place, row = index(path[length, 0] != index(0)), path[length, 1]
            low, child = row * nodes.width, index(nodes.ints[row * nodes.words + CHILD])
            if child != index(0):
                way = path[length, index(1) - place :].copy()
                if not _is_chain(nodes, Path(way, index(0), place + index(1)), n_features, random[tree], cell):
                    return False
                for side in range(index(2)):
                    path[length, 0], path[length, 1] = row, child + side
                    length += index(1)
            else:
                for j in range(n_features):
                    if nodes.boxes[low + j] != nodes.boxes[low + half + j]:
                        return False
    return True


@called
def _is_chain(nodes, path, n_features, tree_word, cell):
    """Whether the last node of a path, an inner one, stands for the cells that the partition has there."""
    place = path.length - index(1)
    boxes, here, low = nodes.boxes, head_at(nodes, path, place), row_at(path, place) * nodes.width
    high = low + nodes.width // index(2)
    _first_cell(nodes, path, place, n_features, cell)
    time = nodes.reals[head_at(nodes, path, place - index(1)) // index(2) + TIME] if place > index(0) else 0.0
    word = word_of(cell, tree_word)
    n_cuts, last = cuts_above(nodes, path, place) + 1, np.int64(nodes.ints[here + N_CUTS])
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
def _share_out(aggregates, nodes, path, end, n_cuts, odds, numbers):
    """Fill the shares of the nodes of the extended path, as modes.share_out does; returns (depth, weighted depth).

    path: the part that is shown. end, n_cuts: where the sample leaves that. odds: of what is above.
    """
    stops, fresh, length = numbers.stops, numbers.fresh, path.length
    reach, weighted_depth = 1.0, 0.0
    for k in range(end):
        stop = numbers.stopping[k] if k < length - index(1) else 1.0
        stops[k] = reach * stop
        fresh[k] = 0.0
        reach *= 1.0 - stop
        weighted_depth += reach
    if end == length:
        return np.float64(max(length, index(1)) - index(1)), weighted_depth
    stop = 0.0
    if aggregates:
        stop = stop_probability(chain_odds(odds, n_cuts - cuts_above(nodes, path, end)))
    stops[end] = reach * stop
    fresh[end] = reach * (1.0 - stop)
    return np.float64(end + index(1)), weighted_depth + fresh[end]


def _make_learn(statistics: Statistics, *, aggregates: bool) -> Any:
    """The function by which one tree learns a sample that has gone down it, for kernels."""
    likelihoods, likelihood_of_empty = statistics.likelihoods, statistics.likelihood_of_empty
    update, keep_in_bounds = statistics.update, make_keep_in_bounds(statistics.halve)

    @inlined
    def learn(trees, tree, path, left, upper, numbers, sample, cell, label):
        """left: where the sample leaves. upper: odds of what is above that."""
        nodes, rules, root = trees.nodes, trees.rules, row_at(path, index(0))
        first, second, given = numbers.first, numbers.second, numbers.given
        if path.length == index(0):
            become_root(nodes, tree, root, sample)
            update(nodes, root * nodes.words, rules, label)
            return
        end, sharing = left.place, min(left.place + index(1), path.length)
        likelihoods(nodes, upper_part(path, sharing), rules, first, second, label, given)
        above = sharing - index(1)
        leaf, below = row_at(path, above), given[above]
        if end < path.length:
            pair = row_of(nodes.used[tree], tree, index(nodes.used.shape[0]))
            leaf = _divide(nodes, leaf, pair, left, upper, cell, sample)
            nodes.used[tree] += index(2)
            above += index(1)
            below = likelihood_of_empty(rules, first[end], second[end], below, label)
            numbers.odds[end] = upper
            numbers.stopping[end] = stop_probability(chain_odds(upper, left.n_cuts - cuts_above(nodes, path, end)))
        update(nodes, leaf * nodes.words, rules, label)
        for k in range(above):
            update(nodes, head_at(nodes, path, k), rules, label)
        if aggregates:
            revise(nodes, upper_part(path, above), numbers, numbers.stops, below)
        keep_in_bounds(nodes, tree, root, trees.growth.limit, rules)

    return learn


def _make_end(statistics: Statistics) -> Any:
    """The function that tells where a forecast ends, for kernels."""
    lifetime_of = statistics.lifetime_of

    @inlined
    def end_of(trees, path, left, seen):
        """Where the sample leaves, if forecasts see that, else after the last of the nodes that are seen."""
        is_seen = left.place < seen and left.time < lifetime_of(trees.nodes, row_at(path, index(0)), trees.rules)
        return left.place if is_seen else seen

    return end_of


def _make_visit(statistics: Statistics, *, aggregates: bool) -> Any:
    """The function by which one tree predicts, then learns a sample that has gone down it, for kernels."""
    derive, predict, shown = statistics.derive, statistics.predict, make_shown(statistics)
    end_of, learn = _make_end(statistics), _make_learn(statistics, aggregates=aggregates)

    @inlined
    def visit(trees, tree, path, numbers, sample, cell, learns, label, publish, said, i):
        """The sample is row `i`. cell: float32 (2 d,), used up."""
        nodes, rules, left = trees.nodes, trees.rules, _exit_of(trees, tree, path, sample, cell)
        upper, seen = _odds_above(aggregates, nodes, path, left), shown(nodes, path, rules)
        end = end_of(trees, path, left, seen)
        # Nodes of the path that have a share in the forecast: those below a division have none.
        sharing = upper_part(path, min(end + index(1), seen))
        derive(nodes, sharing, rules, numbers.first, numbers.second)
        if path.length > index(0):
            fill_stopping(aggregates, True, nodes, path, numbers)
        if publish:
            said.depths[tree, i, 0], said.depths[tree, i, 1] = _share_out(
                aggregates, nodes, upper_part(path, seen), end, left.n_cuts, upper, numbers
            )
            predict(
                nodes, sharing, rules, numbers.first, numbers.second, numbers.stops, numbers.fresh,
                said.forecasts, tree, i,
            )  # fmt: skip
        if learns:
            learn(trees, tree, path, left, upper, numbers, sample, cell, label)

    return visit


def make_cell_walk(statistics: Statistics, *, aggregates: bool) -> Any:
    """The walk for one kind of statistics, a function for kernels; arguments: see composition.py."""
    if not aggregates:
        statistics = without_prunings(statistics)
    visit = _make_visit(statistics, aggregates=aggregates)

    @inlined
    def pass_row(trees, tree, batch, i, publish, said, scratch, cell):
        """Whether there was room for the path: else nothing has happened."""
        sample = Sample(batch.x, i * batch.stride, batch.n_features)
        if not descend(trees.nodes, tree, index(1), sample, True, scratch):
            return False
        path = Path(scratch.rows, index(0), scratch.lengths[0])
        visit(trees, tree, path, scratch.numbers, sample, cell, batch.labelled[i], batch.labels[i], publish, said, i)
        return True

    @called
    def walk(trees, first_tree, last_tree, batch, publish, said):
        """Pass the rows of a batch, numbers from 0 to 1, through the trees [first_tree, last_tree), one by one.

        Random words never change here, and weights, modes and gains mean nothing: features have no weights, and the
        partition leaves nothing to choose.
        """
        scratch, cell = scratch_of(index(1), DEPTH), np.empty(index(2) * batch.n_features, np.float32)
        for i in range(index(batch.labels.shape[0])):
            for tree in range(first_tree, last_tree):
                while not pass_row(trees, tree, batch, i, publish, said, scratch, cell):
                    scratch = scratch_of(index(1), index(2) * scratch.depth)

    return walk


def make_cell_way(statistics: Statistics, *, aggregates: bool) -> Any:
    """The way through a tree extended by the sample (attributions.py), for kernels; arguments: see composition.py."""
    end_of = _make_end(statistics)

    @inlined
    def way(trees, tree, path, numbers, sample, cell):
        """Fill the shares in the tree extended by the sample, as attributions.py does in the tree as it is.

        The empty leaf is the sample's own, where it leaves a chain. path: the part that is shown.
        """
        nodes, left = trees.nodes, _exit_of(trees, tree, path, sample, cell)
        end, upper = end_of(trees, path, left, path.length), _odds_above(aggregates, nodes, path, left)
        fill_stopping(aggregates, True, nodes, path, numbers)
        _share_out(aggregates, nodes, path, end, left.n_cuts, upper, numbers)
        return min(end + index(1), path.length), left.feature

    return way
