"""Aggregated Mondrian Forest, classification, restricted Mondrian ([000] Alg. 4-6), predict-then-learn in one walk.

The structure of a tree follows from one exponential of rate 1 a sample. Going down, the sample can split off above
a node at rate `extension of the node's box` between the node's birth and its split; the rates along the path are one
inhomogeneous Poisson process, so its first arrival needs one draw for the whole path and not one a node: it is spent
as a budget. Forecasts of the row are made by the tree as it was (mode `existing`), the weights are updated in the
tree as it becomes.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, inlined, kernel
from amf.aggregation import odds_of_split, revise, stop_probability
from amf.arena import CHILD, COUNT, DISTINCT, FEATURE, LARGEST_COUNT, ODDS, STATS, THRESHOLD, TIME, split
from amf.boxes import enclose, extension, prefetch, widen
from amf.cuts import gap_cut
from amf.forecasters import class_forecast, prior_strength
from amf.rng import exponential, uniform

# Beyond this an extension is as good as infinite; it keeps infinity out of the arithmetic of times.
_LARGEST_EXTENSION = 1e38


@kernel
def walk(
    ints, floats, reals, used, random,                      # the arena; the generators
    first_tree, last_tree, capacity, words, low, high,      # which trees; reserved rows of a tree; layout of a row
    limit,                                                  # rows that a tree may have
    x, width, y, n_features, weights, n_classes, complete,  # samples and labels
    strength, inherit, charge_first, split_pure,            # the forecaster and the pausing rule
    publish, forecasts, depths,                             # what to report
    progress,                                               # how far each tree has come
):  # fmt: skip
    """Pass the rows through the trees [first_tree, last_tree), one tree after the other.

    x: flat float32, n samples of `width` = padded(n_features) words, NaN where missing. y: int32 (n,), -1 where the
    label is missing: such a row changes nothing. weights: float32 (width,). complete: no labelled row lacks or lacked
    a value. With `publish`, forecasts: float64 (n_trees, n, n_classes) receives each tree's class probabilities before
    the row is learned, and depths: float64 (n_trees, n, 2) the depth of the row's leaf and its weighted depth ([000]
    Sec. 5.1). progress: int64 (n_trees,), next row of each tree; a tree that runs out of reserved rows stops before it
    touches anything, to be called again with more room.
    """
    uniform_prior = 1.0 / n_classes
    believed = np.empty(n_classes, np.float64)
    path = np.empty(256, np.int64)
    path_forecast = np.empty(256, np.float64)
    for tree in range(first_tree, last_tree):
        root = tree * capacity * words
        for i in range(progress[tree], y.shape[0]):
            sample = i * width
            label = y[i]
            on_path = label >= 0
            if used[tree] == 0:
                if publish:
                    for k in range(n_classes):
                        forecasts[tree, i, k] = uniform_prior
                    depths[tree, i, 0] = 0.0
                    depths[tree, i, 1] = 0.0
                if on_path:
                    used[tree] = 1
                    become_leaf(ints, floats, reals, root, low, high, x, sample, n_features, label, n_classes)
                progress[tree] = i + 1
                continue
            may_split = on_path and used[tree] + 2 <= limit
            if may_split and used[tree] + 2 > capacity:
                break

            budget = exponential(random, tree) if on_path else 0.0
            node, birth, length = 0, 0.0, 0
            depth, weighted_depth, reach = 0, 0.0, 1.0
            label_forecast = uniform_prior
            from_below = 1.0
            if publish:
                for k in range(n_classes):
                    believed[k] = uniform_prior
                    forecasts[tree, i, k] = 0.0
            while True:
                here = root + node * words
                child = ints[here + CHILD]
                if child != 0:
                    prefetch(floats, root + child * words, 2 * words)
                feature = ints[here + FEATURE]
                threshold = floats[here + THRESHOLD]
                odds = reals[here // 2 + ODDS]
                # Multiplying by the reciprocal keeps the division out of the loop over classes.
                prior_weight = prior_strength(strength, ints[here + DISTINCT], inherit)
                scale = 1.0 / (ints[here + COUNT] + prior_weight)
                if publish:
                    stop = 1.0 if child == 0 else stop_probability(odds)
                    share = reach * stop
                    for k in range(n_classes):
                        prior = believed[k] if inherit else uniform_prior
                        believed[k] = class_forecast(ints[here + STATS + k], prior, prior_weight, scale)
                        forecasts[tree, i, k] += share * believed[k]
                    reach *= 1.0 - stop
                    weighted_depth += reach
                if on_path:
                    prior = label_forecast if inherit else uniform_prior
                    label_forecast = class_forecast(ints[here + STATS + label], prior, prior_weight, scale)
                    split_time = reals[here // 2 + TIME]
                    outside = extension(floats, here + low, here + high, x, sample, weights, n_features)
                    if outside > 0.0:
                        total = min(np.float64(outside), _LARGEST_EXTENSION)
                        splits = False
                        if child == 0:
                            splits = may_split and (split_pure or ints[here + STATS + label] != ints[here + COUNT])
                        elif may_split:
                            hazard = total * (split_time - birth)
                            splits = budget < hazard
                            if not splits:
                                budget -= hazard
                        if splits:
                            pick = uniform(random, tree)
                            place = uniform(random, tree)
                            cut, where, box_goes_left = gap_cut(
                                floats, here + low, here + high, x, sample, weights, n_features, total, pick, place
                            )
                            fresh = split(ints, used, tree, capacity, node, words, box_goes_left)
                            ints[here + FEATURE] = cut
                            floats[here + THRESHOLD] = where
                            reals[here // 2 + TIME] = min(birth + budget / total, split_time)
                            charge = 1.0
                            if charge_first:
                                charge = label_forecast if inherit else uniform_prior
                            reals[here // 2 + ODDS], from_below = odds_of_split(
                                odds, child == 0, label_forecast, charge
                            )
                            leaf = root + fresh * words
                            become_leaf(ints, floats, reals, leaf, low, high, x, sample, n_features, label, n_classes)
                            on_path = False
                    if outside > 0.0 or not complete:
                        # A box that lacks a feature is not extended by its first value, yet has to take it in.
                        widen(floats, here + low, here + high, x, sample, n_features)
                    count_label(ints, here, label, n_classes)
                    if on_path:
                        if child == 0:
                            from_below = label_forecast
                        else:
                            if length == path.shape[0]:
                                path = longer(path)
                                path_forecast = longer(path_forecast)
                            path[length] = here
                            path_forecast[length] = label_forecast
                            length += 1
                            birth = split_time
                    elif not publish:
                        break
                if child == 0:
                    break
                depth += 1
                value = x[sample + feature]
                if value == value:
                    node = child + (value > threshold)
                else:
                    # A missing value follows the larger crowd, ties left.
                    left = root + child * words
                    node = child + (ints[left + COUNT] < ints[left + words + COUNT])
            if publish:
                depths[tree, i, 0] = depth
                depths[tree, i, 1] = weighted_depth
            for step in range(length - 1, -1, -1):
                above = path[step] // 2 + ODDS
                reals[above], from_below = revise(reals[above], path_forecast[step], from_below)
            progress[tree] = i + 1


@called
def become_leaf(ints, floats, reals, here, low, high, x, sample, n_features, label, n_classes):
    """Make an empty row the leaf of one sample."""
    reals[here // 2 + TIME] = np.inf
    reals[here // 2 + ODDS] = 1.0
    enclose(floats, here + low, here + high, x, sample, n_features)
    count_label(ints, here, label, n_classes)


@inlined
def count_label(ints, here, label, n_classes):
    """Count a label at a node. A full counter halves the counts of its node first, so that no stream overflows it."""
    if ints[here + COUNT] == LARGEST_COUNT:
        total, distinct = np.int32(0), np.int32(0)
        for k in range(n_classes):
            ints[here + STATS + k] //= 2
            total += ints[here + STATS + k]
            distinct += ints[here + STATS + k] > 0
        ints[here + COUNT] = total
        ints[here + DISTINCT] = distinct
    ints[here + DISTINCT] += ints[here + STATS + label] == 0
    ints[here + STATS + label] += 1
    ints[here + COUNT] += 1


@called
def longer(array):
    """A copy with twice the room."""
    copy = np.empty(2 * array.shape[0], array.dtype)
    for k in range(array.shape[0]):
        copy[k] = array[k]
    return copy


@kernel
def average(forecasts, depths, n_classes, probabilities, mean_depths):
    """Mean over trees, always added in the order of the trees: threads must not change a bit.

    forecasts: float64 (n_trees, n, >= n_classes) -> probabilities: float64 (n, >= n_classes); depths likewise (n, 2).
    """
    n_trees, n = forecasts.shape[0], forecasts.shape[1]
    for i in range(n):
        for k in range(n_classes):
            total = 0.0
            for tree in range(n_trees):
                total += forecasts[tree, i, k]
            probabilities[i, k] = total / n_trees
        for k in range(2):
            total = 0.0
            for tree in range(n_trees):
                total += depths[tree, i, k]
            mean_depths[i, k] = total / n_trees
