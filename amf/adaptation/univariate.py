"""What each feature tells of the labels by itself: counts of labels in bins of the feature, and what follows from them.

The values of a feature fall into four bins, whose bounds are the quartiles of the subsample of its moves (scaling.py).
Labels fall into eight groups. The first eight classes that come have one each, whatever their numbers are, and later
ones go by their numbers modulo eight. Numbers go by their place among the octiles of recent labels, so that neither
their unit nor an outlier matters. A number that equals octiles, as zero does where most labels are zero, is in the
middle of the groups that these part, or half in each of two: so the sign of labels does not matter, either. Bounds
change at reviews (reviews.py), and never follow from the labels of the bins that they part: a feature that is
independent of the labels stays so in its table, whose older counts may belong to older bounds.

Of classes the statistic of a table is twice the logarithm of the likelihood ratio between the frequencies of groups in
each bin and those in all of them, of numbers the sum of squares of the mean ranks of groups between bins, over their
variance. Of an uninformative feature it is about as large as its degrees of freedom f, with standard deviation
sqrt(2 f), since both are chi-square then. A feature gains

    max(statistic - f - 3 sqrt(2 f), 0) / 2

nats in all: of what may be chance nothing is left, however many features there are.
Counts shrink at each review as feature_weights.py says, which makes chance smaller than this reckons, never larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amf.jit.decorators import called, inlined
from amf.jit.elementary import log

N_BOUNDS, N_GROUPS, N_RECENT = 3, 8, 64
N_CELLS = (N_BOUNDS + 1) * N_GROUPS
N_LABEL_BOUNDS = N_GROUPS - 1
_BINS = N_BOUNDS + 1
_LEAST_LOSS = 1e-300
_ALIKE = 0.8
"""Labels are alike if their entropy is less than that of the counted ones, times this."""
_KNOWS_MORE = 0.9
"""Forecasts know more than that labels are alike if their loss is less than the entropy of these, times this."""
_DEVIATIONS = 3.0
"""Standard deviations by which a statistic has to exceed what chance makes of it."""


class Kind(NamedTuple):
    """A kind of labels: functions for kernels."""

    group: Callable[..., Any]
    """(label, groups) -> the two groups of a label, which may be one. groups: float64 (N_GROUPS,), of numbers the
    bounds between them, and a last number that is not used; of classes those that came first, each its number plus one,
    and 0 where there is none yet: a label may be the next one."""
    part: Callable[..., Any]
    """(recent, n_labels, groups): lets groups have new bounds. recent: float64 (N_RECENT,) labels, of which `n_labels`
    are there if fewer."""
    statistic: Callable[..., Any]
    """(table, j) -> (statistic, degrees of freedom) of feature j. table: float64 (d * N_CELLS,), counts of the groups
    in each bin of each feature."""
    trivial: Callable[..., Any]
    """(table, labels) -> the mean loss below which forecasts of these labels, the last ones, know more than that
    they are alike; infinite where they are not, and of numbers."""
    nats: Callable[..., Any]
    """(loss, other, n) -> nats by which n labels speak against forecasts of this mean loss and for those of another."""


@inlined
def _between(values, at):
    """Halfway between a number, of those given in order, and the one before it."""
    return 0.5 * values[at - (at > 0)] + 0.5 * values[at]


@inlined
def _of_class(label, groups):
    number = int(label)
    for k in range(N_GROUPS):
        if groups[k] == 0.0:
            groups[k] = number + 1.0
        if groups[k] == number + 1.0:
            return k, k
    return number % N_GROUPS, number % N_GROUPS


@inlined
def _of_number(label, groups):
    below = 0
    for k in range(N_LABEL_BOUNDS):
        below += label > groups[k]
        below += label >= groups[k]
    return below // 2, (below + 1) // 2


@inlined
def _keep_parts(recent, n_labels, groups):
    pass


@called
def _part_by_octiles(recent, n_labels, groups):
    there = min(n_labels, N_RECENT)
    values = np.sort(recent[:there])
    for k in range(N_LABEL_BOUNDS):
        groups[k] = _between(values, (k + 1) * there // N_GROUPS)


@inlined
def _x_log_x(x):
    return x * log(x) if x > 0.0 else 0.0


@inlined
def _sum_of_bin(table, at):
    total = 0.0
    for group in range(N_GROUPS):
        total += table[at + group]
    return total


@inlined
def _likelihood_ratio(table, j):
    at, total, entropy, n_bins, n_groups = N_CELLS * j, 0.0, 0.0, 0, 0
    for b in range(_BINS):
        counted = _sum_of_bin(table, at + b * N_GROUPS)
        n_bins += counted > 0.0
        total += counted
        entropy -= _x_log_x(counted)
    for group in range(N_GROUPS):
        counted = 0.0
        for b in range(_BINS):
            count = table[at + b * N_GROUPS + group]
            counted += count
            entropy += _x_log_x(count)
        n_groups += counted > 0.0
        entropy -= _x_log_x(counted)
    return 2.0 * (entropy + _x_log_x(total)), float(max(n_bins - 1, 0) * max(n_groups - 1, 0))


@inlined
def _variance_ratio(table, j):
    at, total, ranks, squares, n_bins = N_CELLS * j, 0.0, 0.0, 0.0, 0
    for b in range(_BINS):
        for group in range(N_GROUPS):
            count = table[at + b * N_GROUPS + group]
            total += count
            ranks += count * group
            squares += count * group * group
    mean = ranks / max(total, 1.0)
    between = 0.0
    for b in range(_BINS):
        counted, ranks = 0.0, 0.0
        for group in range(N_GROUPS):
            count = table[at + b * N_GROUPS + group]
            counted += count
            ranks += count * group
        n_bins += counted > 0.0
        if counted > 0.0:
            between += (ranks / counted - mean) * (ranks / counted - mean) * counted
    variance = squares / max(total, 1.0) - mean * mean
    return (between / variance if variance > 1e-9 else 0.0), float(max(n_bins - 1, 0))


@called
def _trivial_loss(table, labels):
    n, same = labels.shape[0], 0.0
    for i in range(n):
        alike = 0.0
        for j in range(n):
            alike += labels[j] == labels[i]
        same += log(alike) / n
    entropy = log(float(n)) - same
    counts, counted, usual = np.zeros(N_GROUPS), 0.0, 0.0
    for k in range(table.shape[0]):
        counts[k % N_GROUPS] += table[k]
        counted += table[k]
    for k in range(N_GROUPS):
        usual += _x_log_x(counts[k])
    usual = log(counted) - usual / counted if counted > 0.0 else 0.0
    return _KNOWS_MORE * max(entropy, 0.0) if entropy < _ALIKE * usual else np.inf


@inlined
def _never_trivial(table, labels):
    return np.inf


@inlined
def _of_log_losses(loss, other, n):
    return n * (loss - other)


@inlined
def _of_squared_errors(loss, other, n):
    """Of normal distributions with these variances."""
    return 0.5 * n * (log(loss) - log(max(other, _LEAST_LOSS))) if loss > other else 0.0


CLASSES = Kind(_of_class, _keep_parts, _likelihood_ratio, _trivial_loss, _of_log_losses)
NUMBERS = Kind(_of_number, _part_by_octiles, _variance_ratio, _never_trivial, _of_squared_errors)


@inlined
def count(table, bounds, x, i, low, high):
    """Count a label of these two groups in the bins of row i of x, float64 (n, d). bounds: float64 (d * N_BOUNDS,)."""
    for j in range(x.shape[1]):
        value, at, b = x[i, j], N_BOUNDS * j, 0
        if value == value:
            for k in range(N_BOUNDS):
                b += value > bounds[at + k]
            table[N_CELLS * j + b * N_GROUPS + low] += 0.5
            table[N_CELLS * j + b * N_GROUPS + high] += 0.5


@inlined
def bound_feature(values, bounds, j):
    """Fill the bounds of a feature with quartiles of its values, which are given in order, an even number of them."""
    for k in range(N_BOUNDS):
        at = (k + 1) * values.shape[0] // _BINS
        bounds[N_BOUNDS * j + k] = _between(values, at)


@inlined
def gain_of(statistic, freedom, table, j):
    """(what a feature gains in all, nats; labels that are counted in its table)."""
    total = 0.0
    for b in range(_BINS):
        total += _sum_of_bin(table, N_CELLS * j + b * N_GROUPS)
    beyond_chance = statistic - freedom - _DEVIATIONS * math.sqrt(2.0 * freedom)
    return 0.5 * max(beyond_chance, 0.0), max(total, 1.0)
