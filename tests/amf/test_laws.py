"""What holds in law: the partition is a Mondrian, weighted depths tell where a signal is (algorithms A.6.2, A.6.10)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from laws import PAIRS, POINTS, are_as_frequent, follow, parting_times, roots_are_those_of_mondrians
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
    for a, b in PAIRS:
        times = parting_times(trees, points[a], points[b])
        distance = np.abs(POINTS[a] - POINTS[b]).sum()
        follow(times, lambda t, rate=distance: 1 - np.exp(-t * rate))
        for lam in (0.1, 0.5, 2.0):
            are_as_frequent(times < lam, 1 - math.exp(-lam * distance))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_the_root_splits_like_a_mondrian_of_its_box(order):
    roots_are_those_of_mondrians(*mondrians(order))


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
