"""What the last label tells of the next one: its worth on streams, and that it costs nothing where it tells nothing."""

from __future__ import annotations

import numpy as np
import pytest

import amf
from amf.calibration import succession

CLASSIFIERS = [amf.AMFClassifier, amf.AdaptiveAMFClassifier]
REGRESSORS = [amf.AMFRegressor, amf.AdaptiveAMFRegressor]


def chain(transitions, n, rng):
    """Labels (n,) of which each follows the one before it with these probabilities."""
    transitions = np.asarray(transitions)
    labels = np.zeros(n, np.int64)
    for i in range(1, n):
        labels[i] = rng.choice(len(transitions), p=transitions[labels[i - 1]])
    return labels


def log_loss(forest, x, y):
    said = forest.predict_learn(x, y)
    return -np.log(said[np.arange(len(y)), y])[500:].mean()


STICKY = [[0.95, 0.05], [0.1, 0.9]]
IN_TURNS = [[0.05, 0.9, 0.05], [0.05, 0.05, 0.9], [0.9, 0.05, 0.05]]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("transitions", [STICKY, IN_TURNS], ids=["labels that stick", "labels in turns"])
def test_the_order_of_labels_is_known_where_no_feature_tells_anything(kind, transitions):
    rng = np.random.default_rng(0)
    y = chain(transitions, 4000, rng)
    known = -np.log(np.array(transitions)[y[499:-1], y[500:]]).mean()
    loss = log_loss(kind(seed=1, classes=range(len(transitions))), rng.normal(size=(4000, 3)), y)
    assert known - 0.02 < loss < known + 0.03


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_features_and_the_last_label_tell_more_together_than_each_of_them(kind):
    """Features tell of a state that sticks, with noise: a hidden Markov model, of which each state is seen late."""
    rng = np.random.default_rng(1)
    y = chain(STICKY, 4000, rng)
    x = rng.normal(size=(4000, 3))
    x[:, 0] += 1.5 * y
    order = rng.permutation(4000)
    in_order, alone = (log_loss(kind(seed=1, classes=[0, 1]), x[rows], y[rows]) for rows in (np.arange(4000), order))
    of_labels = -np.log(np.array(STICKY)[y[499:-1], y[500:]]).mean()
    assert in_order < 0.8 * min(alone, of_labels)


@pytest.mark.parametrize("n_classes", [2, 12])
def test_it_costs_next_to_nothing_where_the_order_tells_nothing(n_classes):
    rng = np.random.default_rng(2)
    said = rng.dirichlet(np.ones(n_classes), 4000)
    y = np.array([rng.choice(n_classes, p=row) for row in said])
    x = np.log(said[:, :-1] / said[:, -1:])
    plain, turned = (log_loss(amf.AMFClassifier(seed=1, classes=range(n_classes)), x[rows], y[rows])
                     for rows in (np.arange(4000), np.argsort(rng.random(4000))))  # fmt: skip
    assert plain == pytest.approx(turned, rel=0.05)


def test_beyond_32_classes_there_is_no_table():
    assert succession.n_numbers(32) == 1 + 32**2
    assert succession.n_numbers(33) == 0
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 2))
    forest = amf.AMFClassifier(1, seed=1).partial_fit(x[:32], [f"class {k:02}" for k in range(32)])
    before = forest._calibration.size
    forest.partial_fit(x[32:], [f"class {k}" for k in range(32, 40)])
    assert forest._calibration.size < before
    same = amf.loads(forest.dumps())
    np.testing.assert_array_equal(same.predict_learn(x, ["class 33"] * 40), forest.predict_learn(x, ["class 33"] * 40))


def test_a_class_that_comes_later_came_after_none():
    table = np.array([2.0, *range(1, 5)])
    grown = succession.with_another_class(table, 2)
    assert grown.tolist() == [2.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    assert succession.with_another_class(np.zeros(1), 0).tolist() == [0.0, 0.0]
    assert succession.with_another_class(np.zeros(succession.n_numbers(32)), 32).size == 0


@pytest.mark.parametrize("broken", [(0, 3.0), (0, 0.5), (0, -1.0), (0, np.nan), (2, -1.0), (3, np.inf), (4, 2e3)])
def test_a_table_that_labels_could_not_have_left_is_not_sound(broken):
    table = np.array([2.0, 0.0, 1.0, 2.0, 3.0])
    assert succession.is_sound(table, 2)
    table[broken[0]] = broken[1]
    assert not succession.is_sound(table, 2)


# The same of numbers.


@pytest.mark.parametrize("kind", REGRESSORS)
def test_a_number_that_walks_is_followed_from_label_to_label(kind):
    """While errors alone were followed, not the labels, the error was 1.5 to 2 times that of the steps."""
    rng = np.random.default_rng(4)
    y = np.cumsum(rng.normal(size=4000))
    said = kind(seed=1).prequential(rng.normal(size=(4000, 2)), y)
    assert np.sqrt(np.mean((said.mean - y)[500:] ** 2)) < 1.08
    low, _, high = said.quantiles[500:].T
    assert 0.86 < np.mean((low <= y[500:]) & (y[500:] <= high)) < 0.95


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_a_counter_is_followed_and_covered_though_each_label_is_the_largest(kind, noise):
    """Bounds by the labels so far would leave each next one out."""
    rng = np.random.default_rng(5)
    y = 0.05 * np.arange(4000) + noise * rng.normal(size=4000)
    said = kind(seed=1).prequential(rng.normal(size=(4000, 2)), y)
    assert np.sqrt(np.mean((said.mean - y)[1500:] ** 2)) < 1.6 * noise
    assert np.mean(y[500:] > said.quantiles[500:, 2]) < 0.1
    assert np.mean(y[500:] < said.quantiles[500:, 0]) < 0.1
