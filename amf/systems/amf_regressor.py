"""Aggregated Mondrian Forest, regression ([000] Sec. 1.4, Eq. 4): means of numbers as statistics, evidence by density.

A node forecasts the mean of its labels. Its evidence for the averaging is `exp(-loss)` of the square loss over 8 B**2,
as in the paper, or the density of a Student distribution with three degrees of freedom about the mean, whose variance
is shrunk to that of the parent: the unit and the zero of the labels cancel in every ratio of such densities, so that
nothing has to be known of them in advance.
"""

from __future__ import annotations

import math

import numpy as np

from amf._kernel import index, inlined, kernel
from amf.arena import COUNT, LARGEST_COUNT, STATS
from amf.batches import batches_of
from amf.binding import RULES
from amf.elementary import exp
from amf.number_calibration import AGGREGATE, LEAF, VARIANCE, calibrate
from amf.walk import walk_of

MEAN, SQUARES = STATS // index(2), STATS // index(2) + index(1)  # in float64 words: mean, sum of squares about it
STATS_ROOM = 4

_FREEDOM = 3.0
_SMALLEST = 1e-60


@inlined
def consider(ints, reals, words, path, start, length, rules, means, variances):
    """Mean of each node, and its variance, shrunk to that of its parent."""
    for k in range(length):
        here = path[start + k] * words
        n = np.float64(ints[here + COUNT])
        means[k] = reals[here // index(2) + MEAN]
        squares = reals[here // index(2) + SQUARES]
        if k == index(0):
            variances[k] = squares / max(n - 1.0, 1.0)
        else:
            variances[k] = (squares + _FREEDOM * variances[k - index(1)]) / (n + _FREEDOM)


@inlined
def report(
    ints, reals, words, path, start, length, rules, means, variances, stops, fresh, forecasts, tree, i
):  # fmt: skip
    """AGGREGATE, VARIANCE and LEAF; NaN where nothing is known. Shifted by the root's mean, so that nothing cancels."""
    student, _, _, _ = rules
    if length == index(0):
        for k in range(3):
            forecasts[tree, i, k] = np.nan
        return
    origin, mean, square = means[0], 0.0, 0.0
    for k in range(length):
        share, shifted = stops[k], means[k] - origin
        if student:
            share += fresh[k]  # an empty leaf repeats its parent
        else:
            mean -= fresh[k] * origin  # an empty leaf says 0
            square += fresh[k] * (variances[k] + origin * origin)
        mean += share * shifted
        square += share * (variances[k] + shifted * shifted)
    forecasts[tree, i, AGGREGATE] = origin + mean
    forecasts[tree, i, VARIANCE] = max(square - mean * mean, 0.0)
    forecasts[tree, i, LEAF] = means[length - index(1)]


@inlined
def judge(ints, here, rules, mean, variance, depth, above, label):
    """Evidence of the node for the label: a density up to a factor that all nodes share."""
    student, bound, _, _ = rules
    if not student:
        return _square_evidence(mean, label, bound)
    if variance == 0.0:
        return 1.0
    closeness = _closeness(mean, variance, label)
    return closeness * closeness / math.sqrt(variance)


@inlined
def charge(rules, mean, variance, evidence, label):
    """Evidence of an empty leaf for the label: its parent's, or halfway between that and its peak where it is free."""
    student, bound, charge_first, _ = rules
    if not student:
        return _square_evidence(0.0, label, bound) if charge_first else 1.0
    if charge_first or variance == 0.0:
        return evidence
    return _closeness(mean, variance, label) / (_FREEDOM * math.sqrt(variance))


@inlined
def _square_evidence(mean, label, bound):
    """exp(-loss) of the square loss over 8 bound**2 ([000] Eq. 4), both numbers clipped to [-bound, bound]."""
    miss = (min(max(mean, -bound), bound) - min(max(label, -bound), bound)) / bound
    return exp(-miss * miss / 8.0)


@inlined
def _square(x):
    """Not x**2, which without a compiler goes to the C library."""
    return x * x


@inlined
def _closeness(mean, variance, label):
    """Square root of Student's density, unnormed."""
    return max(variance / (_FREEDOM * variance + _square(label - mean)), _SMALLEST)


@inlined
def count(ints, reals, here, rules, label):
    """Add a label to a node (Welford). A full counter is halved first, and the sum of squares with it."""
    mean, squares = here // index(2) + MEAN, here // index(2) + SQUARES
    if ints[here + COUNT] == LARGEST_COUNT:
        ints[here + COUNT] //= 2
        reals[squares] *= 0.5
    ints[here + COUNT] += 1
    beyond = label - reals[mean]
    reals[mean] += beyond / ints[here + COUNT]
    reals[squares] += beyond * (label - reals[mean])


@inlined
def may_part(ints, reals, here, rules, label):
    """A leaf whose labels all equal the sample's stays whole, unless `split_pure` says otherwise."""
    return rules[3] or reals[here // index(2) + SQUARES] != 0.0 or reals[here // index(2) + MEAN] != label


@inlined
def _rules_of(numbers):
    """(evidence by density or by square loss; bound of that; whether a fresh leaf pays; whether pure leaves split)."""
    return (
        numbers[RULES] != 0.0,
        numbers[RULES + index(1)],
        numbers[RULES + index(2)] != 0.0,
        numbers[RULES + index(3)] != 0.0,
    )


_run, _walk_trees = batches_of(walk_of(consider, report, judge, charge, count, may_part), calibrate, _rules_of)


@kernel
def run(
    forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
):  # fmt: skip
    """As batches.py says; labels: float64 (n,), outputs: float64 (n, 3) as number_calibration.py says."""
    _run(
        forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
    )  # fmt: skip


@kernel
def walk_trees(words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths):
    """As batches.py says; forecasts: float64 (n_trees, n, 3), see `report`."""
    _walk_trees(
        words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths
    )  # fmt: skip
