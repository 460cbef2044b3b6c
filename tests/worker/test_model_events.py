"""Which events a model accepts, and what their features and labels are to its forest."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.worker.support.fakes import config
from tests.worker.support.models import UNRESTRICTED, event, model, predictions, reject_codes
from worker.base.limits import MAX_NEW_COLUMNS, YOUNG_SAMPLES
from worker.base.records import Event, Features
from worker.checkpoint import SavedModel
from worker.config.model import SYSTEMS
from worker.state.model_store import ModelStore


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
        found = reject_codes(here.apply(events, predict=True))
    else:
        found = [code for each in events for code in reject_codes(here.apply([each], predict=True))]
    assert found == [None] * len(learned) + [code]


def test_an_unlabelled_event_fixes_nothing() -> None:
    here = model()
    events = [event([1.0, 2.0]), event({"x": 1.0}), event([1.0]), event([1.0], "a"), event([1.0, 2.0])]
    assert reject_codes(here.apply(events, predict=True)) == [None, None, None, None, "feature-count"]


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
    assert reject_codes(here.apply(events, predict=True)) == [None] * 5
    assert here.forest.feature_names == ("city=Rome", "age", "city", "city=Bern", "age=Rome", r"age\missing")


def test_a_category_is_a_column_of_its_own_to_the_forest() -> None:
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
            [[0.0, nan, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0]],  # and x=b, y\\missing
            [[nan, 4.0, nan, 0.0, 5.0]],  # and x, a number
            [[nan, nan, nan, 1.0, nan, 1.0]],  # and x\\missing
            [[0.0, -1.0, 1.0, 0.0, nan, 0.0], [0.0, 0.0, 0.0, 0.0, nan, 0.0]],
        ]
    )


def test_a_forecast_follows_the_category() -> None:
    here = model()
    cities = ["Rome", "Oslo", "Bern"] * 30
    here.apply(
        [event({"n": float(i % 4), "city": city}, city == "Rome") for i, city in enumerate(cities)], predict=True
    )
    told = predictions(here.apply([event({"n": 1.0, "city": city}) for city in cities[:3]], predict=True))
    assert [each.prediction for each in told] == [True, False, False]


@pytest.mark.parametrize("lacks", [{}, {"coupon": None}])
def test_a_forecast_follows_what_is_missing(lacks: dict[str, Any]) -> None:
    here = model()
    objects: list[Features] = [{"n": float(i % 4), **({"coupon": True} if i % 3 else lacks)} for i in range(90)]
    here.apply([event(features, bool(features.get("coupon"))) for features in objects], predict=True)
    told = predictions(here.apply([event(features) for features in objects[:3]], predict=True))
    assert [each.prediction for each in told] == [False, True, True]
    assert here.features.names == ["n", "coupon"]


def test_what_is_missing_takes_no_room_from_what_is_there() -> None:
    here = model(max_features=8)
    events = [event({name: 1.0 for name in "abcd"}, "a"), event({name: 1.0 for name in "efgh"}, "b")]
    assert reject_codes(here.apply([*events, event({"i": 1.0}, "a")], predict=True)) == [
        None,
        None,
        "too-many-features",
    ]
    assert here.forest.n_features == 8


def test_text_that_is_a_number_is_a_category_all_the_same() -> None:
    here = model()
    here.apply([event({"x": float(i)}, "ab"[i % 2]) for i in range(9)], predict=True)
    text, missing = predictions(here.apply([event({"x": "7"}), event({"x": None})], predict=True))
    assert text == missing
    here.apply([event({"x": "7"}, "a")], predict=True)
    assert here.forest.feature_names == ("x", "x=7")


def test_an_event_without_any_value_is_learned() -> None:
    here = model()
    assert reject_codes(here.apply([event({"x": None, "y": None}, "a"), event({"y": "red"}, "b")], predict=True)) == [
        None,
        None,
    ]
    assert here.forest.feature_names == ("x", "y=red", r"x\missing")
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
def test_the_limits_and_lists_of_the_configuration_hold(
    params: dict[str, Any], events: list[Event], expected: list[str | None]
) -> None:
    assert reject_codes(model(**params).apply(events, predict=True)) == expected
    one_by_one = model(**params)
    assert [code for each in events for code in reject_codes(one_by_one.apply([each], predict=True))] == expected


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
        assert [code for batch in batches for code in reject_codes(here.apply(batch, predict=True))][-5:] == expected
        of_missing = 2  # x and y, which the wide ones lack
        assert here.forest.n_features == 2 + MAX_NEW_COLUMNS + of_missing + 1

    young = model()
    assert (
        reject_codes(young.apply([*plain[1:], event(wider, "a"), event(texts, "a")], predict=True))[-2:] == [None] * 2
    )


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
        assert reject_codes(applied) == [code]
        assert applied.tally.learned == (code is None and label is not None)
        assert (here.forest.dumps() == before) == (not applied.tally.learned)


def test_names_outside_of_a_configured_list_are_ignored() -> None:
    here = model(features=("x", "y"))
    here.apply([event({"x": 1.0, "z": 2.0}, "a"), event({"z": "red", "y": "red"}, "a")], predict=True)
    assert here.forest.feature_names == ("x", "y", r"y\missing", "y=red", r"x\missing")
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
    assert reject_codes(models.get("key").apply(events, predict=False)) == [
        "too-many-classes",
        "too-many-features",
        None,
    ]
