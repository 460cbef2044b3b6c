"""The original Mondrian Forest ([MF]): no averaging over prunings, but smoothing along the path of a sample.

[MF] is chapter 5 of B. Lakshminarayanan's thesis, which extends the paper of the same name with D. Roy and Y. W. Teh.

A paused leaf is shown, not made. [MF] pauses a node whose labels all agree: it stays a leaf, which keeps its samples,
and once another label comes a Mondrian is drawn on all of them. Here that Mondrian is drawn sample by sample from the
beginning, and forecasts see a tree that ends at the first node whose labels agree, or that has seen too few. What a
Mondrian process draws for more samples, restricted to fewer, has the law of what it draws for those: so the trees that
forecasts see have the law of those that pause. The samples of a paused leaf are the leaves below it, and where memory
ends they are forgotten as any others are (forgetting.py): those that came least lately go first, wherever they lie.

Forecasts. A sample branches off from a node at the rate by which it lies outside of the node's box, between the birth
of the node and its split. Its forecast is the exact mean over all the places where it could ([MF] Alg. 5.8).
"ikn": the forecast G of a node with c customers and t tables of each label is

    G = (c - d t + d sum(t) G of the parent) / sum(c),    d = exp(-discount * (time of its split - its birth))

Each node has one table for each label that it has seen, and the customers of an inner node are the tables of its
children; of a label that was forgotten below it there is one. A leaf has its labels as customers. So all of them follow
from the counts of the nodes, and nothing can be out of date. Where the sample branches off above a node it makes, for
the moment, one whose customers are the node's tables, and whose discount is the mean over the time of the branching.
"path_mean": it makes one with the frequencies, or the mean, of the node that it branches off from. Numbers have nothing
else.
"""

from __future__ import annotations

import numpy as np

from amf.calibration import class_calibration, number_calibration
from amf.geometry.boxes import varied
from amf.jit.decorators import index, inlined
from amf.jit.elementary import exp, expm1
from amf.jit.vectors import LANES
from amf.kernels.composition import tree_kernels
from amf.memory.arena import CHILD, COUNT, DISTINCT, STATS, TIME
from amf.memory.binding import LIFETIME, RULES
from amf.memory.paths import head_at, row_at
from amf.statistics.class_counts import halve, update, weigh_counts
from amf.statistics.interface import Statistics, every_leaf
from amf.statistics.number_means import NUMBER_MEANS, SQUARES, mix

_PER_FEATURE = 10.0
"""The discount that goes with each feature in which samples differed, where none is given."""


@inlined
def _rules_of(numbers):
    """(number of classes, lifetime, labels below which a node is a leaf, whether nodes split whose labels all agree,
    whether labels are smoothed, discount or 0)."""
    return (
        index(numbers[RULES]),
        numbers[LIFETIME],
        np.int64(numbers[RULES + index(1)]),
        numbers[RULES + index(2)] != 0.0,
        numbers[RULES + index(3)] != 0.0,
        numbers[RULES + index(4)],
    )


@inlined
def _birth(nodes, path, k):
    return nodes.reals[head_at(nodes, path, k - index(1)) // index(2) + TIME] if k > index(0) else 0.0


# What forecasts see.


@inlined
def _lifetime_of(nodes, root, rules):
    return rules[1]


@inlined
def _hides(nodes, here, rules, lifetime, agrees):
    """Whether forecasts see a leaf. agrees: whether all labels of the node agree."""
    _, _, least, split_pure, _, _ = rules
    is_last = nodes.reals[here // index(2) + TIME] >= lifetime  # as that of each leaf of the tree
    return is_last or nodes.ints[here + COUNT] < least or (agrees and not split_pure)


@inlined
def _class_hides(nodes, here, rules, lifetime):
    return _hides(nodes, here, rules, lifetime, nodes.ints[here + DISTINCT] <= 1)


@inlined
def _number_hides(nodes, here, rules, lifetime):
    return _hides(nodes, here, rules, lifetime, nodes.reals[here // index(2) + SQUARES] == 0.0)


# Where a sample branches off.


@inlined
def _discount(nodes, root, rules):
    given = rules[5]
    if given > 0.0:
        return given
    low, half = root * nodes.width, nodes.width // index(2)
    return _PER_FEATURE * max(varied(nodes.boxes, low, low + half, half), index(1))


@inlined
def _branch_off(mode, draw, rules, nodes, path, outer, numbers):
    """Fill `stops` with the shares of the nodes' own forecasts, `fresh` with those of the tables of nodes above which
    the sample branches off; what is left of 1 is the root's prior. Returns the mean depths of the sample and of these.
    """
    lifetime, smooths, leaf = rules[1], rules[4], path.length - index(1)
    discount = _discount(nodes, row_at(path, index(0)), rules) if smooths and outer < path.length else 0.0
    stops, fresh = numbers.stops, numbers.fresh
    remaining, depth, shown_depth = 1.0, 0.0, 0.0
    for k in range(path.length):
        stops[k] = fresh[k] = 0.0
    for k in range(outer, path.length):
        rate, until = numbers.extensions[k], lifetime
        if k < leaf:
            until = nodes.reals[head_at(nodes, path, k) // index(2) + TIME]
        age = until - _birth(nodes, path, k)
        hazard = rate * age if rate > 0.0 else 0.0
        branches = -expm1(-hazard)
        if branches > 0.0:
            share = remaining * branches
            if smooths:
                # The mean of exp(-discount * time) over times that are exponential, and before `age`.
                kept = rate / (rate + discount) * -expm1(-(hazard + discount * age)) / branches
                kept = min(kept, 1.0)
                fresh[k] = share * (1.0 - kept)
                if k > index(0):
                    stops[k - index(1)] += share * kept
            else:
                stops[k] += share
            depth += share * (k + 1.0)
            shown_depth += share * k
            remaining *= 1.0 - branches
    stops[leaf] += remaining
    return depth + remaining * leaf, shown_depth + remaining * leaf


# Classes.


@inlined
def _customers(nodes, here, child, label):
    """Customers with a label at an inner node, whose left child's head begins at `child`: the tables of both."""
    at = STATS + label
    tables = np.int64(nodes.ints[child + at] > 0) + np.int64(nodes.ints[child + nodes.words + at] > 0)
    return max(tables, np.int64(nodes.ints[here + at] > 0))


@inlined
def _derive(nodes, path, rules, discounts, scales):
    """Discount d of each node, and 1 / sum of its customers. The last one is a leaf to forecasts."""
    n_classes, lifetime, _, _, smooths, _ = rules
    if not smooths:
        for k in range(path.length):
            scales[k] = 1.0 / nodes.ints[head_at(nodes, path, k) + COUNT]
        return
    discount = _discount(nodes, row_at(path, index(0)), rules) if path.length > index(0) else 0.0
    for k in range(path.length):
        here = head_at(nodes, path, k)
        customers, until = np.int64(nodes.ints[here + COUNT]), lifetime
        if k < path.length - index(1):
            until = nodes.reals[here // index(2) + TIME]
            child, customers = index(nodes.ints[here + CHILD]) * nodes.words, np.int64(0)
            for label in range(n_classes):
                customers += _customers(nodes, here, child, label)
        discounts[k] = exp(-discount * (until - _birth(nodes, path, k)))
        scales[k] = 1.0 / customers


@inlined
def _predict(nodes, path, rules, discounts, scales, stops, fresh, forecasts, tree, i):
    """Class probabilities. From the leaf upwards, since a node's forecast is its labels and a share of its parent's.

    stops, fresh: used up.
    """
    n_classes, _, _, _, smooths, _ = rules
    if path.length == index(0):
        for label in range(n_classes):
            forecasts[tree, i, label] = 1.0 / n_classes
    elif smooths:
        _predict_smoothed(nodes, path, n_classes, discounts, scales, stops, fresh, forecasts, tree, i)
    else:
        for k in range(path.length):
            stops[k] *= scales[k]
        for first in range(index(0), n_classes, index(LANES)):
            weigh_counts(nodes.ints, nodes.words, STATS + first, path.rows, path.start, path.length, stops, fresh)
            for lane in range(min(index(LANES), n_classes - first)):
                forecasts[tree, i, first + lane] = fresh[lane]


@inlined
def _predict_smoothed(nodes, path, n_classes, discounts, scales, stops, fresh, forecasts, tree, i):
    rest = 1.0
    for k in range(path.length):
        rest -= stops[k] + fresh[k]
    rest, carried = max(rest, 0.0), 0.0
    for label in range(n_classes):
        forecasts[tree, i, label] = 0.0
    for j in range(path.length):
        k = path.length - index(1) - j
        here = head_at(nodes, path, k)
        tables = nodes.ints[here + DISTINCT]
        of_customer = (stops[k] + carried) * scales[k]
        discounted = of_customer * discounts[k]
        carried = discounted * tables
        of_table = fresh[k] / tables - discounted
        if j == index(0):
            for label in range(n_classes):
                count = nodes.ints[here + STATS + label]
                forecasts[tree, i, label] += of_customer * count + of_table * (count > 0)
        else:
            child = index(nodes.ints[here + CHILD]) * nodes.words
            for label in range(n_classes):
                customers = _customers(nodes, here, child, label)
                forecasts[tree, i, label] += of_customer * customers + of_table * (nodes.ints[here + STATS + label] > 0)
    uniform = (carried + rest) / n_classes
    for label in range(n_classes):
        forecasts[tree, i, label] += uniform


@inlined
def _forecast_of(nodes, here, rules, discount, scale, label, above, k):
    """Probability that the node at place k of a path alone gives to a label. above: that of its parent."""
    n_classes, _, _, _, smooths, _ = rules
    count = nodes.ints[here + STATS + index(label)]
    if not smooths:
        return count * scale
    prior = above if k > index(0) else 1.0 / n_classes
    customers = np.int64(count)
    if not _class_hides(nodes, here, rules, rules[1]):
        customers = _customers(nodes, here, index(nodes.ints[here + CHILD]) * nodes.words, index(label))
    return (customers - discount * (count > 0) + discount * nodes.ints[here + DISTINCT] * prior) * scale


@inlined
def _predict_number(nodes, path, rules, means, variances, stops, fresh, forecasts, tree, i):
    """Mean and variance of a number by the shares of the nodes; all but the shares is as in number_means.py."""
    mix(True, path.length, means, variances, stops, fresh, forecasts, tree, i)


CLASSES = Statistics(
    rules_of=_rules_of, derive=_derive, predict=_predict, update=update, halve=halve,
    forecast_of=_forecast_of, hides=_class_hides, lifetime_of=_lifetime_of,
)  # fmt: skip
NUMBERS = NUMBER_MEANS._replace(
    rules_of=_rules_of, predict=_predict_number, may_split=every_leaf, hides=_number_hides, lifetime_of=_lifetime_of
)

CLASSIFIER = tree_kernels(CLASSES, class_calibration.CALIBRATION, _branch_off, aggregates=False)
REGRESSOR = tree_kernels(NUMBERS, number_calibration.CALIBRATION, _branch_off, aggregates=False)
