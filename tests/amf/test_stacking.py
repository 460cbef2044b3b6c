"""The linear models on top of a forest: what they are worth, what they cost where they are of no use, how they grow."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import log_loss

import amf
from amf.calibration import linear_models

FORESTS = [amf.AMFClassifier, amf.AdaptiveAMFClassifier]
REGRESSORS = [amf.AMFRegressor, amf.AdaptiveAMFRegressor]
MUCH = 2**30
"""Bytes of a forest, of which no linear model of a test takes too many."""


def of_many_effects(n: int, d: int = 20):
    """Features (n, d), and a sum of their effects that tells of labels 0 and 1: their probabilities."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    return x, 1 / (1 + np.exp(-0.7 * (x @ rng.normal(size=d)))), rng


def beyond_entropy(system, x, p, rng) -> tuple[float, float]:
    """Nats by which trees alone, and the forest, exceed the entropy on the second half of labels of these
    probabilities."""
    y, half = (rng.random(len(p)) < p).astype(int), slice(len(p) // 2, None)
    forecasts = system(seed=1, classes=[0, 1]).prequential(x, y)
    entropy = float(-(p * np.log(p) + (1 - p) * np.log(1 - p))[half].mean())
    return tuple(log_loss(said[half], y[half]) - entropy for said in (forecasts.raw, forecasts.probabilities))


def rmse_of_half(forecasts, y) -> tuple[float, float]:
    """Of the forest, and of its trees alone, on the second half of the labels."""
    half = slice(len(y) // 2, None)
    return tuple(np.sqrt(np.mean((said - y)[half] ** 2)) for said in (forecasts.mean, forecasts.raw_mean))


@pytest.mark.parametrize("system", FORESTS)
def test_what_is_a_sum_of_effects_is_known_soon(system):
    by_trees, by_forest = beyond_entropy(system, *of_many_effects(3000))
    assert by_trees > 0.15
    assert by_forest < 0.04


@pytest.mark.parametrize("system", REGRESSORS)
def test_so_are_numbers_that_are_sums_and_their_intervals_are_narrower(system):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 10))
    y = 50.0 + x @ rng.normal(size=10) + rng.normal(size=3000) * 0.3
    forecasts = system(seed=1).prequential(x, y)
    half = slice(1500, None)
    rmse, of_trees = rmse_of_half(forecasts, y)
    assert rmse < 0.5 < 0.9 < of_trees
    low, _, high = forecasts.quantiles[half].T
    assert np.mean((y[half] >= low) & (y[half] <= high)) == pytest.approx(0.9, abs=0.03)
    assert np.mean(high - low) < 4 * rmse


def waves(n: int):
    """Features (n, 8), of which one in ten is missing, and a sum of waves and steps of them."""
    rng = np.random.default_rng(0)
    places, is_missing = rng.random((n, 8)), rng.random((n, 8)) < 0.1
    effects = np.where(np.arange(8) < 4, 1.5 * np.sin(9.0 * places), 2.0 * (places > 0.4) - 1.2)
    x = np.where(is_missing, np.nan, places * 10.0 ** np.arange(-4, 4))
    return x, np.where(is_missing, 0.0, effects).sum(axis=1), rng


@pytest.mark.parametrize("system", FORESTS)
def test_effects_of_any_shape_that_add_up_are_known_sooner(system):
    x, log_odds, rng = waves(4000)
    by_trees, by_forest = beyond_entropy(system, x, 1 / (1 + np.exp(-1.5 * log_odds)), rng)
    assert by_trees > 0.15
    assert by_forest < 0.11


@pytest.mark.parametrize("system", REGRESSORS)
def test_so_are_numbers_that_are_sums_of_such(system):
    x, y, rng = waves(4000)
    y += 0.2 * rng.normal(size=4000)
    rmse, of_trees = rmse_of_half(system(seed=1).prequential(x, y), y)
    assert rmse < 0.9 < 1.5 < of_trees


@pytest.mark.parametrize("system", FORESTS)
def test_so_is_a_sum_of_effects_of_distances_from_the_usual(system):
    """Hastie's labels: whether the squares of ten features add up to more than in the median."""
    rng = np.random.default_rng(0)
    x = 20.0 + 3.0 * rng.normal(size=(3000, 10))
    y = (((x - 20.0) ** 2).sum(axis=1) > 9.0 * 9.34).astype(int)
    forecasts = system(seed=1, classes=[0, 1]).prequential(x, y)
    half = slice(1500, None)
    assert log_loss(forecasts.raw[half], y[half]) > 0.5  # the trees alone
    assert log_loss(forecasts.probabilities[half], y[half]) < 0.17
    distances = np.sqrt(((x - 20.0) ** 2).sum(axis=1) / 9.0)
    said = (amf.AMFRegressor if system is amf.AMFClassifier else amf.AdaptiveAMFRegressor)(seed=1).prequential(
        x, distances
    )
    rmse, of_trees = rmse_of_half(said, distances)
    assert rmse < 0.5 * of_trees


@pytest.mark.parametrize("system", FORESTS)
def test_they_cost_little_where_it_is_of_no_use(system):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 6))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with_features = system(seed=1, classes=[0, 1]).predict_learn(x, y)
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


@pytest.mark.parametrize("system", REGRESSORS)
@pytest.mark.parametrize("outlier", [1e3, -1e5, 1e6])
def test_a_first_label_that_is_an_outlier_is_soon_forgotten(system, outlier):
    """In its unit all later errors are tiny, and so are sums of their squares: steps without a bound would grow. In the
    mean of labels it stays for thousands of rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 6))
    y = x @ rng.normal(size=6) + 0.3 * rng.normal(size=4000)
    late = slice(3000, None)
    usual = np.median(np.abs(system(seed=1).predict_learn(x, y) - y)[late])
    labels = np.concatenate(([outlier], y[1:]))
    said = system(seed=1).prequential(x, labels)
    assert np.median(np.abs(said.mean - y)[late]) < 1.3 * usual < np.median(np.abs(said.raw_mean - y)[late])


@pytest.mark.parametrize("system", REGRESSORS)
def test_where_all_features_drop_out_at_once_their_effects_do_not_add_up(system):
    rng = np.random.default_rng(0)
    x = rng.normal(5.0, 1.0, (4000, 50))
    y = 0.3 * (x - 5.0) @ rng.random(50) + 0.2 * rng.normal(size=4000)
    usual = np.sqrt(np.mean((system(seed=1).predict_learn(x, y) - y)[2000:] ** 2))
    dropped = np.arange(4000) % 500 == 0
    x[dropped] = 0.0
    means = system(seed=1).predict_learn(x, y)
    assert np.nanmax(np.abs(means)) <= np.abs(y).max()
    # Ridge regression, which makes the usual error smaller by a sixth, they keep from being of use.
    assert np.sqrt(np.mean((means - y)[2000:] ** 2)) < 1.4 / (5 / 6) * usual


@pytest.mark.parametrize("system", REGRESSORS)
def test_means_of_amounts_that_are_mostly_0_are_hardly_ever_negative(system):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5))
    y = np.where(rng.random(4000) < 0.02, np.exp(3 + x[:, 0]), 0.0)
    said = system(seed=1).prequential(x, y)
    assert np.mean(said.mean[200:] < 0.0) < 0.05
    assert np.mean(said.quantiles[200:, 0] < 0.0) < 0.27


@pytest.mark.parametrize("system", FORESTS)
def test_values_that_stand_for_missing_ones_take_little_of_what_a_feature_tells(system):
    x, p, rng = of_many_effects(4000, 8)
    y = (rng.random(4000) < p).astype(int)
    x[rng.random(x.shape) < 0.01] = np.nan
    forecasts = system(seed=1, classes=[0, 1]).prequential(x, y)
    with_sentinels = system(seed=1, classes=[0, 1]).predict_learn(np.where(np.isnan(x), -999.0, x), y)
    late = slice(2000, None)
    gain = log_loss(forecasts.raw[late], y[late]) - log_loss(forecasts.probabilities[late], y[late])
    assert gain > 0.03
    assert log_loss(with_sentinels[late], y[late]) < log_loss(forecasts.probabilities[late], y[late]) + 0.5 * gain


def test_they_take_an_eighth_of_the_memory_each_at_most_and_are_left_away_where_it_would_be_more():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 40))
    limit = 200_000
    forest = amf.AMFClassifier(seed=1, max_bytes=limit, n_estimators=2)
    sizes = []
    for label in range(40):
        forest.partial_fit(x[:5], [f"class {label}"] * 5)
        sizes.append(forest._calibration.nbytes)
        assert forest._calibration.nbytes < 2 * limit / 8 + 8 * (50 + 9 * (label + 1))  # of steps, and solved for
        np.testing.assert_array_equal(amf.loads(forest.dumps()).predict_proba(x), forest.predict_proba(x))
    assert max(sizes) > limit / 16  # first there was one
    assert sizes[-1] < 8 * (50 + 9 * 40)  # and at last there is none
    assert np.isfinite(forest.predict_proba(x)).all()
    late = amf.AMFClassifier(seed=1, max_bytes=limit, n_estimators=2, classes=range(40)).partial_fit(x, [0] * 300)
    assert late._calibration.nbytes == sizes[-1]


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
        wide = linear_models.with_features(linear_models.fresh_state(n_outputs), n_outputs, 0, [None] * d, MUCH)
        assert linear_models.is_sound(wide, n_outputs, d, 1.0)
        grown = linear_models.with_outputs(wide, n_outputs, 2, d, MUCH)
        more = linear_models.fresh_state(n_outputs + 2)
        np.testing.assert_array_equal(grown, linear_models.with_features(more, n_outputs + 2, 0, [None] * d, MUCH))
        np.testing.assert_array_equal(grown[len(more) :], np.zeros(d * (5 + 14 * (n_outputs + 2))))
        wide[:] = rng.random(len(wide))
        models, features = _parts(wide, n_outputs, d)
        more_models, more_features = _parts(linear_models.with_outputs(wide, n_outputs, 2, d, MUCH), n_outputs + 2, d)
        np.testing.assert_array_equal(more_models[:, : 2 + 2 * n_outputs], models)
        np.testing.assert_array_equal(more_features[0], features[0])
        np.testing.assert_array_equal(more_features[1][:, :n_outputs], features[1])
        assert not more_models[:, 2 + 2 * n_outputs :].any()
        assert not more_features[1][:, n_outputs:].any()
        np.testing.assert_array_equal(more_features[2][..., :n_outputs], features[2])
        assert not more_features[2][..., n_outputs:].any()


def test_without_room_for_splines_all_else_stays_as_it_was():
    rng = np.random.default_rng(3)
    wide = linear_models.with_features(linear_models.fresh_state(2), 2, 0, [None] * 3, MUCH)
    wide[:] = rng.random(len(wide))
    models, rows = np.split(wide[: 18 + 27], [18])
    rows = rows.reshape(9, 3)
    more = linear_models.with_features(wide, 2, 3, [None], 64 * 33 * 4 - 1)
    assert len(more) == 18 + 4 * 9
    np.testing.assert_array_equal(more[:18], models)
    np.testing.assert_array_equal(more[18:].reshape(9, 4)[:, :3], rows)
    assert linear_models.is_sound(more, 2, 4, 1.0)
    another = linear_models.with_outputs(wide, 2, 1, 3, 64 * 33 * 3)
    assert len(another) == 24 + 3 * 11
    np.testing.assert_array_equal(another[24:].reshape(11, 3)[:5], rows[:5])
    assert len(linear_models.with_outputs(another, 3, 1, 3, 64 * 11 * 3)) == 30


@pytest.mark.parametrize(
    ("system", "bytes_with_splines"), [(amf.AMFClassifier, 64 * 33 * 40), (amf.AMFRegressor, 64 * 19 * 40)]
)
def test_where_memory_is_too_small_for_splines_a_sum_of_effects_is_known_as_soon(system, bytes_with_splines):
    """With one byte less there were no linear models at all: the loss of constants."""
    rng = np.random.default_rng(5)
    x, effects = rng.normal(size=(1000, 40)), rng.normal(size=40)
    y = x @ effects
    if system is amf.AMFClassifier:
        y = (y > 0).astype(int)
    said = {}
    for max_bytes in (bytes_with_splines - 1, bytes_with_splines):
        forest = system(5, seed=1, max_bytes=max_bytes).partial_fit(x[:500], y[:500])
        said[max_bytes] = amf.loads(forest.dumps()).predict_learn(x[500:], y[500:])
        for row in range(500, 1000):
            forest.partial_fit(x[row : row + 1], y[row : row + 1])
        assert forest.dumps() == system(5, seed=1, max_bytes=max_bytes).partial_fit(x, y).dumps()
    without, with_them = (_loss(y[500:], each) for each in said.values())
    nothing = _loss(y[500:], np.full_like(next(iter(said.values())), 0.5 if system is amf.AMFClassifier else 0.0))
    assert without - with_them < 0.1 * (nothing - with_them)


def _loss(y, said):
    """Log-loss of classes, squared error of numbers."""
    if said.ndim == 2:
        return -np.log(said[np.arange(len(y)), y]).mean()
    return ((said - y) ** 2).mean()


def _parts(state, n_outputs: int, d: int):
    """What belongs to the three models, what the features are like, and their weights, for all outputs."""
    models, features, splines = np.split(state, np.cumsum([3 * (2 + 2 * n_outputs), (5 + 2 * n_outputs) * d]))
    scales, weights = np.split(features.reshape(5 + 2 * n_outputs, d), [5])
    return models.reshape(3, -1), (scales, weights.reshape(2, n_outputs, d), splines.reshape(d, 12, n_outputs))


def test_a_deviation_that_is_nothing_beside_a_move_is_replaced():
    """Of the smallest number that there is no share is another number."""
    x, p, rng = of_many_effects(800, 2)
    y = (rng.random(800) < p).astype(int)
    forest = amf.AMFClassifier(1, seed=1).partial_fit(x[:400], y[:400])
    deviations = forest._calibration[-66:-48].reshape(9, 2)[3]
    assert (deviations > 0.5).all()
    deviations[:] = 5e-324
    forest.partial_fit(x[400:], y[400:])
    assert ((deviations > 0.5) & (deviations < 2.0)).all()


def test_however_long_a_feature_rests_it_is_measured_as_before():
    x, p, rng = of_many_effects(900, 2)
    y = (rng.random(900) < p).astype(int)
    forest = amf.AMFClassifier(1, seed=1).partial_fit(x[:400], y[:400])
    before = forest._calibration[-66:-48].reshape(9, 2)[3].copy()
    x[400:, 0] = x[399, 0] + 7.0  # a sensor that is stuck elsewhere: one move, and none after it
    forest.partial_fit(x[400:], y[400:])
    assert forest._calibration[-66:-48].reshape(9, 2)[3, 0] == pytest.approx(before[0], rel=0.1)


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
    sound = linear_models.with_features(linear_models.fresh_state(2), 2, 0, [None], MUCH)
    assert linear_models.is_sound(sound, 2, 1, 1.0)
    for place, values in {
        0: [-1e-9, 2.1], 1: [-1.0, 1e11], 2: [-1.0, 3e7], 3: [1e16],
        6: [-1e-9, 2.1], 7: [-1.0, 1e11], 10: [-1.0, 3e7], 11: [1e16],
        12: [-1e-9, 2.1], 13: [-1.0, 1e11], 16: [-1.0, 3e7], 17: [1e16],
        18: [-1.0, 1501.0], 19: [np.inf], 20: [np.inf], 21: [-1.0], 22: [np.inf], 23: [-1e16], 26: [-1e16],
        27: [1e16], 50: [-1e16],
    }.items():  # fmt: skip
        for value in (*values, np.nan):
            damaged = sound.copy()
            damaged[place] = value
            assert not linear_models.is_sound(damaged, 2, 1, 1.0), (place, value)
