"""What adaptive forests are good for: noise costs less, and a world that changes is followed."""

from __future__ import annotations

import numpy as np
import pytest
from trees import trees_of
from worlds import changing, friedman, log_loss, state

import amf
from amf.adaptation.state import COMPARES, SILENT, WATCHES

# What it is good for.


def with_noise(n, n_noise):
    """Two features tell the class, the others nothing."""
    x = np.random.default_rng(0).random((n, 2 + n_noise))
    return x, (x[:, 0] > 0.5).astype(int) + (x[:, 1] > 0.3)


def test_noise_costs_less_where_weights_are_learned():
    x, y = with_noise(3000, 40)
    later = slice(1500, None)
    plain = amf.AMFClassifier(5, classes=range(3), seed=1).predict_learn(x, y)
    forest = amf.AdaptiveAMFClassifier(5, classes=range(3), seed=1, background=0.0)
    adaptive = forest.predict_learn(x, y)
    assert log_loss(adaptive[later], y[later]) < 0.8 * log_loss(plain[later], y[later])
    weights = forest.feature_weights
    assert weights[:2].sum() > 0.5 * weights.sum()
    np.testing.assert_allclose(weights.mean(), 1.0, rtol=1e-12)


def test_a_hundred_columns_of_noise_cost_little():
    """From early on: trees rehearse as soon as their forest knows what matters. Without the noise the loss is .06."""
    x, y = with_noise(1500, 100)
    assert log_loss(amf.AdaptiveAMFClassifier(10, classes=range(3), seed=1).predict_learn(x, y), y) < 0.25


def test_a_bet_on_a_split_that_tells_nothing_wins_nothing():
    """Also where two features tell together alone, so that most splits on them tell nothing: these win all the same."""
    rng = np.random.default_rng(0)
    x = rng.random((4000, 6))
    y = ((x[:, 0] > 0.5) ^ (x[:, 1] > 0.5)).astype(int)
    forest = amf.AdaptiveAMFClassifier(10, seed=0).partial_fit(x, y)
    won, _, squares = state(forest).gains.reshape(3, 6) / 10
    errors = won / np.sqrt(squares)
    assert np.all(errors[:2] > 10.0)
    assert np.all(np.abs(errors[2:]) < 2.0)


def test_numbers_are_forecast_among_features_of_noise():
    x, y = friedman(3000, 10)
    said = amf.AdaptiveAMFRegressor(10, seed=1).predict_learn(x, y)
    assert np.sqrt(np.mean((said[1000:] - y[1000:]) ** 2)) < 1.95


def test_two_features_that_tell_together_alone_are_found_among_noise():
    rng = np.random.default_rng(0)
    x = rng.random((4000, 12))
    y = ((x[:, 0] > 0.5) ^ (x[:, 1] > 0.5)).astype(int)
    forest = amf.AdaptiveAMFClassifier(10, classes=[0, 1], seed=1)
    said = forest.predict_learn(x, y)
    assert set(np.argsort(forest.feature_weights)[-2:]) == {0, 1}
    assert np.mean(said.argmax(axis=1)[2000:] == y[2000:]) > 0.85


def test_classes_are_told_apart_whatever_their_numbers_are():
    """Two that agree modulo eight, the groups of the table, are as any two."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 8))
    y = (x[:, 0] + 0.3 * rng.normal(size=600) > 0.0).astype(int)
    one, eight = (amf.AdaptiveAMFClassifier(5, seed=1, classes=range(32)).partial_fit(x, k * y) for k in (1, 8))
    np.testing.assert_array_equal(state(eight).table, state(one).table)
    assert eight.feature_weights[0] > 2.0


def test_the_sign_of_labels_of_which_most_are_zero_does_not_matter():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 42))
    told = x[:, 0] + 0.7 * x[:, 1]
    y = np.where(told > 1.56, 1.0 + np.abs(told), 0.0)  # of ten labels nine are 0
    plus, minus = (amf.AdaptiveAMFRegressor(10, seed=1) for _ in range(2))
    for forest, labels in (plus, y), (minus, -y):
        forest.partial_fit(x[:256], labels[:256])
    tables = [state(forest).table.reshape(42, 4, 8) for forest in (plus, minus)]
    np.testing.assert_array_equal(tables[1], tables[0][:, :, ::-1])
    errors = [
        np.mean((f.predict_learn(x[256:], sign * y[256:]) - sign * y[256:]) ** 2)
        for f, sign in ((plus, 1), (minus, -1))
    ]
    assert errors[1] < 1.1 * errors[0]
    assert errors[0] < 0.6 * np.var(y)


@pytest.mark.parametrize(("background", "n_estimators", "standing_by"), [(0.29, 100, 29), (0.2, 9, 1), (0.0, 5, 0)])
def test_a_share_of_the_trees_stands_by(background, n_estimators, standing_by):
    forest = amf.AdaptiveAMFClassifier(n_estimators, background=background, seed=1)
    roles = [tree.role for tree in forest.adaptation.trees]
    assert (roles.count("standing-by"), roles.count("active")) == (standing_by, n_estimators - standing_by)


@pytest.mark.parametrize("kind", [amf.AdaptiveAMFClassifier, amf.AdaptiveAMFRegressor])
def test_after_a_change_background_trees_take_over(kind):
    def mistakes(**parameters):
        x, y = changing(4000, d=3, seed=1)
        said = kind(10, seed=1, **parameters).predict_learn(x, y)
        chosen = said.argmax(axis=1) if said.ndim == 2 else said > 0.5
        return np.mean(chosen[2500:] != y[2500:])

    assert mistakes() < 0.1
    assert mistakes() < 0.5 * mistakes(background=0.0)


def test_what_tells_today_has_the_weight():
    x, y = changing(4000, d=5, seed=1)
    forest = amf.AdaptiveAMFClassifier(10, classes=[0, 1], seed=1).partial_fit(x[:2000], y[:2000])
    assert forest.feature_weights.argmax() == 0
    assert forest.partial_fit(x[2000:], y[2000:]).feature_weights.argmax() == 1


# Rehearsals.


def test_trees_that_rehearse_are_those_of_a_forest_that_knew_the_weights_from_the_start():
    x, y = changing(200, d=4)
    x, y = x[:64], y[:64]
    settings = {"classes": [0, 1], "seed": 1, "scaling": "none"}
    forest = amf.AdaptiveAMFClassifier(5, **settings).partial_fit(x, y)
    weights = state(forest).weights
    assert weights.argmax() == 0
    assert weights.max() > 1.5
    # Generators go on with the words that the first trees have left.
    first, knowing = (amf.AdaptiveAMFClassifier(5, review_every=1000, **settings) for _ in range(2))
    knowing._words[:] = first.partial_fit(x, y)._words
    knowing.add_features(["a", "b", "c", "d"])
    state(knowing).weights[:] = weights
    knowing.partial_fit(x, y)
    for mine, its in zip(trees_of(forest), trees_of(knowing), strict=True):
        np.testing.assert_array_equal(mine.time, its.time)


@pytest.mark.parametrize("like", [[None], [1]])
def test_a_feature_that_comes_between_two_rehearsals_was_missing_before(like):
    x, y = changing(600, d=3)
    late, before = np.where(np.arange(600) < 100, np.nan if like == [None] else 0.0, x[:, 2]), x[:, :2]
    parts = [amf.AdaptiveAMFClassifier(5, classes=[0, 1], seed=1, scaling="none") for _ in range(2)]
    for forest in parts:
        forest.add_features(["a", "b"])
    grown, whole = parts
    grown.partial_fit(before[:100], y[:100]).add_features(["late"], like=like)
    whole.add_features(["late"])
    whole.partial_fit(np.column_stack([before, late])[:100], y[:100])
    for forest in parts:
        forest.partial_fit(np.column_stack([before, late])[100:128], y[100:128])
    np.testing.assert_array_equal(state(grown).kept, state(whole).kept)


def test_samples_are_kept_only_within_their_share_of_the_memory():
    assert amf.AdaptiveAMFClassifier(5, max_bytes=1_000_000)._terms.most_kept == 512
    forest = amf.AdaptiveAMFClassifier(5, classes=[0, 1], max_bytes=1_000_000)
    x, y = np.random.default_rng(0).random((300, 99)), np.arange(300) % 2
    forest.partial_fit(x[:50], y[:50])
    np.testing.assert_array_equal(state(forest).kept.reshape(-1, 99)[:50], x[:50])
    for start in range(50, 300, 10):
        forest.partial_fit(x[start : start + 10], y[start : start + 10])
        kept = state(forest)
        assert kept.kept_labels.nbytes + kept.kept.nbytes <= 1_000_000 / 16
    assert 64 <= forest._terms.most_kept < 128


def test_memory_for_kept_samples_is_taken_as_they_come_and_given_back_after_the_last_rehearsal():
    x, y = np.random.default_rng(0).random((600, 10)), np.arange(600) % 2
    forest, room = amf.AdaptiveAMFClassifier(5, classes=[0, 1]), {}
    forest.predict_proba(x)
    for row in range(600):
        forest.partial_fit(x[row : row + 1], y[row : row + 1])
        room[row + 1] = state(forest).kept_labels.shape[0]
    assert [room[n] for n in (1, 16, 17, 100, 300, 511)] == [16, 16, 32, 128, 512, 512]
    assert room[513] == 64
    assert room[600] == 64
    assert state(forest).phase[0] == WATCHES
    assert len(amf.loads(forest.dumps())._adaptation) < len(forest._adaptation)


def test_a_handful_of_rare_labels_is_no_evidence():
    """Six of 512: features that happen to tell of these six are taken like the others."""
    x = np.random.default_rng(0).normal(size=(512, 20))
    y = np.zeros(512, int)
    y[40::85] = 1
    forest = amf.AdaptiveAMFClassifier(10, classes=[0, 1], seed=1).partial_fit(x, y)
    assert forest.feature_weights.max() < 1.5


@pytest.mark.parametrize("kind", [amf.AdaptiveAMFClassifier, amf.AdaptiveAMFRegressor])
def test_a_forest_begins_anew_after_an_abrupt_change_alone(kind):
    x, y = changing(4000, d=3, seed=1)
    forest = kind(10, seed=1).partial_fit(x[:2000], y[:2000])
    assert state(forest).births.min() == 0.0
    forest.partial_fit(x[2000:2200], y[2000:2200])
    # Trees forecast that know what came after the change alone, and at the next review there are no others.
    assert state(forest).phase[0] == COMPARES
    assert state(forest).births[state(forest).roles != SILENT].tolist() == [1984.0] * 5
    said = forest.predict_learn(x[2200:2800], y[2200:2800])
    assert state(forest).births.min() >= 1984.0
    chosen = said.argmax(axis=1) if said.ndim == 2 else said > 0.5
    assert np.mean(chosen != y[2200:2800]) < 0.1


def after_a_burst(forests, x, labels, wrong, loss_of):
    """Mean loss of each forest over the 500 rows after wrong labels, which come after 6,000 samples."""
    told, after = labels.copy(), slice(6000 + len(wrong), 6500 + len(wrong))
    told[6000 : 6000 + len(wrong)] = wrong
    for forest in forests:
        forest.partial_fit(x[: after.start], told[: after.start])
    return [np.mean(loss_of(forest.predict_learn(x[after], told[after]), labels[after])) for forest in forests]


@pytest.mark.parametrize("n_wrong", [64, 100, 160])
def test_a_burst_of_wrong_labels_costs_no_more_than_where_nothing_adapts(n_wrong):
    """It looks like a change while it lasts; the old trees are heard again as soon as it is over."""
    x = np.random.default_rng(0).random((6700, 6))
    y = ((x[:, 0] > 0.5) + 2 * (x[:, 1] > 0.4) + 4 * (np.sin(9 * x[:, 2]) > 0)) % 4
    wrong = (y[6000 : 6000 + n_wrong] + 1) % 4
    forests = [kind(10, classes=range(4), seed=1) for kind in (amf.AMFClassifier, amf.AdaptiveAMFClassifier)]
    plain, adaptive = after_a_burst(forests, x, y, wrong, log_loss)
    assert adaptive <= plain


@pytest.mark.parametrize("n_wrong", [100, 147])
def test_a_burst_of_zeros_costs_little_more_than_where_nothing_adapts(n_wrong):
    rng = np.random.default_rng(0)
    x = rng.random((6700, 6))
    y = 5 * x[:, 0] + 3 * (x[:, 1] > 0.5) + 0.1 * rng.normal(size=6700)
    forests = [kind(10, seed=1) for kind in (amf.AMFRegressor, amf.AdaptiveAMFRegressor)]
    plain, adaptive = after_a_burst(forests, x, y, np.zeros(n_wrong), lambda said, told: np.square(said - told))
    assert adaptive <= 1.5 * plain


@pytest.mark.parametrize("n_wrong", [200, 376, 800])
def test_a_burst_of_one_class_is_no_new_world(n_wrong):
    """Trees that have seen no other class are right for as long as it lasts, and know nothing."""
    x = np.random.default_rng(0).normal(size=(7500, 6))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0.0).astype(int)
    forests = [kind(10, classes=[0, 1], seed=1) for kind in (amf.AMFClassifier, amf.AdaptiveAMFClassifier)]
    plain, adaptive = after_a_burst(forests, x, y, np.zeros(n_wrong, int), log_loss)
    assert adaptive <= plain


@pytest.mark.parametrize(("n_classes", "n_in_a_row"), [(4, 400), (2, 1500)])
def test_classes_that_are_away_are_not_forgotten(n_classes, n_in_a_row):
    """They come in runs, as where a machine stays in one state for long, or where a file is sorted by its label."""
    rng, centres = np.random.default_rng(5), 2.0 * np.random.default_rng(7).normal(size=(n_classes, 6))
    y = np.concatenate([np.arange(9000) // n_in_a_row % n_classes, rng.integers(0, n_classes, 500)])
    x = centres[y] + rng.normal(size=(9500, 6))
    losses = []
    for kind in (amf.AMFClassifier, amf.AdaptiveAMFClassifier):
        forest = kind(10, classes=range(n_classes), seed=1).partial_fit(x[:9000], y[:9000])
        losses.append(log_loss(forest.predict_proba(x[9000:]), y[9000:]))
    assert losses[1] < 1.3 * losses[0]


def test_a_change_that_makes_every_tenth_forecast_wrong_is_seen_before_long():
    """No 64 labels tell it from chance, of which one in ten is wrong anyway; a few hundred do."""
    seen = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.0, 10.0, (7000, 3))
        y = x[:, 0] + x[:, 1] <= np.where(np.arange(7000) < 6000, 8.0, 9.5)
        y = (y ^ (rng.random(7000) < 0.1)).astype(int)
        forest, phases = amf.AdaptiveAMFClassifier(10, classes=[0, 1], seed=seed), []
        for start in range(0, 7000, 64):
            phases.append(state(forest.partial_fit(x[start : start + 64], y[start : start + 64])).phase[0])
        assert {*phases[16:93]} == {WATCHES}
        seen += {*phases[94:]} != {WATCHES}
    assert seen == 5


def test_a_forest_without_background_trees_does_not_begin_anew():
    x, y = changing(3000, d=3, seed=1)
    forest = amf.AdaptiveAMFClassifier(5, seed=1, background=0.0).partial_fit(x, y)
    assert not state(forest).births.any()
