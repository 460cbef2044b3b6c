"""A model of an unrestricted forest takes points of the unit cube, and no feature that comes late."""

from __future__ import annotations

import numpy as np
import pytest

import amf
from tests.worker.support.models import PARAMS, UNRESTRICTED, event, model, predictions, reject_codes
from worker.base.records import Features, Prediction, Reject
from worker.state.targets import seed_of


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ([[0.0, 1.0]], [0.5, 0.5], None),
        ([], [0.5, 1.5], "features[1] is 1.5"),
        ([], [0.5, None], "features[1] is missing"),
        ([[0.5, 0.5]], [0.5, -1e-9], "features[1] is -1e-09"),
        ([[0.5, 0.5]], [None, 0.5], "features[0] is missing"),
        ([], {"x": 0.5, "y": "red"}, "features['y'] is text"),
        ([], {"x": 2, "y": 0.5}, "features['x'] is 2"),
        ([{"x": 0.5, "y": 0.5}], {"y": 0.25, "x": 1.0}, None),
        ([{"x": 0.5, "y": 0.5}], {"x": 0.5}, "features['y'] is missing"),
        ([{"x": 0.5, "y": 0.5}], {"x": 0.5, "y": None}, "features['y'] is missing"),
        ([{"x": 0.5, "y": 0.5}], {"x": 0.5, "y": "0.5"}, "features['y'] is text"),
        ([{"x": 0.5, "y": 0.5}], {"x": 0.5, "y": 1.0001}, "features['y'] is 1.0001"),
    ],
)
@pytest.mark.parametrize("label", [None, "a"])
def test_an_unrestricted_model_takes_points_of_the_unit_cube_alone(
    first: list[Features], then: Features, said: str | None, label: str | None
) -> None:
    here = model(algorithm=UNRESTRICTED)
    here.apply([event(features, "a") for features in first], predict=True)
    before = here.forest.dumps()
    [outcome] = here.apply([event(then, label)], predict=True).outcomes
    if said is None:
        assert isinstance(outcome, Prediction)
    else:
        assert outcome == Reject("outside-unit-cube", f"{said}, this model takes numbers from 0 to 1")
        assert here.forest.dumps() == before


def test_an_unrestricted_model_takes_no_features_that_come_late() -> None:
    here = model(algorithm=UNRESTRICTED)
    events = [
        event({"x": 0.5}, "a"),
        event({"x": 0.5, "y": 0.5}, "b"),
        event({"x": 0.5, "y": 9.0}),
        event({"x": 0.25}, "b"),
    ]
    applied = here.apply(events, predict=True)
    assert reject_codes(applied) == [None, "outside-unit-cube", None, None]
    assert (here.forest.feature_names, here.forest.n_samples) == (("x",), 2)
    listed = model(algorithm=UNRESTRICTED, features=("x", "y"))
    events = [event({"x": 0.5}, "a"), event({"x": 0.5, "y": 1.0, "z": "red"}, "a"), event({"y": 0.0, "x": 1}, "b")]
    assert reject_codes(listed.apply(events, predict=True)) == ["outside-unit-cube", None, None]


def test_an_unrestricted_model_is_the_forest_of_that_name() -> None:
    here = model(algorithm=UNRESTRICTED, prior="dirichlet")
    rng = np.random.default_rng(0)
    rows = rng.random((60, 3))
    told = predictions(here.apply([event(row, "ab"[int(row[0] > 0.5)]) for row in rows.tolist()], predict=True))
    forest = amf.UnrestrictedAMFClassifier(PARAMS.n_estimators, seed=seed_of("key", 0), prior="dirichlet")
    table = forest.predict_learn(rows, ["ab"[int(row[0] > 0.5)] for row in rows])
    assert here.forest.dumps() == forest.dumps()
    assert told[-1].probabilities == table[-1].tolist()
