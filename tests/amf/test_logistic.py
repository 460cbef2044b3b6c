"""Logistic regression on moments that follow the stream: its worth in forests, its bounds, and how it grows."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import log_loss

import amf
from amf.calibration import linear_models, logistic
from amf.jit.decorators import exported

follow, respond = exported(logistic.follow), exported(logistic.respond)
FORESTS = [amf.AMFClassifier, amf.AdaptiveAMFClassifier]


def learn(entered, labels, state, counted):
    """Learn rows of features that have entered the linear models; the probabilities that each label was given."""
    n_classes, n_columns = len(counted), 1 + min(entered.shape[1], 64)
    responses, row, given = np.empty(n_classes), np.empty(n_columns), np.empty(len(labels))
    all_models = np.pad(entered, ((0, 0), (0, 2 * entered.shape[1])))  # behind the features stand squares and places
    for i, label in enumerate(labels):
        respond(all_models[i], state, responses)
        said = np.where(counted, np.exp(responses - responses[counted].max()), 0.0)
        said /= said.sum()
        given[i] = said[label]
        follow(np.uint64(label), all_models[i], counted, responses, said, state, row)
    return given


def fresh(n_classes, n_features):
    return logistic.grown(np.zeros(0), (n_classes, 0), (n_classes, n_features))


@pytest.mark.parametrize("system", FORESTS)
def test_small_differences_of_features_that_are_nearly_one_are_known_soon(system):
    """As of a price and the one before it: steps along the gradient learn such a difference for thousands of rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4))
    x[:, 1:] = x[:, :1] + 0.2 * x[:, 1:]
    p = 1 / (1 + np.exp(-8 * (x[:, 1] - x[:, 2])))
    y = (rng.random(2000) < p).astype(int)
    forecasts = system(seed=1, classes=[0, 1]).predict_learn(x, y)
    late = slice(500, None)
    entropy = float(-(p * np.log(p) + (1 - p) * np.log(1 - p))[late].mean())
    assert log_loss(forecasts[late], y[late]) < entropy + 0.055


@pytest.mark.parametrize("system", FORESTS)
def test_weak_effects_on_a_rare_class_are_known_sooner(system):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(8000, 12))
    p = 1 / (1 + np.exp(4.2 - 0.5 * x.sum(axis=1)))
    y = (rng.random(8000) < p).astype(int)
    forecasts = system(seed=1, classes=[0, 1]).predict_learn(x, y)
    late = slice(1000, None)
    entropy = float(-(p * np.log(p) + (1 - p) * np.log(1 - p))[late].mean())
    assert log_loss(forecasts[late], y[late]) < entropy + 0.004


def test_features_that_come_later_are_as_if_they_had_been_missing():
    rng = np.random.default_rng(2)
    entered, labels, counted = rng.normal(size=(300, 3)), rng.integers(0, 3, 300), np.ones(3, np.bool_)
    entered[:100, 2] = 0.0
    whole, state = fresh(3, 3), fresh(3, 2)
    learn(entered, labels, whole, counted)
    learn(entered[:100, :2], labels[:100], state, counted)
    state = logistic.grown(state, (3, 2), (3, 3))
    learn(entered[100:], labels[100:], state, counted)
    np.testing.assert_array_equal(state, whole)


def test_classes_that_come_later_are_as_if_they_had_never_been_counted():
    rng = np.random.default_rng(3)
    entered, labels, counted = rng.normal(size=(200, 2)), rng.integers(0, 2, 200), np.array([True, True, False])
    whole, state = fresh(3, 2), fresh(2, 2)
    learn(entered, labels, whole, counted)
    learn(entered, labels, state, counted[:2])
    np.testing.assert_array_equal(logistic.grown(state, (2, 2), (3, 2)), whole)


def test_of_many_features_the_first_64_are_used():
    assert logistic.n_numbers(2, 63) < logistic.n_numbers(2, 64) == logistic.n_numbers(2, 1000)
    rng = np.random.default_rng(4)
    entered, labels, counted = rng.normal(size=(200, 70)), rng.integers(0, 2, 200), np.ones(2, np.bool_)
    few, many = fresh(2, 64), fresh(2, 70)
    np.testing.assert_array_equal(learn(entered[:, :64], labels, few, counted), learn(entered, labels, many, counted))
    np.testing.assert_array_equal(few, many)
    np.testing.assert_array_equal(logistic.grown(few, (2, 64), (2, 70)), many)


@pytest.mark.parametrize("rare", [0.5, 1e-3])
def test_labels_that_features_tell_without_fail_leave_weights_within_bounds(rare):
    rng = np.random.default_rng(5)
    labels = (rng.random(20_000) < rare).astype(int)
    entered = np.where(labels, 3.0, -3.0)[:, None] * np.ones(5)
    state, counted = fresh(2, 5), np.ones(2, np.bool_)
    given = learn(entered, labels, state, counted)
    assert logistic.is_sound(state, 2, 5)
    assert given[1000:].mean() > 0.99
    # And one label against all of them moves them, but not off.
    learn(-entered[:1], labels[:1], state, counted)
    assert logistic.is_sound(state, 2, 5)


def test_no_state_is_taken_that_labels_could_not_have_left():
    rng = np.random.default_rng(6)
    sound, counted = fresh(2, 3), np.ones(2, np.bool_)
    assert logistic.is_sound(sound, 2, 3)
    learn(rng.normal(size=(100, 3)), rng.integers(0, 2, 100), sound, counted)
    assert logistic.is_sound(sound, 2, 3)
    assert logistic.is_sound(np.zeros(0), 2, 3)
    for place in range(len(sound)):
        for wrong in (np.nan, np.inf, -np.inf, 1e300):
            damaged = sound.copy()
            damaged[place] = wrong
            assert not logistic.is_sound(damaged, 2, 3), (place, wrong)
    for place in (0, 1, 2, 3, 4, len(sound) - 1):
        damaged = sound.copy()
        damaged[place] = -1.0
        assert not logistic.is_sound(damaged, 2, 3), place


def test_it_needs_splines_and_an_eighth_of_the_memory_at_most():
    from amf.calibration.class_stacking import n_of_features

    with_both, n_solved = n_of_features(2, 64, 2**30), logistic.n_numbers(2, 64)
    of_linear = linear_models.n_of_features(2, 64, 2**30)
    assert with_both == of_linear + n_solved
    assert n_of_features(2, 64, 64 * n_solved - 1) == of_linear
    without_splines = 9 * 64
    assert n_of_features(2, 64, 64 * of_linear - 1) == without_splines
    assert n_of_features(2, 64, 64 * without_splines - 1) == 0
