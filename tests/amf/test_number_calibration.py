"""The calibration of forecasts of numbers: the readable one against what it promises, and its worth on streams."""

from __future__ import annotations

import numpy as np
import pytest
from reference_number_calibration import Blend, Median, Outlook, Quantiles
from worlds import friedman

import amf

# The reference.


def test_blend_is_least_squares_within_bounds():
    rng = np.random.default_rng(0)
    blend = Blend()
    assert blend.weights() == (1.0, 0.0)
    rows, targets, weights = [], [], []
    for origin, mean, leaf, noise in rng.normal(size=(200, 4)):
        y = origin + 0.6 * mean + 0.3 * leaf + noise
        rows.append([mean - leaf, -leaf])
        targets.append(y - origin - leaf)
        weights = [(1 - 1 / 2048) * weight for weight in weights]
        weights.append(1 / (16 * blend.usual + (y - origin - mean) ** 2))
        blend.mean = origin
        blend.learn(Outlook(origin, mean, leaf, 1.0), y)
    roots = np.sqrt(weights)
    a, b = np.linalg.lstsq(roots[:, None] * np.array(rows), roots * np.array(targets), rcond=None)[0]
    assert blend.weights() == pytest.approx((a, b))
    blend.mean = 5.0
    assert blend.forecast(Outlook(5.0, 3.0, 1.0, 1.0)) == pytest.approx(5 + 1 + 2 * a - b)
    for sign, bounds in (1, (1.0, 1.0)), (-1, (-1.0, -0.5)):
        blend = Blend()
        for mean, leaf in rng.normal(size=(50, 2)):
            blend.learn(Outlook(0.0, mean, leaf, 1.0), leaf + 9 * sign * (mean - leaf) - 9 * sign * leaf)
        assert blend.weights() == bounds


def test_blend_does_not_divide_what_has_not_varied():
    blend = Blend()
    blend.learn(Outlook(0.0, 0.0, 0.0, 1.0), 3.0)
    assert blend.weights() == (1.0, 0.0)
    blend.learn(Outlook(0.0, 2.0, 1.0, 1.0), 1.5)
    assert blend.weights() == (0.5, 0.0)
    for mean, leaf in np.random.default_rng(0).normal(size=(20, 2)):
        blend = Blend()
        blend.learn(Outlook(0.0, mean, leaf, 1.0), 1.0)  # after one row both differences are in step, up to rounding
        assert blend.weights()[1] == 0.0


def test_quantiles_leave_one_label_in_twenty_outside_on_either_side_and_half_of_them_below_the_median():
    rng = np.random.default_rng(0)
    quantiles, below = Quantiles(), np.zeros(3)
    labels = rng.exponential(5.0, 4000)  # a scale five times too small, and all of the tail on one side
    for y in labels:
        below += y < np.array(quantiles.three(5.0, 1.0))
        quantiles.learn(5.0, 1.0, y)
        quantiles.labels.learn(y)
    assert below / 4000 == pytest.approx(np.array([0.05, 0.5, 0.95]), abs=0.02)
    assert quantiles.quantile(5.0, 1.0, 0.5) == pytest.approx(5.0 * np.log(2.0), abs=0.7)
    assert quantiles.up > quantiles.down + 0.3
    assert quantiles.std(5.0, 1.0) == pytest.approx(5.0, rel=0.1)
    for _ in range(20000):
        quantiles.learn(5.0, 1.0, 5.0)
        quantiles.labels.learn(5.0)
    assert (quantiles.down, quantiles.up, quantiles.quantile(5.0, 1.0, 0.5)) == (-5.0, -5.0, pytest.approx(5.0))


def test_from_six_labels_in_a_row_outside_on_each_widens_its_side_and_the_error_is_that_of_the_long_run():
    quantiles, blend = Quantiles(), Blend()
    for row in range(3000):
        y = float(row % 2) if row < 1000 else 0.5
        quantiles.learn(0.5, 1.0, y)
        blend.count(y)
        blend.learn(Outlook(0.0, 0.5, 0.5, 1.0), y, quantiles.missed)
    narrow = quantiles.down, quantiles.up
    assert max(*narrow, -4.0) == -4.0
    assert blend.usual < 1e-20 < 0.08 < blend.lasting
    for missed in range(1, 7):
        assert (quantiles.up < -4.0, blend.usual < 1e-10) == (True, True)
        quantiles.learn(0.5, 1.0, 1.5)
        blend.count(1.5)
        blend.learn(Outlook(0.0, 0.5, 0.5, 1.0), 1.5, quantiles.missed)
        assert quantiles.missed == missed
    assert quantiles.up == pytest.approx(narrow[1] + 1.0 + 6 * 0.95 * 0.05)
    assert blend.usual == blend.lasting > 0.08
    for _ in range(2):
        before = quantiles.up
        quantiles.learn(0.5, 1.0, 1.5)
        assert quantiles.up == pytest.approx(before + 1.0 + 0.95 * 0.05)
    for _ in range(4):
        quantiles.learn(0.5, 1.0, 1e6)
    assert (quantiles.up, quantiles.down) == (pytest.approx(2 * 0.95 * 0.05), narrow[0])
    widest = quantiles.up
    quantiles.learn(0.5, 1.0, 0.5)
    assert (quantiles.missed, quantiles.up < widest) == (0, True)


def test_an_outlier_moves_the_median_of_the_labels_as_any_label_does():
    rng = np.random.default_rng(0)
    median = Median()
    for y in rng.normal(3.0, 2.0, 1000):
        median.learn(y)
    before = median.centre
    median.learn(1e30)
    assert median.centre - before < 0.5
    for y in rng.normal(3.0, 2.0, 200):
        median.learn(y)
    assert median.centre == pytest.approx(3.0, abs=1.0)
    assert median.deviation < 10.0


# Forests on streams.


@pytest.mark.parametrize("shape", ["normal", "exponential", "lognormal"])
def test_quantiles_are_what_they_are_called_whatever_the_shape_of_the_noise(shape):
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(6000, 4))
    y = 3.0 * x[:, 0] + (1.0 + x[:, 1]) * getattr(rng, shape)(size=6000)
    told = amf.AMFRegressor(seed=1).prequential(x, y)
    below = np.mean(y[1000:, None] < told.quantiles[1000:], axis=0)
    np.testing.assert_allclose(below, [0.05, 0.5, 0.95], atol=0.01)
    if shape != "normal":  # The median loses least where errors are counted as they are, and not squared.
        errors = np.abs(y[1000:, None] - np.column_stack((told.quantiles[1000:, 1], told.mean[1000:]))).mean(axis=0)
        assert errors[0] < 0.97 * errors[1]


STREAMS = {
    "a step": lambda x, rng: (x[:, 0] > 1.0).astype(float),
    "a corner": lambda x, rng: ((x[:, 0] > 0.0) & (x[:, 1] > 0.0)).astype(float),
    "none, or an amount": lambda x, rng: np.where(x[:, 0] > 1.0, np.exp(x[:, 1]), 0.0),
    "five numbers": lambda x, rng: np.clip(np.round(x[:, 0]), -2.0, 2.0),
    "rarely one": lambda x, rng: (rng.random(len(x)) < 0.02).astype(float),
    "one or none": lambda x, rng: (rng.random(len(x)) < 0.2).astype(float),
    "noise": lambda x, rng: x[:, 0] + rng.normal(size=len(x)),
    "skewed": lambda x, rng: np.exp(rng.normal(size=len(x))),
}


@pytest.mark.parametrize("regressor", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("name", STREAMS)
def test_a_standard_deviation_is_that_of_the_errors_and_no_band_is_much_wider_than_the_labels_are(name, regressor):
    """Also of labels without noise, where cells are sure to the last digit, and of rare ones, of which no quantile
    tells."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(6000, 4))
        y = STREAMS[name](x, rng)
        said = regressor(seed=seed).prequential(x, y)
        mean, std, quantiles, labels = (column[3000:] for column in (said.mean, said.std, said.quantiles, y))
        error = np.sqrt(np.mean((mean - labels) ** 2))
        assert 0.65 * error < np.sqrt(np.mean(std**2)) < 1.35 * error
        low, high = quantiles[:, 0], quantiles[:, 2]
        assert np.mean((low <= labels) & (labels <= high)) > 0.88
        # On average as narrow as what a constant band would have to be, and nowhere far beyond all labels.
        assert np.mean(high - low) < 2.0 * max(np.ptp(np.quantile(y, [0.05, 0.95])), 0.5 * np.std(y))
        assert np.max(high - low) < 3.0 * np.ptp(y)


@pytest.mark.parametrize("label", [1e6, -1e12, 1e14])
def test_a_standard_deviation_is_itself_again_a_while_after_an_outlier(label):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(9000, 3))
    y = x[:, 0] + 0.3 * rng.normal(size=9000)
    y[1000] = label
    for regressor in (amf.AMFRegressor, amf.AdaptiveAMFRegressor):
        std = regressor(seed=3).prequential(x, y).std[7000:]
        assert 0.1 < np.median(std) < 30.0, label


@pytest.mark.parametrize("by", [-2.0, 2.0**20])
def test_a_constant_that_is_added_to_the_labels_is_added_to_the_forecasts(by):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 3))
    y = np.round(1024.0 * rng.exponential(size=1500)) / 1024.0  # so that no label is rounded
    plain, moved = (amf.AMFRegressor(5, seed=1).prequential(x, labels) for labels in (y, y + by))
    np.testing.assert_allclose(moved.mean[1:] - by, plain.mean[1:], atol=1e-5)
    np.testing.assert_allclose(moved.std, plain.std, atol=1e-5)
    np.testing.assert_allclose(moved.quantiles[1:] - by, plain.quantiles[1:], atol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("signal", [0.0, 0.05])
def test_where_nothing_tells_the_mean_of_all_labels_wins(d, signal):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=(3000, d))
        y = signal * x[:, 0] + rng.normal(size=3000)
        told = amf.AMFRegressor(seed=seed).prequential(x, y)
        errors = np.square(y[1000:] - np.array([told.mean, told.raw_mean, np.full(3000, y.mean())])[:, 1000:]).mean(
            axis=1
        )
        assert errors[0] < 1.02 * errors[1:].min()


@pytest.mark.parametrize("row", [0, 300])
@pytest.mark.parametrize("size", [1e3, 1e6, -1e6])
def test_an_outlier_does_not_decide_for_good_how_the_mean_is_made(row, size):
    x, y = friedman(4000, 7)
    y[row] += size
    told = amf.AMFRegressor(seed=1).prequential(x, y)
    mean, raw = (np.median(np.abs(each - y)[2500:]) for each in (told.mean, told.raw_mean))
    assert mean < 1.05 * raw
    assert np.mean((y < told.quantiles[:, 0])[2500:]) == pytest.approx(0.05, abs=0.02)
    assert np.mean((y > told.quantiles[:, 2])[2500:]) == pytest.approx(0.05, abs=0.02)
    if abs(size) < 1e6 and row > 0:  # one of a million shows in the mean of each tree's root
        plain = amf.AMFRegressor(seed=1).prequential(x, friedman(4000, 7)[1])
        width, usual = (np.median(np.diff(each.quantiles[2500:, ::2])) for each in (told, plain))
        assert width < 1.5 * usual


@pytest.mark.parametrize("system", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("by", [10.0, 100.0])
def test_a_level_shift_does_not_decide_for_good_how_the_mean_is_made(system, by):
    """What was best before is not after it: the adaptive forest begins anew, and the mean of labels is far from all."""
    x, y = friedman(8000, 7)
    y[4000:] += by
    told = system(seed=1).prequential(x, y)
    mean, raw = (np.median(np.abs(each - y)[6000:]) for each in (told.mean, told.raw_mean))
    assert mean < 1.05 * raw


@pytest.mark.parametrize("size", [1e3, 1e6, -1e6])
def test_an_outlier_does_not_take_the_median_along(size):
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 1.0, size=(4000, 3))
    y = 2.0 * x[:, 0] + rng.normal(0.0, 0.5, 4000)
    y[500] = size
    told = amf.AMFRegressor(seed=2).prequential(x, y)
    assert np.abs(y - told.quantiles[:, 1])[2000:].mean() < 1.1 * np.abs(y - np.median(y))[2000:].mean()
    assert np.all(np.diff(told.quantiles[1:], axis=1) >= 0.0)


def test_no_quantiles_are_no_columns():
    forest = amf.AMFRegressor(2, seed=1).partial_fit([[1.0], [2.0]], [1.0, 2.0])
    assert forest.predict_quantiles([[1.0], [2.0], [3.0]], []).shape == (3, 0)


LEVELS = {
    "a step": lambda t: 30.0 * (t >= 2000),
    "a trend": lambda t: 0.01 * t,
    "a wave": lambda t: 10.0 * np.sin(t * 2.0 * np.pi / 1000.0),
}


@pytest.mark.parametrize("regressor", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("name", LEVELS)
def test_means_follow_a_level_that_no_feature_tells(name, regressor):
    """Noise of deviation 1: plain forests were off by 18.7, 9.5 and 7.4 while medians alone followed errors."""
    rng, n = np.random.default_rng(1), 4000
    x = rng.normal(size=(n, 4))
    y = x[:, 0] + LEVELS[name](np.arange(n)) + rng.normal(size=n)
    mean = regressor(seed=1).prequential(x, y).mean
    assert np.sqrt(np.mean((mean - y)[2100:] ** 2)) < 3.0


ENDING = {
    "counts": (lambda x, rng: rng.poisson(np.exp(0.8 * x[:, 0] + 0.5 * x[:, 1] - 0.5)).astype(float), 0.0, np.inf),
    "amounts": (lambda x, rng: rng.exponential(np.exp(1.5 * x[:, 0])), 0.0, np.inf),
    "shares": (lambda x, rng: rng.beta(np.exp(x[:, 0]), np.exp(-x[:, 0])), 0.0, 1.0),
    "cut off": (lambda x, rng: np.clip(3.0 * x[:, 0] + x[:, 1] + rng.normal(size=len(x)), -1.0, 2.0), -1.0, 2.0),
}
"""Labels that end, and where."""


@pytest.mark.parametrize("regressor", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("name", ENDING)
def test_nothing_is_forecast_where_no_label_can_be(name, regressor):
    """Of the counts a tenth of the medians were negative, and three tenths of the means beyond the ends that are cut
    off, while the quantiles alone were bounded."""
    labels, least, greatest = ENDING[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5))
    y = labels(x, rng)
    said = regressor(seed=1).prequential(x, y)
    forecasts = np.column_stack((said.mean, said.quantiles))[1000:]
    assert np.mean((forecasts < least) | (forecasts > greatest)) == 0.0
    lower, _, upper = said.quantiles[1000:].T
    assert 0.88 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.94


@pytest.mark.parametrize("regressor", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("slope", [0.2, -0.2])
def test_labels_of_which_each_is_a_new_extreme_have_no_bound_on_that_side(regressor, slope):
    """With bounds by the labels so far each next one of a counter is beyond the band."""
    rng = np.random.default_rng(5)
    y = slope * np.arange(4000) + 0.1 * rng.normal(size=4000)
    lower, _, upper = regressor(seed=1).prequential(rng.normal(size=(4000, 2)), y).quantiles[1000:].T
    assert np.mean((y[1000:] < lower) | (y[1000:] > upper)) < 0.12


@pytest.mark.parametrize("regressor", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
def test_bounds_are_those_of_all_labels_not_of_the_last_ones(regressor):
    """Rows that came in the order of their labels, and are asked for afterwards."""
    rng = np.random.default_rng(6)
    x = np.sort(rng.random((3000, 1)), axis=0)
    y = np.exp(3.0 * x[:, 0])
    forest = regressor(seed=1).partial_fit(x, y)
    assert np.abs(forest.predict(x) - y).mean() < 0.1 * y.std()
    assert np.abs(forest.predict_quantiles(x, [0.5])[:, 0] - y).mean() < 0.1 * y.std()


@pytest.mark.parametrize("unit", [0.1, 1e-6])
def test_first_labels_that_are_equal_tell_of_no_error(unit):
    """Ten trees say .3 after a label of .3 and another one, and a mean over them may be off by rounding: the usual
    error would be that, the spread a fifteenth of what it is for 100 rows and then twice, and linear models at rest."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 4))
    counts = rng.poisson(np.exp(1.5 + x @ [0.6, 0.4, 0.2, 0.0])).astype(float)
    counts[:2] = 3.0
    of_counts, of_units = (amf.AMFRegressor(seed=3).prequential(x, counts * factor) for factor in (1.0, unit))
    np.testing.assert_allclose(of_units.mean[1:] / unit, of_counts.mean[1:], rtol=1e-6)
    np.testing.assert_allclose(of_units.std[2:] / unit, of_counts.std[2:], rtol=1e-6)


@pytest.mark.parametrize("system", [amf.AMFRegressor, amf.AdaptiveAMFRegressor])
@pytest.mark.parametrize("features_rest", [True, False])
def test_quantiles_are_what_they_are_called_soon_after_a_long_rest(system, features_rest):
    """A sensor that stands still for a night or a season, and then goes on as before."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(6500, 3))
    y = 3 * points[:, 0] + rng.normal(size=6500)
    y[500:5500] = 0.0
    if features_rest:
        points[500:5500] = 0.0
    forest = system(seed=1).partial_fit(points[:5500], y[:5500])
    said = forest.prequential(points[5500:], y[5500:])
    inside = (said.quantiles[:, 0] <= y[5500:]) & (y[5500:] <= said.quantiles[:, 2])
    assert inside[100:300].mean() > 0.75
    assert inside[300:].mean() > 0.85


def test_bands_are_not_wide_for_long_behind_each_step_of_a_level():
    """Half a dozen labels behind a step are outside as behind a rest, and what was learned of the noise still holds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 3))
    y = 3 * x[:, 0] + np.sin(2 * x[:, 1]) + rng.normal(size=6000) + np.repeat(30 * rng.normal(size=12), 500)
    quantiles = amf.AMFRegressor(seed=1).prequential(x, y).quantiles
    inside = (quantiles[:, 0] <= y) & (y <= quantiles[:, 2])
    assert inside[500:].mean() > 0.88
    assert (quantiles[500:, 2] - quantiles[500:, 0]).mean() < 20.0  # with noise alone 4
