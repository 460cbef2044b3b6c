"""How trees divide space: what a walk (walk.py) asks of boxes, or of whatever else nodes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amf.geometry.boxes import enclose, widen
from amf.geometry.cuts import gap_cut
from amf.geometry.descent import descend, outer_part
from amf.jit.decorators import called, index, inlined
from amf.jit.rng import uniform
from amf.memory.arena import CHILD, FEATURE, ODDS, ROOT, THRESHOLD, TIME


class Geometry(NamedTuple):
    """How trees divide space: functions for kernels. A path are the rows path[start : start + length]."""

    descend: Callable[..., Any]
    """As `descend` of descent.py."""
    outer_part: Callable[..., Any]
    """(nodes, used, tree, path, start, length, x, at, weights, weights_at, n_features, extensions) -> the place from
    which on the sample extends the nodes of a path; extensions: the rates at which it is parted from these."""
    split: Callable[..., Any]
    """(nodes, used, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extension) -> row of the
    sample's leaf: make a node the parent of its old self and of a leaf for the sample, in the two rows from `pair`."""
    extend: Callable[..., Any]
    """(nodes, used, tree, path, start, outer, end, length, x, at, n_features): extend the nodes of a path from `outer`
    up to `end` by the sample."""


@called
def _split(
    nodes, used, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extension
):  # fmt: skip
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    low, here = row * nodes.width, row * nodes.words
    high = low + nodes.width // index(2)
    pick, place = uniform(random, tree), uniform(random, tree)
    feature, threshold, box_goes_left = gap_cut(
        nodes.boxes, low, high, x, at, weights, weights_at, n_features, extension, pick, place
    )
    _, fresh = become_parent(nodes, row, pair, box_goes_left, time)
    become_leaf(nodes, fresh, x, at, n_features)
    nodes.ints[here + FEATURE] = np.int32(feature)
    nodes.floats[here + THRESHOLD] = threshold
    widen(nodes.boxes, low, high, x, at, n_features)
    return fresh


@inlined
def become_parent(nodes, row, pair, goes_left, time):
    """Move a node to the left or the right row of a pair, and make its row the parent of that pair, split at a time.

    Returns the rows (of the node, of its new sibling).
    """
    old, fresh = (pair, pair + index(1)) if goes_left else (pair + index(1), pair)
    here = row * nodes.words
    for word in range(nodes.words):
        nodes.ints[old * nodes.words + word] = nodes.ints[here + word]
    for word in range(nodes.width):
        nodes.boxes[old * nodes.width + word] = nodes.boxes[row * nodes.width + word]
    nodes.ints[here + CHILD] = np.int32(pair)
    nodes.reals[here // index(2) + TIME] = time
    return old, fresh


@inlined
def become_leaf(nodes, row, x, at, n_features):
    """Make an empty row the leaf of one sample, whose label is not counted yet."""
    nodes.reals[row * nodes.words // index(2) + TIME] = np.inf
    nodes.reals[row * nodes.words // index(2) + ODDS] = 1.0
    low = row * nodes.width
    enclose(nodes.boxes, low, low + nodes.width // index(2), x, at, n_features)


@inlined
def become_root(nodes, used, tree, row, x, at, n_features):
    """Give an empty tree its first node: the leaf of one sample, whose label is not counted yet."""
    used[tree] = ROOT + index(1)
    become_leaf(nodes, row, x, at, n_features)


@inlined
def _outer_boxes(
    nodes, used, tree, path, start, length, x, at, weights, weights_at, n_features, extensions
):  # fmt: skip
    return outer_part(nodes, path, start, length, x, at, weights, weights_at, n_features, extensions)


@inlined
def _widen_boxes(nodes, used, tree, path, start, outer, end, length, x, at, n_features):
    for k in range(outer, end):
        low = path[start + k] * nodes.width
        widen(nodes.boxes, low, low + nodes.width // index(2), x, at, n_features)


BOXES = Geometry(descend, _outer_boxes, _split, _widen_boxes)
"""Axis-aligned boxes, and cuts between them."""
