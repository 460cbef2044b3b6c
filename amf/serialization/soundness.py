"""Whether the state that came from bytes could have been learned: one that could not must not be learned on.

A node is looked at with its children, so that what holds between all ancestors and descendants follows: times never
decrease downwards, boxes lie within each other, a cut parts the boxes below it, and a node has seen what was seen below
it, and possibly what was forgotten there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amf.geometry.boxes import LARGEST
from amf.geometry.planes import OFFSET, SECOND, SLOPE
from amf.geometry.scaling import Scaling, stride_of
from amf.jit.decorators import called, index, inlined, kernel
from amf.kernels.aggregation import LARGEST_ODDS, SMALLEST_ODDS
from amf.memory.arena import CHILD, COUNT, FEATURE, LARGEST_COUNT, ODDS, ROOT, THRESHOLD, TIME, Arena, row_of

_MOST_SAMPLES = 2**53
_SOUND, _ODDS, _TIME, _BOX, _CUT, _COUNT, _SAMPLES = range(7)
_MOVES, _VALUES, _WEIGHTS = range(1, 4)
_FAULTS_OF_FEATURES = (
    "",
    "the features of the forest cannot have moved that often",
    "the forest has seen values of a feature that are out of range",
    "the weights of the features of the forest are out of range",
)
_FAULTS = (
    "",
    "the odds of a node of the forest are out of range",
    "the times of the nodes of the forest do not increase downwards",
    "the boxes of the nodes of the forest do not lie within each other",
    "a cut of the forest does not part the boxes below it",
    "the counts of the nodes of the forest do not add up",
    "a tree of the forest has not learned the samples of the forest",
)


def fault_of_scaling(scaling: Scaling) -> str:
    """What is wrong with the state of the features, or nothing."""
    n_samples, d = int(scaling.n_labelled[0]), scaling.n_features
    if not 0 <= n_samples <= (_MOST_SAMPLES if d else 0):
        return f"the forest has learned {n_samples} samples of {d} features"
    return _FAULTS_OF_FEATURES[
        _inspect_features(
            scaling.origin, scaling.lowest, scaling.highest, scaling.last, scaling.moves, scaling.pairs,
            scaling.weights, max(n_samples - 1, 0), scaling.fixed,
        )
    ]  # fmt: skip


@kernel
def _inspect_features(origin, lowest, highest, last, moves, pairs, weights, most_moves, fixed):
    for j in range(moves.shape[0]):
        if not 0 <= moves[j] <= most_moves:
            return _MOVES
    for j in range(moves.shape[0]):
        # Comparisons are so put that NaN fails them.
        low, high = lowest[j], highest[j]
        seen = not fixed and -np.inf < low <= last[j] <= high < np.inf
        if not seen and (low == low or high == high or last[j] == last[j] or moves[j] != 0):
            return _VALUES
        if seen and (moves[j] > 0) != (low < high):
            return _VALUES
        if not (origin[j] == 0.0 if fixed else abs(origin[j]) < np.inf if seen else origin[j] != origin[j]):
            return _VALUES
        # One move in so many is in the subsample, and what lies beyond those is zero.
        kept = 2 * ((moves[j] - 1) // stride_of(moves[j]) + 1) if moves[j] > 0 else 0
        for k in range(pairs.shape[1]):
            if not (low <= pairs[j, k] <= high if k < kept else pairs[j, k] == 0.0):
                return _VALUES
    for j in range(weights.shape[0]):
        if not (0.0 < weights[j] <= LARGEST if j < moves.shape[0] else weights[j] == 0.0):
            return _WEIGHTS
    return _SOUND


def fault_of(arena: Arena, n_features: int, n_samples: NDArray[np.int64], bounds: tuple[float, float]) -> str:
    """What is wrong with the nodes, which are linked as trees; or nothing.

    n_samples: int64 (n_trees,), labelled samples that each tree has learned. bounds: within which boxes lie.
    """
    cut_room = index(arena.layout.cut_room)
    fault = _inspect(arena.nodes, cut_room, index(n_features), n_samples, *map(np.float32, bounds))
    return _FAULTS[fault]


@kernel
def _inspect(nodes, cut_room, n_features, n_samples, least, largest):
    ints, floats, reals, boxes, _, used, words, width = nodes
    n_trees = index(used.shape[0])
    for tree in range(n_trees):
        root = row_of(ROOT, tree, n_trees)
        # Fewer where a former root was forgotten with one of its sides.
        seen = np.int64(ints[root * words + COUNT]) if used[tree] > ROOT else np.int64(0)
        if seen > n_samples[tree] or (seen == 0) != (n_samples[tree] == 0):
            return _SAMPLES
        for number in range(ROOT, used[tree]):
            row = row_of(number, tree, n_trees)
            fault = _fault_of_node(ints, floats, reals, boxes, row, words, width, cut_room, n_features, least, largest)
            if fault != _SOUND:
                return fault
    return _SOUND


@called
def _fault_of_node(ints, floats, reals, boxes, row, words, width, cut_room, n_features, least, largest):
    here, low, half = row * words, row * width, width // index(2)
    time, odds = reals[here // index(2) + TIME], reals[here // index(2) + ODDS]
    # Comparisons are so put that NaN fails them.
    if not (SMALLEST_ODDS <= odds <= LARGEST_ODDS):
        return _ODDS
    if not (0 < ints[here + COUNT] < LARGEST_COUNT):
        return _COUNT
    for j in range(half):
        lower, upper = boxes[low + j], boxes[low + half + j]
        unseen = lower != lower and upper != upper
        if not unseen and (j >= n_features or not (least <= lower <= upper <= largest)):
            return _BOX
    child = index(ints[here + CHILD])
    if child == index(0):
        return _SOUND if time == np.inf else _TIME
    if not (0.0 <= time < np.inf):
        return _TIME
    if cut_room > index(0):
        if not _is_line(ints, reals, (row + index(1)) * words - cut_room, n_features):
            return _CUT
    elif not _parts_boxes(ints, floats, boxes, here, child, low, width):
        return _CUT
    below = np.int64(0)
    for row_below in range(child, child + index(2)):
        if reals[row_below * words // index(2) + TIME] < time:
            return _TIME
        if not _lies_within(boxes, row_below * width, low, half, n_features):
            return _BOX
        below += np.int64(ints[row_below * words + COUNT])
    return _SOUND if below <= ints[here + COUNT] else _COUNT


@inlined
def _parts_boxes(ints, floats, boxes, here, child, low, width):
    """Whether the threshold of a node lies in its box, and between those of its children."""
    cut, threshold = index(ints[here + FEATURE]), floats[here + THRESHOLD]
    left, right, half = child * width + cut, (child + index(1)) * width + cut, width // index(2)
    # An origin that moves (shifting.py) rounds: a threshold may then be what it was just below.
    within = boxes[low + cut] <= threshold <= boxes[low + half + cut]
    return within and not (boxes[left + half] > threshold or boxes[right] < threshold)


@inlined
def _is_line(ints, reals, cut, n_features):
    """Whether a cut that lies askew (planes.py) is one: boxes do not tell on which side of it samples are."""
    slope, offset, second = reals[cut // index(2) + SLOPE], reals[cut // index(2) + OFFSET], ints[cut + SECOND]
    return abs(slope) < np.inf and abs(offset) < np.inf and second >= 0 and index(second) < n_features


@inlined
def _lies_within(boxes, inner, outer, half, n_features):
    """Whether one box lies within another, which then has seen each feature that the first one has."""
    for j in range(n_features):
        lower, upper = boxes[inner + j], boxes[inner + half + j]
        if lower == lower and not (boxes[outer + j] <= lower and upper <= boxes[outer + half + j]):
            return False
    return True
