"""The experiments at a size at which they take seconds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments import figure1_001, figure4_002

TINY = {"sizes": (30, 120), "n_trees": 5, "n_test": 200}


def test_every_forest_of_figure_4_learns_the_friedman_function():
    found = figure4_002.errors(0, **TINY)
    assert list(found) == [*figure4_002.ONLINE, *figure4_002.BATCH]
    rng = np.random.default_rng(0)
    knows_nothing = figure4_002.friedman(rng.random((1000, 5))).std()
    for name, errors in found.items():
        assert errors[1] < min(errors[0], 0.9 * knows_nothing), name


def test_of_figure_1_what_has_a_fixed_lifetime_alone_stops_to_learn():
    rng = np.random.default_rng(0)
    x = rng.random((1200, 2)) * [1.0, 1000.0]
    y = 2 * (x[:, 0] > 0.6) + (x[:, 1] > 300.0)
    found = figure1_001.accuracies(0, x, y, n_trees=10)
    assert list(found) == [*figure1_001.ONLINE, *figure1_001.BATCH]
    increasing, fixed = figure1_001.ONLINE
    assert 0.5 < found.pop(fixed)[-1] < found[increasing][-1] - 0.1
    for name, shares in found.items():
        assert len(shares) == len(figure1_001.TENTHS)
        assert shares[0] < shares[-1], name
        assert shares[-1] > 0.9, name


def test_what_figure_4_says_of_repetitions():
    mean, error = figure4_002.summary(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2.0, 5.0]
    assert error == pytest.approx([1.96, 0.0])
