"""What tests of laws measure with.

Seeds are fixed. A bound of 2.5 / sqrt(n) on the distance of Kolmogorov is exceeded once in 100,000 times, and one of
SIGMAS standard errors about as rarely.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

POINTS = np.array([[0, 0], [1, 0.5], [0.25, 2], [0.75, 0.5], [3, 1]])
"""Of two features, in which every two points differ."""
PAIRS = ((0, 1), (1, 3), (2, 4), (0, 4))
"""Some of these points beside each other."""
SIGMAS = 4.5


def follow(values, cdf) -> None:
    """The values have this distribution, which is continuous, as far as the test of Kolmogorov and Smirnov tells."""
    expected, n = cdf(np.sort(values)), len(values)
    distance = max((np.arange(1, n + 1) / n - expected).max(), (expected - np.arange(n) / n).max())
    assert distance < 2.5 / math.sqrt(n)


def are_as_frequent(found, p) -> None:
    """Of trials (n,) the share that this probability promises came true."""
    assert np.mean(found) == pytest.approx(p, abs=SIGMAS * math.sqrt(p * (1 - p) / len(found)))


def parting_times(trees, one, other):
    """When two points come to be in different cells of each tree."""
    common = [[p for p, q in zip(t.path(one), t.path(other), strict=False) if p == q] for t in trees]
    return np.array([tree.time[path[-1]] for tree, path in zip(trees, common, strict=True)])


def roots_are_those_of_mondrians(trees, points) -> None:
    """The first cuts are those of Mondrians of the box of these points, float32 as the trees have them."""
    sides = np.ptp(points, axis=0).astype(float)
    follow(np.array([tree.time[0] for tree in trees]), lambda t: 1 - np.exp(-t * sides.sum()))
    feature = np.array([tree.feature[0] for tree in trees])
    are_as_frequent(feature == 0, sides[0] / sides.sum())
    for j in (0, 1):
        places = np.array([tree.threshold[0] for tree in trees if tree.feature[0] == j]) - points[:, j].min()
        follow(places, lambda s, side=sides[j]: s / side)


def are_apart_as_in_mondrians(ends, points, lifetime) -> None:
    """Cells (trees, points) part POINTS, in whatever unit, as often as those of Mondrians with this lifetime."""
    for one, other in PAIRS:
        distance = np.abs(points[one] - points[other]).sum()
        are_as_frequent(ends[:, one] != ends[:, other], 1 - math.exp(-lifetime * distance))


def have_like_sizes(some, others) -> None:
    """Partitions of one set that are drawn in two ways, each as the sizes of its cells, have the same law."""
    for statistic in (len, lambda sizes: np.square(sizes).sum(), max):
        ours, theirs = (np.array([statistic(sizes) for sizes in side], float) for side in (some, others))
        error = math.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        assert abs(ours.mean() - theirs.mean()) < SIGMAS * error
