"""Room in a full tree: it forgets the leaves that the fewest samples have come to.

A leaf is forgotten by the inverse of the step that inserted it ([000] Alg. 5): its sibling, with all that is below it,
moves up into the place of their parent. The tree becomes the one that the other leaves induce: every inner node has a
survivor on either side, and keeps its box, cut, time, odds and statistics. Restricted to fewer points a Mondrian
process still is one, so the tree grows on by the same rules: no leaf is empty, and none covers a region in which
nothing could be split again, as the root of a subtree would that is folded into a leaf. Nodes above keep the labels
that were counted in what is forgotten.

How far that moves forecasts, of samples that lack no value. Where the path of a sample meets no place that another
node moved to, its forecast is the same to the last bit. Elsewhere no probability moves by more than the weight of all
that is at and below the first such place, the product of 1 - q (aggregation.py) over the nodes above it. And the least
visited leaves, an eighth of all, hold at most an eighth of the samples in leaves.

Of leaves with equal counts the older ones go first, which are those of lower number. All of it follows from the nodes
of the tree alone.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, kernel
from amf.arena import CHILD, COUNT, ROOT, number_of, row_of

_PARTS = 8
"""One leaf in so many goes at a time: if fewer go, rows are moved more often; if more go, more rows are empty."""
_PAIR = index(2)
_FIRST_PAIR = ROOT + index(1)


@kernel
def forget(ints, boxes, used, tree, words, width):
    """Forget the least visited leaves of a tree, which has more than one, and close the gaps that they leave.

    ints, boxes, used: the arena (arena.py). words, width: of a head and of a box.
    """
    n_trees, end = index(used.shape[0]), used[tree]
    # All of these go by numbers of nodes; 0 is nobody's.
    child = np.zeros(end, np.uint64)  # the left child, 0 at a leaf
    heir = np.zeros(end, np.uint64)  # who takes this place, 0: nobody is left
    counts = np.zeros(end, np.int32)
    for number in range(ROOT, end):
        here = row_of(number, tree, n_trees) * words
        counts[number] = ints[here + COUNT]
        if ints[here + CHILD] != 0:
            child[number] = number_of(index(ints[here + CHILD]), n_trees)
    _keep_most_visited(child, counts, heir)
    _find_heirs(child, heir)
    used[tree] = _rearrange(ints, boxes, tree, n_trees, words, width, child, heir)


@called
def _keep_most_visited(child, counts, heir):
    """Make each leaf its own heir, but for those that are forgotten."""
    leaves = np.flatnonzero(child[ROOT:] == index(0)) + np.intp(ROOT)
    n_forgotten = max(leaves.shape[0] // _PARTS, 1)
    largest = np.partition(counts[leaves], n_forgotten - 1)[n_forgotten - 1]
    n_of_largest = n_forgotten - np.sum(counts[leaves] < largest)
    for leaf in leaves:
        if counts[leaf] == largest and n_of_largest > 0:
            n_of_largest -= 1
        elif counts[leaf] >= largest:
            heir[leaf] = index(leaf)


@called
def _find_heirs(child, heir):
    """Find the heirs of inner nodes: itself where both sides live on, else that of the side which does."""
    order, length = np.empty(child.shape[0], np.uint64), 1
    order[0] = ROOT
    for k in range(child.shape[0] - 1):
        left = child[order[k]]
        if left != index(0):
            order[length], order[length + 1] = left, left + index(1)
            length += 2
    for k in range(length - 1, -1, -1):
        left = child[order[k]]
        if left != index(0):
            right = left + index(1)
            both = heir[left] != index(0) and heir[right] != index(0)
            heir[order[k]] = order[k] if both else max(heir[left], heir[right])


@called
def _rearrange(ints, boxes, tree, n_trees, words, width, child, heir):
    """Move heirs up to their places, and then pairs of siblings, in their order, over the gaps; returns rows in use."""
    end = index(child.shape[0])
    goal = np.zeros(end, np.uint64)  # of a pair, by its first number; 0: nobody links to it any more
    for parent in range(ROOT, end):
        if child[parent] != index(0) and heir[parent] == parent:
            goal[child[parent]] = child[parent]
    # First all moves up, then all moves forward: an heir may stand before the pair in which its place is. No place is
    # that of another's heir, since whoever stood there is gone.
    _move(ints, boxes, tree, n_trees, words, width, heir[ROOT], ROOT)
    for pair in range(_FIRST_PAIR, end, _PAIR):
        if goal[pair] != index(0):
            for place in range(pair, pair + _PAIR):
                _move(ints, boxes, tree, n_trees, words, width, heir[place], place)
    free = _FIRST_PAIR
    for pair in range(_FIRST_PAIR, end, _PAIR):
        if goal[pair] != index(0):
            goal[pair] = free
            for side in range(_PAIR):
                _move(ints, boxes, tree, n_trees, words, width, pair + side, free + side)
            free += _PAIR
    for number in range(ROOT, free):
        here = row_of(number, tree, n_trees) * words
        if ints[here + CHILD] != 0:
            pair = number_of(index(ints[here + CHILD]), n_trees)
            ints[here + CHILD] = np.int32(row_of(goal[pair], tree, n_trees))
    for number in range(free, end):
        row = row_of(number, tree, n_trees)
        for word in range(words):
            ints[row * words + word] = 0
        for word in range(width):
            boxes[row * width + word] = 0.0
    return free


@called
def _move(ints, boxes, tree, n_trees, words, width, source, target):
    if source != target:
        old, new = row_of(source, tree, n_trees), row_of(target, tree, n_trees)
        for word in range(words):
            ints[new * words + word] = ints[old * words + word]
        for word in range(width):
            boxes[new * width + word] = boxes[old * width + word]
