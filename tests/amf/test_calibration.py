"""The calibration of class probabilities: the kernel against the readable reference, and what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference import ReferenceForest
from reference_calibration import BIAS_SHARE, EXPERTS, SHARE, STACK_SHARE, CalibratedForest, ReferenceCalibration

import amf
from amf.calibration import class_calibration, logistic
from amf.calibration.class_calibration import fresh_state, losses_of
from amf.calibration.losses import Losses
from amf.jit.decorators import exported

calibrate = exported(class_calibration.calibrate)
CLASSES = len(EXPERTS) + 9
"""Where in a state those begin."""
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def said_by_trees(n: int, k: int, *, seed: int = 0, skill: float = 1.0):
    """What trees say of n samples, (4, n, K), some of them nearly certain, and labels (n,), -1 for none.

    skill: how much more likely than another class the trees make the true one, as the power of ten.
    """
    rng = np.random.default_rng(seed)
    labels = rng.choice(k, n, p=np.arange(1, k + 1) / (k * (k + 1) / 2))
    said = rng.dirichlet(np.full(k, 0.2), (4, n)) + 1e-9
    said[:, np.arange(n), labels] *= 10.0 ** (skill * rng.random((4, n)))
    said /= said.sum(axis=2, keepdims=True)
    return said, np.where(rng.random(n) < 0.2, -1, labels)


def through_kernel(said, labels, state=None, x=None):
    """(raw, calibrated, state)"""
    _, n, k = said.shape
    x = np.empty((n, 0)) if x is None else x
    if state is None:
        state = class_calibration.with_features(fresh_state(k), k, 0, [None] * x.shape[1], 10**9)
    raw, calibrated = np.empty((n, k)), np.empty((n, k))
    calibrate(x, said, labels, labels >= 0, state, raw, calibrated)
    return raw, calibrated, state


# Against the reference.


@pytest.mark.parametrize("k", [1, 2, 3, 30])
@pytest.mark.parametrize("skill", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("d", [0, 3])
def test_the_kernel_equals_the_reference(k, skill, d):
    said, labels = said_by_trees(150, k, seed=k, skill=skill)
    x = features(150, d, labels)
    raw, calibrated, state = through_kernel(said, labels, x=x)
    reference = ReferenceCalibration(k, d)
    for row, label in enumerate(labels.tolist()):
        np.testing.assert_allclose(calibrated[row], reference.forecast(said[:, row], x[row]), **CLOSE)
        if label >= 0:
            reference.learn(said[:, row], label, x[row])
    np.testing.assert_allclose(raw, said.mean(axis=0), **CLOSE)
    # In the kernel the experts stand sharpness by sharpness, each with all exponents.
    in_order = sorted(reference.weights, key=lambda expert: (expert.sharpness, -expert.exponent))
    np.testing.assert_allclose(state[: len(EXPERTS)], [reference.weights[expert] for expert in in_order], **CLOSE)
    of_classes = state[CLASSES : CLASSES + 3 * k]
    np.testing.assert_allclose(of_classes[::3], reference.counts, **CLOSE)
    np.testing.assert_allclose(of_classes[1::3], [bias.value for bias in reference.biases], **CLOSE)
    weights_of_below = [reference.unbiased, *(stack.below for stack in reference.stacks)]
    np.testing.assert_allclose(state[CLASSES - 5 : CLASSES], weights_of_below, **CLOSE)
    of_solved, models, of_features = np.split(
        state[CLASSES + 3 * k :], np.cumsum([logistic.n_numbers(k, d), 6 + 6 * k])
    )
    *linears, solved = [stack.linear for stack in reference.stacks]
    if d:
        weights = of_solved[3 + k : 3 + k + k * (1 + d)].reshape(k, 1 + d)
        np.testing.assert_allclose(weights, np.roll(solved.weights, 1, axis=1), **CLOSE)
        np.testing.assert_allclose(of_solved[2 : 3 + k], [solved.total, *solved.curvatures], **CLOSE)
    for (trust, _, *of_outputs), linear in zip(models.reshape(3, -1), linears, strict=True):
        np.testing.assert_allclose(trust, linear.trust, **CLOSE)
        np.testing.assert_allclose(of_outputs, np.c_[linear.squares, linear.weights[:, -1]].ravel(), **CLOSE)
    scales = [[each.n, each.first, each.mean, each.deviation, each.last] for each in linears[0].scales]
    *weights, of_knots = [linear.weights[:, :-1] for linear in linears]
    rows = np.vstack((np.reshape(scales, (d, 5)).T, *weights)).ravel()
    np.testing.assert_allclose(of_features, np.append(rows, of_knots.T), **CLOSE)
    np.testing.assert_allclose(Losses.of(losses_of(state)), reference.losses.means(), **CLOSE)


def test_features_tell_nothing_of_a_class_that_never_came():
    """The first label of a class judges nothing: a model that gave it too little would never be found out."""
    said, labels = said_by_trees(300, 6, seed=1, skill=1.0)
    labels[labels > 3] = -1
    telling, others = (through_kernel(said, labels, x=features(300, 4, at))[1] for at in (labels, labels[::-1]))
    np.testing.assert_allclose(telling[:, 4:], others[:, 4:], rtol=1e-12)
    assert not np.allclose(telling[100:, :4], others[100:, :4], rtol=0.01)


def features(n: int, d: int, labels) -> np.ndarray:
    """Of which the first tells of the labels; with an outlier, a change of unit and missing values."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, d))
    x[:, :1] += labels[:, None]
    x[n // 2, :1] = 1e9
    x[n // 2 :, 1:2] *= 1e3
    x[rng.random((n, d)) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("k", [1, 2, 3, 30])
def test_a_forest_to_which_classes_come_late_equals_the_reference(k):
    rng = np.random.default_rng(k)
    n = 40 + 3 * k
    x = rng.random((n, 3)).astype(np.float32)
    x[0] = 0.0  # fixes every origin at 0: the reference does not centre its features
    labels = rng.integers(0, np.minimum(1 + np.arange(n) // 3, k))
    labels[rng.random(n) < 0.2] = -1
    labels[3 * np.arange(k)] = np.arange(k)  # class j comes in row 3 j
    forest = amf.AMFClassifier(3, seed=4, scaling="none")
    reference = CalibratedForest(ReferenceForest(4, 3, n_features=3, n_classes=0, prior="parent"))
    probabilities, raw = reference.predict_learn(x, labels)
    got = forest.prequential(x, [None if label < 0 else label for label in labels.tolist()])
    np.testing.assert_allclose(got.probabilities, probabilities, **CLOSE)
    np.testing.assert_allclose(got.raw, raw, **CLOSE)
    np.testing.assert_allclose(forest.losses, reference.calibration.losses.means(), **CLOSE)
    np.testing.assert_allclose(forest.predict_proba(x[:9]), [reference.predict(row) for row in x[:9]], **CLOSE)


def test_without_a_label_nothing_is_learned_and_without_a_state_nothing_is_calibrated():
    said, labels = said_by_trees(20, 3)
    _, once, state = through_kernel(said, labels)
    kept = state.copy()
    _, again, _ = through_kernel(said, np.full(20, -1), state)
    np.testing.assert_array_equal(state, kept)
    assert not np.array_equal(once, again)
    raw, calibrated, _ = through_kernel(said, labels, np.empty(0))
    np.testing.assert_allclose(raw, said.mean(axis=0), **CLOSE)
    np.testing.assert_array_equal(calibrated, raw)


def test_the_first_label_of_a_class_judges_nobody():
    said, labels = said_by_trees(60, 3, skill=4.0)
    labels[labels == 2] = 1
    _, _, state = through_kernel(said, labels)
    weights, losses = state[: len(EXPERTS)].copy(), losses_of(state).copy()
    through_kernel(said[:, :1], np.array([2]), state)
    np.testing.assert_array_equal(state[: len(EXPERTS)], weights)
    np.testing.assert_array_equal(losses_of(state), losses)
    assert state[CLASSES + 6] == 1.0
    through_kernel(said[:, :1], np.array([2]), state)
    assert not np.array_equal(state[: len(EXPERTS)], weights)


# What is proven.


def log_losses_of_experts(said, labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows whose labels judge, and of these the losses of each expert, (rows, experts), and of the calibrated
    forecast, (rows,)."""
    reference = ReferenceCalibration(said.shape[2])
    rows, experts = [], []
    for row in np.flatnonzero(labels >= 0).tolist():
        label = int(labels[row])
        if reference.counts[label] > 0:
            rows.append(row)
            experts.append([-math.log(each[label]) for each in reference.experts(said[:, row]).values()])
        reference.learn(said[:, row], label)
    forecasts = through_kernel(said, labels)[1]
    return np.array(rows), np.array(experts), -np.log(forecasts[rows, labels[rows]])


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("skill", [0.0, 0.5, 1.0, 4.0])
def test_the_log_loss_is_at_most_that_of_each_expert_in_hindsight_plus_the_bound_of_fixed_share(k, skill):
    _, experts, calibrated = log_losses_of_experts(*said_by_trees(300, k, seed=1, skill=skill))
    stays = -math.log(1 - SHARE + SHARE / len(EXPERTS))
    bound = experts.sum(axis=0) + math.log(len(EXPERTS)) + (len(calibrated) - 1) * stays
    # So much at most the mixtures cost that this one is mixed with: with biases, and with the two linear models.
    bound -= math.log(0.9) + (len(calibrated) - 1) * math.log(1 - BIAS_SHARE / 2)
    bound -= math.log(0.5) + math.log(0.9) + 2 * (len(calibrated) - 1) * math.log(1 - STACK_SHARE / 2)
    assert len(calibrated) > 200
    assert (calibrated.sum() <= bound + 1e-9).all()
    assert calibrated.sum() < bound.mean()


def test_after_a_change_the_log_loss_is_near_that_of_the_best_before_and_the_best_after():
    """Trees that know nothing, and then know all: the leader changes once, for log(number of experts / share)."""
    (before, labels), (after, labels_after) = (
        said_by_trees(300, 3, seed=2, skill=0.0),
        said_by_trees(300, 3, seed=3, skill=4.0),
    )
    both = np.hstack([before, after]), np.concatenate([labels, labels_after])
    rows, experts, calibrated = log_losses_of_experts(*both)
    first, second = experts[rows < 300].sum(axis=0), experts[rows >= 300].sum(axis=0)
    assert first.argmin() != second.argmin()
    stays = -math.log(1 - SHARE + SHARE / len(EXPERTS))
    bound = math.log(len(EXPERTS)) + (len(rows) - 2) * stays + math.log(len(EXPERTS) / SHARE)
    assert calibrated.sum() <= first.min() + second.min() + bound
    assert calibrated.sum() < experts.sum(axis=0).min()  # no expert was as good all the time


# What it is worth.


def excess(table: np.ndarray, y: np.ndarray, truth: np.ndarray) -> float:
    """Mean log-loss beyond that of the true probabilities (K,) of labels that no feature tells anything of."""
    return float(np.mean(np.log(truth[y]) - np.log(table[np.arange(len(y)), y])))


@pytest.mark.parametrize("truth", [[0.5, 0.5], [0.1, 0.9]], ids=str)
def test_on_two_classes_without_a_signal_the_loss_is_the_entropy(truth):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(8000, 4)), rng.choice(2, 8000, p=truth)
    forest = amf.AMFClassifier(classes=[0, 1], seed=1)
    said = forest.prequential(x, y)
    assert excess(said.probabilities, y, np.array(truth)) < 0.002
    assert excess(said.raw, y, np.array(truth)) > 0.01  # that it is no merit of the trees


def test_on_many_classes_without_a_signal_the_loss_is_near_the_entropy():
    rng = np.random.default_rng(6)
    truth = 1 / np.arange(1, 27)
    truth /= truth.sum()
    x, y = rng.normal(size=(8000, 4)), rng.choice(26, 8000, p=truth)
    said = amf.AMFClassifier(classes=range(26), seed=1).prequential(x, y)
    assert excess(said.probabilities, y, truth) < 0.03
    assert excess(said.raw, y, truth) > 0.1


def signal(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    return x, (x[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


def test_where_there_is_a_signal_the_loss_is_below_that_of_the_trees_alone():
    x, y = signal(3000)
    said = amf.AMFClassifier(classes=[0, 1], seed=1).prequential(x, y)
    calibrated, raw = (-np.log(table[np.arange(3000), y]).mean() for table in (said.probabilities, said.raw))
    assert calibrated < 0.97 * raw


# What it is in a forest.


def test_it_changes_nothing_but_the_forecasts():
    x, y = signal(300)
    with_it, without = (amf.AMFClassifier(3, seed=2, calibration=on) for on in (True, False))
    told, plain = with_it.prequential(x, y), without.prequential(x, y)
    np.testing.assert_array_equal(told.raw, plain.raw)
    np.testing.assert_array_equal(plain.probabilities, plain.raw)
    np.testing.assert_array_equal(told.depth, plain.depth)
    assert not np.array_equal(told.probabilities, told.raw)
    np.testing.assert_array_equal(with_it._words, without._words)
    np.testing.assert_array_equal(with_it.predict_proba(x, calibrated=False), without.predict_proba(x))


@pytest.mark.parametrize(
    "forest",
    [
        amf.AMFClassifier.preset("paper"),
        amf.AMFRegressor.preset("paper", bound=1.0),
        amf.UnrestrictedAMFClassifier.preset("paper"),
        amf.UnrestrictedAMFClassifier(),
    ],
    ids=repr,
)
def test_in_the_papers_there_is_none(forest):
    x, y = np.random.default_rng(0).random((50, 2)), np.arange(50) % 2
    assert forest.losses is None
    told = forest.prequential(x, y)
    np.testing.assert_array_equal(*(told[:2]))  # the forecast and that of the trees alone
    assert forest._calibration.size == 0
    assert (forest.losses, forest.describe().losses) == (None, None)
    assert "recent loss" not in str(forest.describe())


def test_the_recent_losses_tell_what_the_forest_is_worth():
    x, y = signal(1500)
    forest = amf.AMFClassifier(classes=[0, 1], seed=1)
    assert np.isnan(forest.losses).all()
    said = forest.prequential(x, y)
    judged = np.delete(np.arange(1500), [np.flatnonzero(y == label)[0] for label in (0, 1)])
    weights = (1 - 1 / 1000) ** np.arange(1498)[::-1]
    for recent, table in ((forest.losses.calibrated, said.probabilities), (forest.losses.raw, said.raw)):
        assert recent == pytest.approx(np.average(-np.log(table[judged, y[judged]]), weights=weights), rel=1e-9)
    assert forest.losses.baseline == pytest.approx(math.log(2), abs=0.01)
    assert forest.losses.calibrated < 0.6 * forest.losses.baseline
    assert forest.describe().losses == forest.losses
    assert f"recent loss {forest.losses.calibrated:.4g} (trees alone" in str(forest.describe())
    assert amf.loads(forest.dumps()).losses == forest.losses


def test_classes_that_never_came_are_not_in_the_baseline():
    """Else a forest would seem to know something wherever many classes are declared."""
    rng = np.random.default_rng(0)
    forest = amf.AMFClassifier(3, classes=range(300), seed=1)
    forest.partial_fit(rng.normal(size=(1500, 2)), rng.integers(0, 2, 1500))
    assert forest.losses.baseline == pytest.approx(math.log(2), abs=0.01)
    assert forest.losses.calibrated > forest.losses.baseline


def test_the_recent_losses_of_a_regressor_are_squared_errors():
    x, y = signal(300)
    forest = amf.AMFRegressor(seed=1)
    said = forest.prequential(x, y)
    weights = (1 - 1 / 1000) ** np.arange(300)[::-1]
    baseline = np.concatenate([[np.nan], np.cumsum(y)[:-1] / np.arange(1, 300)])
    for recent, mean in zip(forest.losses, (said.mean, said.raw_mean, baseline), strict=True):
        assert recent == pytest.approx(np.average((mean - y)[1:] ** 2, weights=weights[1:]), rel=1e-9)


def test_a_rare_class_is_no_worse_forecast_than_by_the_trees_alone():
    """Three in a thousand, in a disc of their own: a share of the uniform distribution is more than most trees say."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, (8000, 2))
    squares = (x**2).sum(axis=1)
    y = (squares <= np.sort(squares)[23]).astype(int)
    said = amf.AMFClassifier(classes=[0, 1], seed=1).prequential(x, y)
    calibrated, raw = (-np.log(table[np.arange(8000), y]).sum() for table in (said.probabilities, said.raw))
    assert calibrated <= raw + math.log(len(EXPERTS)) + 8000 * SHARE


# After the frequencies of classes have changed.


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AdaptiveAMFClassifier])
@pytest.mark.parametrize(("before", "after"), [(0.5, 0.05), (0.02, 0.4)])
def test_forecasts_follow_the_frequencies_of_classes_when_only_those_change(kind, before, after):
    """Counts in the nodes are of both times: without a bias a positive was forecast at four times its frequency."""
    n, seed = 6000, 1
    rng, later = np.random.default_rng(seed), slice(3500, None)
    y = (rng.random(n) < np.where(np.arange(n) < n // 2, before, after)).astype(int)
    x = rng.normal(size=(n, 4)) + np.outer(y, [1.5, 1.0, 0.0, 0.0])
    said = kind(seed=seed).predict_learn(x, y)
    log_odds = 1.5 * x[:, 0] - 1.125 + x[:, 1] - 0.5 + math.log(after / (1 - after))
    best = np.log1p(np.exp(np.where(y == 1, -log_odds, log_odds)))
    losses = -np.log(said[np.arange(n), y][later])
    assert abs(said[later, 1].mean() - y[later].mean()) < 0.03
    assert losses.mean() - best[later].mean() < 0.07


def test_many_trees_become_as_sure_as_they_may_be():
    """The mean of many is far too modest where a sum of squares decides: sharpness up to 2 was not enough."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 10))
    y = (np.sum(x**2, axis=1) > 9.34).astype(int)
    p = amf.AMFClassifier(50, seed=0).predict_learn(x, y)[2500:, 1]
    places = np.argsort(p, kind="stable")
    errors = [abs(p[some].mean() - y[2500:][some].mean()) for some in np.array_split(places, 15)]
    assert np.mean(errors) < 0.08


@pytest.mark.parametrize("max_bytes", [10**9, 9_000], ids=["", "no room for features with one more class"])
@pytest.mark.parametrize(("k", "d"), [(0, 0), (0, 3), (1, 3), (2, 70), (5, 4), (30, 200)])
def test_what_grows_by_a_layout_that_is_known_is_what_grows_anew(k, d, max_bytes):
    state = class_calibration.with_features(fresh_state(k), k, 0, [None] * d, max_bytes)
    for seed in range(2):
        state[:] = np.random.default_rng(seed).normal(size=state.size) * 1e3
        anew = class_calibration._with_another_class(state, k, d, max_bytes)
        np.testing.assert_array_equal(class_calibration.with_another_class(state, k, d, max_bytes), anew)
    state[:] = 0.0
    fresh = class_calibration.with_another_class(fresh_state(k), k, 0, max_bytes)
    np.testing.assert_array_equal(fresh, fresh_state(k + 1))
