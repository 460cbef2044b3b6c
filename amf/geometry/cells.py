"""Cells of an infinite random partition of [0, 1]^d: a Mondrian that one word fixes for all time ([AMF] Alg. 1).

A cell is a closed box of float32 numbers. Its word is that of the tree plus, for each of its 2 d bounds, a hash of the
bound and of its place, so that no two cells of a tree have the same; it seeds a SplitMix64 stream of three uniforms:

    1  how long the cell lasts: an exponential time, whose rate is the sum of its sides
    2  the feature of its cut, with probability proportional to the side
    3  the place of the cut on that side

A cut at s leaves [low, s] to the left and, since no float32 lies between, [next float32 after s, high] to the right.
Both hold a number, so that any two points are parted in the end. Cells that MAX_CUTS cuts have made are not cut any
more: points that are still together there count as one. In kernels a cell is a float32 array, d lower bounds and then d
upper bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import log1p
from amf.jit.rng import GOLDEN, mix, to_unit

MAX_CUTS = 10_000
"""To part two points at distance r takes at most about 2 d log(1 / r) cuts."""

_ZERO, _ONE, _INFINITY = np.float32(0.0), np.float32(1.0), np.float32(np.inf)


@inlined
def uniform_of(word, n):
    """The n-th uniform of a cell, on [0, 1) in steps of 2**-53."""
    return to_unit(mix(word + np.uint64(n) * GOLDEN))


@inlined
def _hash_of(place, bound):
    bits = np.uint64(np.float32(bound).view(np.uint32))
    return mix(bits + (place + np.uint64(1)) * GOLDEN)


@called
def word_of(cell, tree_word):
    """Word of a cell."""
    word = tree_word
    for place in range(index(cell.shape[0])):
        word += _hash_of(place, cell[place])
    return word


@inlined
def replace_bound(cell, word, place, bound):
    """Change one bound of a cell; returns its new word."""
    word += _hash_of(place, bound) - _hash_of(place, cell[place])
    cell[place] = bound
    return word


@inlined
def enter_child(cell, n_features, word, feature, threshold, goes_right):
    """Make the cell one of the two that its cut leaves; returns its word."""
    if goes_right:
        return replace_bound(cell, word, feature, np.nextafter(threshold, _INFINITY))
    return replace_bound(cell, word, n_features + feature, threshold)


@inlined
def cut_of(cell, n_features, word):
    """(how long the cell lasts, feature and threshold of its cut); a single point lasts for ever."""
    size = 0.0
    for j in range(n_features):
        size += np.float64(cell[n_features + j]) - np.float64(cell[j])
    if size == 0.0:
        return np.inf, index(0), _ZERO
    target = uniform_of(word, 2) * size
    reached = 0.0
    feature: Any = index(0)
    for j in range(n_features):
        side = np.float64(cell[n_features + j]) - np.float64(cell[j])
        if side > 0.0:
            # Rounding can leave the target at the sum of all sides: then the last candidate stands.
            feature = j
            reached += side
            if reached > target:
                break
    lower, upper = cell[feature], cell[n_features + feature]
    threshold = np.float32(np.float64(lower) + uniform_of(word, 3) * (np.float64(upper) - np.float64(lower)))
    if threshold >= upper:
        threshold = np.nextafter(upper, -_INFINITY)
    return -log1p(-uniform_of(word, 1)) / size, feature, threshold
