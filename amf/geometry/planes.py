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
from amf.geometry.samples import Sample, has, value_of, weight_of
from amf.jit.decorators import called, index, inlined
from amf.jit.rng import uniform
from amf.memory.arena import CHILD, COUNT, CUT_ROOM, FEATURE, ROOT, row_of
from amf.memory.paths import Path, row_at

SLOPE, OFFSET, SECOND = index(0), index(1), index(4)
"""Words of a cut, float64, float64 and int32, from `cut_at` on."""
_PAIR = index(2)


@inlined
def cut_at(nodes, row):
    """First word of the cut of an inner node."""
    return (row + index(1)) * nodes.words - CUT_ROOM


@inlined
def _place_of(nodes, here, slope, second, sample):
    """Where a sample lies along the normal of a cut, NaN where it lacks a value."""
    return np.float64(value_of(sample, index(nodes.ints[here + FEATURE]))) + slope * np.float64(
        value_of(sample, second)
    )


@inlined
def _side(nodes, here, child, sample):
    """Row of the child on the sample's side. One that lacks a value follows the larger crowd, ties left."""
    cut = here + nodes.words - CUT_ROOM
    slope, offset = nodes.reals[cut // index(2) + SLOPE], nodes.reals[cut // index(2) + OFFSET]
    place = _place_of(nodes, here, slope, index(nodes.ints[cut + SECOND]), sample)
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
def _growth(hulls, entry, sample, weights, inside):
    """(by how much a sample makes the perimeters of all hulls grow, whether it changes any).

    inside: bool (pairs,): those whose hull a sample is known to lie within. Where it lies within more they are noted:
    hulls are nested, so that it lies within those of all nodes above, too.
    """
    n_features, pair, total, changes = sample.n_features, index(0), 0.0, False
    v = hull_at(entry, pairs_of(n_features))
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            hull = hull_at(entry, pair)
            if inside[pair] or not (has(sample, i) and has(sample, k)):
                note_seen(hulls, hull, index(0), index(0))
            else:
                grows, changed = _growth_of_pair(
                    hulls, hull, v, np.float64(value_of(sample, i)), np.float64(value_of(sample, k)),
                    np.float64(weight_of(weights, i)), np.float64(weight_of(weights, k)), False,
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
def _is_inside(nodes, row, sample):
    low = row * nodes.width
    return holds(nodes.boxes, low, low + nodes.width // index(2), sample.values, sample.at, sample.n_features)


@called
def _growth_of_interval(nodes, row, feature, sample, weights):
    """What a sample adds to twice the length of a node's interval."""
    low = row * nodes.width + feature
    beyond = outside(nodes.boxes[low], nodes.boxes[low + nodes.width // index(2)], value_of(sample, feature))
    return 2.0 * np.float64(weight_of(weights, feature)) * np.float64(beyond)


# The geometry of a walk.


@called
def _outer_part(nodes, tree, path, sample, weights, extensions):
    """Where the part of the path begins whose hulls, or boxes, the sample changes; extensions: filled from there on."""
    n_features = sample.n_features
    only = _only_feature(nodes, row_at(path, index(0)), n_features)
    renew(nodes, tree, n_features)
    first, n_pairs = path.length, pairs_of(n_features)
    hulls, entry = without_points(n_features), index(0)
    inside = np.zeros(n_pairs, np.bool_)
    while first > index(0):
        row = row_at(path, first - index(1))
        if only < n_features:
            rate, changes = _growth_of_interval(nodes, row, only, sample, weights), False
        else:
            kept = entry_of(nodes, tree, row)
            if kept == index(0):
                if first == path.length:
                    hulls = with_point(hulls, entry, Sample(nodes.boxes, row * nodes.width, n_features))
                else:
                    child = index(nodes.ints[row * nodes.words + CHILD])
                    other = child + child + index(1) - row_at(path, first)
                    hulls = with_subtree(hulls, entry, nodes, tree, other, n_features)
                    kept = keep(nodes, tree, row, hulls, index(0), n_pairs)
            hulls, entry = nodes.hulls if kept > index(0) else hulls, kept
            rate, changes = _growth(hulls, entry, sample, weights, inside)
        if not changes and _is_inside(nodes, row, sample):
            break
        first -= index(1)
        extensions[first] = min(rate, LARGEST_EXTENSION)
    return first


@called
def _extend(nodes, tree, path, outer, end, sample):
    """Extend the nodes of a path from `outer` up to `end` by a sample; where that is its length it ends at the leaf."""
    if end < path.length:
        _extend_above(nodes, tree, path, outer, end, sample, True)
        return
    leaf, half, takes_over = path.length - index(1), nodes.width // index(2), False
    low = row_at(path, leaf) * nodes.width
    for j in range(sample.n_features):
        if nodes.boxes[low + j] != nodes.boxes[low + j] and has(sample, j):
            nodes.boxes[low + j] = nodes.boxes[low + half + j] = value_of(sample, j)
            takes_over = True
    if takes_over:
        # The point that the leaf has now is no sample: it may lie outside of nodes that the sample does not extend.
        point = Sample(nodes.boxes, low, sample.n_features)
        _extend_above(nodes, tree, path, index(0), leaf, point, False)


@called
def _extend_above(nodes, tree, path, outer, end, sample, known):
    """Extend inner nodes of a path by a point. known: see `seen_of`."""
    half = nodes.width // index(2)
    for below in range(end - outer):
        row = row_at(path, end - index(1) - below)
        low = row * nodes.width
        for j in range(sample.n_features):
            value = value_of(sample, j)
            if value == value:
                if not nodes.boxes[low + j] <= value:
                    nodes.boxes[low + j] = value
                if not nodes.boxes[low + half + j] >= value:
                    nodes.boxes[low + half + j] = value
        add_to_kept(nodes, tree, row, sample, known)


@called
def _pair_of(hulls, entry, sample, weights, target):
    """(hull, its vertices, its features) that is drawn in proportion to what a sample adds to its perimeter."""
    n_features, pair, reached = sample.n_features, index(0), 0.0
    v = hull_at(entry, pairs_of(n_features))
    found: Any = index(0)
    vertices: Any = index(0)
    one: Any = index(0)
    other: Any = index(0)
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            hull = hull_at(entry, pair)
            if has(sample, i) and has(sample, k) and not reached > target:
                grows, _ = _growth_of_pair(
                    hulls, hull, v, np.float64(value_of(sample, i)), np.float64(value_of(sample, k)),
                    np.float64(weight_of(weights, i)), np.float64(weight_of(weights, k)), entry > index(0),
                )  # fmt: skip
                if grows > 0.0:
                    # Rounding can leave the target just above the sum of all: then the last candidate stands.
                    found, vertices, one, other = hull, v, i, k
                    reached += grows
            v += _PAIR * size_of(hulls, hull)
            pair += index(1)
    return found, vertices, one, other


@called
def _cut_between(hulls, hull, v, one, other, sample, weights, place, share):
    """(feature, second, slope, offset, whether the hull goes left) of a cut between a sample and a node's hulls."""
    across, up = np.float64(weight_of(weights, one)), np.float64(weight_of(weights, other))
    px, py = np.float64(value_of(sample, one)), np.float64(value_of(sample, other))
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
def _split(nodes, random, tree, row, pair, time, sample, weights, extension):
    """Make a node the parent of its old self and of a leaf for the sample; returns the row of that leaf.

    The row of the node becomes the parent's, with a copy of the statistics; the new rows begin at `pair`.
    """
    pick, place, share = uniform(random, tree), uniform(random, tree), uniform(random, tree)
    # The root has the sample in it by now. A node of which one feature is known has no hull, so that only while all
    # samples had shown that one alone there was a rate at which it splits.
    n_features = sample.n_features
    only, n_pairs = _only_feature(nodes, row, n_features), pairs_of(n_features)
    half = nodes.width // index(2)
    if only < n_features:
        feature, second, slope, value = only, only, 0.0, np.float64(value_of(sample, only))
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
        hulls, entry = hulls_of(nodes, tree, row, n_features)
        hull, v, one, other = _pair_of(hulls, entry, sample, weights, pick * extension)
        feature, second, slope, offset, box_goes_left = _cut_between(
            hulls, hull, v, one, other, sample, weights, place, share
        )
    old, fresh = become_parent(nodes, row, pair, box_goes_left, time)
    nodes.ints[row * nodes.words + FEATURE] = np.int32(feature)
    cut = cut_at(nodes, row)
    nodes.reals[cut // index(2) + SLOPE], nodes.reals[cut // index(2) + OFFSET] = slope, offset
    nodes.ints[cut + SECOND] = np.int32(second)
    become_leaf(nodes, fresh, sample)
    hand_over(nodes, tree, row, old, n_pairs)
    above = np.empty(1, np.uint64)
    above[0] = row
    _extend_above(nodes, tree, Path(above, index(0), index(1)), index(0), index(1), sample, True)
    return fresh


@called
def shift_cuts(nodes, shifts):
    """Subtract shifts, float64 (d,), from the places of all cuts, as shifting.py does from boxes; hulls are dropped."""
    n_trees = index(nodes.used.shape[0])
    for tree in range(n_trees):
        nodes.hulls[region(nodes, tree)[0] + STAMP] = 0
        for number in range(ROOT, nodes.used[tree]):
            row = row_of(number, tree, n_trees)
            if nodes.ints[row * nodes.words + CHILD] != 0:
                feature, cut = index(nodes.ints[row * nodes.words + FEATURE]), cut_at(nodes, row)
                second, place = index(nodes.ints[cut + SECOND]), cut // index(2)
                nodes.reals[place + OFFSET] -= shifts[feature] + nodes.reals[place + SLOPE] * shifts[second]


PLANES = Geometry(make_descend(_side), _outer_part, _split, _extend)
