"""The linear model on top of a forest: what it is worth, what it costs where it is of no use, how it grows."""

from __future__ import annotations

import numpy as np
import pytest

import amf
from amf import stacking

FORESTS = [amf.AMFClassifier, amf.AdaptiveAMFClassifier]
REGRESSORS = [amf.AMFRegressor, amf.AdaptiveAMFRegressor]


def of_many_effects(n: int, d: int = 20, seed: int = 0):
    """Features (n, d), and a sum of their effects that tells of labels 0 and 1: their probabilities."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, 1 / (1 + np.exp(-0.7 * (x @ rng.normal(size=d)))), rng


def log_loss(probabilities, y) -> float:
    return float(-np.log(probabilities[np.arange(len(y)), y]).mean())


@pytest.mark.parametrize("system", FORESTS)
def test_what_is_a_sum_of_effects_is_known_soon(system):
    x, p, rng = of_many_effects(3000)
    y = (rng.random(3000) < p).astype(int)
    forecasts = system(seed=1, classes=[0, 1]).prequential(x, y)
    half = slice(1500, None)
    entropy = float(-(p * np.log(p) + (1 - p) * np.log(1 - p))[half].mean())
    assert log_loss(forecasts.raw[half], y[half]) > entropy + 0.15  # the trees alone
    assert log_loss(forecasts.probabilities[half], y[half]) < entropy + 0.04


@pytest.mark.parametrize("system", REGRESSORS)
def test_so_are_numbers_that_are_sums_and_their_intervals_are_narrower(system):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 10))
    y = 50.0 + x @ rng.normal(size=10) + rng.normal(size=3000) * 0.3
    forecasts = system(seed=1).prequential(x, y)
    half = slice(1500, None)
    rmse, of_trees = (np.sqrt(np.mean((said - y)[half] ** 2)) for said in (forecasts.mean, forecasts.raw_mean))
    assert rmse < 0.5 < 0.9 < of_trees
    low, _, high = forecasts.quantiles[half].T
    assert np.mean((y[half] >= low) & (y[half] <= high)) == pytest.approx(0.9, abs=0.03)
    assert np.mean(high - low) < 4 * rmse


@pytest.mark.parametrize("system", FORESTS)
def test_it_costs_little_where_it_is_of_no_use(system):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 6))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with_features = system(seed=1, classes=[0, 1]).predict_learn(x, y)
    linear = stacking.fresh_state(2)
    assert linear[0] == 1.0  # begins as the forest
    raw = system(seed=1, classes=[0, 1], calibration=False).predict_learn(x, y)
    assert log_loss(with_features, y) < log_loss(raw, y)
    noise = rng.integers(0, 2, 4000)
    assert log_loss(system(seed=1, classes=[0, 1]).predict_learn(x, noise), noise) < np.log(2) + 0.003


@pytest.mark.parametrize("hostile", [1e300, -1e300, 5e-324, 1e9])
def test_an_outlier_of_a_feature_is_soon_forgotten(hostile):
    x, p, rng = of_many_effects(3000, 5)
    y = (rng.random(3000) < p).astype(int)
    losses = []
    for value in (0.0, hostile):
        x[1000, 0] = value
        losses.append(log_loss(amf.AMFClassifier(seed=1, classes=[0, 1]).predict_learn(x, y)[1500:], y[1500:]))
    assert losses[1] < losses[0] + 0.02


def test_neither_units_nor_offsets_matter():
    x, p, rng = of_many_effects(600, 5)
    x = np.round(x * 2**10) / 2**10  # exact beside the offset
    y = (rng.random(600) < p).astype(int)
    plain = amf.AMFClassifier(seed=1).predict_learn(x, y)
    np.testing.assert_array_equal(amf.AMFClassifier(seed=1).predict_learn(x * 2.0**40, y), plain)
    np.testing.assert_array_equal(amf.AMFClassifier(seed=1).predict_learn(x + 2.0**31, y), plain)


def test_features_and_outputs_that_come_later_are_as_if_they_had_always_been_there():
    rng = np.random.default_rng(0)
    for n_outputs, d in [(0, 0), (1, 3), (4, 0), (3, 2)]:
        wide = stacking.with_features(stacking.fresh_state(n_outputs), n_outputs, 0, [None] * d)
        assert stacking.is_sound(wide, n_outputs, d, 1.0)
        grown = stacking.with_outputs(wide, n_outputs, 2)
        np.testing.assert_array_equal(wide, stacking.fresh_state(n_outputs, d))
        np.testing.assert_array_equal(grown, stacking.fresh_state(n_outputs + 2, d))
        start = 2 + 2 * n_outputs
        wide[start:] = rng.random(len(wide) - start)
        features = stacking.with_outputs(wide, n_outputs, 2)[start + 4 :].reshape(d, 6 + n_outputs)
        np.testing.assert_array_equal(features[:, : 4 + n_outputs], wide[start:].reshape(d, 4 + n_outputs))
        assert not features[:, 4 + n_outputs :].any()


def test_a_feature_that_moves_after_a_long_rest_is_measured_anew():
    """While it rests its deviation becomes the smallest number that there is, of which no share is another number."""
    x, p, rng = of_many_effects(800, 2)
    y = (rng.random(800) < p).astype(int)
    forest = amf.AMFClassifier(1, seed=1).partial_fit(x[:400], y[:400])
    deviations = forest._calibration[-12:].reshape(2, 6)[:, 3]
    assert (deviations > 0.5).all()
    deviations[:] = 5e-324
    forest.partial_fit(x[400:], y[400:])
    assert ((deviations > 0.5) & (deviations < 2.0)).all()


@pytest.mark.full
def test_after_any_rest_the_next_step_is_no_leap():
    """Where all is foretold gradients are 0, and their sum is forgotten in the end."""
    x, y = np.ones((400_000, 1)), np.zeros(400_000, int)
    forest = amf.AMFClassifier(1, seed=1).partial_fit(x, y)
    for _ in range(12):
        forest.partial_fit(x, y)
    np.testing.assert_allclose(forest.predict_proba([[1.0]]), [[1.0]])
    forest.partial_fit([[2.0], [2.0]], [1, 1])
    assert np.isfinite(forest._calibration).all()
    assert 0.5 < forest.predict_proba([[1.0]])[0, 0] < 1.0


def test_a_state_that_labels_could_not_have_left_is_not_sound():
    sound = stacking.with_features(stacking.fresh_state(2), 2, 0, [None])
    assert stacking.is_sound(sound, 2, 1, 1.0)
    for place, values in {
        0: [-1e-9, 2.1], 1: [-1.0, 1e11], 2: [-1.0, 3e6], 3: [1e16],
        6: [-1.0, 1501.0], 7: [np.inf], 8: [np.inf], 9: [-1.0], 10: [-1e16],
    }.items():  # fmt: skip
        for value in (*values, np.nan):
            damaged = sound.copy()
            damaged[place] = value
            assert not stacking.is_sound(damaged, 2, 1, 1.0), (place, value)
