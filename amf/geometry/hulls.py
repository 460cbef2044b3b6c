"""Convex hulls of points in the plane, to which points are added one by one, and the lines between a hull and a point.

A hull is its vertices in counter-clockwise order, none of them between its neighbours: x, y, x, y, ... as float32 in
an array of 32-bit words, from `v` on. A point is within a hull, or there is a run of edges that it sees from outside:
then the hull with the point is the point and the vertices that are not amid the run. On which side of an edge a point
lies is decided exactly: so the hull of some points is the same in whatever order they come.

The measure of the lines that hit a convex figure in the plane is its perimeter (Cauchy, Crofton). What a point adds to
the perimeter of a hull is the measure of the lines between the two. Each of these touches the hull in its own
direction at one vertex v, and the lines that touch there are drawn without any trigonometry: of those with the normal
n, at an angle a to the way from v to the point, whose length is r, the gap is r cos(a), so that r sin(a) is uniform.

Lengths and normals are those of the plane whose axes are multiplied by weights, which changes no side of any edge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amf.jit.decorators import called, index, inlined

_PAIR = index(2)
_SMALL = index(32)
"""Vertices up to which all edges are looked at: beyond, those that a point sees are searched for."""
_DOUBT = 3.3306690738754716e-16
"""Relative error of the difference of two products of differences, (3 + 16 eps) eps (J. R. Shewchuk, 1997)."""


@inlined
def coordinate(words, at):
    """A coordinate, float64 of the float32 in a word."""
    return np.float64(np.int32(words[at]).view(np.float32))


@inlined
def bits_of(number):
    """The word of a float32."""
    return np.float32(number).view(np.int32)


@inlined
def turn(ax, ay, bx, by, cx, cy):
    """> 0 where c lies to the left of the way from a to b, < 0 to the right, 0 where on one line: of float32, exact."""
    left, right = (bx - ax) * (cy - ay), (by - ay) * (cx - ax)
    area = left - right
    if abs(area) > _DOUBT * (abs(left) + abs(right)) or (left == 0.0 and right == 0.0):
        return area
    return _exact_turn(ax, ay, bx, by, cx, cy)


@called
def _exact_turn(ax, ay, bx, by, cx, cy):
    """A number with the sign of `turn`: products of float32 are exact in float64, and their sum is kept in parts."""
    products = (bx * cy, -bx * ay, -ax * cy, -by * cx, by * ax, ay * cx)
    parts = np.zeros(6)
    for n, product in enumerate(products):
        total = product
        for k in range(n):
            # Knuth's TwoSum: the rounded sum goes on, what it has lost stays.
            grown = total + parts[k]
            added = grown - total
            parts[k] = (total - (grown - added)) + (parts[k] - added)
            total = grown
        parts[n] = total
    for k in range(6):
        if parts[5 - k] != 0.0:
            return parts[5 - k]
    return 0.0


@inlined
def _length(x, y):
    return math.sqrt(x * x + y * y)


@inlined
def seen_from(words, v, size, x, y):
    """(first edge that a point outside of a hull sees, how many one after the other); (0, 0): it is within the hull.

    size: vertices, at least 1. Edge k goes from vertex k to the next one. A single vertex counts as one edge, which
    every other point sees; of a hull of two vertices a point that extends it sees both edges, from the far vertex on.
    """
    if size == index(1):
        apart = coordinate(words, v) != x or coordinate(words, v + index(1)) != y
        return index(0), index(apart)
    ax, ay = coordinate(words, v), coordinate(words, v + index(1))
    if size == _PAIR:
        return _seen_of_segment(ax, ay, coordinate(words, v + _PAIR), coordinate(words, v + index(3)), x, y)
    if size > _SMALL:
        return _search_seen(words, v, size, x, y)
    # Of all edges beyond doubt and without a branch: on which side the point lies is hard to foretell.
    last = v + _PAIR * (size - index(1))
    ax, ay = coordinate(words, last), coordinate(words, last + index(1))
    n_seen, n_hidden, before = index(0), index(0), True
    first: Any = size - index(1)  # unless another edge that is seen comes after one that is not
    for k in range(size):
        bx, by = coordinate(words, v + _PAIR * k), coordinate(words, v + _PAIR * k + index(1))
        left, right = (bx - ax) * (y - ay), (by - ay) * (x - ax)
        area, doubt = left - right, _DOUBT * (abs(left) + abs(right))
        seen = area < -doubt
        n_seen += index(seen)
        n_hidden += index(area > doubt)
        first = k - index(1) if seen and not before else first
        before, ax, ay = seen, bx, by
    if n_hidden == size:
        return index(0), index(0)
    if n_hidden + n_seen == size:
        return first, n_seen
    return _exactly_seen(words, v, size, x, y)


@called
def _exactly_seen(words, v, size, x, y):
    """`seen_from` of a hull of three vertices or more, edge by edge."""
    ax, ay = coordinate(words, v), coordinate(words, v + index(1))
    n_seen, outside = index(0), False
    first: Any = index(0)
    before, seen_first = True, False
    for k in range(size):
        after = v + _PAIR * (k + index(1)) if k + index(1) < size else v
        bx, by = coordinate(words, after), coordinate(words, after + index(1))
        area = turn(ax, ay, bx, by, x, y)
        seen = area <= 0.0
        outside |= area < 0.0
        n_seen += index(seen)
        if k == index(0):
            seen_first = seen
        elif seen and not before:
            first = k
        before, ax, ay = seen, bx, by
    if not outside:
        return index(0), index(0)
    if seen_first and not before:
        first = index(0)
    return first, n_seen


@called
def _side_of_edge(words, v, size, k, x, y):
    """`turn` of a point and an edge: not > 0 where the point sees the edge."""
    at, after = v + _PAIR * k, v + _PAIR * ((k + index(1)) % size)
    ax, ay = coordinate(words, at), coordinate(words, at + index(1))
    return turn(ax, ay, coordinate(words, after), coordinate(words, after + index(1)), x, y)


@called
def _side_of_ray(words, v, k, ax, ay, x, y):
    """On which side a vertex lies of the way from a to a point: `turn` of the three."""
    at = v + _PAIR * k
    return turn(ax, ay, x, y, coordinate(words, at), coordinate(words, at + index(1)))


@called
def _search_seen(words, v, size, x, y):
    """`seen_from` of a large hull, in time that grows with the logarithm of its size.

    From the first vertex the others are seen in the order of their angles, and on the way around the hull there is one
    run of edges that the point sees: in either order one half after the other is left out.
    """
    seen, hidden = _edges_on_both_sides(words, v, size, x, y)
    if seen == size:
        return index(0), index(0)
    first = _last_seen(words, v, size, seen, (seen + size - hidden) % size, size - index(1), x, y)
    last = _last_seen(words, v, size, seen, (hidden + size - seen) % size, index(1), x, y)
    return (seen + size - first) % size, first + last + index(1)


@called
def _last_seen(words, v, size, seen, hidden, step, x, y):
    """How many edges on from one that is seen there is the last one of the run; `hidden` edges on there is none.

    step: 1, or size - 1 for the way back.
    """
    low, high = index(0), hidden
    while high - low > index(1):
        middle = (low + high) // index(2)
        if _side_of_edge(words, v, size, (seen + middle * step) % size, x, y) <= 0.0:
            low = middle
        else:
            high = middle
    return low


@called
def _edges_on_both_sides(words, v, size, x, y):
    """(an edge that a point sees from outside, one that it does not see); (size, size): it is within the hull."""
    ax, ay, before = coordinate(words, v), coordinate(words, v + index(1)), size - index(1)
    by_first, by_last = _side_of_edge(words, v, size, index(0), x, y), _side_of_edge(words, v, size, before, x, y)
    low, high = index(1), before
    if by_first >= 0.0 and by_last >= 0.0:
        # The point is in the angle at the first vertex: it sees the edge that it looks through to there, or none.
        while high - low > index(1):
            middle = (low + high) // index(2)
            if _side_of_ray(words, v, middle, ax, ay, x, y) <= 0.0:
                low = middle
            else:
                high = middle
        if _side_of_edge(words, v, size, low, x, y) < 0.0:
            return low, (index(0) if by_first > 0.0 else before)
        return size, size
    if by_first < 0.0 and by_last < 0.0:
        # The ray from the point through the first vertex leaves the hull through an edge that is hidden.
        while high - low > index(1):
            middle = (low + high) // index(2)
            if _side_of_ray(words, v, middle, ax, ay, x, y) >= 0.0:
                low = middle
            else:
                high = middle
        return index(0), low
    # One of the two edges is seen, and the other one hidden, or the point lies in its line: then its neighbour is.
    if by_first < 0.0:
        return index(0), (before if by_last > 0.0 else before - index(1))
    return before, (index(0) if by_first > 0.0 else index(1))


@inlined
def _seen_of_segment(ax, ay, bx, by, x, y):
    area = turn(ax, ay, bx, by, x, y)
    if area != 0.0:
        return (index(0) if area < 0.0 else index(1)), index(1)
    a_first = ax < bx or (ax == bx and ay < by)
    after_a, after_b = x > ax or (x == ax and y > ay), x > bx or (x == bx and y > by)
    at_a, at_b = x == ax and y == ay, x == bx and y == by
    if at_a or at_b or after_a != after_b:
        return index(0), index(0)
    # The far vertex: a where the point lies beyond b.
    return (index(0) if after_a == a_first else index(1)), _PAIR


@inlined
def _near_end(size, first, n_seen):
    """The vertex at which all lines touch that are between a point and a hull of one or two vertices, or `size`."""
    if size == index(1):
        return index(0)
    return index(1) - first if n_seen == size else size


@called
def growth(words, v, size, first, n_seen, x, y, across, up):
    """What a point adds to the perimeter of a hull, of which it sees these edges. across, up: weights of the axes."""
    near = _near_end(size, first, n_seen)
    if near < size:
        at = v + _PAIR * near
        return 2.0 * _length(across * (x - coordinate(words, at)), up * (y - coordinate(words, at + index(1))))
    at, end = v + _PAIR * first, v + _PAIR * size
    ax, ay = coordinate(words, at), coordinate(words, at + index(1))
    total = _length(across * (x - ax), up * (y - ay))
    for _ in range(n_seen):
        at += _PAIR
        at = v if at == end else at
        bx, by = coordinate(words, at), coordinate(words, at + index(1))
        total -= _length(across * (bx - ax), up * (by - ay))
        ax, ay = bx, by
    return max(total + _length(across * (x - ax), up * (y - ay)), 0.0)


@called
def line_between(words, v, size, first, n_seen, x, y, across, up, place):
    """(normal of a line between a hull and a point, towards the point; the vertex that it touches when it moves back).

    first, n_seen: the edges that the point sees. across, up: weights of the axes. place: uniform on [0, 1), of the
    measure of these lines, which is the `growth` and has to be > 0.
    """
    near = _near_end(size, first, n_seen)
    target = place * growth(words, v, size, first, n_seen, x, y, across, up)
    single = near < size
    chosen, sine, right, ahead = near, 0.0, 1.0, 0.0
    for j in range(index(1) if single else n_seen + index(1)):
        k = near if single else (first + j) % size
        at = v + _PAIR * k
        dx, dy = across * (x - coordinate(words, at)), up * (y - coordinate(words, at + index(1)))
        distance = _length(dx, dy)
        lowest, highest = -distance, distance
        if not single and j > index(0):
            lowest = _limit(words, at, v + _PAIR * ((k + size - index(1)) % size), dx, dy, across, up, -1.0, lowest)
        if not single and j < n_seen:
            highest = _limit(words, at, v + _PAIR * ((k + index(1)) % size), dx, dy, across, up, 1.0, highest)
        mass = highest - lowest
        if mass > 0.0:
            # Rounding can leave the target beyond the sum of all masses: then the last candidate stands.
            chosen, right, ahead = k, dx / distance, dy / distance
            sine = min((lowest + min(target, mass)) / distance, 1.0)
            if target < mass:
                break
            target -= mass
    cosine = math.sqrt(max(1.0 - sine * sine, 0.0))
    return cosine * right - sine * ahead, cosine * ahead + sine * right, chosen


@inlined
def _limit(words, at, neighbour, dx, dy, across, up, direction, otherwise):
    """r sin(a) of the normal of the edge between a vertex and its neighbour, after it (1) or before it (-1)."""
    ex = across * (coordinate(words, neighbour) - coordinate(words, at)) * direction
    ey = up * (coordinate(words, neighbour + index(1)) - coordinate(words, at + index(1))) * direction
    length = _length(ex, ey)
    return -(dx * ex + dy * ey) / length if length > 0.0 else otherwise


_AT_ONCE = index(8)


@called
def move_up(words, begin, end, by):
    """Move the words from `begin` up to `end` up by some words, eight at a time: the upper ones first."""
    while end - begin >= _AT_ONCE:
        end -= _AT_ONCE
        a, b, c, d = words[end], words[end + index(1)], words[end + index(2)], words[end + index(3)]
        e, f, g, h = words[end + index(4)], words[end + index(5)], words[end + index(6)], words[end + index(7)]
        at = end + by
        words[at], words[at + index(1)], words[at + index(2)], words[at + index(3)] = a, b, c, d
        words[at + index(4)], words[at + index(5)], words[at + index(6)], words[at + index(7)] = e, f, g, h
    while end > begin:
        end -= index(1)
        words[end + by] = words[end]


@called
def move_down(words, begin, end, by):
    """Move the words from `begin` up to `end` down by some words, eight at a time: the lower ones first."""
    while end - begin >= _AT_ONCE:
        a, b, c, d = words[begin], words[begin + index(1)], words[begin + index(2)], words[begin + index(3)]
        e, f, g, h = (
            words[begin + index(4)],
            words[begin + index(5)],
            words[begin + index(6)],
            words[begin + index(7)],
        )
        at = begin - by
        words[at], words[at + index(1)], words[at + index(2)], words[at + index(3)] = a, b, c, d
        words[at + index(4)], words[at + index(5)], words[at + index(6)], words[at + index(7)] = e, f, g, h
        begin += _AT_ONCE
    while begin < end:
        words[begin - by] = words[begin]
        begin += index(1)


@inlined
def add_vertex(words, v, size, first, n_seen, x, y):
    """Add a point to a hull of which it sees these edges; returns the new number of vertices, at most one more.

    x, y: words. It comes after the first vertex of the run, in the place of those that are amid it.
    """
    if size == index(0):
        words[v], words[v + index(1)] = x, y
        return index(1)
    rest = first + n_seen
    if rest > size:
        # The run goes on at the beginning: what is left are the vertices from its end to its first one.
        last = _PAIR * (rest - size)
        for k in range(_PAIR * (size - n_seen + index(1))):
            words[v + k] = words[v + last + k]
        size = size - n_seen + index(1)
        words[v + _PAIR * size], words[v + _PAIR * size + index(1)] = x, y
        return size + index(1)
    if n_seen > _PAIR:
        less = _PAIR * (n_seen - _PAIR)
        for k in range(_PAIR * rest, _PAIR * size):
            words[v + k - less] = words[v + k]
    elif n_seen == index(1):
        for k in range(_PAIR * (size - rest)):
            at = v + _PAIR * size - k
            words[at + index(1)] = words[at - index(1)]
    at = v + _PAIR * (first + index(1))
    words[at], words[at + index(1)] = x, y
    return size + _PAIR - n_seen
