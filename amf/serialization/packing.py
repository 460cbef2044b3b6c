"""The nodes of a forest as they are in its bytes, and back: of each tree in turn its heads and then its boxes.

Nodes go in order of creation, without a gap, and CHILD counts from 0 at the root of the tree. Coming back, nothing is
believed: whatever the words are, no kernel that goes down the trees will leave its tree or go in circles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import called, index, kernel
from amf.memory.arena import CHILD, FEATURE, ROOT, Arena, chunk_end, number_of, row_of

_SOUND, _NO_TREE, _NO_FEATURE = 0, 1, 2
_FAULTS = (
    "",
    "the nodes of the forest are not linked as a tree",
    "a node of the forest splits on a feature it does not have",
)
_PAIR = index(2)


def pack(arena: Arena, packed: NDArray[np.int32]) -> None:
    """Fill `packed`, which has as many words as all nodes together."""
    words, width = index(arena.layout.head), index(arena.layout.box)
    _pack(arena.ints, arena.boxes, arena.used, words, width, packed, packed.view(np.float32))


def unpack(packed: NDArray[np.int32], arena: Arena, n_features: int) -> str:
    """Fill the rows of an arena that is made for the nodes in `packed`.

    Returns what is wrong with them, which then must not be used, or nothing. Raises ValueError where there are not as
    many words as these nodes have.
    """
    words, width = arena.layout.head, arena.layout.box
    if packed.shape[0] != arena.n_nodes * (words + width):
        raise ValueError(f"{arena.n_nodes} nodes of {words + width} words are not {packed.shape[0]} words")
    parents = np.zeros(arena.capacity, np.uint64)
    fault = _unpack(
        packed, packed.view(np.float32), arena.used, index(words), index(width), index(n_features),
        arena.ints, arena.boxes, parents,
    )  # fmt: skip
    return _FAULTS[fault]


@kernel
def _pack(ints, boxes, used, words, width, packed, bounds):
    """Fill `packed` and `bounds`, int32 and float32 views of the same words."""
    n_trees, at = index(used.shape[0]), index(0)
    for tree in range(n_trees):
        number = ROOT
        while number < used[tree]:
            stop, row = chunk_end(number, used[tree]), row_of(number, tree, n_trees)
            for k in range((stop - number) * words):
                packed[at + k] = ints[row * words + k]
            for _ in range(stop - number):
                if packed[at + CHILD] > 0:
                    packed[at + CHILD] = np.int32(number_of(index(packed[at + CHILD]), n_trees) - ROOT)
                at += words
            number = stop
        number = ROOT
        while number < used[tree]:
            stop, row = chunk_end(number, used[tree]), row_of(number, tree, n_trees)
            for k in range((stop - number) * width):
                bounds[at + k] = boxes[row * width + k]
            at += (stop - number) * width
            number = stop


@kernel
def _unpack(packed, bounds, used, words, width, n_features, ints, boxes, parents):
    """Fill the rows with what `_pack` gave; returns their fault. parents: zeros."""
    n_trees, at = index(used.shape[0]), index(0)
    for tree in range(n_trees):
        fault = _unpack_heads(packed, at, used[tree], tree, n_trees, words, n_features, ints, parents)
        if fault != _SOUND:
            return fault
        at += (used[tree] - ROOT) * words
        _unpack_boxes(bounds, at, used[tree], tree, n_trees, width, boxes)
        at += (used[tree] - ROOT) * width
    return _SOUND


@called
def _unpack_heads(packed, at, end, tree, n_trees, words, n_features, ints, parents):
    """Fill the heads of one tree; returns its fault. parents: of pairs by their first number, `tree` at most."""
    number, n_pairs = ROOT, index(0)
    while number < end:
        stop, row = chunk_end(number, end), row_of(number, tree, n_trees)
        for k in range((stop - number) * words):
            ints[row * words + k] = packed[at + k]
        at += (stop - number) * words
        for here in range(row * words, (row + stop - number) * words, words):
            child, feature = ints[here + CHILD], ints[here + FEATURE]
            if feature < 0 or (child != 0 and index(feature) >= n_features):
                return _NO_FEATURE
            if child != 0:
                # Children are pairs of neighbours, each with one parent: then no way down ever meets a node again.
                pair = index(child) + ROOT
                if child < 0 or pair % _PAIR != 0 or pair + index(1) >= end or parents[pair] > tree:
                    return _NO_TREE
                parents[pair] = tree + index(1)
                n_pairs += index(1)
                ints[here + CHILD] = np.int32(row_of(pair, tree, n_trees))
        number = stop
    whole = end == ROOT or ROOT + _PAIR * n_pairs + index(1) == end
    return _SOUND if whole else _NO_TREE


@called
def _unpack_boxes(bounds, at, end, tree, n_trees, width, boxes):
    """Fill the boxes of one tree."""
    number = ROOT
    while number < end:
        stop, row = chunk_end(number, end), row_of(number, tree, n_trees)
        for k in range((stop - number) * width):
            boxes[row * width + k] = bounds[at + k]
        at += (stop - number) * width
        number = stop
