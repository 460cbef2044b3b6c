"""Labels that are classes: what a node says of them, and how its counts change. The rules of walk.py.

rules: (number of classes, strength and inherit of the forecaster (shrinkage.py), whether a fresh leaf pays for its
first sample, whether a leaf splits while all its labels agree).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from amf.jit.decorators import called, index, inlined, kernel
from amf.jit.vectors import LANES, address_in, data_of, intrinsic, ir, load_vector, plain_form_of
from amf.memory.arena import CHILD, COUNT, DISTINCT, STATS
from amf.memory.binding import RULES
from amf.memory.halving import halve_counts
from amf.memory.paths import head_at
from amf.statistics.interface import Statistics
from amf.statistics.shrinkage import UNIFORM_SHARE, class_forecast, prior_strength


@intrinsic
def _weigh_counts(typingctx, ints, words, first, path, start, length, weights, sums):
    signature = types.void(ints, words, first, path, start, length, weights, sums)
    counts_type, sums_type = (ir.VectorType(element, LANES) for element in (ir.IntType(32), ir.DoubleType()))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ints, path, weights, out = (data_of(context, builder, signature, args, place) for place in (0, 3, 6, 7))
        words, first, start, length = args[1], args[2], args[4], args[5]
        integer, lane = length.type, ir.IntType(32)
        sums = cgutils.alloca_once_value(builder, ir.Constant(sums_type, [0.0] * LANES))
        with cgutils.for_range(builder, length, intp=integer) as loop:
            k = builder.sub(builder.sub(length, integer(1)), loop.index)
            row = builder.load(address_in(builder, path, builder.add(start, k), integer), typ=integer)
            counts = load_vector(builder, ints, builder.add(builder.mul(row, words), first), counts_type)
            weight = builder.load(address_in(builder, weights, k, ir.DoubleType()), typ=ir.DoubleType())
            nothing = ir.Constant(sums_type, ir.Undefined)
            spread = builder.shuffle_vector(
                builder.insert_element(nothing, weight, lane(0)), nothing, ir.Constant(counts_type, [0] * LANES)
            )
            weighted = builder.fmul(spread, builder.sitofp(counts, sums_type))
            builder.store(builder.fadd(builder.load(sums), weighted), sums)
        builder.store(builder.load(sums), builder.bitcast(out, sums_type.as_pointer()), align=8)
        return context.get_dummy_value()

    return signature, codegen


@plain_form_of(_weigh_counts)
def weigh_counts(ints, words, first, path, start, length, weights, sums):
    """Fill sums[:LANES], float64, with sums over the nodes of a path, from the last one on, of weighted class counts.

    first: word of the first class's count in a head. weights: float64, one for each node of the path. Up to 7 words
    beyond a head may be read, and sums of words that are no counts mean nothing.
    """
    sums[:LANES] = 0.0
    for j in range(length):
        here = path[start + length - index(1) - j] * words + first
        for lane in range(min(LANES, ints.shape[0] - here)):
            sums[lane] += weights[length - index(1) - j] * ints[here + lane]


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
def derive(nodes, path, rules, strengths, scales):
    """Weight of the prior and 1 / (samples + that weight) of each node: the division stays out of the other loops."""
    _, strength, inherit, _, _ = rules
    for k in range(path.length):
        here = head_at(nodes, path, k)
        strengths[k] = prior_strength(strength, nodes.ints[here + DISTINCT], inherit)
        scales[k] = nodes.ints[here + COUNT] + strengths[k]
    for k in range(path.length):
        scales[k] = 1.0 / scales[k]


@inlined
def predict(nodes, path, rules, strengths, scales, stops, fresh, forecasts, tree, i):
    """Class probabilities. From the leaf upwards, since a node's forecast is its counts and a share of its parent's."""
    n_classes, _, inherit, _, _ = rules
    carried, uniform = 0.0, 1.0 if path.length == index(0) else 0.0
    for j in range(path.length):
        k = path.length - index(1) - j
        share = stops[k]
        if inherit:
            share += fresh[k] + carried  # an empty leaf repeats its parent
        share *= scales[k]
        stops[k] = share
        carried = share * strengths[k]
        if inherit:
            uniform += UNIFORM_SHARE * carried
            carried *= 1.0 - UNIFORM_SHARE
        else:
            uniform += carried + fresh[k]
    if inherit:
        uniform += carried  # the prior of the root
    uniform /= n_classes
    for first in range(index(0), n_classes, index(LANES)):
        weigh_counts(nodes.ints, nodes.words, STATS + first, path.rows, path.start, path.length, stops, fresh)
        for lane in range(min(index(LANES), n_classes - first)):
            forecasts[tree, i, first + lane] = fresh[lane] + uniform


@inlined
def forecast_of(nodes, here, rules, strength, scale, label, above, k):
    """Probability that the node at place k of a path alone gives to a label. above: that of its parent."""
    n_classes, _, inherit, _, _ = rules
    prior = 1.0 / n_classes
    if inherit and k > index(0):
        prior = above + UNIFORM_SHARE * (prior - above)
    return class_forecast(nodes.ints[here + STATS + index(label)], prior, strength, scale)


@inlined
def forecast_of_empty(rules, label, above):
    """Probability that an empty leaf gives to a label. above: that of its parent."""
    n_classes, _, inherit, _, _ = rules
    return above if inherit else 1.0 / n_classes


@inlined
def likelihoods(nodes, path, rules, strengths, scales, label, given):
    """Probability that each node alone gives to the label."""
    above = 0.0
    for k in range(path.length):
        above = forecast_of(nodes, head_at(nodes, path, k), rules, strengths[k], scales[k], label, above, k)
        given[k] = above


@inlined
def likelihood_of_empty(rules, strength, scale, likelihood, label):
    """Probability that an empty leaf gives to the label, 1 where its first sample is free. likelihood: its parent's."""
    charge_first = rules[3]
    return forecast_of_empty(rules, label, likelihood) if charge_first else 1.0


@inlined
def update(nodes, here, rules, label):
    """Count a label at a node."""
    at = here + STATS + index(label)
    nodes.ints[here + DISTINCT] += nodes.ints[at] == 0
    nodes.ints[at] += 1
    nodes.ints[here + COUNT] += 1


@called
def halve(nodes, tree, rules):
    """Halve the counts of a tree whose root's is full (halving.py)."""
    n_classes = rules[0]
    rows = halve_counts(nodes, tree, STATS, STATS + n_classes)
    for k in range(rows.shape[0]):
        here, total, distinct = rows[k] * nodes.words, 0, 0
        for label in range(n_classes):
            total += nodes.ints[here + STATS + label]
            distinct += nodes.ints[here + STATS + label] > 0
        nodes.ints[here + COUNT], nodes.ints[here + DISTINCT] = total, distinct


@kernel
def add_up(heads, n_classes):
    """Whether the counts of every node are counts, no fewer than those below it, and its labels as many as they say.

    heads: the block of an arena, rows that are not in use included.
    """
    for node in range(heads.shape[0]):
        total, distinct, child = np.int64(0), np.int64(0), heads[node, CHILD]
        for word in range(STATS, index(heads.shape[1])):
            count = np.int64(heads[node, word])
            below = np.int64(0)
            if child > 0:
                below = np.int64(heads[child, word]) + np.int64(heads[child + 1, word])
            if count < below or count < 0 or (count > 0 and word >= STATS + n_classes):
                return False
            total += count
            distinct += count > 0
        if total != heads[node, COUNT] or distinct != heads[node, DISTINCT]:
            return False
    return True


@inlined
def may_split(nodes, here, rules, label):
    """A leaf whose labels all agree with the sample's stays whole, unless `split_pure` says otherwise."""
    return rules[4] or nodes.ints[here + STATS + index(label)] != nodes.ints[here + COUNT]


CLASS_COUNTS = Statistics(
    rules_of, derive, predict, update, halve, forecast_of, may_split, forecast_of_empty, likelihoods,
    likelihood_of_empty,
)  # fmt: skip
