"""Features as they come: any unit, any offset, constants, outliers, numbers at the ends of float64."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from trees import trees_of

import amf


def stream(n, d=3, seed=0):
    """Normal features in steps of 2**-16, so that moderate sums and products are exact, and two classes."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, d)) * 2**16) / 2**16
    return x, (x[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)


def log_loss(forest, x, y):
    table = forest.predict_learn(x, y)
    codes = [forest.class_labels.index(label) for label in y.tolist()]
    return -np.log(table[np.arange(len(y)), codes].clip(1e-300))


def centred(forest, x):
    return (x - forest._scaling.origin).astype(np.float32)


# Units and offsets.


@settings(max_examples=40)
@given(st.lists(st.integers(-30, 30), min_size=3, max_size=3), st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_a_power_of_two_as_unit_of_any_feature_changes_no_forecast(powers, seed, n):
    """With scaling="auto" not a bit: the weight of the feature is divided by it, boxes and thresholds are multiplied.

    It holds as long as no float32 leaves its range. A factor that is no power of two rounds and gives another forest
    of the same law.
    """
    x, y = stream(n, seed=seed)
    units = 2.0 ** np.array(powers)
    plain, other = amf.AMFClassifier(2, seed=seed), amf.AMFClassifier(2, seed=seed)
    np.testing.assert_array_equal(other.predict_learn(x * units, y), plain.predict_learn(x, y))
    # A feature that has not moved yet has weight 1 in any unit; it never lies outside of a box.
    moved = plain._scaling.lowest < plain._scaling.highest
    np.testing.assert_array_equal((other._scaling.weights[:3] * units)[moved], plain._scaling.weights[:3][moved])
    np.testing.assert_array_equal(other._words, plain._words)
    for a, b in zip(trees_of(plain), trees_of(other), strict=True):
        for same in ("child", "feature", "time", "odds", "counts"):
            np.testing.assert_array_equal(getattr(b, same), getattr(a, same))
        np.testing.assert_array_equal(b.threshold, a.threshold * units[a.feature])
        np.testing.assert_array_equal(b.low, a.low * units)
        np.testing.assert_array_equal(b.high, a.high * units)


def test_units_barely_matter_where_they_round():
    x, y = stream(2000)
    plain, other = log_loss(amf.AMFClassifier(20), x, y), log_loss(amf.AMFClassifier(20), x * [1000, 0.3, 7e-5], y)
    assert other.mean() == pytest.approx(plain.mean(), rel=0.03)


@pytest.mark.parametrize("scaling", ["auto", "none"])
def test_an_offset_changes_the_origin_and_nothing_else(scaling):
    x, y = stream(400)
    offset = np.array([0.0, 1_700_000_000.0, -(2.0**36)])
    plain, moved = (amf.AMFClassifier(3, scaling=scaling) for _ in range(2))
    np.testing.assert_array_equal(moved.predict_learn(x + offset, y), plain.predict_learn(x, y))
    np.testing.assert_array_equal(moved._scaling.origin, x[0] + offset)
    moved._scaling.origin[:] = x[0]
    assert moved.dumps() == plain.dumps()


@pytest.mark.parametrize("scaling", ["auto", "none"])
def test_seconds_since_the_epoch_keep_their_fractions(scaling):
    """A float32 of 1.7e9 has steps of 128: uncentred these rows would be one point."""
    quarters = np.arange(64) % 8
    x = 1_700_000_000 + quarters[:, None] / 4
    y = quarters % 2
    forest = amf.AMFClassifier(10, scaling=scaling).partial_fit(x, y)
    np.testing.assert_array_equal(forest.predict(x), y)
    assert forest.predict_proba(x)[np.arange(64), [forest.class_labels.index(v) for v in y.tolist()]].min() > 0.9


# Features that say nothing.


@pytest.mark.parametrize("silent", [0.0, 1e9, np.nan])
@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize("d", [3, 8])
def test_a_constant_or_missing_feature_changes_no_forecast(silent, scaling, d):
    x, y = stream(300, d=d)
    plain, other = (amf.AMFClassifier(3, scaling=scaling) for _ in range(2))
    expected = plain.predict_learn(x, y)
    np.testing.assert_array_equal(other.predict_learn(np.hstack([x, np.full((300, 2), silent)]), y), expected)


def test_a_feature_that_was_constant_gets_its_weight_with_the_row_that_moves_it():
    x, y = stream(1000)
    x[:700, 2] = 5.0
    x[700:, 2] = 5.0 + 1000 * y[700:]
    first = 700 + int(np.argmax(y[700:]))
    forest = amf.AMFClassifier(10).partial_fit(x[:first], y[:first])
    assert forest._scaling.weights[2] == 1.0
    forest.partial_fit(x[first : first + 1], y[first : first + 1])
    assert forest._scaling.weights[2] == np.float32(1 / 1000)
    losses = log_loss(forest, x[first + 1 :], y[first + 1 :])
    assert losses[-100:].mean() < 0.6 * log_loss(amf.AMFClassifier(10), x[:, :2], y)[-100:].mean()


# The spread.


@pytest.mark.parametrize("row", [1, 300, 1000])
def test_one_outlier_of_a_million_spreads_does_not_ruin_the_weights(row):
    x, y = stream(3000)
    wild = x.copy()
    wild[row, 0] = 1e6
    clean, outlier = amf.AMFClassifier(10), amf.AMFClassifier(10)
    losses, wild_losses = log_loss(clean, x, y), log_loss(outlier, wild, y)
    ratio = outlier._scaling.weights[0] / clean._scaling.weights[0]
    assert 0.3 < ratio < 3
    assert wild_losses[2048:].mean() == pytest.approx(losses[2048:].mean(), rel=0.1)


def test_weights_change_only_where_a_count_of_samples_is_a_power_of_two_or_a_constant_moves():
    x, y = stream(300)
    x[:100, 2] = 1.0
    forest, changes = amf.AMFClassifier(1).partial_fit(x[:1], y[:1]), []
    for row in range(1, 300):
        before = forest._scaling.weights.copy()
        forest.partial_fit(x[row : row + 1], y[row : row + 1])
        if not np.array_equal(before, forest._scaling.weights):
            changes.append(row + 1)
    assert changes == [2, 4, 8, 16, 32, 64, 101, 128, 256]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 1000, 4097])
def test_the_subsample_is_evenly_spaced(n):
    x, y = stream(n)
    forest = amf.AMFClassifier(1).partial_fit(x, y)
    kept, stride, seen = forest._scaling.counters
    assert seen == n
    assert kept == -(-n // stride)
    assert kept > 32 or stride == 1
    np.testing.assert_array_equal(forest._scaling.subsample[:kept], centred(forest, x)[::stride])


def test_without_scaling_all_weights_are_one():
    x, y = stream(300)
    forest = amf.AMFClassifier(1, scaling="none").partial_fit(x * [1e-9, 1, 1e9], y)
    np.testing.assert_array_equal(forest._scaling.weights, [1, 1, 1, 0, 0, 0, 0, 0])


# The ends of float64.


@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize(
    "values",
    [
        [1e300, -1e300, 1.0, 2.0],
        [np.finfo(float).max, -np.finfo(float).max, 0.0],
        [5e-324, 1e-300, 0.0, -1e-310],
        [1e-40, 3e-40, 1e-38, 0.0],
        [1e38, -1e38, 3.4e38, 1e-45],
        [0.0, -0.0, 0.0, -0.0],
    ],
    ids=str,
)
def test_huge_and_tiny_numbers_break_nothing(scaling, values):
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.choice(values, 300), rng.normal(size=300)])
    y = (x[:, 1] > 0).astype(int)
    forest = amf.AMFClassifier(10, scaling=scaling, classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if config.DISABLE_JIT else "error")  # interpreted kernels warn where they wrap
        forecasts = forest.prequential(x, y)
        again = amf.loads(forest.dumps())
        np.testing.assert_array_equal(again.predict_proba(x), forest.predict_proba(x))
    for array in forecasts:
        assert np.all(np.isfinite(array))
    np.testing.assert_allclose(forecasts.probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(np.isfinite(forest._scaling.weights))
    for tree in trees_of(forest):
        assert np.all(np.isfinite(tree.high - tree.low))
        assert np.all(np.isfinite(tree.threshold))
    if scaling == "auto":
        assert np.mean(forest.predict(x) == y) > 0.9
