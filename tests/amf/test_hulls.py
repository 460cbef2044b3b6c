"""Planar convex hulls: against scipy's, in fractions where points are degenerate, and the measure of lines."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from reference_bsp import hull as hull_in_fractions
from reference_bsp import perimeter
from reference_bsp import turn as turn_in_fractions
from scipy.spatial import ConvexHull

from amf.geometry.hulls import add_vertex, bits_of, coordinate, growth, line_between, seen_from, turn
from amf.jit.decorators import exported, index, kernel

_turn, _growth, _line_between = exported(turn), exported(growth), exported(line_between)


@kernel
def add_all(points, words, grows):
    """Add points, float32 (n, 2), to an empty hull; returns its size. grows: what each adds to the perimeter."""
    size = index(0)
    for i in range(points.shape[0]):
        x, y = np.float64(points[i, 0]), np.float64(points[i, 1])
        first, n_seen, grows[i] = index(0), index(0), 0.0
        if size > index(0):
            first, n_seen = seen_from(words, index(0), size, x, y)
            if n_seen > index(0):
                grows[i] = growth(words, index(0), size, first, n_seen, x, y, 1.0, 1.0)
        if size == index(0) or n_seen > index(0):
            size = add_vertex(words, index(0), size, first, n_seen, bits_of(points[i, 0]), bits_of(points[i, 1]))
    return size


@kernel
def _seen_from(words, size, x, y):
    return seen_from(words, index(0), size, x, y)


def edges_seen(words, size, x, y):
    return tuple(map(index, _seen_from(words, size, x, y)))


def added(points):
    """(vertices, words, what each point adds)."""
    points = np.asarray(points, np.float32)
    words, grows = np.zeros(2 * len(points) + 2, np.int32), np.zeros(len(points))
    size = int(add_all(points, words, grows))
    return [tuple(map(float, v)) for v in words[: 2 * size].view(np.float32).reshape(-1, 2)], words, grows


def starting_at_the_least(vertices):
    start = vertices.index(min(vertices))
    return vertices[start:] + vertices[:start]


@pytest.mark.parametrize("n", [3, 10, 200])
def test_hulls_are_those_of_scipy(n):
    for seed in range(20):
        points = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
        vertices, _, grows = added(points)
        expected = points[ConvexHull(points.astype(float)).vertices].astype(float)
        assert starting_at_the_least(vertices) == starting_at_the_least([tuple(v) for v in expected.tolist()])
        assert grows.sum() == pytest.approx(ConvexHull(points.astype(float)).area, rel=1e-12)


DEGENERATE = {
    "one point": lambda rng: np.ones((9, 2)),
    "grid": lambda rng: rng.integers(0, 4, (40, 2)),
    "collinear": lambda rng: rng.integers(0, 9, 30)[:, None] * [1.0, 3.0],
    "collinear, rounded": lambda rng: rng.random(30)[:, None] * [0.1, 0.7],
    "a line and a point": lambda rng: np.vstack([rng.integers(0, 9, 30)[:, None] * [1.0, 1.0], [[4.0, 4.5]]]),
    "circle": lambda rng: np.column_stack([f(rng.random(60) * 6.3) for f in (np.cos, np.sin)]),
    "scales": lambda rng: rng.choice([1e-30, -1e-30, 1e30, -1e30, 0.0, 1.0], (30, 2)),
    "denormal": lambda rng: rng.integers(-3, 4, (30, 2)) * 1.4e-45,
    "neighbours": lambda rng: 1.0 + rng.integers(0, 4, (30, 2)) * 1.2e-7,
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_hulls_are_exact_in_any_order(kind):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = DEGENERATE[kind](rng).astype(np.float32)
        vertices, _, grows = added(points)
        expected = hull_in_fractions([tuple(map(float, point)) for point in points])
        assert starting_at_the_least(vertices) == expected
        assert grows.sum() == pytest.approx(perimeter(expected), rel=1e-9)
        assert starting_at_the_least(added(rng.permutation(points))[0]) == expected


def edges_seen_in_fractions(vertices, x, y):
    """As `seen_from`, edge by edge; of a hull with three vertices or more."""
    n = len(vertices)
    sides = [turn_in_fractions(vertices[k], vertices[(k + 1) % n], (x, y)) for k in range(n)]
    if min(sides) >= 0:
        return 0, 0
    seen = [side <= 0 for side in sides]
    return next(k for k in range(n) if seen[k] and not seen[k - 1]), sum(seen)


LARGE = {
    "circle": lambda t: (np.cos(7 * t), np.sin(7 * t)),
    "parabola": lambda t: (np.round(200 * t), np.round(200 * t) ** 2),
    "logarithm": lambda t: (1 + t, np.log(1 + t)),
}
"""Curves of which every point is a vertex: large hulls."""


@pytest.mark.parametrize("kind", LARGE)
def test_the_edges_that_a_point_sees_of_a_large_hull_are_found(kind):
    """Points at vertices, on edges, in the lines of edges, near and far."""
    rng = np.random.default_rng(1)
    vertices, words, _ = added(np.column_stack(LARGE[kind](rng.random(80))))
    size = len(vertices)
    assert size > 40
    corners = np.array(vertices)
    one, two, three = (corners[rng.integers(0, size, 150)] for _ in range(3))
    nexts = np.roll(corners, -1, axis=0)
    spread = np.ptp(corners, axis=0)
    around = corners.mean(axis=0) + spread * rng.normal(size=(150, 2))
    queries = [corners, (corners + nexts) / 2, 2 * corners - nexts, 2 * nexts - corners, one + two - three, around]
    found = 0
    for x, y in np.vstack(queries).astype(np.float32).astype(float).tolist():
        expected = edges_seen_in_fractions(vertices, x, y)
        assert edges_seen(words, index(size), x, y) == expected, (x, y)
        found += expected[1] > 1
    assert found > 100


@kernel
def ask_often(words, size, points):
    """How many points see any edge."""
    seen = 0
    for i in range(points.shape[0]):
        _, n_seen = seen_from(words, index(0), size, points[i, 0], points[i, 1])
        seen += n_seen > index(0)
    return seen


def test_a_large_hull_is_asked_as_fast_as_a_small_one():
    """A feature and its logarithm, or the cosine and sine of an hour, are all vertices: what is asked of a hull for
    each sample must not take as long as there were samples."""

    def seconds(size):
        t = np.arange(size) / size
        words = np.column_stack([t - 0.5, t * (t - 1.0)]).astype(np.float32).ravel().view(np.int32)
        points = np.column_stack([np.linspace(-0.5, 0.5, 500), np.full(500, -0.3)])
        taken = []
        for _ in range(20):
            start = time.thread_time()
            assert ask_often(words, index(size), points) == 500
            taken.append(time.thread_time() - start)
        return min(taken)

    assert seconds(2000) < 10 * seconds(20)


def test_the_side_of_a_line_is_exact():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        a, b, c = (1.0 + rng.integers(-2, 3, (3, 2)) * 1.1920929e-07 * 10.0 ** rng.integers(0, 6)).astype(np.float32)
        area = _turn(*(float(v) for v in (*a, *b, *c)))
        exact = turn_in_fractions(*(tuple(map(float, point)) for point in (a, b, c)))
        assert np.sign(area) == (exact > 0) - (exact < 0)


def test_a_point_at_distance_one_of_another_adds_two():
    assert added([[0.0, 0.0], [1.0, 0.0]])[2].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_lines_between_a_hull_and_a_point_lie_between_them_and_are_uniform(n):
    """Their directions have the density of the gap, which is also integrated numerically: it is what the point adds."""
    rng = np.random.default_rng(n)
    for x in ((2.0, 0.5), (0.3, -1.5), (1.2, 1.1)):
        vertices, words, _ = added(rng.random((n, 2)))
        corners, size = np.array(vertices), index(len(vertices))
        first, n_seen = edges_seen(words, size, *x)
        grows = _growth(words, index(0), size, first, n_seen, *x, 1.0, 1.0)
        places = (np.arange(400) + 0.5) / 400
        lines = [_line_between(words, index(0), size, first, n_seen, *x, 1.0, 1.0, place) for place in places]
        normals = np.array([line[:2] for line in lines])
        np.testing.assert_allclose(np.hypot(*normals.T), 1.0, rtol=1e-12)
        touched = np.array([corners[int(line[2])] for line in lines])
        near, far = (normals * touched).sum(axis=1), normals @ np.array(x)
        np.testing.assert_allclose(near, (normals @ corners.T).max(axis=1), atol=1e-12)
        assert (far >= near - 1e-12).all()
        angles = np.linspace(-math.pi, math.pi, 40_001)[:-1]
        directions = np.column_stack([np.cos(angles), np.sin(angles)])
        gaps = np.maximum(directions @ np.array(x) - (directions @ corners.T).max(axis=1), 0.0)
        total = gaps.mean() * 2 * math.pi
        assert grows == pytest.approx(total, rel=1e-4)
        # The share of the lines up to a direction, counted from one that no line has.
        start = int(np.argmin(gaps))
        cumulated = np.cumsum(np.roll(gaps, -start)) / gaps.sum()
        turned = (np.arctan2(normals[:, 1], normals[:, 0]) - angles[start]) % (2 * math.pi)
        found = np.interp(turned, angles - angles[0], cumulated)
        np.testing.assert_allclose(np.sort(found), places, atol=0.01)


def test_weights_stretch_the_plane():
    points = np.random.default_rng(3).random((12, 2)).astype(np.float32)
    stretched = points * np.float32([4.0, 0.5])
    vertices, words, _ = added(points)
    others, other_words, _ = added(stretched)
    x, size = (3.0, 0.25), index(len(vertices))
    first, n_seen = edges_seen(words, size, *x)
    y = (12.0, 0.125)
    second, n_other = edges_seen(other_words, index(len(others)), *y)
    a = _growth(words, index(0), size, first, n_seen, *x, 4.0, 0.5)
    b = _growth(other_words, index(0), index(len(others)), second, n_other, *y, 1.0, 1.0)
    assert a == pytest.approx(b, rel=1e-12)
    for place in (0.1, 0.5, 0.9):
        line = _line_between(words, index(0), size, first, n_seen, *x, 4.0, 0.5, place)
        other = _line_between(other_words, index(0), index(len(others)), second, n_other, *y, 1.0, 1.0, place)
        assert line[:2] == pytest.approx(other[:2], abs=1e-9)


def test_coordinates_are_those_of_the_words():
    words = np.array([1.5, -2.25], np.float32).view(np.int32)
    read = exported(coordinate)
    assert [read(words, index(0)), read(words, index(1))] == [1.5, -2.25]
