"""Predict, then learn: samples through trees of boxes ([000] Alg. 4-6), whatever their labels are.

The structure of a tree follows from one exponential of rate 1 a sample. Going down, the sample can split off above a
node at rate `extension of the node's box` between the node's birth and its split; the rates along the path are one
inhomogeneous Poisson process, so its first arrival needs one draw for the whole path and not one a node: it is spent
as a budget. Forecasts of the sample are made by the tree as it was, the weights are updated in the tree as it becomes.

What differs between kinds of labels are six functions, which a system passes in: see `walk`.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, inlined
from amf.aggregation import odds_of_split, revise
from amf.arena import CHILD, FEATURE, ODDS, ROOT, THRESHOLD, TIME, row_of
from amf.boxes import enclose, widen
from amf.cuts import gap_cut
from amf.descent import descend, descend_together, outer_part
from amf.elementary import log1p
from amf.halving import is_full
from amf.modes import EXISTING, SAMPLED, draw_of, share_out
from amf.rng import uniform

_LANES = index(8)
"""Samples that descend together."""


@inlined
def _first_split(budget, leaf_parts, pure_until, pause, given, reals, words, path, start, length, outer, extensions):
    """(place on the path of the node above which the sample splits off, when), place = length where there is none."""
    birth = 0.0
    if outer > index(0):
        birth = reals[path[start + outer - index(1)] * words // index(2) + TIME]
    for k in range(outer, length):
        split_time = reals[path[start + k] * words // index(2) + TIME]
        if k == length - index(1):
            splits = (leaf_parts or birth < pure_until) and extensions[k] > 0.0
        else:
            splits = False
            if given[k] < pause:
                hazard = extensions[k] * (split_time - birth)
                splits = budget < hazard
                if not splits:
                    budget -= hazard
        if splits:
            return k, min(birth + budget / extensions[k], split_time)
        birth = split_time
    return length, 0.0


@inlined
def _pure_until(purity, boxes, low, width, n_features):
    """Before which time a leaf has to be born to split while all its labels agree. low: of the root's box.

    Features count in which samples differ. What a feature tells that is constant, or that no sample has shown yet, is
    nothing, and so it changes nothing.
    """
    varied = 0.0
    if purity > 0.0:
        for j in range(n_features):
            if boxes[low + j] < boxes[low + width // index(2) + j]:
                varied += 1.0
    return purity / max(varied, 1.0)


@called
def _part(
    ints, floats, reals, boxes, random, tree, row, pair, time, words, width, x, sample, n_features, weights, extension
):  # fmt: skip
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    low = row * width
    high = low + width // index(2)
    pick, place = uniform(random, tree), uniform(random, tree)
    feature, threshold, box_goes_left = gap_cut(
        boxes, low, high, x, sample, weights, n_features, extension, pick, place
    )
    old, fresh = (pair, pair + index(1)) if box_goes_left else (pair + index(1), pair)
    for word in range(words):
        ints[old * words + word] = ints[row * words + word]
    for word in range(width):
        boxes[old * width + word] = boxes[low + word]
    become_leaf(ints, reals, boxes, fresh, words, width, x, sample, n_features)
    here = row * words
    ints[here + CHILD] = np.int32(pair)
    ints[here + FEATURE] = np.int32(feature)
    floats[here + THRESHOLD] = threshold
    reals[here // index(2) + TIME] = time
    widen(boxes, low, high, x, sample, n_features)
    return fresh


@called
def become_leaf(ints, reals, boxes, row, words, width, x, sample, n_features):
    """Make an empty row the leaf of one sample, whose label is not counted yet."""
    reals[row * words // index(2) + TIME] = np.inf
    reals[row * words // index(2) + ODDS] = 1.0
    enclose(boxes, row * width, row * width + width // index(2), x, sample, n_features)


def walk_of(consider, report, judge, charge, count, may_part):
    """The walk for one kind of label, to be inlined into a kernel.

    rules is a tuple of what the kind of label wants to know. consider(ints, reals, words, path, start, length, rules,
    first, second) derives two numbers a node from its statistics. report(ints, reals, words, path, start, length,
    rules, first, second, stops, fresh, forecasts, tree, i) makes a forecast of the shares of the nodes. judge(ints,
    here, rules, first, second, depth, above, label) is the node's own forecast of the label, `above` that of its
    parent; charge(rules, forecast, label) what a fresh leaf pays for it. count(ints, reals, here, rules, label) adds
    the label to the statistics. may_part(ints, reals, here, rules, label) tells whether this leaf may be split.
    """

    @called
    def walk(
        rules,                                                            # of the label
        ints, floats, reals, boxes, used, random,                         # the arena; the generators
        first_tree, last_tree, limit, words, width,                       # trees; rows allowed; words of one
        x, stride, y, labelled, n_features, weights,                      # samples and labels
        purity, pause, full_pause, mode, publish, forecasts, depths,      # when not to split; what to report
        done, room,                                                       # how far an earlier call came; buffers
    ):  # fmt: skip
        """Pass the samples through the trees [first_tree, last_tree), one by one; returns (passes done, whether `room`
        ended).

        x: flat float32, n samples of `stride` = padded(n_features) words, NaN where missing. y: (n,) labels; labelled:
        bool (n,): a sample without a label changes nothing. weights: float32 (stride,). With `publish`, forecasts:
        float64 (n_trees, n, ...) receives what each tree says before the sample is learned, and depths: float64
        (n_trees, n, 2) the depth at which the sample ends and its weighted depth ([000] Sec. 5.1). done: passes (tree
        by tree, sample by sample) of earlier calls. room: nodes of a path that there is room for; a deeper one ends the
        call. The call also ends when a tree has learned so much that it needs to forget; where `limit` is 0 no node
        splits. For each sample two rows beyond those in use are there, up to the limit. purity: a leaf that was
        born before time purity / number of features in which samples differed splits also while all its labels agree.
        pause: an inner node does not split for a label for which its evidence is at least this; full_pause: in a tree
        with more than a quarter of the rows that are allowed.
        """
        n, n_trees = index(y.shape[0]), index(used.shape[0])
        turns, lengths = np.empty(_LANES, np.uint64), np.empty(_LANES, np.uint64)
        samples, unsure = np.empty(_LANES, np.uint64), np.empty(_LANES, np.bool_)
        path, first, second = np.empty(_LANES * room, np.uint64), np.empty(room), np.empty(room)
        stops, fresh, given, extensions = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
        passes = (last_tree - first_tree) * n
        while done < passes:
            lanes = min(_LANES, passes - done)
            for lane in range(lanes):
                path[lane * room] = row_of(ROOT, first_tree + (done + lane) // n, n_trees)
                samples[lane] = (done + lane) % n * stride
            descend_together(ints, floats, boxes, words, width, x, samples, lanes, path, room, turns, lengths, unsure)
            for lane in range(lanes):
                tree, i = first_tree + done // n, done % n
                start, length, sample, learns = lane * room, lengths[lane], samples[lane], labelled[i]
                if used[tree] == ROOT:
                    if publish:
                        report(
                            ints, reals, words, path, start, index(0), rules, first, second, stops, fresh,
                            forecasts, tree, i,
                        )  # fmt: skip
                        depths[tree, i, 0], depths[tree, i, 1] = 0.0, 0.0
                    if learns:
                        used[tree] = ROOT + index(1)
                        become_leaf(ints, reals, boxes, path[start], words, width, x, sample, n_features)
                        count(ints, reals, path[start] * words, rules, y[i])
                    done += index(1)
                    continue
                if unsure[lane] and lane > index(0):
                    length, _ = descend(ints, floats, words, x, sample, path, start, index(0), room)
                if length == index(0):
                    return done, True
                consider(ints, reals, words, path, start, length, rules, first, second)
                outer = length
                if learns or mode != EXISTING:
                    outer = outer_part(boxes, width, path, start, length, x, sample, weights, n_features, extensions)
                if publish:
                    draw = 0.0
                    if mode == SAMPLED:
                        draw = draw_of(random[tree], boxes, path[start] * width, x, sample, n_features)
                    depths[tree, i, 0], depths[tree, i, 1] = share_out(
                        mode, draw, reals, words, path, start, length, outer, extensions, stops, fresh
                    )
                    report(
                        ints, reals, words, path, start, length, rules, first, second, stops, fresh, forecasts, tree, i
                    )
                if learns:
                    draw = uniform(random, tree)
                    above = 0.0
                    for k in range(length):
                        above = judge(ints, path[start + k] * words, rules, first[k], second[k], k, above, y[i])
                        given[k] = above
                    end, time = length, 0.0
                    if limit > index(0) and outer < length:
                        leaf_parts = may_part(ints, reals, path[start + length - index(1)] * words, rules, y[i])
                        if leaf_parts or purity > 0.0 or outer < length - index(1):
                            scarce = index(4) * used[tree] > limit
                            pure_until = 0.0
                            if not leaf_parts:
                                pure_until = _pure_until(purity, boxes, path[start] * width, width, n_features)
                            end, time = _first_split(
                                -log1p(-draw), leaf_parts, pure_until, full_pause if scarce else pause, given,
                                reals, words, path, start, length, outer, extensions,
                            )  # fmt: skip
                    for k in range(end):
                        count(ints, reals, path[start + k] * words, rules, y[i])
                    for k in range(outer, end):
                        low = path[start + k] * width
                        widen(boxes, low, low + width // index(2), x, sample, n_features)
                    if end < length:
                        row = path[start + end]
                        pair = row_of(used[tree], tree, n_trees)
                        used[tree] += index(2)
                        leaf = _part(
                            ints, floats, reals, boxes, random, tree, row, pair, time, words, width,
                            x, sample, n_features, weights, extensions[end],
                        )  # fmt: skip
                        odds = row * words // index(2) + ODDS
                        reals[odds], below = odds_of_split(
                            reals[odds],
                            end == length - index(1),
                            given[end],
                            charge(rules, first[end], second[end], given[end], y[i]),
                        )
                        count(ints, reals, leaf * words, rules, y[i])
                        count(ints, reals, row * words, rules, y[i])
                        for other in range(lane + index(1), lanes):
                            if lengths[other] > end and path[other * room + end] == row:
                                lengths[other], missing = descend(
                                    ints, floats, words, x, samples[other], path, other * room, end, room
                                )
                                unsure[other] |= missing
                    else:
                        end = length - index(1)
                        below = given[end]
                    for j in range(end):
                        k = end - index(1) - j
                        odds = path[start + k] * words // index(2) + ODDS
                        reals[odds], below = revise(reals[odds], given[k], below)
                done += index(1)
                if learns and limit > index(0) and used[tree] + index(2) > limit:
                    return done, False
                if learns and is_full(ints, path[start], words):
                    return done, False
        return done, False

    return walk
