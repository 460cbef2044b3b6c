"""Aggregated Mondrian Forest, classification ([000] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf._kernel import kernel
from amf.class_counts import charge, consider, count, judge, may_part, report
from amf.walk import walk_of

_walk = walk_of(consider, report, judge, charge, count, may_part)


@kernel
def walk(
    ints, floats, reals, boxes, used, random,
    first_tree, last_tree, capacity, limit, words, width,
    x, stride, y, labelled, n_features, weights, complete,
    pure_until, pause, full_pause, mode, publish, forecasts, depths,
    done, room,
    n_classes, strength, inherit, charge_first, split_pure,
):  # fmt: skip
    """The walk of walk.py with y: int64 (n,) numbers of classes, forecasts: (n_trees, n, >= n_classes) probabilities.

    strength, inherit: the forecaster (forecasters.py). charge_first: whether a fresh leaf pays for its first sample.
    split_pure: whether a leaf splits while all its labels agree.
    """
    return _walk(
        (n_classes, strength, inherit, charge_first, split_pure),
        ints, floats, reals, boxes, used, random,
        first_tree, last_tree, capacity, limit, words, width,
        x, stride, y, labelled, n_features, weights, complete,
        pure_until, pause, full_pause, mode, publish, forecasts, depths,
        done, room,
    )  # fmt: skip
