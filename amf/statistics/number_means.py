"""Labels that are numbers: what a node says of them, and how its mean changes. The rules of walk.py.

A node forecasts the mean of its labels. Its evidence for the averaging is `exp(-loss)` of the square loss over 8 B**2,
as in the paper, or the density of a Student distribution with three degrees of freedom about the mean, whose variance
is shrunk to that of the parent: the unit and the zero of the labels cancel in every ratio of such densities, so that
nothing has to be known of them in advance.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from amf.inputs.scalars import LARGEST_NUMBER
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import exp, square
from amf.memory.arena import COUNT, ROOT, STATS, row_of
from amf.memory.binding import RULES
from amf.memory.halving import halve_counts
from amf.memory.paths import head_at
from amf.statistics.interface import Statistics

MEAN, SQUARES = STATS // index(2), STATS // index(2) + index(1)  # in float64 words: mean, sum of squares about it
STATS_ROOM = 4
AGGREGATE, VARIANCE, LEAF = range(3)
"""What a tree says of a sample: mean over prunings, variance of their mixture, mean of the sample's leaf."""

_FREEDOM = 3.0
_SMALLEST = 1e-60


@inlined
def derive(nodes, path, rules, means, variances):
    """Mean of each node, and its variance, shrunk to that of its parent."""
    for k in range(path.length):
        here = head_at(nodes, path, k)
        n = np.float64(nodes.ints[here + COUNT])
        means[k] = nodes.reals[here // index(2) + MEAN]
        squares = nodes.reals[here // index(2) + SQUARES]
        if k == index(0):
            variances[k] = squares / max(n - 1.0, 1.0)
        else:
            variances[k] = (squares + _FREEDOM * variances[k - index(1)]) / (n + _FREEDOM)


@inlined
def predict(nodes, path, rules, means, variances, stops, fresh, forecasts, tree, i):
    """AGGREGATE, VARIANCE and LEAF. An empty leaf repeats its parent where evidence is a density, else it says 0."""
    mix(rules[0], path.length, means, variances, stops, fresh, forecasts, tree, i)


@inlined
def mix(repeats_parent, length, means, variances, stops, fresh, forecasts, tree, i):
    """Fill AGGREGATE, VARIANCE and LEAF with those of the mixture of nodes, by their shares `stops`, and of the empty
    leaves above them, by theirs, `fresh`; NaN where nothing is known. Shifted by the root's mean, so that nothing
    cancels. repeats_parent: whether an empty leaf says what its parent does; else it says 0.
    """
    if length == index(0):
        for k in range(3):
            forecasts[tree, i, k] = np.nan
        return
    origin, mean, squared = means[0], 0.0, 0.0
    for k in range(length):
        share, shifted = stops[k], means[k] - origin
        if repeats_parent:
            share += fresh[k]
        else:
            mean -= fresh[k] * origin
            squared += fresh[k] * (variances[k] + origin * origin)
        mean += share * shifted
        squared += share * (variances[k] + shifted * shifted)
    forecasts[tree, i, AGGREGATE] = origin + mean
    forecasts[tree, i, VARIANCE] = max(squared - mean * mean, 0.0)
    forecasts[tree, i, LEAF] = means[length - index(1)]


@inlined
def likelihoods(nodes, path, rules, means, variances, label, given):
    """Evidence of each node for the label: a density up to a factor that all nodes share."""
    student, bound, _, _ = rules
    for k in range(path.length):
        if not student:
            given[k] = _square_evidence(means[k], label, bound)
        elif variances[k] == 0.0:
            given[k] = 1.0
        else:
            closeness = _closeness(means[k], variances[k], label)
            given[k] = closeness * closeness / math.sqrt(variances[k])


@inlined
def likelihood_of_empty(rules, mean, variance, evidence, label):
    """Evidence of an empty leaf for the label: its parent's, or halfway between that and its peak where it is free."""
    student, bound, charge_first, _ = rules
    if not student:
        return _square_evidence(0.0, label, bound) if charge_first else 1.0
    if charge_first or variance == 0.0:
        return evidence
    return _closeness(mean, variance, label) / (_FREEDOM * math.sqrt(variance))


@inlined
def _square_evidence(mean, label, bound):
    """exp(-loss) of the square loss over 8 bound**2 ([AMF] Eq. 4), both numbers clipped to [-bound, bound]."""
    miss = (min(max(mean, -bound), bound) - min(max(label, -bound), bound)) / bound
    return exp(-miss * miss / 8.0)


@inlined
def _closeness(mean, variance, label):
    """Square root of Student's density, unnormed."""
    return max(variance / (_FREEDOM * variance + square(label - mean)), _SMALLEST)


@inlined
def update(nodes, here, rules, label):
    """Add a label to a node (Welford)."""
    mean, squares = here // index(2) + MEAN, here // index(2) + SQUARES
    nodes.ints[here + COUNT] += 1
    beyond = label - nodes.reals[mean]
    nodes.reals[mean] += beyond / nodes.ints[here + COUNT]
    nodes.reals[squares] += beyond * (label - nodes.reals[mean])


@inlined
def may_split(nodes, here, rules, label):
    """A leaf whose labels all equal the sample's stays whole, unless `split_pure` says otherwise."""
    return (
        rules[3]
        or nodes.reals[here // index(2) + SQUARES] != 0.0
        or nodes.reals[here // index(2) + MEAN] != label
    )  # fmt: skip


@inlined
def rules_of(numbers):
    """(evidence by density or by square loss; bound of that; whether a fresh leaf pays; whether pure leaves split)."""
    return (
        numbers[RULES] != 0.0,
        numbers[RULES + index(1)],
        numbers[RULES + index(2)] != 0.0,
        numbers[RULES + index(3)] != 0.0,
    )


@called
def halve(nodes, tree, rules):
    """Halve the counts of a tree whose root's is full (halving.py); means and variances stay."""
    n_trees = index(nodes.used.shape[0])
    for number in range(ROOT, nodes.used[tree]):
        here = row_of(number, tree, n_trees) * nodes.words
        nodes.reals[here // index(2) + SQUARES] /= nodes.ints[here + COUNT]
    rows = halve_counts(nodes, tree, COUNT, COUNT + index(1))
    for k in range(rows.shape[0]):
        here = rows[k] * nodes.words
        nodes.reals[here // index(2) + SQUARES] *= nodes.ints[here + COUNT]


@inlined
def forecast_of(nodes, here, rules, mean, variance, value, above, k):
    """The mean of a node's labels, the only number that it says by itself."""
    return mean


@inlined
def forecast_of_empty(rules, value, above):
    """What an empty leaf says. above: what its parent does."""
    return above if rules[0] else 0.0


@inlined
def mean_over_trees(forecasts, i):
    """(aggregate over prunings, mean of the leaves, standard deviation of the mixture over prunings and trees)."""
    n_trees = index(forecasts.shape[0])
    aggregate, leaf, variance = 0.0, 0.0, 0.0
    # Beside the first tree: of trees that agree the mean is what they say then, to the last bit. A first error that is
    # rounding alone would be the usual one.
    first, first_leaf = forecasts[0, i, AGGREGATE], forecasts[0, i, LEAF]
    for tree in range(n_trees):
        aggregate += forecasts[tree, i, AGGREGATE] - first
        leaf += forecasts[tree, i, LEAF] - first_leaf
        variance += forecasts[tree, i, VARIANCE]
    aggregate = first + aggregate / n_trees
    leaf = first_leaf + leaf / n_trees
    for tree in range(n_trees):
        beside = forecasts[tree, i, AGGREGATE] - aggregate
        variance += beside * beside
    return aggregate, leaf, math.sqrt(variance / n_trees)


@inlined
def loss_of_number(forecasts, tree, i, label):
    """Squared error of what one tree says of a row, NaN where it says nothing."""
    return square(forecasts[tree, i, AGGREGATE] - label)


def are_sound(heads: NDArray[np.int32]) -> bool:
    """Whether the statistics of nodes, int32 (n, words), follow from labels within LARGEST_NUMBER."""
    means, squares = (heads.view(np.float64)[:, int(column)] for column in (MEAN, SQUARES))
    largest = heads[:, COUNT] * (2.1 * LARGEST_NUMBER) ** 2
    return bool(np.all((np.abs(means) <= 1.1 * LARGEST_NUMBER) & (squares >= 0.0) & (squares <= largest)))


NUMBER_MEANS = Statistics(
    rules_of, derive, predict, update, halve, forecast_of, may_split, forecast_of_empty, likelihoods,
    likelihood_of_empty,
)  # fmt: skip
