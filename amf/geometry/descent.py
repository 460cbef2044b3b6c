"""The way of a sample through trees, and the last part of it, where the sample lies outside the boxes.

Boxes are nested: where a sample changes nothing of a node's box it changes nothing of any box above it. So boxes are
read from the leaf upwards, and of a path of forty nodes only the last three or four are looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.geometry.boxes import extension
from amf.geometry.samples import value_of
from amf.jit.decorators import index, inlined
from amf.jit.vectors import prefetch
from amf.memory.arena import CHILD, COUNT, FEATURE, ROOT, THRESHOLD, row_of
from amf.memory.paths import row_at

# Beyond this an extension is as good as infinite; it keeps infinity out of the arithmetic of times.
LARGEST_EXTENSION = 1e38

_LOOKED_AT = index(2)
"""Boxes above that of the leaf that are most often looked at as well."""
_SMALL_BOX = index(128)
"""Words up to which a box is asked for before it is known to be looked at: more would only push out what is needed."""


@inlined
def _side(nodes, here, child, sample):
    """Row of the child on the sample's side. A missing value follows the larger crowd, ties left."""
    value = value_of(sample, index(nodes.ints[here + FEATURE]))
    if value == value:
        return child + index(value > nodes.floats[here + THRESHOLD])
    left = child * nodes.words
    return child + index(nodes.ints[left + COUNT] < nodes.ints[left + nodes.words + COUNT])


def make_descend(side: Any) -> Any:
    """The descent in trees, for kernels. side: (nodes, here, child, sample) -> row of the child on its side."""

    @inlined
    def descend(nodes, first_tree, lanes, sample, wants_boxes, scratch):
        """Descend with one sample in several trees in turn: while memory is fetched for one of them, the others go on.

        The path in tree first_tree + lane begins at lane * scratch.depth. wants_boxes: whether the boxes of the leaves
        will be looked at. scratch: see paths.py. Returns whether all paths fit.
        """
        rows, room, lengths, turns = scratch.rows, scratch.depth, scratch.lengths, scratch.turns
        going, level, n_trees = index(0), index(0), index(nodes.used.shape[0])
        for lane in range(lanes):
            rows[lane * room] = row_of(ROOT, first_tree + lane, n_trees)
            lengths[lane] = index(0)
            if nodes.used[first_tree + lane] > ROOT:
                turns[going] = lane
                going += index(1)
        while going > index(0):
            turn = index(0)
            while turn < going:
                lane = turns[turn]
                here = rows[lane * room + level] * nodes.words
                child = index(nodes.ints[here + CHILD])
                if child == index(0):
                    lengths[lane] = level + index(1)
                    if wants_boxes:
                        above = _LOOKED_AT if nodes.width <= _SMALL_BOX else index(0)
                        for k in range(max(level, above) - above, level + index(1)):
                            prefetch(nodes.boxes, rows[lane * room + k] * nodes.width, nodes.width)
                    going -= index(1)
                    turns[turn] = turns[going]
                else:
                    if level + index(1) == room:
                        return False
                    row = side(nodes, here, child, sample)
                    prefetch(nodes.floats, row * nodes.words, nodes.words)
                    rows[lane * room + level + index(1)] = row
                    turn += index(1)
            level += index(1)
        return True

    return descend


descend = make_descend(_side)


@inlined
def outer_part(nodes, path, sample, weights, extensions):
    """Where the part of the path begins whose boxes the sample changes; extensions: float64, filled from there on.

    An extension may be zero there: of a sample with a value that the box lacks, or where weight times distance is less
    than any float32.
    """
    first = path.length
    while first > index(0):
        low = row_at(path, first - index(1)) * nodes.width
        high = low + nodes.width // index(2)
        beyond, changes = extension(
            nodes.boxes, low, high, sample.values, sample.at, weights.values, weights.at, sample.n_features
        )
        if not changes:
            break
        first -= index(1)
        extensions[first] = min(np.float64(beyond), LARGEST_EXTENSION)
    return first
