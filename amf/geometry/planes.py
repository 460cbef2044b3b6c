"""Trees whose cuts are oblique, in pairs of features: the geometry of a walk (walk.py), as boxes are that of others.

A cut lies in the plane of two features: x_i + slope * x_k <= offset goes left, and i is the feature with the larger
part in it. The rate at which a node is cut is the sum over all pairs of features of the perimeter of the convex hull
of its samples in their plane, where features are weighed as in boxes. A sample is thus parted from the samples of a
node at the rate by which it makes these perimeters grow, by a line between it and the hull (hulls.py); the pair is
drawn in proportion to the growth.

A leaf is one point. A pair of which a sample lacks a value says nothing of it; a sample that nothing tells from the
point of its leaf counts as that point, which takes over the values that it lacks. While samples have shown a single
feature there is no pair, and its interval counts as a hull of two vertices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.geometry.boxes import holds, outside
from amf.geometry.descent import LARGEST_EXTENSION, make_descend
from amf.geometry.hull_cache import (
    STAMP,
    add_to_kept,
    entry_of,
    hand_over,
    hull_at,
    hulls_of,
    keep,
    note_seen,
    pairs_of,
    region,
    renew,
    seen_of,
    size_of,
    with_point,
    with_subtree,
    without_points,
)
from amf.geometry.hulls import coordinate, growth, line_between
from amf.geometry.interface import Geometry, become_leaf, become_parent
from amf.jit.decorators import called, index, inlined
from amf.jit.rng import uniform
from amf.memory.arena import CHILD, COUNT, CUT_ROOM, FEATURE, ROOT, row_of

SLOPE, OFFSET, SECOND = index(0), index(1), index(4)
"""Words of a cut, float64, float64 and int32, from `cut_at` on."""
_PAIR = index(2)


@inlined
def cut_at(nodes, row):
    """First word of the cut of an inner node."""
    return (row + index(1)) * nodes.words - CUT_ROOM


@inlined
def _place_of(nodes, here, slope, second, x, at):
    """Where a sample lies along the normal of a cut, NaN where it lacks a value."""
    return np.float64(x[at + index(nodes.ints[here + FEATURE])]) + slope * np.float64(x[at + second])


@inlined
def _side(nodes, here, child, x, at):
    """Row of the child on the sample's side. One that lacks a value follows the larger crowd, ties left."""
    cut = here + nodes.words - CUT_ROOM
    slope, offset = nodes.reals[cut // index(2) + SLOPE], nodes.reals[cut // index(2) + OFFSET]
    place = _place_of(nodes, here, slope, index(nodes.ints[cut + SECOND]), x, at)
    if place == place:
        return child + index(place > offset)
    left = child * nodes.words
    return child + index(nodes.ints[left + COUNT] < nodes.ints[left + nodes.words + COUNT])


@called
def _growth_of_pair(hulls, hull, v, x, y, across, up, known):
    """(growth of the perimeter of one hull by a point (x, y), whether the hull changes).

    v: where the vertices of the hull begin. across, up: weights of the axes. known: whether the edges that the point
    sees are noted.
    """
    size = size_of(hulls, hull)
    first, n_seen = seen_of(hulls, hull, v, x, y, known)
    note_seen(hulls, hull, first, index(1) if size == index(0) else n_seen)
    if size == index(0) or n_seen == index(0):
        return 0.0, size == index(0)
    return growth(hulls, v, size, first, n_seen, x, y, across, up), True


@called
def _growth(hulls, entry, x, at, weights, weights_at, n_features, inside):
    """(by how much a sample makes the perimeters of all hulls grow, whether it changes any).

    inside: bool (pairs,): those whose hull a sample is known to lie within. Where it lies within more they are noted:
    hulls are nested, so that it lies within those of all nodes above, too.
    """
    pair, v, total, changes = index(0), hull_at(entry, pairs_of(n_features)), 0.0, False
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            hull = hull_at(entry, pair)
            if inside[pair] or x[at + i] != x[at + i] or x[at + k] != x[at + k]:
                note_seen(hulls, hull, index(0), index(0))
            else:
                grows, changed = _growth_of_pair(
                    hulls, hull, v, np.float64(x[at + i]), np.float64(x[at + k]),
                    np.float64(weights[weights_at + i]), np.float64(weights[weights_at + k]), False,
                )  # fmt: skip
                total += grows
                changes |= changed
                inside[pair] = not changed
            v += _PAIR * size_of(hulls, hull)
            pair += index(1)
    return total, changes


@inlined
def _only_feature(nodes, row, n_features):
    """The feature that the samples of a node have shown, `n_features` where it is not one alone."""
    found, n_found = n_features, 0
    for j in range(n_features):
        if nodes.boxes[row * nodes.width + j] == nodes.boxes[row * nodes.width + j]:
            found = j
            n_found += 1
    return found if n_found == 1 else n_features


@inlined
def _is_inside(nodes, row, x, at, n_features):
    low = row * nodes.width
    return holds(nodes.boxes, low, low + nodes.width // index(2), x, at, n_features)


@called
def _growth_of_interval(nodes, row, feature, x, at, weights, weights_at):
    """What a sample adds to twice the length of a node's interval."""
    low = row * nodes.width + feature
    beyond = outside(nodes.boxes[low], nodes.boxes[low + nodes.width // index(2)], x[at + feature])
    return 2.0 * np.float64(weights[weights_at + feature]) * np.float64(beyond)


# The geometry of a walk.


@called
def _outer_part(nodes, used, tree, path, start, length, x, at, weights, weights_at, n_features, extensions):
    """Where the part of the path begins whose hulls, or boxes, the sample changes; extensions: filled from there on."""
    only = _only_feature(nodes, path[start], n_features)
    renew(nodes, used, tree, n_features)
    first, n_pairs = length, pairs_of(n_features)
    hulls, entry = without_points(n_features), index(0)
    inside = np.zeros(n_pairs, np.bool_)
    while first > index(0):
        row = path[start + first - index(1)]
        if only < n_features:
            rate, changes = _growth_of_interval(nodes, row, only, x, at, weights, weights_at), False
        else:
            kept = entry_of(nodes, used, tree, row)
            if kept == index(0):
                if first == length:
                    hulls = with_point(hulls, entry, nodes.boxes, row * nodes.width, n_features)
                else:
                    child = index(nodes.ints[row * nodes.words + CHILD])
                    other = child + child + index(1) - path[start + first]
                    hulls = with_subtree(hulls, entry, nodes, used, tree, other, n_features)
                    kept = keep(nodes, used, tree, row, hulls, index(0), n_pairs)
            hulls, entry = nodes.hulls if kept > index(0) else hulls, kept
            rate, changes = _growth(hulls, entry, x, at, weights, weights_at, n_features, inside)
        if not changes and _is_inside(nodes, row, x, at, n_features):
            break
        first -= index(1)
        extensions[first] = min(rate, LARGEST_EXTENSION)
    return first


@called
def _extend(nodes, used, tree, path, start, outer, end, length, x, at, n_features):
    """Extend the nodes of a path from `outer` up to `end` by a sample; end = length: it ends at the leaf."""
    if end < length:
        _extend_above(nodes, used, tree, path, start, outer, end, x, at, n_features, True)
        return
    low, half, takes_over = path[start + length - index(1)] * nodes.width, nodes.width // index(2), False
    for j in range(n_features):
        if nodes.boxes[low + j] != nodes.boxes[low + j] and x[at + j] == x[at + j]:
            nodes.boxes[low + j] = nodes.boxes[low + half + j] = x[at + j]
            takes_over = True
    if takes_over:
        # The point that the leaf has now is no sample: it may lie outside of nodes that the sample does not extend.
        _extend_above(nodes, used, tree, path, start, index(0), length - index(1), nodes.boxes, low, n_features, False)


@called
def _extend_above(nodes, used, tree, path, start, outer, end, x, at, n_features, known):
    """Extend inner nodes of a path by a point. known: see `seen_of`."""
    half = nodes.width // index(2)
    for below in range(end - outer):
        row = path[start + end - index(1) - below]
        low = row * nodes.width
        for j in range(n_features):
            value = x[at + j]
            if value == value:
                if not nodes.boxes[low + j] <= value:
                    nodes.boxes[low + j] = value
                if not nodes.boxes[low + half + j] >= value:
                    nodes.boxes[low + half + j] = value
        add_to_kept(nodes, used, tree, row, x, at, n_features, known)


@called
def _pair_of(hulls, entry, x, at, weights, weights_at, n_features, target):
    """(hull, its vertices, its features) that is drawn in proportion to what a sample adds to its perimeter."""
    pair, v, reached = index(0), hull_at(entry, pairs_of(n_features)), 0.0
    found: Any = index(0)
    vertices: Any = index(0)
    one: Any = index(0)
    other: Any = index(0)
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            hull = hull_at(entry, pair)
            if x[at + i] == x[at + i] and x[at + k] == x[at + k] and not reached > target:
                grows, _ = _growth_of_pair(
                    hulls, hull, v, np.float64(x[at + i]), np.float64(x[at + k]),
                    np.float64(weights[weights_at + i]), np.float64(weights[weights_at + k]), entry > index(0),
                )  # fmt: skip
                if grows > 0.0:
                    # Rounding can leave the target just above the sum of all: then the last candidate stands.
                    found, vertices, one, other = hull, v, i, k
                    reached += grows
            v += _PAIR * size_of(hulls, hull)
            pair += index(1)
    return found, vertices, one, other


@called
def _cut_between(hulls, hull, v, one, other, x, at, weights, weights_at, place, share):
    """(feature, second, slope, offset, whether the hull goes left) of a cut between a sample and a node's hulls."""
    across, up = np.float64(weights[weights_at + one]), np.float64(weights[weights_at + other])
    px, py = np.float64(x[at + one]), np.float64(x[at + other])
    size = size_of(hulls, hull)
    first, n_seen = seen_of(hulls, hull, v, px, py, True)
    right, ahead, touched = line_between(hulls, v, size, first, n_seen, px, py, across, up, place)
    right, ahead = right * across, ahead * up
    swaps = abs(ahead) * across > abs(right) * up  # the larger part in units of the weights
    feature, second = (other, one) if swaps else (one, other)
    main, slope = (ahead, right / ahead) if swaps else (right, ahead / right)
    # Where the points lie along the normal, as samples will be compared: up to rounding they are apart.
    point = py + slope * px if swaps else px + slope * py
    nearest, box_goes_left = point, main > 0.0
    touching = point
    for k in range(size):
        vx, vy = coordinate(hulls, v + _PAIR * k), coordinate(hulls, v + _PAIR * k + index(1))
        along = vy + slope * vx if swaps else vx + slope * vy
        if k == index(0) or (along > nearest if box_goes_left else along < nearest):
            nearest = along
        if k == touched:
            touching = along
    low, high = (nearest, point) if box_goes_left else (point, nearest)
    offset = min(max(touching + share * (point - touching), low), high)
    if offset >= high and low < high:
        offset = np.nextafter(high, -np.inf)
    return feature, second, slope, offset, box_goes_left


@called
def _split(
    nodes, used, random, tree, row, pair, time, x, at, weights, weights_at, n_features, extension
):  # fmt: skip
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    pick, place, share = uniform(random, tree), uniform(random, tree), uniform(random, tree)
    # The root has the sample in it by now. A node of which one feature is known has no hull, so that only while all
    # samples had shown that one alone there was a rate at which it splits.
    only, n_pairs = _only_feature(nodes, row, n_features), pairs_of(n_features)
    half = nodes.width // index(2)
    if only < n_features:
        feature, second, slope, value = only, only, 0.0, np.float64(x[at + only])
        low, high = (
            np.float64(nodes.boxes[row * nodes.width + only]),
            np.float64(nodes.boxes[row * nodes.width + half + only]),
        )
        box_goes_left = value > high
        lower, upper = (high, value) if box_goes_left else (value, low)
        offset = lower + share * (upper - lower)
        if offset >= upper:
            offset = np.nextafter(upper, -np.inf)
    else:
        # What the sample sees of hulls that are kept was noted when the rates were found.
        hulls, entry = hulls_of(nodes, used, tree, row, n_features)
        hull, v, one, other = _pair_of(hulls, entry, x, at, weights, weights_at, n_features, pick * extension)
        feature, second, slope, offset, box_goes_left = _cut_between(
            hulls, hull, v, one, other, x, at, weights, weights_at, place, share
        )
    old, fresh = become_parent(nodes, row, pair, box_goes_left, time)
    nodes.ints[row * nodes.words + FEATURE] = np.int32(feature)
    cut = cut_at(nodes, row)
    nodes.reals[cut // index(2) + SLOPE], nodes.reals[cut // index(2) + OFFSET] = slope, offset
    nodes.ints[cut + SECOND] = np.int32(second)
    become_leaf(nodes, fresh, x, at, n_features)
    hand_over(nodes, used, tree, row, old, n_pairs)
    above = np.empty(1, np.uint64)
    above[0] = row
    _extend_above(nodes, used, tree, above, index(0), index(0), index(1), x, at, n_features, True)
    return fresh


@called
def shift_cuts(nodes, used, shifts):
    """Subtract shifts, float64 (d,), from the places of all cuts, as shifting.py does from boxes; hulls are dropped."""
    n_trees = index(used.shape[0])
    for tree in range(n_trees):
        nodes.hulls[region(nodes, used, tree)[0] + STAMP] = 0
        for number in range(ROOT, used[tree]):
            row = row_of(number, tree, n_trees)
            if nodes.ints[row * nodes.words + CHILD] != 0:
                feature, cut = index(nodes.ints[row * nodes.words + FEATURE]), cut_at(nodes, row)
                second, place = index(nodes.ints[cut + SECOND]), cut // index(2)
                nodes.reals[place + OFFSET] -= shifts[feature] + nodes.reals[place + SLOPE] * shifts[second]


PLANES = Geometry(make_descend(_side), _outer_part, _split, _extend)
