"""Models: what makes one, which events it accepts, and what it says of them."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import amf
from tests.worker.support.fakes import config
from worker.base.limits import MAX_NEW_COLUMNS, YOUNG_SAMPLES
from worker.base.records import Answer, ClassScores, Estimate, Event, Features, Label, NumberScores, Prediction, Reject
from worker.checkpoint import SavedModel
from worker.codec.dead_letters import DECODER
from worker.config import ModelParams
from worker.config.model import SYSTEMS, fits
from worker.state.learners import forest_of, seed_of
from worker.state.model import Applied, Model, spec_of
from worker.state.model_store import ModelStore

PARAMS = config().models.default


def model(key: str = "key", **params: Any) -> Model:
    return ModelStore(config(**params).models.params_for).get(key)


def event(features: Features, label: Label | None = None, id: str | None = None) -> Event:
    return Event(features, label, id)


def codes(applied: Applied) -> list[str | None]:
    """The code of each reject, None for a prediction."""
    return [outcome.code if isinstance(outcome, Reject) else None for outcome in applied.outcomes]


def estimates(applied: Applied) -> list[Estimate]:
    assert codes(applied) == [None] * len(applied.outcomes)
    return applied.outcomes  # type: ignore[return-value]


def predictions(applied: Applied) -> list[Prediction]:
    assert codes(applied) == [None] * len(applied.outcomes)
    return applied.outcomes  # type: ignore[return-value]


@pytest.mark.parametrize(
    "scores", [ClassScores(3, 1.5, 2), NumberScores(4, 2.5, 3.5, 1)], ids=lambda x: type(x).__name__
)
def test_the_sums_of_scores_are_their_fields(scores: Any) -> None:
    assert scores.sums() == astuple(scores)
    assert scores.of(*scores.sums()) == scores


# What a model is


OTHER_VALUES: dict[str, Any] = {
    "n_estimators": 3,
    "seed": 1,
    "classes": ("no", "yes"),
    "features": 3,
    "scaling": "none",
    "max_bytes": 1_000_000,
    "max_classes": 999,
    "max_features": 9_999,
    "max_categories": 99,
    "prior": "dirichlet",
    "dirichlet": 0.25,
    "smoothing": 2.0,
    "pause": 0.5,
    "loss": "square",
    "bound": 2.0,
    "calibration": False,
    "mode": "expected",
    "charge_first": True,
    "split_pure": True,
    "purity": 4.0,
    "discount": 0.5,
    "lifetime": 2.0,
    "min_samples_split": 5,
    "lifetime_exponent": 0.5,
    "combine": "vote",
    "domain": "cube",
    "empty_cells": "zero",
    "rate_scale": 1.0,
    "background": 0.5,
    "review_every": 32,
}
NEEDED = {"dirichlet": {"prior": "dirichlet"}, "loss": {"bound": 1.0}, "bound": {"loss": "square", "bound": 1.0}}
"""What a parameter needs beside it to have a meaning."""
MEANT_OTHERWISE: dict[str, dict[str, Any]] = {
    "mondrian-classifier": {"smoothing": "path_mean"},
    "bsp-classifier": {"max_features": 19},
    "bsp-regressor": {"max_features": 19},
}
"""Values of parameters whose name means something else to an algorithm."""


def calibrates(algorithm: str) -> bool:
    """Whether an algorithm calibrates its forecasts, unless it is told not to."""
    return bool(amf.SYSTEMS[algorithm].Parameters().calibration)


@pytest.mark.parametrize("algorithm", SYSTEMS)
def test_the_spec_changes_with_every_parameter_and_with_the_key(algorithm: str) -> None:
    assert OTHER_VALUES.keys() | {"algorithm", "preset"} == {each.name for each in fields(ModelParams)}
    params = replace(PARAMS, algorithm=algorithm)
    own = {name: value for name, value in OTHER_VALUES.items() if fits(name, algorithm)}
    own["calibration"] = not calibrates(algorithm)
    own |= MEANT_OTHERWISE.get(algorithm, {})
    specs = {spec_of("key", replace(params, **{name: value})) for name, value in own.items()}
    specs |= {spec_of("key", params), spec_of("other", params)}
    assert len(specs) == len(own) + 2
    for name in OTHER_VALUES.keys() - own.keys():
        assert spec_of("key", replace(params, **{name: OTHER_VALUES[name]})) == spec_of("key", params)


@pytest.mark.parametrize("key", ["key", "", 'a"b\\\n', "Zürich \U0001f333", "\ud800"])
@pytest.mark.parametrize("classes", ["auto", (1, 2), (1.0, 2.0), (True, False), ("no", "yes")], ids=str)
def test_the_spec_is_a_hash_of_all_that_determines_a_state(key: str, classes: Any) -> None:
    params = replace(PARAMS, classes=classes)
    whole = {"params": params.determining(), "key": key, "decoder": DECODER}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    for _ in range(2):  # made once, and used again
        assert spec_of(key, params) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_spec_tells_whether_forecasts_are_calibrated_and_not_who_said_so() -> None:
    for algorithm, on in (("amf-classifier", True), ("unrestricted-amf-classifier", False)):
        params = replace(PARAMS, algorithm=algorithm)
        assert spec_of("key", params) == spec_of("key", replace(params, calibration=on))
        assert spec_of("key", params) != spec_of("key", replace(params, calibration=not on))


def test_the_spec_changes_with_the_algorithm() -> None:
    assert len({spec_of("key", replace(PARAMS, algorithm=algorithm)) for algorithm in SYSTEMS}) == len(SYSTEMS)


def test_the_spec_does_not_change_with_anything_else() -> None:
    one = config()
    two = config(
        start="latest", tombstones="reset", max_consecutive=5, delivery="at-least-once", null_key="key",
        on_spec_change="restart", interval_s=9.0,
    )  # fmt: skip
    specs = [ModelStore(each.models.params_for).configured_spec("key") for each in (one, two)]
    assert specs[0] == specs[1] == spec_of("key", PARAMS)
    assert len(specs[0]) == 16


@pytest.mark.parametrize("algorithm", SYSTEMS)
@pytest.mark.parametrize(("name", "value"), OTHER_VALUES.items())
def test_every_parameter_reaches_the_forest(name: str, value: Any, algorithm: str) -> None:
    """A parameter of which the spec tells but the forest does not know would be a lie in both directions."""
    plain = replace(PARAMS, algorithm=algorithm, **NEEDED.get(name, {}))
    if name == "calibration":
        value = not calibrates(algorithm)
    value = MEANT_OTHERWISE.get(algorithm, {}).get(name, value)
    changed = replace(plain, **{name: value})
    if not fits(name, algorithm):
        assert forest_of("key", changed).dumps() == forest_of("key", plain).dumps()
        return
    if name == "features":
        assert codes(Model.new("key", changed, "").apply([event([1.0])], predict=True)) == ["feature-count"]
    else:
        assert forest_of("key", changed).dumps() != forest_of("key", plain).dumps()


def test_the_random_stream_depends_on_seed_and_key_alone() -> None:
    assert seed_of("key", 0) == seed_of("key", 0)
    assert len({seed_of("key", 0), seed_of("key", 1), seed_of("other", 0), seed_of("", 0)}) == 4
    assert 0 <= seed_of("key", 2**63 - 1) < 2**64


def test_one_key_grows_one_forest_whatever_else_there_is() -> None:
    events = [event([float(i % 7), float(i % 3)], "ab"[i % 2]) for i in range(50)]
    alone, beside = ModelStore(config().models.params_for), ModelStore(config().models.params_for)
    first = beside.get("other")
    first.apply(events, predict=True)
    beside.keep(first)
    grown = []
    for models in (alone, beside):
        here = models.get("key")
        here.apply(events, predict=True)
        grown.append(here.forest.dumps())
    assert grown[0] == grown[1] != first.forest.dumps()


def test_lists_of_classes_and_features_may_be_longer_than_auto_would_take_in() -> None:
    forest = forest_of(
        "key", replace(PARAMS, classes=("a", "b", "c"), max_classes=2, features=("x", "y"), max_features=1)
    )
    assert forest.class_labels == ["a", "b", "c"]
    assert forest.feature_names == ("x", "y")


# Which events a model accepts


@pytest.mark.parametrize(
    ("learned", "asked", "code"),
    [
        ([[1.0, 2.0]], [1.0, 2.0], None),
        ([[1.0, 2.0]], [None, None], None),
        ([[1.0, 2.0]], [1.0], "feature-count"),
        ([[1.0, 2.0]], [1.0, 2.0, 3.0], "feature-count"),
        ([[1.0, 2.0]], {"x": 1.0}, "feature-kind"),
        ([{"x": 1.0}], [1.0], "feature-kind"),
        ([{"x": 1.0}], {"x": 1.0}, None),
        ([{"x": 1.0}], {"y": 1.0}, None),
        ([], [1.0], None),
        ([], {"x": 1.0}, None),
    ],
)
@pytest.mark.parametrize("label", [None, "a"])
@pytest.mark.parametrize("one_batch", [False, True])
def test_the_first_labelled_event_fixes_the_kind_and_the_length(
    learned: list[Features], asked: Features, code: str | None, label: str | None, one_batch: bool
) -> None:
    events = [*(event(features, "a") for features in learned), event(asked, label)]
    here = model()
    if one_batch:
        found = codes(here.apply(events, predict=True))
    else:
        found = [code for each in events for code in codes(here.apply([each], predict=True))]
    assert found == [None] * len(learned) + [code]


def test_an_unlabelled_event_fixes_nothing() -> None:
    here = model()
    events = [event([1.0, 2.0]), event({"x": 1.0}), event([1.0]), event([1.0], "a"), event([1.0, 2.0])]
    assert codes(here.apply(events, predict=True)) == [None, None, None, None, "feature-count"]


def test_names_grow_by_labelled_events_only() -> None:
    here = model()
    here.apply([event({"x": 1.0}, "a"), event({"y": 1.0}), event({"z": 1.0, "x": 2.0}, "b")], predict=True)
    assert here.forest.feature_names == ("x", "z")


def test_an_absent_name_is_a_missing_value_like_null() -> None:
    first = event({"x": 1.0, "y": 2.0, "z": "red"}, "a")
    answers, states = [], []
    for features in ({"x": 3.0}, {"x": 3.0, "y": None, "z": None}, {"new": None, "y": None, "x": 3.0}):
        here = model()
        answers.append(here.apply([first, event(features, "b"), event(features)], predict=True).outcomes)
        states.append(here.forest.dumps())
    assert answers[0] == answers[1] == answers[2]
    assert states[0] == states[1] == states[2]


def test_text_is_a_category_with_a_column_of_its_own() -> None:
    here = model()
    events = [
        event({"city": "Rome", "age": 1.0}, "a"),
        event({"age": 2.0, "city": "Oslo"}),
        event({"age": 2.0, "city": 7.0}, "b"),
        event({"city": "Bern", "age": "Rome"}, "b"),
        event({"city": "Rome", "age": None}, "b"),
    ]
    assert codes(here.apply(events, predict=True)) == [None] * 5
    assert here.forest.feature_names == ("city=Rome", "age", "city", "city=Bern", "age=Rome")


def test_the_forest_is_told_of_categories_as_columns() -> None:
    here = model(max_categories=2)
    objects: list[Features] = [
        {"x": "a", "y": 1.0},
        {"x": "b", "y": None},
        {"x": "c", "y": 3.0},
        {"x": 5.0, "y": 4.0},
        {"x": None},
    ]
    seen: list[list[list[float]]] = []
    learn = here.forest.partial_fit
    here.forest.partial_fit = lambda rows, labels: (seen.append(rows.tolist()), learn(rows, labels))  # type: ignore
    here.apply([event(features, "ab"[i % 2]) for i, features in enumerate(objects)], predict=False)
    here.apply([event({"y": -1.0, "x": "b"}), event({"y": 0.0, "z": "new", "x": "d"})], predict=False)
    nan = math.nan
    assert repr(seen) == repr(
        [
            [[1.0, 1.0]],  # x=a, y
            [[0.0, nan, 1.0], [0.0, 3.0, 0.0]],  # and x=b
            [[nan, 4.0, nan, 5.0], [nan, nan, nan, nan]],  # and x, a number
            [[0.0, -1.0, 1.0, nan], [0.0, 0.0, 0.0, nan]],
        ]
    )


def test_categories_decide() -> None:
    here = model()
    cities = ["Rome", "Oslo", "Bern"] * 30
    here.apply(
        [event({"n": float(i % 4), "city": city}, city == "Rome") for i, city in enumerate(cities)], predict=True
    )
    told = predictions(here.apply([event({"n": 1.0, "city": city}) for city in cities[:3]], predict=True))
    assert [each.prediction for each in told] == [True, False, False]


def test_text_that_is_a_number_is_a_category_all_the_same() -> None:
    here = model()
    here.apply([event({"x": float(i)}, "ab"[i % 2]) for i in range(9)], predict=True)
    text, missing = predictions(here.apply([event({"x": "7"}), event({"x": None})], predict=True))
    assert text == missing
    here.apply([event({"x": "7"}, "a")], predict=True)
    assert here.forest.feature_names == ("x", "x=7")


def test_an_event_without_any_value_is_learned() -> None:
    here = model()
    assert codes(here.apply([event({"x": None, "y": None}, "a"), event({"y": "red"}, "b")], predict=True)) == [
        None,
        None,
    ]
    assert here.forest.feature_names == ("x", "y=red")
    assert here.forest.n_samples == 2


def test_an_unknown_name_without_a_label_is_ignored() -> None:
    here = model()
    here.apply([event({"x": float(i)}, "ab"[i % 2]) for i in range(9)], predict=True)
    with_it, without = predictions(here.apply([event({"x": 3.0, "new": 1.0}), event({"x": 3.0})], predict=True))
    assert with_it == without


def test_the_order_of_names_does_not_matter() -> None:
    here = model()
    here.apply([event({"x": float(i), "y": -float(i)}, "ab"[i % 2]) for i in range(9)], predict=True)
    one, two = predictions(here.apply([event({"x": 3.0, "y": 1.0}), event({"y": 1.0, "x": 3.0})], predict=True))
    assert one == two


@pytest.mark.parametrize(
    ("params", "events", "expected"),
    [
        (
            {"features": 2},
            [event([1.0]), event([1.0, 2.0]), event({"x": 1.0})],
            ["feature-count", None, "feature-kind"],
        ),
        ({"features": ("x",)}, [event({"x": 1.0, "y": 2.0}, "a"), event([1.0])], [None, "feature-kind"]),
        ({"max_features": 2}, [event([1.0] * 3), event([1.0] * 3, "a")], ["too-many-features"] * 2),
        ({"max_features": 2}, [event({"x": 1.0, "y": 1.0}, "a"), event({"z": 1.0}, "a")], [None, "too-many-features"]),
        ({"max_features": 2}, [event({"x": 1.0, "y": 1.0, "z": 1.0}, "a")], ["too-many-features"]),
        ({"max_features": 2}, [event({"x": 1.0, "y": 1.0, "z": 1.0})], [None]),
        ({"max_features": 2}, [event({"x": c}, "a") for c in "abac"], [None, None, None, "too-many-features"]),
        ({"max_features": 2, "max_categories": 2}, [event({"x": c}, "a") for c in "abac"], [None] * 4),
        ({"features": 2}, [event({"x": "red"}, "a")], ["feature-kind"]),
        ({"classes": ("a", "b")}, [event([1.0], "a"), event([1.0], "c"), event([1.0])], [None, "unknown-class", None]),
        ({"max_classes": 2}, [event([1.0], label) for label in "abca"], [None, None, "too-many-classes", None]),
    ],
)
def test_what_is_configured_is_kept(params: dict[str, Any], events: list[Event], expected: list[str | None]) -> None:
    assert codes(model(**params).apply(events, predict=True)) == expected
    one_by_one = model(**params)
    assert [code for each in events for code in codes(one_by_one.apply([each], predict=True))] == expected


def test_one_odd_event_cannot_take_the_room_of_a_good_model() -> None:
    """All nodes have room for each column: of thousands that one event brings a full forest would never recover."""
    plain = [event({"x": float(i), "y": i % 7.0}, "ab"[i % 2]) for i in range(YOUNG_SAMPLES)]
    wide, wider = ({f"name {i}": 1.0 for i in range(MAX_NEW_COLUMNS + more)} for more in (0, 1))
    texts = {f"text {i}": "value" for i in range(MAX_NEW_COLUMNS + 1)}
    events = [*plain, event(wider, "a"), event(texts, "a"), event(wider), event(wide, "a"), event(wider, "a")]
    expected = ["too-many-features"] * 2 + [None] * 3

    for at_once in (True, False):
        here = model()
        batches = [events] if at_once else [[each] for each in events]
        assert [code for batch in batches for code in codes(here.apply(batch, predict=True))][-5:] == expected
        assert here.forest.n_features == 2 + MAX_NEW_COLUMNS + 1

    young = model()
    assert codes(young.apply([*plain[1:], event(wider, "a"), event(texts, "a")], predict=True))[-2:] == [None] * 2


@pytest.mark.parametrize(
    ("label", "classifies", "estimates"),
    [
        ("a", None, "wrong-type"),
        ("1.5", None, "wrong-type"),
        ("", None, "wrong-type"),
        (True, None, "wrong-type"),
        (False, None, "wrong-type"),
        (0, None, None),
        (-3, None, None),
        (2**64 - 1, None, None),
        (-(2**63), None, None),
        (2**64, "number-out-of-range", None),
        (-(2**63) - 1, "number-out-of-range", None),
        (int(1e75), "number-out-of-range", None),
        (1.0, "wrong-type", None),
        (-0.5, "wrong-type", None),
        (1e75, "wrong-type", None),
        (None, None, None),
    ],
)
def test_the_algorithm_says_what_a_label_is(label: Any, classifies: str | None, estimates: str | None) -> None:
    for algorithm in SYSTEMS.keys() - {UNRESTRICTED}:
        code = estimates if algorithm.endswith("regressor") else classifies
        here = model(algorithm=algorithm)
        # The same class in other words must not open the door: 1.0 is not "1.0".
        known = [
            event([1.0], 0.0 if algorithm.endswith("regressor") else each) for each in ("1.0", "18446744073709551616")
        ]
        here.apply(known, predict=True)
        before = here.forest.dumps()
        applied = here.apply([event([2.0], label)], predict=True)
        assert codes(applied) == [code]
        assert applied.learned == (code is None and label is not None)
        assert (here.forest.dumps() == before) == (not applied.learned)


UNRESTRICTED = "unrestricted-amf-classifier"


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
    assert codes(applied) == [None, "outside-unit-cube", None, None]
    assert (here.forest.feature_names, here.forest.n_samples) == (("x",), 2)
    listed = model(algorithm=UNRESTRICTED, features=("x", "y"))
    events = [event({"x": 0.5}, "a"), event({"x": 0.5, "y": 1.0, "z": "red"}, "a"), event({"y": 0.0, "x": 1}, "b")]
    assert codes(listed.apply(events, predict=True)) == ["outside-unit-cube", None, None]


def test_an_unrestricted_model_is_the_forest_of_that_name() -> None:
    here = model(algorithm=UNRESTRICTED, prior="dirichlet")
    rng = np.random.default_rng(0)
    rows = rng.random((60, 3))
    told = predictions(here.apply([event(row, "ab"[int(row[0] > 0.5)]) for row in rows.tolist()], predict=True))
    forest = amf.UnrestrictedAMFClassifier(PARAMS.n_estimators, seed=seed_of("key", 0), prior="dirichlet")
    table = forest.predict_learn(rows, ["ab"[int(row[0] > 0.5)] for row in rows])
    assert here.forest.dumps() == forest.dumps()
    assert told[-1].probabilities == table[-1].tolist()


def test_names_outside_of_a_configured_list_are_ignored() -> None:
    here = model(features=("x", "y"))
    here.apply([event({"x": 1.0, "z": 2.0}, "a"), event({"z": "red", "y": "red"}, "a")], predict=True)
    assert here.forest.feature_names == ("x", "y", "y=red")
    [told, same] = predictions(here.apply([event({"y": "red", "z": "red"}), event({"y": "red"})], predict=True))
    assert told == same


def test_a_class_is_the_text_of_its_label() -> None:
    here = model()
    first, *_, last = predictions(
        here.apply([event([1.0], label) for label in (1, "1", True, "true", None)], predict=True)
    )
    assert first.prediction is None
    assert last.prediction in (1, True)
    assert last.classes == ["1", "true"]


def test_a_prediction_shows_a_class_as_it_was_first_seen() -> None:
    here = model()
    here.apply([event([1.0], 7)], predict=True)
    [told] = predictions(here.apply([event([1.0], "7")], predict=True))
    assert told.prediction == 7
    assert type(told.prediction) is int
    assert told.label == "7"


def test_the_limits_of_a_restored_model_are_those_it_was_made_with() -> None:
    """Replay must accept what was accepted then, even where the configuration says something else by now."""
    small = {"max_classes": 2, "max_features": 2}
    first = model(**small)
    first.apply([event({"x": 1.0, "y": 1.0}, "a"), event({"x": 2.0}, "b")], predict=True)
    models = ModelStore(config().models.params_for)
    models.restore("key", SavedModel(first.spec, first.forest.dumps(), {}))
    events = [event({"x": 1.0}, "c"), event({"z": 1.0}, "a"), event({"y": 1.0}, "a")]
    assert codes(models.get("key").apply(events, predict=False)) == ["too-many-classes", "too-many-features", None]


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


def test_what_was_done_is_counted() -> None:
    here = model(classes=("a", "b"))
    events = [event([0.0], "a"), event([0.0], "a"), event([0.0]), event([0.0, 1.0], "b"), event([0.0], "c")]
    done = here.apply(events, predict=True)
    told = [each for each in done.outcomes if isinstance(each, Prediction)]
    assert (done.predicted, done.learned) == (3, 2)
    loss, correct = sum(each.loss or 0.0 for each in told), sum(each.prediction == each.label for each in told)
    assert done.scores == ClassScores(2, loss, correct)
    assert sum(map(len, done.depths)) == 3
    assert here.forest.n_samples == 2


def test_replay_is_not_counted_as_loss() -> None:
    here = model()
    done = here.apply([event([0.0], "a"), event([0.0])], predict=False)
    assert (done.outcomes, done.predicted, done.learned, done.scores) == ([None, None], 0, 1, ClassScores())


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
    assert (done.predicted, done.learned, len(scored)) == (301, 300, 299)
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
        assert here.apply([event([2.0], label)], predict=False).learned == 1
        first.apply([event([2.0], label)], predict=True)
        assert here.forest.dumps() == first.forest.dumps()


# Batches, replay and rejects change nothing


VALUES = st.one_of(
    st.none(), st.floats(-1e3, 1e3, width=32), st.floats(0.0, 1.0, width=32), st.sampled_from([0.0, 1.0, 1e300])
)
MIXED = st.one_of(VALUES, st.sampled_from(["red", "green", "blue", "1.0", ""]))
FEATURES = st.one_of(
    st.lists(VALUES, min_size=1, max_size=3), st.dictionaries(st.sampled_from("xyz"), MIXED, min_size=1, max_size=3)
)
EVENTS = st.lists(
    st.builds(Event, FEATURES, st.sampled_from([None, "a", "b", "c", 1, "1", True, 1.5, -3e7]), st.none()), max_size=30
)
LIMITS = st.sampled_from(
    [
        {},
        {"max_classes": 2},
        {"max_features": 2},
        {"max_categories": 1},
        {"classes": ("a", "b")},
        {"features": ("x", "y")},
        {"algorithm": "amf-regressor"},
        {"algorithm": "amf-regressor", "max_features": 2, "calibration": False},
        {"algorithm": "amf-regressor", "features": ("x", "y"), "loss": "square", "bound": 1e8},
        {"algorithm": "unrestricted-amf-classifier", "max_features": 2},
        {"algorithm": "unrestricted-amf-classifier", "features": ("x", "y"), "calibration": True},
        {"algorithm": "mondrian-classifier", "max_classes": 2, "lifetime": 3.0},
        {"algorithm": "mondrian-classifier", "smoothing": "path_mean", "features": ("x", "y")},
        {"algorithm": "mondrian-regressor", "min_samples_split": 3, "max_features": 2},
        {"algorithm": "increasing-lifetime-classifier", "max_classes": 2, "combine": "vote"},
        {"algorithm": "increasing-lifetime-regressor", "lifetime_exponent": 0.5, "features": ("x", "y")},
        {"algorithm": "increasing-lifetime-regressor", "domain": "cube", "empty_cells": "zero"},
        {"algorithm": "bsp-classifier", "max_classes": 2, "combine": "vote"},
        {"algorithm": "bsp-regressor", "lifetime_exponent": 0.5, "features": ("x", "y")},
        {"algorithm": "adaptive-classifier", "review_every": 3, "max_classes": 2},
        {"algorithm": "adaptive-regressor", "review_every": 2, "background": 0.5, "features": ("x", "y")},
    ]
)


def batches(events: Sequence[Event], cuts: list[int]) -> list[Sequence[Event]]:
    ends = sorted({min(cut, len(events)) for cut in cuts} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_batches_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    whole, parts = model(**limits), model(**limits)
    told = whole.apply(events, predict=True)
    in_parts = [parts.apply(batch, predict=True) for batch in batches(events, cuts)]
    # The list of classes grows with the model; only those of the forecast count.
    assert [_shown(outcome) for outcome in told.outcomes] == [
        _shown(outcome) for part in in_parts for outcome in part.outcomes
    ]
    assert told.learned == sum(part.learned for part in in_parts)
    assert whole.forest.dumps() == parts.forest.dumps()


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_replay_and_restoring_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    live = model(**limits)
    live.apply(events, predict=True)
    replayed = model(**limits)
    for batch in batches(events, cuts):
        replayed.apply(batch, predict=False)
        if replayed.forest.n_samples:
            models = ModelStore(config(**limits).models.params_for)
            models.restore("key", SavedModel(replayed.spec, replayed.forest.dumps(), {}))
            replayed = models.get("key")
    assert replayed.forest.dumps() == live.forest.dumps()


@given(EVENTS, LIMITS)
def test_rejected_events_are_as_if_they_had_never_been(events: list[Event], limits: dict[str, Any]) -> None:
    everything, accepted = model(**limits), model(**limits)
    outcomes = everything.apply(events, predict=True).outcomes
    kept = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Answer)]
    again = accepted.apply([events[i] for i in kept], predict=True).outcomes
    assert [_shown(outcomes[i]) for i in kept] == [_shown(outcome) for outcome in again]
    assert everything.forest.dumps() == accepted.forest.dumps()


def _shown(outcome: Answer | Reject | None) -> Any:
    if not isinstance(outcome, Prediction):
        return outcome
    known = outcome.classes[: len(outcome.probabilities)]
    return known, outcome.probabilities, outcome.prediction, outcome.label, outcome.loss, outcome.learned


# The models of a partition


def test_asking_leaves_no_trace() -> None:
    models = ModelStore(config().models.params_for)
    asked = models.get("key")
    assert (len(models), "key" in models, list(models)) == (0, False, [])
    models.keep(asked)
    assert models.get("key") is asked
    assert (len(models), "key" in models, list(models)) == (1, True, [asked])


def test_a_forgotten_model_starts_anew() -> None:
    models = ModelStore(config().models.params_for)
    first = models.get("key")
    fresh = first.forest.dumps()
    first.apply([event([1.0], "a")], predict=True)
    models.keep(first)
    models.drop("key")
    models.drop("key")
    assert models.get("key").forest.dumps() == fresh


def test_a_restored_model_keeps_its_spec() -> None:
    models = ModelStore(config(seed=1).models.params_for)
    models.restore("key", SavedModel("another spec", model().forest.dumps(), {}))
    assert models.get("key").spec == "another spec"
    assert models.configured_spec("key") == spec_of("key", replace(PARAMS, seed=1))
