"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification ([000] Alg. 1-3), predict-then-learn.

A tree is a part of an infinite partition that never changes (cells.py): the cells that hold samples. Of these only
those are stored that branch, with samples on both sides of their cut. A node stands for a chain of cells that hold the
same samples: the other sides of the cuts in the chain are empty, up to the last cell, which branches. The box of an
inner node is that last cell, the box of a leaf its point: a sample outside of a node's box leaves the chain on the way.

All cells of a chain have the same forecast and the same weight w. A pruning stops in one of n cells with the prior
probability 1 - 2**-n, so that the odds of stopping are (2**n - 1) * w / (averaged weight of left * that of right). ODDS
holds those of a single cell; that a chain may have several is all in which the averaging differs from [000] Alg. 4-6.
N_CUTS are the cuts that have made the child of the node's last cell; at a leaf they mean nothing.
The parent whose forecast can be a node's prior is the chain above.

Where a sample leaves a chain, the chain is divided and a fresh leaf appears. A forecast is made in the tree extended
so, for the moment ([000] Alg. 3). That changes no averaged weight: with `charge_first` the cumulative log-loss of a
tree is minus the logarithm of its root's averaged weight, exactly.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, inlined, kernel
from amf.aggregation import chain_odds, clamped, stop_probability
from amf.arena import CHILD, FEATURE, N_CUTS, ODDS, ROOT, THRESHOLD, TIME, row_of
from amf.batches import batches_of
from amf.boxes import holds
from amf.cells import MAX_CUTS, cut_of, enter_child, word_of
from amf.class_calibration import calibrate
from amf.class_counts import charge, consider, count, halve, judge, report, rules_of
from amf.descent import descend
from amf.elementary import power_of_two
from amf.halving import is_full
from amf.walk import become_leaf


@inlined
def _cuts_above(ints, words, path, k):
    """Cuts that have made the first cell of the node at this place of a path."""
    return np.int64(ints[path[k - index(1)] * words + N_CUTS]) if k > index(0) else 0


@inlined
def _odds_at(ints, reals, words, path, k):
    """Odds of stopping at the inner node at this place of a path."""
    row = path[k] * words
    n_cells = np.int64(ints[row + N_CUTS]) - _cuts_above(ints, words, path, k)
    return chain_odds(reals[row // index(2) + ODDS], n_cells)


@inlined
def _odds_above(ints, reals, words, row, n_cuts):
    """ODDS of the upper part of a chain that is divided after `n_cuts` cuts: weight over the lower part's average."""
    if ints[row * words + CHILD] == 0:
        return 1.0
    odds = reals[row * words // index(2) + ODDS]
    passes = power_of_two(n_cuts - np.int64(ints[row * words + N_CUTS]))
    return odds / (passes + (1.0 - passes) * odds)


@called
def _first_cell(ints, floats, boxes, words, width, path, k, n_features, cell):
    """Make `cell` the first cell of the node at this place of a path."""
    for j in range(n_features):
        cell[j] = 0.0
        cell[n_features + j] = 1.0
    if k > index(0):
        above = path[k - index(1)]
        low, head = above * width, above * words
        for j in range(n_features):
            cell[j] = boxes[low + j]
            cell[n_features + j] = boxes[low + width // index(2) + j]
        goes_right = path[k] != index(ints[head + CHILD])
        enter_child(cell, n_features, np.uint64(0), index(ints[head + FEATURE]), floats[head + THRESHOLD], goes_right)


@called
def _leave(ints, floats, reals, boxes, words, width, path, length, x, sample, n_features, tree_word, cell):
    """Where the sample leaves the chains of a path, and by which cut.

    Returns (place of the node on the path, cuts with that one, its time, feature, threshold), and `cell` is the one
    that is cut; place = length where the sample counts as the point of the leaf.
    """
    place, half = length, width // index(2)
    while place > index(0):
        low = path[place - index(1)] * width
        if holds(boxes, low, low + half, x, sample, n_features):
            break
        place -= index(1)
    if place < length:
        _first_cell(ints, floats, boxes, words, width, path, place, n_features, cell)
        time = reals[path[place - index(1)] * words // index(2) + TIME] if place > index(0) else 0.0
        word = word_of(cell, tree_word)
        held = path[place] * width
        for n_cuts in range(_cuts_above(ints, words, path, place) + 1, MAX_CUTS + 1):
            duration, feature, threshold = cut_of(cell, n_features, word)
            time += duration
            goes_right = x[sample + feature] > threshold
            if goes_right != (boxes[held + feature] > threshold):
                return place, n_cuts, time, feature, threshold
            word = enter_child(cell, n_features, word, feature, threshold, goes_right)
    return length, 0, 0.0, index(0), np.float32(0.0)


@called
def _divide(
    ints, floats, reals, boxes, row, pair, words, width, n_cuts, time, feature, threshold, odds, cell, x, sample
):  # fmt: skip
    """Make a node the parent of its old self and of a leaf for the sample, whose label is not counted yet.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`. Returns the
    row of the leaf.
    """
    n_features = index(cell.shape[0]) // index(2)
    low, half, here = row * width, width // index(2), row * words
    box_goes_left = boxes[low + feature] <= threshold
    old, fresh = (pair, pair + index(1)) if box_goes_left else (pair + index(1), pair)
    for word in range(words):
        ints[old * words + word] = ints[here + word]
    for word in range(width):
        boxes[old * width + word] = boxes[low + word]
    for j in range(n_features):
        boxes[low + j] = cell[j]
        boxes[low + half + j] = cell[n_features + j]
    ints[here + CHILD] = np.int32(pair)
    ints[here + FEATURE] = np.int32(feature)
    ints[here + N_CUTS] = np.int32(n_cuts)
    floats[here + THRESHOLD] = threshold
    reals[here // index(2) + TIME] = time
    reals[here // index(2) + ODDS] = odds
    become_leaf(ints, reals, boxes, fresh, words, width, x, sample, n_features)
    return fresh


@kernel
def is_partition(ints, floats, reals, boxes, used, words, width, n_features, random):
    """Whether the nodes are cells of the partitions that the words of the trees fix, and the leaves points in them."""
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
                if not _is_chain(ints, floats, reals, boxes, words, width, way, place, n_features, random[tree], cell):
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
def _is_chain(ints, floats, reals, boxes, words, width, path, place, n_features, tree_word, cell):
    """Whether the inner node at this place of a path stands for the cells that the partition has there."""
    here, low, high = path[place] * words, path[place] * width, path[place] * width + width // index(2)
    _first_cell(ints, floats, boxes, words, width, path, place, n_features, cell)
    time = reals[path[place - index(1)] * words // index(2) + TIME] if place > index(0) else 0.0
    word = word_of(cell, tree_word)
    n_cuts, last = _cuts_above(ints, words, path, place) + 1, np.int64(ints[here + N_CUTS])
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
    same_cut = index(ints[here + FEATURE]) == feature and floats[here + THRESHOLD] == threshold
    return same_cut and n_cuts == last and reals[here // index(2) + TIME] == time


@inlined
def _share_out(ints, reals, words, path, length, end, n_cuts, odds, stops, fresh):
    """Fill the shares of the nodes of the extended path, as modes.share_out does; returns (depth, weighted depth)."""
    reach, weighted_depth = 1.0, 0.0
    for k in range(end):
        stop = 1.0
        if k < length - index(1):
            stop = stop_probability(_odds_at(ints, reals, words, path, k))
        stops[k] = reach * stop
        fresh[k] = 0.0
        reach *= 1.0 - stop
        weighted_depth += reach
    if end == length:
        return np.float64(max(length, index(1)) - index(1)), weighted_depth
    stop = stop_probability(chain_odds(odds, n_cuts - _cuts_above(ints, words, path, end)))
    stops[end] = reach * stop
    fresh[end] = reach * (1.0 - stop)
    return np.float64(end + index(1)), weighted_depth + fresh[end]


@inlined
def _update(ints, reals, words, path, above, leaf, below, given, rules, label):
    """Count the label at a leaf and at the nodes above it, path[:above], and revise their odds.

    below: what the leaf gave to the label; given: float64, what each node above did.
    """
    count(ints, reals, leaf * words, rules, label)
    for j in range(above):
        k = above - index(1) - j
        stop = stop_probability(_odds_at(ints, reals, words, path, k))
        at = path[k] * words // index(2) + ODDS
        reals[at] = clamped(reals[at] * given[k] / below)
        below = stop * given[k] + (1.0 - stop) * below
        count(ints, reals, path[k] * words, rules, label)


@called
def _walk(
    rules,
    ints, floats, reals, boxes, used, random,
    first_tree, last_tree, limit, words, width,
    x, stride, y, labelled, n_features, weights,
    purity, pause, full_pause, mode, publish, forecasts, depths,
    done, room,
):  # fmt: skip
    """Pass the samples through the trees [first_tree, last_tree), one by one; returns how many passes are done.

    As the walk of walk.py, with y: int64 (n,) numbers of classes, forecasts: (n_trees, n, >= n_classes) probabilities,
    and x: numbers from 0 to 1. random: the words of the trees, which never change here. weights, mode and when to pause
    mean nothing: features have no weights, and the partition leaves nothing to choose.
    """
    n, n_trees = index(y.shape[0]), index(used.shape[0])
    path, first, second = np.empty(room, np.uint64), np.empty(room), np.empty(room)
    stops, fresh, given = np.empty(room), np.empty(room), np.empty(room)
    cell = np.empty(index(2) * n_features, np.float32)
    passes = (last_tree - first_tree) * n
    while done < passes:
        tree, i = first_tree + done // n, done % n
        sample, learns = i * stride, labelled[i]
        path[0] = row_of(ROOT, tree, n_trees)
        length, end, n_cuts, time, feature, threshold = index(0), index(0), 0, 0.0, index(0), np.float32(0.0)
        if used[tree] > ROOT:
            length, _ = descend(ints, floats, words, x, sample, path, index(0), index(0), room)
            if length == index(0):
                return done, True
            end = length
            if limit > index(0):
                end, n_cuts, time, feature, threshold = _leave(
                    ints, floats, reals, boxes, words, width, path, length, x, sample, n_features, random[tree], cell
                )
        odds = _odds_above(ints, reals, words, path[end], n_cuts) if end < length else 1.0
        # Nodes of the path that have a share in the forecast: those below a division have none.
        sharing = min(end + index(1), length)
        consider(ints, reals, words, path, index(0), sharing, rules, first, second)
        if publish:
            depths[tree, i, 0], depths[tree, i, 1] = _share_out(
                ints, reals, words, path, length, end, n_cuts, odds, stops, fresh
            )
            report(ints, reals, words, path, index(0), sharing, rules, first, second, stops, fresh, forecasts, tree, i)
        if learns and length == index(0):
            used[tree] += index(1)
            become_leaf(ints, reals, boxes, path[0], words, width, x, sample, n_features)
            count(ints, reals, path[0] * words, rules, y[i])
        elif learns:
            below = 0.0
            for k in range(sharing):
                below = judge(ints, path[k] * words, rules, first[k], second[k], k, below, y[i])
                given[k] = below
            above = sharing - index(1)
            leaf = path[above]
            if end < length:
                leaf = _divide(
                    ints, floats, reals, boxes, leaf, row_of(used[tree], tree, n_trees), words, width,
                    n_cuts, time, feature, threshold, odds, cell, x, sample,
                )  # fmt: skip
                used[tree] += index(2)
                above += index(1)
                below = charge(rules, first[end], second[end], below, y[i])
            _update(ints, reals, words, path, above, leaf, below, given, rules, y[i])
        done += index(1)
        if learns and limit > index(0) and used[tree] + index(2) > limit:
            return done, False
        if learns and is_full(ints, path[0], words):
            return done, False
    return done, False


_run, _walk_trees = batches_of(_walk, calibrate, halve, rules_of)


@kernel
def run(
    forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
):  # fmt: skip
    """As batches.py says; labels: int64 (n,) numbers of classes, outputs: float64 (n, >= K) probabilities."""
    _run(
        forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
    )  # fmt: skip


@kernel
def walk_trees(words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths):
    """As batches.py says; forecasts: float64 (n_trees, n, K) probabilities."""
    _walk_trees(
        words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths
    )  # fmt: skip
