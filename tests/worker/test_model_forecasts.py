"""What a model says of an event before it learns its label, and how that is scored."""

from __future__ import annotations

import math
import random
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

import amf
from tests.worker.support.fakes import config
from tests.worker.support.models import PARAMS, estimates, event, model, predictions
from worker.base.records import ClassScores, Estimate, Event, NumberScores, Prediction
from worker.checkpoint import SavedModel
from worker.state.model_store import ModelStore
from worker.state.targets import forest_of


@pytest.mark.parametrize(
    "scores", [ClassScores(3, 1.5, 2), NumberScores(4, 2.5, 3.5, 1)], ids=lambda x: type(x).__name__
)
def test_the_sums_of_scores_are_their_fields(scores: Any) -> None:
    assert scores.sums() == astuple(scores)
    assert scores.of(*scores.sums()) == scores


# What a model says


def test_before_the_first_label_the_forecast_is_blind() -> None:
    here = model()
    [told] = predictions(here.apply([event([1.0], id="7")], predict=True))
    assert told == Prediction(None, [], [], None, None, 0, "7")


def test_with_given_classes_a_blind_forecast_is_uniform() -> None:
    [told] = predictions(model(classes=("a", "b")).apply([event([1.0])], predict=True))
    assert (told.prediction, told.classes, told.probabilities) == ("a", ["a", "b"], [0.5, 0.5])


def test_a_forecast_knows_the_classes_of_before_its_label() -> None:
    events = [event([float(i)], label) for i, label in enumerate("aabac")]
    told = predictions(model().apply(events, predict=True))
    assert [len(each.probabilities) for each in told] == [0, 1, 1, 2, 2]
    assert [each.learned for each in told] == [0, 1, 2, 3, 4]
    assert [sum(each.probabilities) for each in told] == pytest.approx([0.0, 1.0, 1.0, 1.0, 1.0])
    for each in told[1:]:
        assert each.prediction == each.classes[each.probabilities.index(max(each.probabilities))]


def test_the_loss_of_a_new_class_is_the_log_of_two_more_than_was_learned() -> None:
    events = [event([float(i)], label) for i, label in enumerate("aabac")]
    told = predictions(model().apply(events, predict=True))
    assert [told[i].loss for i in (0, 2, 4)] == [math.log(2), math.log(4), math.log(6)]
    assert [told[i].loss for i in (1, 3)] == [-math.log(told[i].probabilities[0]) for i in (1, 3)]


def test_a_certain_forecast_loses_zero_and_not_minus_zero() -> None:
    told = predictions(model().apply([event([1.0], "a"), event([1.0], "a")], predict=True))
    assert str(told[1].loss) == "0.0"


def test_without_a_label_there_is_no_loss_and_nothing_is_learned() -> None:
    here = model()
    here.apply([event([1.0], "a"), event([2.0], "b")], predict=True)
    before = here.forest.dumps()
    [told] = predictions(here.apply([event([1.0], id="x")], predict=True))
    assert (told.label, told.loss, told.learned, told.id) == (None, None, 2, "x")
    assert here.forest.dumps() == before


def test_numbers_of_any_size_are_learned() -> None:
    here = model()
    sizes = [1e308, -1e308, 5e-324, 0.0, -0.0, 1.7e9, None]
    told = predictions(here.apply([event([size], "ab"[i % 2]) for i, size in enumerate(sizes)], predict=True))
    assert all(math.isfinite(each.loss or 0.0) for each in told)
    assert here.forest.n_samples == len(sizes)


def test_events_are_counted_and_forecasts_scored() -> None:
    here = model(classes=("a", "b"))
    events = [event([0.0], "a"), event([0.0], "a"), event([0.0]), event([0.0, 1.0], "b"), event([0.0], "c")]
    done = here.apply(events, predict=True)
    told = [each for each in done.outcomes if isinstance(each, Prediction)]
    assert (done.tally.predicted, done.tally.learned) == (3, 2)
    loss, correct = sum(each.loss or 0.0 for each in told), sum(each.prediction == each.label for each in told)
    assert done.scores == ClassScores(2, loss, correct)
    assert sum(map(len, done.tally.depths)) == 3
    assert here.forest.n_samples == 2


def test_replay_is_not_counted_as_loss() -> None:
    here = model()
    done = here.apply([event([0.0], "a"), event([0.0])], predict=False)
    assert (done.outcomes, done.tally.predicted, done.tally.learned, done.scores) == ([None, None], 0, 1, ClassScores())


# What a model of numbers says


def measured(n: int, seed: int = 0) -> list[Event]:
    """A number that follows a feature, with noise."""
    rng = random.Random(seed)
    places = [rng.random() for _ in range(n)]
    return [event([x, rng.random()], 10.0 * x + rng.gauss(0.0, 1.0)) for x in places]


def test_before_the_first_number_there_is_no_estimate() -> None:
    for fixed in ({}, {"features": 1}):
        told = model(algorithm="amf-regressor", **fixed).apply([event([1.0], id="7"), event([1.0], 2)], predict=True)
        assert estimates(told) == [
            Estimate(None, None, None, None, None, 0, "7"),
            Estimate(None, None, None, 2, None, 0, None),
        ]
        assert told.scores == NumberScores()


def test_an_estimate_is_what_the_forest_says_before_it_learns() -> None:
    here, forest = model(algorithm="amf-regressor"), forest_of("key", replace(PARAMS, algorithm="amf-regressor"))
    assert isinstance(forest, amf.AMFRegressor)
    events = [event(each.features, None if i % 5 == 4 else each.label, str(i)) for i, each in enumerate(measured(60))]
    told = estimates(here.apply(events, predict=True))
    learned = 0
    for each, estimate in zip(events, told, strict=True):
        row = np.array([each.features])
        if learned:
            assert estimate.prediction == forest.predict(row)[0]
            assert estimate.std == forest.predict_std(row)[0]
            assert estimate.quantiles == forest.predict_quantiles(row, [0.05, 0.5, 0.95])[0].tolist()
            expected = None if each.label is None else (float(each.label) - estimate.prediction) ** 2
            assert estimate.loss == expected
        assert (estimate.label, estimate.learned, estimate.id) == (each.label, learned, each.id)
        forest.partial_fit(row, [each.label])
        learned += each.label is not None
    assert here.forest.dumps() == forest.dumps()


def test_estimates_are_scored() -> None:
    here = model(algorithm="amf-regressor")
    events = [*measured(300), event([0.5, 0.5]), event([0.5], 1.0), event([0.5, 0.5], "a")]
    done = here.apply(events, predict=True)
    told = [each for each in done.outcomes if isinstance(each, Estimate)]
    scored = [each for each in told if each.label is not None and each.prediction is not None and each.quantiles]
    assert (done.tally.predicted, done.tally.learned, len(scored)) == (301, 300, 299)
    errors = [(each.label or 0.0) - (each.prediction or 0.0) for each in scored]
    covered = sum((q := each.quantiles or [])[0] <= (each.label or 0.0) <= q[2] for each in scored)
    assert done.scores == NumberScores(
        299, pytest.approx(sum(e * e for e in errors)), pytest.approx(sum(map(abs, errors))), covered
    )
    assert 0.8 < covered / 299 < 0.97
    assert math.sqrt(done.scores.squared_error / 299) < 2.5  # of labels with standard deviation 3
    assert here.apply(measured(9, seed=1), predict=True).scores.count == 9


def test_numbers_of_any_size_are_published_as_numbers() -> None:
    sizes = [1e75, -1e75, 0, 2**70, 5e-324, -0.0, 1.5, 10**75 // 2]
    events = [event([float(i % 3), size], label) for i, size in enumerate([1e308, None]) for label in sizes * 3]
    for told in estimates(model(algorithm="amf-regressor").apply(events, predict=True))[1:]:
        assert all(map(math.isfinite, [told.prediction, told.std, told.loss, *(told.quantiles or [math.nan])]))


def test_a_restored_model_keeps_its_algorithm() -> None:
    """Where the configuration says another one by now, it goes on as it was: a replay does not know better."""
    for algorithm, other, label in (("amf-classifier", "amf-regressor", "a"), ("amf-regressor", "amf-classifier", 1.5)):
        first = model(algorithm=algorithm)
        first.apply([event([1.0], label)], predict=True)
        models = ModelStore(config(algorithm=other).models.params_for)
        models.restore("key", SavedModel(first.spec, first.forest.dumps(), {}))
        here = models.get("key")
        assert here.spec != models.configured_spec("key")
        assert here.apply([event([2.0], label)], predict=False).tally.learned == 1
        first.apply([event([2.0], label)], predict=True)
        assert here.forest.dumps() == first.forest.dumps()
