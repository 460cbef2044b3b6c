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
from amf.memory.paths import row_at


class Geometry(NamedTuple):
    """How trees divide space: functions for kernels. For `path` see paths.py, for `sample` and `weights` samples.py."""

    descend: Callable[..., Any]
    """As `descend` of descent.py."""
    outer_part: Callable[..., Any]
    """(nodes, tree, path, sample, weights, extensions) -> the place from which on the sample extends the nodes of a
    path; extensions: the rates at which it is parted from these, filled from there on."""
    split: Callable[..., Any]
    """(nodes, random, tree, row, pair, time, sample, weights, extension) -> row of the sample's leaf: make a node the
    parent of its old self and of a leaf for the sample, in the two rows from `pair`."""
    extend: Callable[..., Any]
    """(nodes, tree, path, outer, end, sample): extend the nodes of a path from `outer` up to `end` by the sample."""


@called
def _split(nodes, random, tree, row, pair, time, sample, weights, extension):
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    low, here = row * nodes.width, row * nodes.words
    high = low + nodes.width // index(2)
    pick, place = uniform(random, tree), uniform(random, tree)
    feature, threshold, box_goes_left = gap_cut(nodes.boxes, low, high, sample, weights, extension, pick, place)
    _, fresh = become_parent(nodes, row, pair, box_goes_left, time)
    become_leaf(nodes, fresh, sample)
    nodes.ints[here + FEATURE] = np.int32(feature)
    nodes.floats[here + THRESHOLD] = threshold
    _widen(nodes, row, sample)
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
def become_leaf(nodes, row, sample):
    """Make an empty row the leaf of one sample, whose label is not counted yet."""
    nodes.reals[row * nodes.words // index(2) + TIME] = np.inf
    nodes.reals[row * nodes.words // index(2) + ODDS] = 1.0
    low = row * nodes.width
    enclose(nodes.boxes, low, low + nodes.width // index(2), sample.values, sample.at, sample.n_features)


@inlined
def become_root(nodes, tree, row, sample):
    """Give an empty tree its first node: the leaf of one sample, whose label is not counted yet."""
    nodes.used[tree] = ROOT + index(1)
    become_leaf(nodes, row, sample)


@inlined
def _outer_boxes(nodes, tree, path, sample, weights, extensions):
    return outer_part(nodes, path, sample, weights, extensions)


@inlined
def _widen(nodes, row, sample):
    low = row * nodes.width
    widen(nodes.boxes, low, low + nodes.width // index(2), sample.values, sample.at, sample.n_features)


@inlined
def _widen_boxes(nodes, tree, path, outer, end, sample):
    for k in range(outer, end):
        _widen(nodes, row_at(path, k), sample)


BOXES = Geometry(descend, _outer_boxes, _split, _widen_boxes)
"""Axis-aligned boxes, and cuts between them."""
