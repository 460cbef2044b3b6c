"""What holds in law: the partition is a Mondrian, weighted depths tell where a signal is (algorithms A.6.2, A.6.10).

Seeds are fixed. A bound of 2.5 / sqrt(n) on the distance of Kolmogorov is exceeded once in 100,000 times, and one of
4.5 standard errors about as rarely.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from laws import POINTS, kolmogorov
from trees import trees_of

import amf

N_TREES = 3000


def mondrians(order):
    forest = amf.AMFClassifier(N_TREES, classes=[0, 1], seed=sum(order[:2]), scaling="none", split_pure=True)
    forest.partial_fit(POINTS[list(order)], np.zeros(5, int))
    return trees_of(forest), (POINTS - POINTS[order[0]]).astype(np.float32)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 4, 1, 0, 2)])
def test_two_points_separate_at_the_exponential_time_of_their_distance(order):
    """P(separated before t) = 1 - exp(-t * L1 distance), whatever else came, in whatever order."""
    trees, points = mondrians(order)
    for a, b in [(0, 1), (1, 3), (2, 4), (0, 4)]:
        common = [[p for p, q in zip(t.path(points[a]), t.path(points[b]), strict=False) if p == q] for t in trees]
        times = np.array([tree.time[path[-1]] for tree, path in zip(trees, common, strict=True)])
        distance = np.abs(POINTS[a] - POINTS[b]).sum()
        assert kolmogorov(times, lambda t, rate=distance: 1 - np.exp(-t * rate)) < 2.5 / math.sqrt(N_TREES)
        for lam in (0.1, 0.5, 2.0):
            p = 1 - math.exp(-lam * distance)
            assert np.mean(times < lam) == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / N_TREES))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_the_root_splits_like_a_mondrian_of_its_box(order):
    trees, points = mondrians(order)
    sides = np.ptp(POINTS, axis=0)
    rate = sides.sum()
    times = np.array([tree.time[0] for tree in trees])
    assert kolmogorov(times, lambda t: 1 - np.exp(-t * rate)) < 2.5 / math.sqrt(N_TREES)
    feature = np.array([tree.feature[0] for tree in trees])
    p = sides[0] / rate
    assert np.mean(feature == 0) == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / N_TREES))
    for j in (0, 1):
        places = np.array([t.threshold[0] for t in trees if t.feature[0] == j]) - points[:, j].min()
        assert kolmogorov(places, lambda s, side=sides[j]: s / side) < 2.5 / math.sqrt(len(places))


def test_the_weighted_depth_is_larger_where_the_signal_is_rougher():
    rng = np.random.default_rng(7)
    x = rng.random((4000, 1))
    smooth, rough = rng.random(4000) < 0.8, np.floor(x[:, 0] * 40) % 2 == 0
    forest = amf.AMFClassifier(10, charge_first=True).partial_fit(x, np.where(x[:, 0] < 0.5, smooth, rough))
    left, right = (forest.weighted_depth(np.linspace(a, a + 0.4, 200)[:, None]).mean() for a in (0.05, 0.55))
    assert right > 2 * left


def test_labels_without_a_pattern_leave_the_forecast_near_the_root():
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2000, 3)), rng.integers(0, 2, 2000)
    paper = {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True, "scaling": "none"}
    forest = amf.AMFClassifier(20, classes=[0, 1], split_pure=True, **paper).partial_fit(x, y)
    forecasts = forest.prequential(x, [None] * 2000)
    assert forecasts.weighted_depth.mean() < 0.15 * forecasts.depth.mean()
    assert np.abs(forecasts.raw[:, 0] - 0.5).mean() < 0.1
