"""Room in a full tree: it forgets the leaves on which the fewest recent forecasts rest.

A leaf is forgotten by the inverse of the step that inserted it ([AMF] Alg. 5): its sibling, with all that is below it,
moves up into the place of their parent. The tree becomes the one that the other leaves induce: every inner node has a
survivor on either side, and keeps its box, cut, time, odds and statistics. Restricted to fewer points a Mondrian
process still is one, so the tree grows on by the same rules: no leaf is empty, and none covers a region in which
nothing could be split again, as the root of a subtree would that is folded into a leaf. Nodes above keep the labels
that were counted in what is forgotten.

Which leaves go. The worth of a leaf is its heat times its share. The share is the posterior probability that a pruning
which is averaged goes on down to the leaf, the product of 1 - q (aggregation.py) over the nodes above it: what
forecasts there owe to it. Where labels have changed, or where there is nothing to tell apart, prunings stop higher up,
and all that is below becomes worthless. The heat of a leaf are the samples that came to it, the older ones for less:
while a tree of L leaves learns n samples, all that was shrinks by 1 / (1 + n / (m L)), so that a sample is remembered
for about m further ones a leaf. Counts that never age would keep a region to which no sample comes any more, and send
away the new ones of another one. Caches that count requests have the same trouble and mend it so: TinyLFU (Einziger,
Friedman, Manes 2017) halves its counts once there were so many requests for each entry. What a node counts for its
forecasts does not age.

A memory that is right for a stream of rare visits is too long once the stream moves on. So m follows from how well heat
foretells where samples come. If they came to each leaf in proportion to its heat h, the mean heat of the leaves that
they come to were sum h^2 / sum h; what it really was, over that, but at most 1, is the foresight r, and m = 40 r^2.
After a change r is next to nothing, and soon only the leaves of today have heat; then r is near 1 again. An eighth of a
sample is added to both means: where no leaf is visited twice, as in trees that split for every sample, m is about 1.

An eighth of the leaves goes at a time, those of the least worth, which together have at most an eighth of the worth; of
equals the older ones, which are those of lower number. All of it follows from the nodes of the tree alone: its time are
the samples that its leaves have counted, and is looked at only when something is forgotten. A leaf keeps its heat, and
what it had counted when that was brought up to date, in the two words that say where an inner node splits.

How far that moves forecasts, of samples that lack no value. Where the path of a sample meets no place that another
node moved to, its forecast is the same to the last bit. Elsewhere no probability moves by more than the weight of all
that is at and below the first such place, the product of 1 - q over the nodes above it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.jit.decorators import called, index, inlined, kernel
from amf.kernels.aggregation import chain_odds
from amf.memory.arena import CHILD, COUNT, FEATURE, N_CUTS, ODDS, ROOT, THRESHOLD, number_of, row_of
from amf.memory.halving import is_full

SEEN, HEAT = FEATURE, THRESHOLD
"""Columns of a leaf, int32 and float32, which an inner node has other use for; 0 where nothing was forgotten since the
leaf began: labels seen when the tree last forgot something, and the heat that the leaf had then."""

_LONGEST_MEMORY = 40.0
"""m where heat foretells well: of a shorter one, what came to a leaf within it is more a matter of chance."""
_PRIOR_HEAT = 0.125
"""Samples that are added to mean heats before they are compared."""
_PARTS = 8
"""One leaf in so many goes at a time: if fewer go, rows are moved more often; if more go, more rows are empty."""
_PAIR = index(2)
_FIRST_PAIR = ROOT + index(1)


@called
def forget(nodes, tree):
    """Forget the leaves of least worth of a tree, which has more than one, and close the gaps that they leave."""
    n_trees, end = index(nodes.used.shape[0]), nodes.used[tree]
    # All of these go by numbers of nodes; 0 is no node's.
    child = np.zeros(end, np.uint64)  # the left child, 0 at a leaf
    heir = np.zeros(end, np.uint64)  # the node that takes this place, 0: none is left
    for number in range(ROOT, end):
        here = row_of(number, tree, n_trees) * nodes.words
        if nodes.ints[here + CHILD] != 0:
            child[number] = number_of(index(nodes.ints[here + CHILD]), n_trees)
    order = _downwards(child)
    leaves = _leaves_of(child)
    _bring_up_to_date(nodes, tree, leaves)
    worth = _shares(nodes, tree, child, order)
    for leaf in leaves:
        worth[leaf] *= nodes.floats[row_of(leaf, tree, n_trees) * nodes.words + HEAT]
        if not worth[leaf] > 0.0:  # the same holds of odds
            worth[leaf] = 0.0
    _keep_worthiest(leaves, worth, heir)
    _find_heirs(child, order, heir)
    nodes.used[tree] = _rearrange(nodes, tree, child, heir)


@inlined
def keep_within(nodes, tree, limit):
    """Let a tree forget until it may split again within `limit` rows, where 0 says that it never splits."""
    while limit > index(0) and nodes.used[tree] + index(2) > limit:
        forget(nodes, tree)


def make_keep_in_bounds(halve: Any) -> Any:
    """The function that bounds the counters and the rows of a tree that has learned a sample, for kernels.

    halve: see `Statistics.halve`.
    """

    @inlined
    def keep_in_bounds(nodes, tree, root, limit, rules):
        # A tree forgets once it has learned too much, not when it is about to learn: the forecasts that are made in
        # between must not depend on when they are asked for.
        if is_full(nodes.ints, root, nodes.words):
            halve(nodes, tree, rules)
        keep_within(nodes, tree, limit)

    return keep_in_bounds


@kernel
def shrink(nodes, tree, limit):
    """Let a tree forget until it may split again within `limit` rows."""
    keep_within(nodes, tree, limit)


@called
def _leaves_of(child):
    """Numbers of the leaves, in their order."""
    leaves, length = np.empty(child.shape[0], np.uint64), 0
    for number in range(ROOT, index(child.shape[0])):
        if child[number] == index(0):
            leaves[length] = number
            length += 1
    return leaves[:length]


@called
def _downwards(child):
    """Numbers of all nodes, parents before their children."""
    order, length = np.empty(child.shape[0] - 1, np.uint64), 1
    order[0] = ROOT
    for k in range(order.shape[0]):
        left = child[order[k]]
        if left != index(0):
            order[length], order[length + 1] = left, left + index(1)
            length += 2
    return order


@called
def _bring_up_to_date(nodes, tree, leaves):
    """Let heat age, and add the samples that have come since."""
    n_trees = index(nodes.used.shape[0])
    samples, heats = np.empty(leaves.shape[0]), np.empty(leaves.shape[0])
    for k in range(leaves.shape[0]):
        here = row_of(leaves[k], tree, n_trees) * nodes.words
        samples[k] = max(nodes.ints[here + COUNT] - nodes.ints[here + SEEN], 0)  # a full counter has been halved
        heat = np.float64(nodes.floats[here + HEAT])
        heats[k] = heat if 0.0 <= heat < np.inf else 0.0  # bytes from elsewhere may hold what is no number
    kept = _kept(samples, heats)
    for k in range(leaves.shape[0]):
        here = row_of(leaves[k], tree, n_trees) * nodes.words
        nodes.floats[here + HEAT] = kept * heats[k] + samples[k]
        nodes.ints[here + SEEN] = nodes.ints[here + COUNT]


@called
def _kept(samples, heats):
    """What is left of heat, 0 to 1, when so many samples have come to the leaves."""
    # One sum after the other: numpy's would follow the width of the processor's vectors.
    n_samples, heat, squares, met = 0.0, 0.0, 0.0, 0.0
    for k in range(samples.shape[0]):
        n_samples += samples[k]
        heat += heats[k]
        squares += heats[k] * heats[k]
        met += samples[k] * heats[k]
    if n_samples == 0.0 or heat == 0.0:
        return 1.0
    foresight = min((met / n_samples + _PRIOR_HEAT) / (squares / heat + _PRIOR_HEAT), 1.0)
    memory = _LONGEST_MEMORY * foresight * foresight * samples.shape[0]
    return memory / (memory + n_samples)


@called
def _shares(nodes, tree, child, order):
    """Posterior probability, by number, that a pruning goes on down to the node."""
    n_trees = index(nodes.used.shape[0])
    shares, cuts_above = np.ones(child.shape[0]), np.zeros(child.shape[0], np.int32)
    for number in order:
        left = child[number]
        if left != index(0):
            here = row_of(number, tree, n_trees) * nodes.words
            # Nodes that stand for a single cell, as most systems' do, have no cuts counted.
            n_cells = max(nodes.ints[here + N_CUTS] - cuts_above[number], 1)
            # 1 - q: with all its digits also where next to nothing goes on.
            goes_on = shares[number] / (1.0 + chain_odds(nodes.reals[here // index(2) + ODDS], n_cells))
            for side in range(_PAIR):
                shares[left + side] = goes_on
                cuts_above[left + side] = nodes.ints[here + N_CUTS]
    return shares


@called
def _keep_worthiest(leaves, worth, heir):
    """Make each leaf its own heir, but for those that are forgotten."""
    n_forgotten = max(leaves.shape[0] // _PARTS, 1)
    values = np.empty(leaves.shape[0])
    for k in range(leaves.shape[0]):
        values[k] = worth[leaves[k]]
    largest, n_of_largest = _smallest(values, n_forgotten - 1), n_forgotten
    for leaf in leaves:
        n_of_largest -= worth[leaf] < largest
    for leaf in leaves:
        if worth[leaf] == largest and n_of_largest > 0:
            n_of_largest -= 1
        elif worth[leaf] >= largest:
            heir[leaf] = leaf


@called
def _smallest(values, n):
    """The n-th smallest, from 0, of numbers, which get another order (Hoare's Find)."""
    # numpy's own partition takes ten seconds to compile, and more than the rest of this module.
    first, last = 0, values.shape[0] - 1
    while first < last:
        pivot, left, right = values[n], first, last
        while left <= right:
            while values[left] < pivot:
                left += 1
            while pivot < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if right < n:
            first = left
        if n < left:
            last = right
    return values[n]


@called
def _find_heirs(child, order, heir):
    """Find the heirs of inner nodes: itself where both sides live on, else that of the side which does."""
    for number in order[::-1]:
        left = child[number]
        if left != index(0):
            right = left + index(1)
            both = heir[left] != index(0) and heir[right] != index(0)
            heir[number] = number if both else max(heir[left], heir[right])


@called
def _rearrange(nodes, tree, child, heir):
    """Move heirs up to their places, and then pairs of siblings, in their order, over the gaps; returns rows in use."""
    end, n_trees = index(child.shape[0]), index(nodes.used.shape[0])
    goal = np.zeros(end, np.uint64)  # of a pair, by its first number; 0: no node links to it any more
    for parent in range(ROOT, end):
        if child[parent] != index(0) and heir[parent] == parent:
            goal[child[parent]] = child[parent]
    # First all moves up, then all moves forward: an heir may stand before the pair in which its place is. No place is
    # that of another's heir, since the node that stood there is gone.
    _move(nodes, tree, heir[ROOT], ROOT)
    for pair in range(_FIRST_PAIR, end, _PAIR):
        if goal[pair] != index(0):
            for place in range(pair, pair + _PAIR):
                _move(nodes, tree, heir[place], place)
    free = _FIRST_PAIR
    for pair in range(_FIRST_PAIR, end, _PAIR):
        if goal[pair] != index(0):
            goal[pair] = free
            for side in range(_PAIR):
                _move(nodes, tree, pair + side, free + side)
            free += _PAIR
    for number in range(ROOT, free):
        here = row_of(number, tree, n_trees) * nodes.words
        if nodes.ints[here + CHILD] != 0:
            pair = number_of(index(nodes.ints[here + CHILD]), n_trees)
            nodes.ints[here + CHILD] = np.int32(row_of(goal[pair], tree, n_trees))
    for number in range(free, end):
        row = row_of(number, tree, n_trees)
        for word in range(nodes.words):
            nodes.ints[row * nodes.words + word] = 0
        for word in range(nodes.width):
            nodes.boxes[row * nodes.width + word] = 0.0
    return free


@called
def _move(nodes, tree, source, target):
    if source != target:
        n_trees = index(nodes.used.shape[0])
        old, new = row_of(source, tree, n_trees), row_of(target, tree, n_trees)
        for word in range(nodes.words):
            nodes.ints[new * nodes.words + word] = nodes.ints[old * nodes.words + word]
        for word in range(nodes.width):
            nodes.boxes[new * nodes.width + word] = nodes.boxes[old * nodes.width + word]
