"""Counters that are full: a tree halves everything that it has counted.

The counter of a root is the largest one of its tree, so that a walk looks at no other one, once a sample. When it is
full, the counts of every leaf are halved, rounded down, though not all of them to nothing: a leaf has seen something.
The counts of an inner node become the sums of those below it and half of what was counted there and then forgotten
(forgetting.py): so they add up afterwards as they did before. All of it follows from the nodes alone.
"""

from __future__ import annotations

import numpy as np

from amf.jit.decorators import called, index, inlined
from amf.memory.arena import CHILD, COUNT, LARGEST_COUNT, ROOT, row_of


@inlined
def is_full(ints, root, words):
    """Whether a tree has counted as much as it can. root: its first row."""
    return ints[root * words + COUNT] == LARGEST_COUNT


@called
def halve_counts(nodes, tree, first, last):
    """Halve the words [first, last) of all heads of a tree, which are counts: what is below a node is part of its own.

    Returns the rows of the tree, uint64 (nodes,).
    """
    ints, words = nodes.ints, nodes.words
    n_trees, length = index(nodes.used.shape[0]), 1
    # A parent comes before its children, which its number does not say.
    rows = np.empty(nodes.used[tree] - ROOT, np.uint64)
    rows[0] = row_of(ROOT, tree, n_trees)
    for k in range(rows.shape[0]):
        here = rows[k] * words
        child = index(ints[here + CHILD])
        if child == index(0):
            _halve_leaf(ints, here, first, last)
            continue
        rows[length], rows[length + 1] = child, child + index(1)
        length += 2
        left, right = child * words, (child + index(1)) * words
        for word in range(first, last):
            forgotten = ints[here + word] - ints[left + word] - ints[right + word]
            ints[here + word] = forgotten // 2
    for j in range(rows.shape[0]):
        here = rows[rows.shape[0] - 1 - j] * words
        left = index(ints[here + CHILD]) * words
        if left != index(0):
            for word in range(first, last):
                ints[here + word] += ints[left + word] + ints[left + words + word]
    return rows


@inlined
def _halve_leaf(ints, here, first, last):
    largest, total = first, 0
    for word in range(first, last):
        if ints[here + word] > ints[here + largest]:
            largest = word
    for word in range(first, last):
        ints[here + word] //= 2
        total += ints[here + word]
    if total == 0:
        ints[here + largest] = 1
