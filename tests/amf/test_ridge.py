"""Ridge regression on moments that follow the stream: its kernel against a readable one, and its worth in forests."""

from __future__ import annotations

import numpy as np
import pytest
from reference_number_calibration import Bounds, Ridge, Surface
from worlds import friedman

import amf
from amf.calibration import linear_models, products, ridge
from amf.calibration.number_stacking import n_of_features
from amf.jit.decorators import exported

follow, respond = exported(ridge.follow), exported(ridge.respond)
fill_features, fill_terms = exported(ridge.fill_features), exported(products.fill_terms)
enter, note_features = exported(linear_models.enter), exported(linear_models.note_features)
LARGE = 10**9
REGRESSORS = [amf.AMFRegressor, amf.AdaptiveAMFRegressor]


def fresh(d):
    linear = linear_models.with_features(linear_models.fresh_state(1), 1, 0, [None] * d, LARGE)
    return linear, ridge.with_columns(np.zeros(0), 0, min(d, ridge.MOST_FEATURES))


def learn(x, y, weights, usual, linear, state, centres=None):
    """Learn rows; what each was foretold. centres: medians of labels, 0 unless they are given."""
    centres = np.zeros(len(x)) if centres is None else centres
    said, row = np.empty(len(x)), np.empty(min(x.shape[1], ridge.MOST_FEATURES))
    for i in map(np.uint64, range(len(x))):
        fill_features(x, i, linear, row)
        said[i] = respond(row, state)
        note_features(x, i, linear, np.uint64(1))
        fill_features(x, i, linear, row)
        follow(row, said[i], y[i], weights[i], usual[i], centres[i], ridge.OF_FEATURES, state)
    return said


def learn_products(x, y, weights, usual, linear, state, centres):
    """The same of features and their products."""
    said, terms, one = np.empty(len(x)), np.empty(products.n_terms(x.shape[1])), np.uint64(1)
    entered = np.empty(int(linear_models.N_MODELS) * x.shape[1])
    for i in map(np.uint64, range(len(x))):
        enter(x, i, linear, one, entered)
        fill_terms(x, i, entered, terms)
        said[i] = respond(terms, state)
        note_features(x, i, linear, one)
        follow(terms, said[i], y[i], weights[i], usual[i], centres[i], products.PENALTY, state)
    return said


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_moments_that_follow_are_those_of_all_rows(missing):
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 1.0, (400, 5)) * [1.0, 1e6, 1e-6, 1.0, 0.0]
    x[:, 3] += x[:, 0]
    x[100, 0] = 1e4  # further than it may count
    x[rng.random(x.shape) < missing] = np.nan
    y = np.nan_to_num(x[:, 0]) + 1e-6 * np.nan_to_num(x[:, 1]) + rng.normal(size=400)
    y[0] = 1e5  # errors fall by more than a 32nd after it
    y[200:] += 500.0  # to which the median comes at last, and the model after it
    weights, usual = rng.random(400), np.maximum(1e10 * 0.8 ** np.arange(400), 1.0)
    centres = np.where(np.arange(400) < 230, 0.0, 500.0)
    linear, state = fresh(5)
    surface = ridge.with_columns(np.zeros(0), 0, products.n_terms(5))
    both = [
        (learn(x, y, weights, usual, linear.copy(), state, centres), Ridge(Bounds(), n_features=5)),
        (learn_products(x, y, weights, usual, linear.copy(), surface, centres), Surface(Bounds(), n_features=5)),
    ]
    for said, reference in both:
        for i in range(400):
            if i:
                assert said[i] == pytest.approx(reference.by_model(x[i], np.nan), rel=1e-6), i
            reference.note(x[i], y[i], weights[i], usual[i], centres[i])
    assert ridge.is_sound(state, 5)
    assert ridge.is_sound(surface, products.n_terms(5))


@pytest.mark.parametrize(
    ("n_before", "usual", "stays"),
    [(100, 1e-5, False), (100, 2e-3, True), (100, 0.0, True), (2_100, 1e-5, True)],
    ids=["a great fall", "a small one", "no error at all", "a stream that rests"],
)
def test_rows_lose_their_weight_where_errors_fall_a_lot_among_the_first_labels_alone(n_before, usual, stays):
    rng, n = np.random.default_rng(5), n_before + 1
    x, errors = rng.normal(size=(n, 2)), np.ones(n)
    errors[-1] = usual
    weight = []
    for rows in (n_before, n):
        linear, state = fresh(2)
        learn(x[:rows], x[:rows, 0], np.ones(rows), errors[:rows], linear, state)
        weight.append(state[0])
    assert (weight[1] > 0.99 * weight[0]) == stays
    assert ridge.is_sound(state, 2)


def test_features_that_come_later_are_as_if_they_had_been_missing():
    rng = np.random.default_rng(1)
    x, weights, usual = rng.normal(size=(300, 3)), np.ones(300), np.ones(300)
    y = x @ [1.0, -2.0, 3.0] + 0.1 * rng.normal(size=300)
    gone = x.copy()
    gone[:100, 2] = np.nan
    linear, whole = fresh(3)
    learn(gone, y, weights, usual, linear, whole)
    linear, state = fresh(2)
    learn(x[:100, :2], y, weights, usual, linear, state)
    linear, state = linear_models.with_features(linear, 1, 2, [None], LARGE), ridge.with_columns(state, 2, 3)
    learn(x[100:], y[100:], weights, usual, linear, state)
    np.testing.assert_array_equal(state, whole)


@pytest.mark.parametrize("first", [0.0, 3.0])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_a_feature_that_comes_late_or_seldom_is_known_as_well_as_one_that_was_always_there(first, share):
    """Its mean stayed near the first value, and the effect that was found was too small."""
    rng, n_before = np.random.default_rng(7), 1_000
    x = rng.normal(size=(n_before + 600, 3))
    x[n_before, 0] = first
    had = (np.arange(len(x)) >= n_before) & (rng.random(len(x)) < share)
    had[n_before] = True
    y = np.where(had, 3.0 * x[:, 0], 3.0 * rng.normal(size=len(x)) * (np.arange(len(x)) < n_before))
    y += 0.3 * rng.normal(size=len(x))
    x[~had, 0] = np.nan
    weights, usual = np.ones(len(x)), np.ones(len(x))
    linear, state = fresh(3)
    late = learn(x, y, weights, usual, linear, state)[n_before:]
    linear, state = fresh(3)
    always = learn(x[n_before:], y[n_before:], weights, usual, linear, state)
    of_late, of_always = (np.sqrt(np.mean((said - y[n_before:])[200:] ** 2)) for said in (late, always))
    assert of_late < 1.5 * of_always


@pytest.mark.parametrize("system", REGRESSORS)
def test_a_linear_sum_is_known_after_a_few_rows_for_each_feature(system):
    """Of steps alone the error is 1.5 to 2 times that of least squares on the same rows."""
    errors = np.zeros((2, 100))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(150, 10))
        y = x @ rng.normal(size=10) + 0.5 * rng.normal(size=150)
        errors[0] += (system(seed=seed).predict_learn(x, y) - y)[50:] ** 2
        for i in range(50, 150):
            solution = np.linalg.lstsq(np.column_stack((x[:i], np.ones(i))), y[:i])[0]
            errors[1, i - 50] += (x[i] @ solution[:-1] + solution[-1] - y[i]) ** 2
    ours, theirs = np.sqrt(errors.mean(axis=1))
    assert ours < 1.25 * theirs


@pytest.mark.parametrize("system", REGRESSORS)
def test_columns_that_tell_the_same_or_nothing_are_no_trouble(system):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 2))
    y = x @ [1.0, 2.0] + 0.1 * rng.normal(size=300)
    more = np.column_stack((x, x, x[:, 0] - x[:, 1], np.full(300, 7.0), np.full(300, np.nan), 1e30 * x[:, 1]))
    errors = np.abs(system(seed=1).predict_learn(more, y) - y)[200:]
    assert np.sqrt(np.mean(errors**2)) < 0.2


@pytest.mark.parametrize("system", REGRESSORS)
def test_amounts_add_up_however_far_from_usual_they_are(system):
    """Values beyond five deviations, as amounts have them, were taken as five: an error of .13 deviations of labels."""
    rng = np.random.default_rng(6)
    x = np.exp(1.2 * rng.normal(size=(2000, 5)))
    y = x.sum(axis=1)
    errors = (system(seed=1).predict_learn(x, y) - y)[500:] / y.std()
    assert np.sqrt(np.mean(errors**2)) < 0.06


@pytest.mark.parametrize("system", REGRESSORS)
def test_a_value_that_is_no_value_moves_a_forecast_no_further_than_labels_were(system):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(1000, 3))
    y = x @ [3.0, -2.0, 1.0]
    forest = system(seed=1).partial_fit(x, y)
    broken = x[:20].copy()
    broken[np.arange(20), rng.integers(3, size=20)] = 10.0 ** rng.integers(2, 300, size=20)
    said = forest.predict(broken)
    assert y.min() - 1e-12 <= said.min() <= said.max() <= y.max() + 1e-12  # but for rounding


@pytest.mark.parametrize("known", range(62, 80))
def test_a_column_without_a_value_so_far_is_as_if_it_were_not_there(known):
    """Whether a model is judged depends on how many rows and columns there are: on those that have had a value."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = 3.0 * x[:, 0] + rng.normal(size=80)
    x[:known, 1] = np.nan
    whole, grown = amf.AMFRegressor(n_estimators=1), amf.AMFRegressor(n_estimators=1)
    whole.add_features(["first", "later"])
    whole.partial_fit(x, y)
    grown.add_features(["first"])
    grown.partial_fit(x[:known, :1], y[:known])
    grown.add_features(["later"])
    grown.partial_fit(x[known:], y[known:])
    assert grown.dumps() == whole.dumps()


def test_of_many_features_the_first_256_are_used():
    """With one feature more there was none: that tells nothing and cost two fifths of the error."""
    sizes = [n_of_features(d, LARGE) - linear_models.n_of_features(1, d, LARGE) for d in (255, 256, 257, 1000)]
    assert sizes[0] < sizes[1] == sizes[2] == sizes[3] == ridge.n_numbers(256) + ridge.n_numbers(44)
    rng = np.random.default_rng(3)
    x, weights, usual = rng.normal(size=(300, 262)), np.ones(300), np.ones(300)
    y = x[:, :10] @ rng.normal(size=10) + x[:, 261] + 0.1 * rng.normal(size=300)
    errors = [np.std((amf.AMFRegressor(seed=1).predict_learn(x[:, :d], y) - y)[100:]) for d in (256, 257)]
    assert errors[1] < 1.05 * errors[0]
    states = []
    for d in (256, 262):
        linear, state = fresh(d)
        said = learn(x[:, :d], y, weights, usual, linear, state)
        states.append((state, said[1:]))
    for few, many in zip(*states, strict=True):
        np.testing.assert_array_equal(few, many)
    linear, state = fresh(250)
    learn(x[:100, :250], y, weights, usual, linear, state)
    linear, state = linear_models.with_features(linear, 1, 250, [None] * 12, LARGE), ridge.with_columns(state, 250, 256)
    assert state.shape == states[1][0].shape
    learn(x[100:], y[100:], weights, usual, linear, state)
    assert ridge.is_sound(state, 256)


@pytest.mark.parametrize("n_features", [64, 70, 120])
def test_a_linear_sum_of_more_than_64_features_is_known_as_well_as_one_of_64(n_features):
    """Where the first 64 were used an error of .25 was left of 70, and of .4 of 120, beside a noise of 1."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, n_features))
    y = x @ rng.normal(size=n_features) + rng.normal(size=2000)
    assert np.std((amf.AMFRegressor(3, seed=1).predict_learn(x, y) - y)[1000:]) < 1.15


def test_it_is_left_away_where_it_takes_more_than_an_eighth_of_the_memory():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 60))
    small, large = (amf.AMFRegressor(1, seed=1, max_bytes=size).partial_fit(x, x[:, 0]) for size in (10**5, 10**6))
    # Nor are there products without it, small as they are beside it.
    assert large._calibration.nbytes - small._calibration.nbytes == 8 * (ridge.n_numbers(60) + ridge.n_numbers(44))
    same = amf.loads(small.dumps())
    assert same.predict_learn(x, x[:, 1]).tobytes() == small.predict_learn(x, x[:, 1]).tobytes()


@pytest.mark.parametrize("system", REGRESSORS)
def test_a_surface_is_known_after_a_few_rows_for_each_of_its_terms(system):
    """Of forests and lines alone the error is twice that: an optimum, and an effect that another feature turns."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = 100.0 + rng.normal(size=(600, 4))
        centred = x - 100.0
        y = 50.0 + centred[:, 0] * centred[:, 1] - centred[:, 2] ** 2 + 0.3 * rng.normal(size=600)
        errors.append((system(seed=seed).predict_learn(x, y) - y)[200:])
    assert np.sqrt(np.mean(np.square(errors))) < 0.6


@pytest.mark.parametrize(("before", "now"), [(7, 8), (8, 9)])
def test_terms_of_a_feature_that_comes_later_are_new_and_the_others_stay(before, now):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(700, now))
    y = x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=700)
    names = [f"x{j}" for j in range(now)]
    forest = amf.AMFRegressor(2, seed=1)
    forest.add_features(names[:before])
    forest.partial_fit(x[:300, :before], y[:300]).add_features(names[before:])
    loaded = amf.loads(forest.dumps())
    said = [each.predict_learn(x[300:], y[300:]) for each in (forest, loaded)]
    assert said[0].tobytes() == said[1].tobytes()
    knows = np.sqrt(np.mean((said[0] - y[300:])[:100] ** 2)) < 0.5
    assert knows


def test_models_that_take_more_than_an_eighth_of_the_memory_are_left_away_the_largest_one_first():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(300, 30))
    n_linear, n_plain, n_curved = linear_models.n_of_features(1, 30, LARGE), ridge.n_numbers(30), ridge.n_numbers(44)
    for max_bytes, n_numbers in (
        (64 * 7 * 30 - 1, 0),
        (64 * n_linear - 1, 7 * 30),
        (64 * n_plain - 1, n_linear),
        (64 * n_plain, n_linear + n_plain),
        (64 * n_curved - 1, n_linear + n_plain),
        (64 * n_curved, n_linear + n_plain + n_curved),
    ):
        assert n_of_features(30, max_bytes) == n_numbers
        forest = amf.AMFRegressor(1, seed=1, max_bytes=max(max_bytes, 20_000)).partial_fit(x, x[:, 0] * x[:, 1])
        loaded = amf.loads(forest.dumps())
        assert forest.predict_learn(x, x[:, 2]).tobytes() == loaded.predict_learn(x, x[:, 2]).tobytes()


def test_a_state_that_labels_could_not_have_left_is_not_sound():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 2))
    linear, state = fresh(2)
    learn(x, x @ [1.0, 2.0], np.ones(60), np.ones(60), linear, state)
    assert ridge.is_sound(state, 2)
    for place in range(len(state)):
        for wrong in (np.nan, np.inf, -np.inf):
            broken = state.copy()
            broken[place] = wrong
            assert not ridge.is_sound(broken, 2), (place, wrong)
    largest = state.copy()
    largest[-3:] = 0.0, 1e200, 0.0  # moments that no rows have: whatever comes of them is a number
    learn(x, x @ [1.0, 2.0], np.ones(60), np.ones(60), linear, largest)
    assert np.isfinite(largest).all()
    assert ridge.is_sound(largest, 2)


@pytest.mark.parametrize("system", REGRESSORS)
@pytest.mark.parametrize(
    ("factor", "offset"), [(1.0, 500.0), (0.1, 0.0), (1e-6, 0.0)], ids=["level", "a tenth", "a millionth"]
)
def test_where_labels_have_another_level_or_unit_forecasts_are_soon_as_those_of_a_forest_that_begins_there(
    system, factor, offset
):
    x, y = friedman(6_000)
    y[3_000:] = factor * y[3_000:] + offset
    said, fresh = system(seed=1).predict_learn(x, y), system(seed=1).predict_learn(x[3_000:], y[3_000:])
    errors, errors_of_fresh = said[5_000:] - y[5_000:], fresh[2_000:] - y[5_000:]
    assert np.square(errors).mean() < 4 * np.square(errors_of_fresh).mean()


@pytest.mark.parametrize("level", [0.0, 1000.0])
@pytest.mark.parametrize(("n_wrong", "stays"), [(100, True), (400, False)])
def test_a_model_begins_anew_where_labels_stay_others_and_not_for_a_hundred_of_them(level, n_wrong, stays):
    rng, n = np.random.default_rng(1), 1_000 + n_wrong
    x = rng.normal(size=(n, 2))
    y = x @ [3.0, -2.0] + rng.normal(size=n)
    y[1_000:] = level
    linear, state = fresh(2)
    learn(x, y, np.ones(n), np.ones(n), linear, state, np.where(np.arange(n) < 1_000, 0.0, level))
    assert (state[0] > 600) == stays


@pytest.mark.parametrize(("gap", "better"), [(0.1, 0.8), (0.01, 0.95)])
def test_a_model_that_explains_nearly_everything_is_penalised_less(monkeypatch, gap, better):
    """Of two columns that are nearly one another the difference is small beside their deviations, and the weights that
    it needs are large: as much penalty as before noise left a model with a few times the error of least squares."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1500, 1)) + gap * rng.normal(size=(1500, 8))
    y = (x[:, 0] - x[:, 1]) / gap + 0.1 * rng.normal(size=1500)
    rows = (x, y, np.ones(1500), np.full(1500, 0.01))
    said = learn(*rows, *fresh(8))
    adapted, fixed = Ridge(Bounds(), n_features=8), Ridge(Bounds(), n_features=8)
    monkeypatch.setattr(fixed, "unexplained", lambda: 1.0)
    same, before = np.empty((2, 1500))
    for i in range(1500):
        for reference, kept in ((adapted, same), (fixed, before)):
            kept[i] = reference.by_model(x[i], 0.0)
            reference.note(x[i], y[i], 1.0, 0.01, 0.0)
    np.testing.assert_allclose(said[1:], same[1:], rtol=0, atol=1e-9)
    late = slice(300, None)
    assert np.mean((said[late] - y[late]) ** 2) < better**2 * np.mean((before[late] - y[late]) ** 2)
