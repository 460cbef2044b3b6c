"""Origins that move (scaling.py), and the trees with them: bounds and thresholds of a feature, by the same number."""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, inlined, kernel
from amf.arena import CHILD, FEATURE, ROOT, THRESHOLD, row_of
from amf.boxes import LARGEST


@kernel
def shift(ints, floats, boxes, used, words, width, shifts):
    """Subtract shifts[j], float64 (d,), from the bounds and thresholds of each feature j, in all trees of an arena.

    ints, floats, boxes, used: the arena (arena.py). words, width: of a head and of a box.
    """
    n_trees = index(used.shape[0])
    for j in range(index(shifts.shape[0])):
        if shifts[j] != 0.0:
            for tree in range(n_trees):
                for number in range(ROOT, used[tree]):
                    _shift_node(ints, floats, boxes, row_of(number, tree, n_trees), words, width, j, shifts[j])


@called
def _shift_node(ints, floats, boxes, row, words, width, feature, by):
    here, low = row * words, row * width + feature
    high = low + width // index(2)
    boxes[low], boxes[high] = _shifted(boxes[low], by), _shifted(boxes[high], by)
    if ints[here + CHILD] != 0 and index(ints[here + FEATURE]) == feature:
        floats[here + THRESHOLD] = _shifted(floats[here + THRESHOLD], by)


@inlined
def _shifted(centred, by):
    """A centred value from another origin, rounded: larger ones stay at least as large. NaN stays NaN."""
    if centred != centred:
        return centred
    return np.float32(min(max(np.float64(centred) - by, -np.float64(LARGEST)), np.float64(LARGEST)))
