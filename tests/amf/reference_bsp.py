"""A slow, readable Online BSP-Forest ([BSP]): the oracle that its kernels are compared with.

A tree is its leaves, each a point, and the cuts above them; everything else is found anew whenever it is asked for:
the points below a node from its leaves, their convex hulls by Andrew's monotone chain, exactly, the lines between
a hull and a point by their angles. Random numbers mean what they mean to the kernels, so that trees come out the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from reference import SplitMix64

Point = tuple[float, float]


def turn(a: Point, b: Point, c: Point) -> int:
    """Positive where the way from a over b to c turns left, 0 where it goes straight on, exactly.

    In whole numbers of the finest unit of the six, which take a seventh of the time of fractions.
    """
    ratios = [value.as_integer_ratio() for point in (a, b, c) for value in point]
    finest = max(denominator for _, denominator in ratios)
    ax, ay, bx, by, cx, cy = (numerator * (finest // denominator) for numerator, denominator in ratios)
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def hull(points: Sequence[Point]) -> list[Point]:
    """Vertices of the convex hull, counter-clockwise."""

    def chain(points: list[Point]) -> list[Point]:
        found: list[Point] = []
        for point in points:
            while len(found) > 1 and turn(found[-2], found[-1], point) <= 0:
                found.pop()
            found.append(point)
        return found[:-1]

    ordered = sorted(set(points))
    return ordered if len(ordered) < 2 else chain(ordered) + chain(ordered[::-1])


def perimeter(vertices: Sequence[Point]) -> float:
    """A hull of two vertices is walked there and back."""
    return sum(math.dist(a, b) for a, b in zip(vertices, [*vertices[1:], *vertices[:1]], strict=True))


def cone_of(vertices: Sequence[Point], k: int) -> tuple[float, float] | None:
    """Between which angles the normals of lines lie that touch at a vertex, None: all."""
    n = len(vertices)
    if n == 1:
        return None
    normals = []
    for a, b in ((vertices[k - 1], vertices[k]), (vertices[k], vertices[(k + 1) % n])):
        normals.append(math.atan2(a[0] - b[0], b[1] - a[1]))
    before, after = normals
    return before, before + (after - before) % (2 * math.pi)


def pieces(vertices: Sequence[Point], x: Point) -> list[tuple[float, float, float, float]]:
    """Of each vertex at which lines between the hull and x touch, in their order around the hull: (angle of the way to
    x, its length, angles from there between which the normals lie); vertices at which none do are left out."""
    found = []
    for k, v in enumerate(vertices):
        alpha, length = math.atan2(x[1] - v[1], x[0] - v[0]), math.dist(x, v)
        cone = cone_of(vertices, k)
        if length == 0.0:
            return []
        if cone is None:
            found.append((alpha, length, -math.pi / 2, math.pi / 2))
            continue
        start, width = (cone[0] - alpha + math.pi) % (2 * math.pi) - math.pi, cone[1] - cone[0]
        for turns in (-2 * math.pi, 0.0, 2 * math.pi):
            low, high = max(start + turns, -math.pi / 2), min(start + turns + width, math.pi / 2)
            if high - low > 1e-12:
                found.append((alpha, length, low, high))
    # The lines touch one vertex after the other as they turn: the first one begins at the right angle.
    first = [j for j, (_, _, low, _) in enumerate(found) if low == -math.pi / 2]
    return found[first[0] :] + found[: first[0]] if first else found


@dataclass(eq=False)
class Node:
    """A leaf has a point and no children."""

    point: np.ndarray
    labels: list[int] = field(default_factory=list)
    time: float = math.inf
    cut: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)
    children: tuple[Node, Node] | None = None

    def points(self) -> list[np.ndarray]:
        return [self.point] if self.children is None else [p for child in self.children for p in child.points()]

    def child_of(self, x: np.ndarray) -> Node:
        left, right = self.children
        i, k, slope, offset = self.cut
        place = float(x[i]) + slope * float(x[k])
        if math.isnan(place):
            return left if len(left.labels) >= len(right.labels) else right
        return left if place <= offset else right

    def hull(self, i: int, k: int) -> list[Point]:
        """Of all points that have both values."""
        return hull([(float(p[i]), float(p[k])) for p in self.points() if not math.isnan(p[i] + p[k])])

    def growths(self, x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """What x adds to the perimeter of each hull."""
        grows = []
        for i, k in pairs:
            old, new = self.hull(i, k), (float(x[i]), float(x[k]))
            known = bool(old) and not math.isnan(new[0] + new[1])
            wider = hull([*old, new]) if known else old
            grows.append(0.0 if wider == old else perimeter(wider) - perimeter(old))
        return grows


class BSPTree:
    """One tree. Features are taken as they are."""

    def __init__(self, word: int, n_features: int) -> None:
        self.rng, self.d, self.root = SplitMix64(word), n_features, None
        self.pairs = list(itertools.combinations(range(n_features), 2))

    def path(self, x: np.ndarray) -> list[Node]:
        path = [self.root]
        while path[-1].children is not None:
            path.append(path[-1].child_of(x))
        return path

    def learn(self, x: np.ndarray, label: int) -> None:
        if self.root is None:
            self.root = Node(x.copy(), [label])
            return
        path, budget, birth = self.path(x), -math.log1p(-self.rng.uniform()), 0.0
        shown = [j for j in range(self.d) if not all(math.isnan(p[j]) for p in self.root.points())]
        pairs = [(shown[0], shown[0])] if len(shown) == 1 else self.pairs
        for place, node in enumerate(path):
            grows = self._interval(node, x, shown[0]) if len(shown) == 1 else node.growths(x, pairs)
            rate = sum(grows)
            if rate > 0.0:
                if budget < rate * (node.time - birth):
                    self._split(node, x, label, birth + budget / rate, pairs, grows)
                    for above in path[:place]:
                        above.labels.append(label)
                    return
                budget -= rate * (node.time - birth)
            birth = node.time
        leaf = path[-1]
        leaf.point = np.where(np.isnan(leaf.point), x, leaf.point)
        for node in path:
            node.labels.append(label)

    def _interval(self, node: Node, x: np.ndarray, j: int) -> list[float]:
        values = [float(p[j]) for p in node.points() if not math.isnan(p[j])]
        if not values or math.isnan(x[j]):
            return [0.0]
        return [2.0 * max(min(values) - float(x[j]), float(x[j]) - max(values), 0.0)]

    def _split(self, node, x, label, time, pairs, grows) -> None:
        pick, place, share = (self.rng.uniform() for _ in range(3))
        (i, k), reached = pairs[0], 0.0
        for pair, grow in zip(pairs, grows, strict=True):
            if grow > 0.0 and not reached > pick * sum(grows):
                (i, k), reached = pair, reached + grow
        old = Node(node.point, list(node.labels), node.time, node.cut, node.children)
        fresh = Node(x.copy(), [label])
        i, k, slope, offset, old_goes_left = self._cut(node, x, i, k, place, share)
        node.children = (old, fresh) if old_goes_left else (fresh, old)
        node.time, node.cut = time, (i, k, slope, offset)
        node.labels.append(label)

    def _cut(self, node, x, i, k, place, share):
        if i == k:
            values = [float(p[i]) for p in node.points() if not math.isnan(p[i])]
            near = max(values) if x[i] > max(values) else min(values)
            low, high = sorted((near, float(x[i])))
            return i, i, 0.0, low + share * (high - low), near < x[i]
        vertices, new = node.hull(i, k), (float(x[i]), float(x[k]))
        target, found = place, pieces(vertices, new)
        masses = [length * (math.sin(high) - math.sin(low)) for _, length, low, high in found]
        target *= sum(masses)
        for (alpha, length, low, _), mass in zip(found, masses, strict=True):
            angle = alpha + math.asin(min(max(math.sin(low) + min(target, mass) / length, -1.0), 1.0))
            if target < mass:
                break
            target -= mass
        normal = {i: math.cos(angle), k: math.sin(angle)}
        most = max(i, k, key=lambda j: (abs(normal[j]), j == i))
        other = i + k - most
        slope, flips = normal[other] / normal[most], normal[most] < 0.0
        at = {i: 0, k: 1}
        near = max(normal[i] * v[0] + normal[k] * v[1] for v in vertices) / normal[most]
        far = new[at[most]] + slope * new[at[other]]
        return most, other, slope, near + share * (far - near), not flips

    def shown(self, x: np.ndarray, budget: float, least: int) -> Node:
        """The leaf that a forecast of x sees."""
        return next(
            node for node in self.path(x) if node.time >= budget or len(node.labels) < least or not node.children
        )


def nodes_of(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children or ():
        yield from nodes_of(child)


def drawn_at_once(points: np.ndarray, budget: float, rng: np.random.Generator, birth: float = 0.0) -> list[np.ndarray]:
    """[BSP] Alg. 2 and 5 with absolute times: the leaves of a BSP-Tree drawn on all points (n, 2) together; rate 1.

    A line that hits the hull is drawn through a point of its boundary, uniform by length, at an angle to the edge
    whose cosine is uniform.
    """
    vertices = np.array(hull([tuple(map(float, point)) for point in points]))
    edges = np.roll(vertices, -1, axis=0) - vertices
    lengths = np.hypot(*edges.T)
    if lengths.sum() == 0.0:
        return [points]
    time = birth + rng.exponential(1 / lengths.sum())
    if time >= budget:
        return [points]
    edge = rng.choice(len(edges), p=lengths / lengths.sum())
    through = vertices[edge] + rng.random() * edges[edge]
    angle = math.atan2(edges[edge][1], edges[edge][0]) + math.acos(1.0 - 2.0 * rng.random()) + math.pi / 2
    normal = np.array([math.cos(angle), math.sin(angle)])
    left = points @ normal <= through @ normal
    return [leaf for side in (left, ~left) if side.any() for leaf in drawn_at_once(points[side], budget, rng, time)]


class LiteralTree:
    """[BSP] Alg. 4 as printed, on points of a line, with a fixed budget and without the rule of three points: a leaf
    is drawn anew from time 0 with every sample, on the hull without it."""

    def __init__(self, budget: float, rng: np.random.Generator) -> None:
        self.budget, self.rng, self.root = budget, rng, None

    def learn(self, x: float) -> None:
        self.root = [[x], None] if self.root is None else self._with(self.root, x, self.budget)

    def _with(self, node, x, budget):
        points, cut = node
        if cut is None:
            return self._hull_cut(points, budget, x)
        cost, place, left, right = cut
        low, high = min(points), max(points)
        gap = max(low - x, x - high, 0.0)
        if gap > 0.0:
            new_cost = self.rng.exponential(1 / (2 * gap))
            if new_cost < cost:
                new_place = self.rng.uniform(high, x) if x > high else self.rng.uniform(x, low)
                sides = (node, [[x], None]) if x > high else ([[x], None], node)
                return [[*points, x], (new_cost, new_place, *sides)]
        if x <= place:
            left = self._with(left, x, budget - cost)
        else:
            right = self._with(right, x, budget - cost)
        return [[*points, x], (cost, place, left, right)]

    def _hull_cut(self, points, budget, x=None):
        """x: a point that is there already, but not in the hull that is cut."""
        every = points if x is None else [*points, x]
        low, high = min(points), max(points)
        cost = self.rng.exponential(1 / (2 * (high - low))) if high > low else math.inf
        if cost >= budget:
            return [every, None]
        place = self.rng.uniform(low, high)
        sides = [[p for p in every if (p <= place) == left] for left in (True, False)]
        return [every, (cost, place, *(self._hull_cut(side, budget - cost) for side in sides))]

    def leaf_of(self, x: float) -> object:
        node = self.root
        while node[1] is not None:
            _, place, left, right = node[1]
            node = left if x <= place else right
        return id(node)
