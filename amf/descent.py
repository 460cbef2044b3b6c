"""The way of samples through a tree, and the last part of it, where a sample lies outside the boxes.

Boxes are nested: where a sample changes nothing of a node's box it changes nothing of any box above it. So boxes are
read from the leaf upwards, and of a path of forty nodes only the last three or four are looked at.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import index, inlined
from amf.arena import CHILD, COUNT, FEATURE, THRESHOLD
from amf.boxes import extension, holds, prefetch

# Beyond this an extension is as good as infinite; it keeps infinity out of the arithmetic of times.
_LARGEST_EXTENSION = 1e38


@inlined
def side(ints, floats, here, child, words, x, sample):
    """(row of the child on the sample's side, whether its value is missing).

    A missing value follows the larger crowd, ties left.
    """
    value = x[sample + index(ints[here + FEATURE])]
    if value == value:
        return child + index(value > floats[here + THRESHOLD]), False
    left = child * words
    return child + index(ints[left + COUNT] < ints[left + words + COUNT]), True


@inlined
def descend(ints, floats, words, x, sample, path, start, level, room):
    """Go on from the row at path[start + level] to the leaf; as `descend_together` does for one lane.

    Returns (nodes on the path, whether a missing value was met).
    """
    unsure = False
    while True:
        here = path[start + level] * words
        child = index(ints[here + CHILD])
        level += index(1)
        if child == index(0):
            return level, unsure
        if level == room:
            return index(0), unsure
        path[start + level], missing = side(ints, floats, here, child, words, x, sample)
        unsure |= missing


@inlined
def descend_together(ints, floats, boxes, words, width, x, samples, lanes, path, room, turns, lengths, unsure):
    """Descend with several samples in turn: while the memory is fetched for one, the others go on.

    The path of a lane takes `room` words of `path` and begins with the row of a root. lengths: nodes on it, 0 where
    room ends before the leaf. unsure: whether a missing value was met, so that the way follows from counts, which
    change.
    """
    for lane in range(lanes):
        turns[lane] = lane
        lengths[lane] = index(0)
        unsure[lane] = False
    going, level = lanes, index(0)
    while going > index(0) and level < room:
        turn = index(0)
        while turn < going:
            lane = turns[turn]
            at = lane * room + level
            here = path[at] * words
            child = index(ints[here + CHILD])
            if child == index(0):
                lengths[lane] = level + index(1)
                prefetch(boxes, path[at] * width, width)
                going -= index(1)
                turns[turn] = turns[going]
            else:
                if level + index(1) < room:
                    row, missing = side(ints, floats, here, child, words, x, samples[lane])
                    prefetch(floats, row * words, words)
                    path[at + index(1)] = row
                    unsure[lane] |= missing
                turn += index(1)
        level += index(1)


@inlined
def outer_part(boxes, width, path, start, length, x, sample, weights, n_features, extensions):
    """Where the part of the path begins whose boxes the sample changes; extensions: float64, filled from there on.

    An extension may be zero there: of a sample with a value that the box lacks, or where weight times distance is less
    than any float32.
    """
    first = length
    while first > index(0):
        low = path[start + first - index(1)] * width
        high = low + width // index(2)
        beyond = extension(boxes, low, high, x, sample, weights, n_features)
        if beyond == np.float32(0.0) and holds(boxes, low, high, x, sample, n_features):
            break
        first -= index(1)
        extensions[first] = min(np.float64(beyond), _LARGEST_EXTENSION)
    return first
