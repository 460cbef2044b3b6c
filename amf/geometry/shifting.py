"""Origins that move (scaling.py), and the trees with them: bounds and thresholds of a feature, by the same number."""

from __future__ import annotations

import numpy as np

from amf.geometry.boxes import LARGEST
from amf.jit.decorators import called, index, inlined
from amf.memory.arena import CHILD, FEATURE, ROOT, THRESHOLD, row_of


@called
def shift(nodes, shifts):
    """Subtract shifts[j], float64 (d,), from the bounds and thresholds of each feature j, in all trees."""
    n_trees = index(nodes.used.shape[0])
    for j in range(index(shifts.shape[0])):
        if shifts[j] != 0.0:
            for tree in range(n_trees):
                for number in range(ROOT, nodes.used[tree]):
                    _shift_node(nodes, row_of(number, tree, n_trees), j, shifts[j])


@inlined
def _shift_node(nodes, row, feature, by):
    here, low = row * nodes.words, row * nodes.width + feature
    high = low + nodes.width // index(2)
    nodes.boxes[low], nodes.boxes[high] = _shifted(nodes.boxes[low], by), _shifted(nodes.boxes[high], by)
    if nodes.ints[here + CHILD] != 0 and index(nodes.ints[here + FEATURE]) == feature:
        nodes.floats[here + THRESHOLD] = _shifted(nodes.floats[here + THRESHOLD], by)


@inlined
def _shifted(centred, by):
    """A centred value from another origin, rounded: larger ones stay at least as large. NaN stays NaN."""
    if centred != centred:
        return centred
    return np.float32(min(max(np.float64(centred) - by, -np.float64(LARGEST)), np.float64(LARGEST)))
