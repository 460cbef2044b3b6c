"""Labels that are classes: what a node says of them, and how its counts change. The rules of walk.py.

rules: (number of classes, strength and inherit of the forecaster (forecasters.py), whether a fresh leaf pays for its
first sample, whether a leaf splits while all its labels agree).
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, inlined, kernel
from amf.arena import COUNT, DISTINCT, LARGEST_COUNT, STATS
from amf.binding import RULES
from amf.forecasters import UNIFORM_SHARE, class_forecast, prior_strength


@inlined
def rules_of(numbers):
    """The rules of a forest, of its words (binding.py) as float64."""
    return (
        index(numbers[RULES]),
        numbers[RULES + index(1)],
        numbers[RULES + index(2)] != 0.0,
        numbers[RULES + index(3)] != 0.0,
        numbers[RULES + index(4)] != 0.0,
    )


@inlined
def consider(ints, reals, words, path, start, length, rules, strengths, scales):
    """Weight of the prior and 1 / (samples + that weight) of each node: the division stays out of the loops."""
    _, strength, inherit, _, _ = rules
    for k in range(length):
        here = path[start + k] * words
        strengths[k] = prior_strength(strength, ints[here + DISTINCT], inherit)
        scales[k] = 1.0 / (ints[here + COUNT] + strengths[k])


@inlined
def report(
    ints, reals, words, path, start, length, rules, strengths, scales, stops, fresh, forecasts, tree, i
):  # fmt: skip
    """Class probabilities. From the leaf upwards, since a node's forecast is its counts and a share of its parent's."""
    n_classes, _, inherit, _, _ = rules
    for label in range(n_classes):
        forecasts[tree, i, label] = 0.0
    carried, uniform = 0.0, 1.0 if length == index(0) else 0.0
    for j in range(length):
        k = length - index(1) - j
        here = path[start + k] * words
        share = stops[k]
        if inherit:
            share += fresh[k] + carried  # an empty leaf repeats its parent
        share *= scales[k]
        for label in range(n_classes):
            forecasts[tree, i, label] += share * ints[here + STATS + label]
        carried = share * strengths[k]
        if inherit:
            uniform += UNIFORM_SHARE * carried
            carried *= 1.0 - UNIFORM_SHARE
        else:
            uniform += carried + fresh[k]
    if inherit:
        uniform += carried  # the prior of the root
    uniform /= n_classes
    for label in range(n_classes):
        forecasts[tree, i, label] += uniform


@inlined
def judge(ints, here, rules, strength, scale, depth, above, label):
    """Probability that the node alone gives to the label."""
    n_classes, _, inherit, _, _ = rules
    prior = 1.0 / n_classes
    if inherit and depth > index(0):
        prior = above + UNIFORM_SHARE * (prior - above)
    return class_forecast(ints[here + STATS + index(label)], prior, strength, scale)


@inlined
def charge(rules, strength, scale, forecast, label):
    """Probability that an empty leaf gives to the label, 1 where its first sample is free."""
    n_classes, _, inherit, charge_first, _ = rules
    if not charge_first:
        return 1.0
    return forecast if inherit else 1.0 / n_classes


@inlined
def count(ints, reals, here, rules, label):
    """Count a label at a node. A full counter halves the counts of its node first, so that no stream overflows it."""
    if ints[here + COUNT] == LARGEST_COUNT:
        halve(ints, here, rules[0])
    at = here + STATS + index(label)
    ints[here + DISTINCT] += ints[at] == 0
    ints[at] += 1
    ints[here + COUNT] += 1


@called
def halve(ints, here, n_classes):
    """Halve the counts of a node."""
    total, distinct = np.int32(0), np.int32(0)
    for label in range(n_classes):
        ints[here + STATS + label] //= 2
        total += ints[here + STATS + label]
        distinct += ints[here + STATS + label] > 0
    ints[here + COUNT] = total
    ints[here + DISTINCT] = distinct


@kernel
def add_up(heads, n_classes):
    """Whether the counts of every node are counts, and its labels as many as they say."""
    for node in range(heads.shape[0]):
        total = np.int64(0)
        for label in range(n_classes):
            count = heads[node, STATS + label]
            if count < 0:
                return False
            total += np.int64(count)
        if total != heads[node, COUNT]:
            return False
    return True


@inlined
def may_part(ints, reals, here, rules, label):
    """A leaf whose labels all agree with the sample's stays whole, unless `split_pure` says otherwise."""
    return rules[4] or ints[here + STATS + index(label)] != ints[here + COUNT]
