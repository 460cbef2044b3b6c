"""Room in a full tree: it forgets the leaves that the fewest samples have come to.

The tree becomes the one that the other leaves induce: an inner node of which one side is forgotten is replaced by the
other side, with its box, cut, time, odds and statistics, which is the exact inverse of the insertion of a leaf
([000] Alg. 5). What is left has the law of a Mondrian tree of the points that are left, and goes on as any tree: no
leaf is empty, none is closed. Nodes above keep the labels that were counted in what is forgotten. Of leaves with equal
counts the older ones go first. All of it follows from the rows of the tree and their number alone.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import index, kernel
from amf.arena import CHILD, COUNT, ROOT, number_of, row_of

_SHARE = 0.1
"""Part of the leaves that goes at once: smaller is gentler, larger is quicker."""


@kernel
def forget(ints, boxes, used, tree, words, width):
    """Forget the least visited leaves of one tree and close the gaps; it must have more than one node.

    ints, boxes, used: the arena (arena.py). words, width: of a head and of a box.
    """
    n_trees, end = index(used.shape[0]), used[tree]
    order, leaves = _order(ints, tree, n_trees, end, words)
    n_forgotten = max(np.intp(leaves.shape[0] * _SHARE), 1)
    counts = np.empty(leaves.shape[0], np.int32)
    for k in range(leaves.shape[0]):
        counts[k] = ints[row_of(leaves[k], tree, n_trees) * words + COUNT]
    ranks = np.argsort(counts, kind="mergesort")
    heir = np.zeros(end, np.uint64)  # by number: the node that takes the place of this one, 0 where nothing is left
    for number in order:
        heir[number] = number
    for rank in ranks[:n_forgotten]:
        heir[leaves[rank]] = index(0)
    for k in range(order.shape[0] - 1, -1, -1):
        child = index(ints[row_of(order[k], tree, n_trees) * words + CHILD])
        if child != index(0):
            left = number_of(child, n_trees)
            right = left + index(1)
            if heir[left] == index(0) or heir[right] == index(0):
                heir[order[k]] = max(heir[left], heir[right])
    _inherit(ints, boxes, tree, n_trees, words, width, heir)
    used[tree] = _close_gaps(ints, boxes, tree, n_trees, end, words, width)


@kernel
def _order(ints, tree, n_trees, end, words):
    """Numbers of all nodes, parents before children, and of the leaves, ascending."""
    order, is_leaf = np.empty(end - ROOT, np.uint64), np.zeros(end, np.bool_)
    order[0], length = ROOT, 1
    for k in range(order.shape[0]):
        child = index(ints[row_of(order[k], tree, n_trees) * words + CHILD])
        is_leaf[order[k]] = child == index(0)
        if child != index(0):
            left = number_of(child, n_trees)
            order[length], order[length + 1] = left, left + index(1)
            length += 2
    return order, np.flatnonzero(is_leaf).astype(np.uint64)


@kernel
def _inherit(ints, boxes, tree, n_trees, words, width, heir):
    """Put every heir into the place that it takes, from the root down."""
    places = [ROOT]
    while len(places) > 0:
        place = places.pop()
        row = row_of(place, tree, n_trees)
        if heir[place] != place:
            _copy(ints, boxes, row_of(heir[place], tree, n_trees), row, words, width)
        child = index(ints[row * words + CHILD])
        if child != index(0):
            left = number_of(child, n_trees)
            places.append(left)
            places.append(left + index(1))


@kernel
def _close_gaps(ints, boxes, tree, n_trees, end, words, width):
    """Move the pairs of siblings that are still linked up to the front, in their order; returns the rows in use."""
    moved = np.zeros(end, np.uint64)
    for number in _order_of_linked(ints, tree, n_trees, end, words):
        moved[number] = number
    free = ROOT + index(1)
    for pair in range(ROOT + index(1), end, index(2)):
        if moved[pair] != index(0):
            for side in range(index(2)):
                if free != pair:
                    source, target = row_of(pair + side, tree, n_trees), row_of(free + side, tree, n_trees)
                    _copy(ints, boxes, source, target, words, width)
            moved[pair] = free
            free += index(2)
    for number in range(ROOT, free):
        here = row_of(number, tree, n_trees) * words
        if ints[here + CHILD] != 0:
            ints[here + CHILD] = np.int32(row_of(moved[number_of(index(ints[here + CHILD]), n_trees)], tree, n_trees))
    for number in range(free, end):
        row = row_of(number, tree, n_trees)
        ints[row * words : (row + index(1)) * words] = 0
        boxes[row * width : (row + index(1)) * width] = 0.0
    return free


@kernel
def _order_of_linked(ints, tree, n_trees, end, words):
    """Left numbers of all pairs of siblings that can be reached from the root."""
    pairs = np.empty(end, np.uint64)
    length, places = 0, [ROOT]
    while len(places) > 0:
        child = index(ints[row_of(places.pop(), tree, n_trees) * words + CHILD])
        if child != index(0):
            left = number_of(child, n_trees)
            pairs[length] = left
            length += 1
            places.append(left)
            places.append(left + index(1))
    return pairs[:length]


@kernel
def _copy(ints, boxes, source, target, words, width):
    for word in range(words):
        ints[target * words + word] = ints[source * words + word]
    for word in range(width):
        boxes[target * width + word] = boxes[source * width + word]
