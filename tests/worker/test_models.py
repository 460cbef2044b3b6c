"""Models: what makes one, which events it accepts, and what it says of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.fakes import config
from worker.config import ModelParams
from worker.models import Applied, Model, Models, forest_of, seed_of, spec_of
from worker.records import Event, Features, Label, Prediction, Reject

PARAMS = config().models.default


def model(key: str = "key", **params: Any) -> Model:
    return Models(config(**params).models.params_for).get(key)


def event(features: Features, label: Label | None = None, id: str | None = None) -> Event:
    return Event(features, label, id)


def codes(applied: Applied) -> list[str | None]:
    """The code of each reject, None for a prediction."""
    return [outcome.code if isinstance(outcome, Reject) else None for outcome in applied.outcomes]


def predictions(applied: Applied) -> list[Prediction]:
    assert codes(applied) == [None] * len(applied.outcomes)
    return applied.outcomes  # type: ignore[return-value]


# What a model is


OTHER_VALUES: dict[str, Any] = {
    "algorithm": "another",
    "n_estimators": 3,
    "seed": 1,
    "classes": ("no", "yes"),
    "features": 3,
    "scaling": "none",
    "max_bytes": 1_000_000,
    "max_classes": 999,
    "max_features": 9_999,
    "prior": "dirichlet",
    "dirichlet": 0.25,
    "smoothing": 2.0,
    "split_pure": True,
}


def test_the_spec_changes_with_every_parameter_and_with_the_key() -> None:
    assert OTHER_VALUES.keys() == {each.name for each in fields(ModelParams)}
    specs = {spec_of("key", replace(PARAMS, **{name: value})) for name, value in OTHER_VALUES.items()}
    specs |= {spec_of("key", PARAMS), spec_of("other", PARAMS)}
    assert len(specs) == len(OTHER_VALUES) + 2


def test_the_spec_does_not_change_with_anything_else() -> None:
    one = config()
    two = config(
        start="latest", tombstones="reset", max_consecutive=5, delivery="at-least-once", null_key="key",
        on_spec_change="restart", interval_s=9.0,
    )  # fmt: skip
    specs = [Models(each.models.params_for).configured_spec("key") for each in (one, two)]
    assert specs[0] == specs[1] == spec_of("key", PARAMS)
    assert len(specs[0]) == 16


@pytest.mark.parametrize(
    ("name", "value"), [(name, OTHER_VALUES[name]) for name in OTHER_VALUES if name != "algorithm"]
)
def test_every_parameter_reaches_the_forest(name: str, value: Any) -> None:
    """A parameter of which the spec tells but the forest does not know would be a lie in both directions."""
    prior = {"prior": "dirichlet"} if name == "dirichlet" else {}
    plain, changed = replace(PARAMS, **prior), replace(PARAMS, **prior, **{name: value})
    if name == "features":
        assert codes(Model("key", changed, forest_of("key", changed), "").apply([event([1.0])], publish=True)) == [
            "feature-count"
        ]
    else:
        assert forest_of("key", changed).dumps() != forest_of("key", plain).dumps()


def test_the_random_stream_depends_on_seed_and_key_alone() -> None:
    assert seed_of("key", 0) == seed_of("key", 0)
    assert len({seed_of("key", 0), seed_of("key", 1), seed_of("other", 0), seed_of("", 0)}) == 4
    assert 0 <= seed_of("key", 2**63 - 1) < 2**64


def test_one_key_grows_one_forest_whatever_else_there_is() -> None:
    events = [event([float(i % 7), float(i % 3)], "ab"[i % 2]) for i in range(50)]
    alone, beside = Models(config().models.params_for), Models(config().models.params_for)
    first = beside.get("other")
    first.apply(events, publish=True)
    beside.keep(first)
    grown = []
    for models in (alone, beside):
        here = models.get("key")
        here.apply(events, publish=True)
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
        found = codes(here.apply(events, publish=True))
    else:
        found = [code for each in events for code in codes(here.apply([each], publish=True))]
    assert found == [None] * len(learned) + [code]


def test_an_unlabelled_event_fixes_nothing() -> None:
    here = model()
    events = [event([1.0, 2.0]), event({"x": 1.0}), event([1.0]), event([1.0], "a"), event([1.0, 2.0])]
    assert codes(here.apply(events, publish=True)) == [None, None, None, None, "feature-count"]


def test_names_grow_by_labelled_events_only() -> None:
    here = model()
    here.apply([event({"x": 1.0}, "a"), event({"y": 1.0}), event({"z": 1.0, "x": 2.0}, "b")], publish=True)
    assert here.forest.feature_names == ("x", "z")


def test_an_absent_name_is_a_missing_value_like_null() -> None:
    first = event({"x": 1.0, "y": 2.0}, "a")
    answers, states = [], []
    for features in ({"x": 3.0}, {"x": 3.0, "y": None}, {"y": None, "x": 3.0}):
        here = model()
        answers.append(here.apply([first, event(features, "b"), event(features)], publish=True).outcomes)
        states.append(here.forest.dumps())
    assert answers[0] == answers[1] == answers[2]
    assert states[0] == states[1] == states[2]


def test_an_unknown_name_without_a_label_is_ignored() -> None:
    here = model()
    here.apply([event({"x": float(i)}, "ab"[i % 2]) for i in range(9)], publish=True)
    with_it, without = predictions(here.apply([event({"x": 3.0, "new": 1.0}), event({"x": 3.0})], publish=True))
    assert with_it == without


def test_the_order_of_names_does_not_matter() -> None:
    here = model()
    here.apply([event({"x": float(i), "y": -float(i)}, "ab"[i % 2]) for i in range(9)], publish=True)
    one, two = predictions(here.apply([event({"x": 3.0, "y": 1.0}), event({"y": 1.0, "x": 3.0})], publish=True))
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
        ({"classes": ("a", "b")}, [event([1.0], "a"), event([1.0], "c"), event([1.0])], [None, "unknown-class", None]),
        ({"max_classes": 2}, [event([1.0], label) for label in "abca"], [None, None, "too-many-classes", None]),
    ],
)
def test_what_is_configured_is_kept(params: dict[str, Any], events: list[Event], expected: list[str | None]) -> None:
    assert codes(model(**params).apply(events, publish=True)) == expected
    one_by_one = model(**params)
    assert [code for each in events for code in codes(one_by_one.apply([each], publish=True))] == expected


def test_names_outside_of_a_configured_list_are_ignored() -> None:
    here = model(features=("x", "y"))
    here.apply([event({"x": 1.0, "z": 2.0}, "a")], publish=True)
    assert here.forest.feature_names == ("x", "y")


def test_a_class_is_the_text_of_its_label() -> None:
    here = model()
    first, *_, last = predictions(
        here.apply([event([1.0], label) for label in (1, "1", True, "true", None)], publish=True)
    )
    assert here.texts == ["1", "true"]
    assert first.prediction is None
    assert last.prediction in (1, True)
    assert last.classes == ["1", "true"]


def test_a_prediction_shows_a_class_as_it_was_first_seen() -> None:
    here = model()
    here.apply([event([1.0], 7)], publish=True)
    [told] = predictions(here.apply([event([1.0], "7")], publish=True))
    assert told.prediction == 7
    assert type(told.prediction) is int
    assert told.label == "7"


def test_the_limits_of_a_restored_model_are_those_it_was_made_with() -> None:
    """Replay must accept what was accepted then, even where the configuration says something else by now."""
    small = {"max_classes": 2, "max_features": 2}
    first = model(**small)
    first.apply([event({"x": 1.0, "y": 1.0}, "a"), event({"x": 2.0}, "b")], publish=True)
    models = Models(config().models.params_for)
    models.restore("key", first.spec, first.forest.dumps())
    events = [event({"x": 1.0}, "c"), event({"z": 1.0}, "a"), event({"y": 1.0}, "a")]
    assert codes(models.get("key").apply(events, publish=False)) == ["too-many-classes", "too-many-features", None]


# What a model says


def test_before_the_first_label_the_forecast_is_blind() -> None:
    here = model()
    [told] = predictions(here.apply([event([1.0], id="7")], publish=True))
    assert told == Prediction(None, [], [], None, None, 0, "7")


def test_with_given_classes_a_blind_forecast_is_uniform() -> None:
    [told] = predictions(model(classes=("a", "b")).apply([event([1.0])], publish=True))
    assert (told.prediction, told.classes, told.probabilities) == ("a", ["a", "b"], [0.5, 0.5])


def test_a_forecast_knows_the_classes_of_before_its_label() -> None:
    events = [event([float(i)], label) for i, label in enumerate("aabac")]
    told = predictions(model().apply(events, publish=True))
    assert [len(each.probabilities) for each in told] == [0, 1, 1, 2, 2]
    assert [each.learned for each in told] == [0, 1, 2, 3, 4]
    assert [sum(each.probabilities) for each in told] == pytest.approx([0.0, 1.0, 1.0, 1.0, 1.0])
    for each in told[1:]:
        assert each.prediction == each.classes[each.probabilities.index(max(each.probabilities))]


def test_the_loss_of_a_new_class_is_the_log_of_two_more_than_was_learned() -> None:
    events = [event([float(i)], label) for i, label in enumerate("aabac")]
    told = predictions(model().apply(events, publish=True))
    assert [told[i].loss for i in (0, 2, 4)] == [math.log(2), math.log(4), math.log(6)]
    assert [told[i].loss for i in (1, 3)] == [-math.log(told[i].probabilities[0]) for i in (1, 3)]


def test_a_certain_forecast_loses_zero_and_not_minus_zero() -> None:
    told = predictions(model().apply([event([1.0], "a"), event([1.0], "a")], publish=True))
    assert str(told[1].loss) == "0.0"


def test_without_a_label_there_is_no_loss_and_nothing_is_learned() -> None:
    here = model()
    here.apply([event([1.0], "a"), event([2.0], "b")], publish=True)
    before = here.forest.dumps()
    [told] = predictions(here.apply([event([1.0], id="x")], publish=True))
    assert (told.label, told.loss, told.learned, told.id) == (None, None, 2, "x")
    assert here.forest.dumps() == before


def test_numbers_of_any_size_are_learned() -> None:
    here = model()
    sizes = [1e308, -1e308, 5e-324, 0.0, -0.0, 1.7e9, None]
    told = predictions(here.apply([event([size], "ab"[i % 2]) for i, size in enumerate(sizes)], publish=True))
    assert all(math.isfinite(each.loss or 0.0) for each in told)
    assert here.forest.n_samples == len(sizes)


def test_what_was_done_is_counted() -> None:
    here = model(classes=("a", "b"))
    events = [event([0.0], "a"), event([0.0], "a"), event([0.0]), event([0.0, 1.0], "b"), event([0.0], "c")]
    done = here.apply(events, publish=True)
    told = [each for each in done.outcomes if isinstance(each, Prediction)]
    assert (done.predicted, done.learned, done.scored) == (3, 2, 2)
    assert done.loss == sum(each.loss or 0.0 for each in told)
    assert done.correct == sum(each.prediction == each.label for each in told)
    assert sum(map(len, done.depths)) == 3
    figures = here.figures()
    assert (figures.samples, figures.labelled, figures.correct, figures.loss) == (2, 2, done.correct, done.loss)


def test_replay_is_not_counted_as_loss() -> None:
    here = model()
    done = here.apply([event([0.0], "a"), event([0.0])], publish=False)
    assert (done.outcomes, done.predicted, done.learned, done.scored, done.loss) == ([None, None], 0, 1, 0, 0.0)
    assert here.figures().labelled == 0


# Batches, replay and rejects change nothing


VALUES = st.one_of(st.none(), st.floats(-1e3, 1e3, width=32), st.sampled_from([0.0, 1.0, 1e300]))
FEATURES = st.one_of(
    st.lists(VALUES, min_size=1, max_size=3), st.dictionaries(st.sampled_from("xyz"), VALUES, min_size=1, max_size=3)
)
EVENTS = st.lists(
    st.builds(Event, FEATURES, st.sampled_from([None, "a", "b", "c", 1, "1", True]), st.none()), max_size=30
)
LIMITS = st.sampled_from(
    [{}, {"max_classes": 2}, {"max_features": 2}, {"classes": ("a", "b")}, {"features": ("x", "y")}]
)


def batches(events: Sequence[Event], cuts: list[int]) -> list[Sequence[Event]]:
    ends = sorted({min(cut, len(events)) for cut in cuts} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_batches_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    whole, parts = model(**limits), model(**limits)
    told = whole.apply(events, publish=True)
    in_parts = [parts.apply(batch, publish=True) for batch in batches(events, cuts)]
    # The list of classes grows with the model; only those of the forecast count.
    assert [_shown(outcome) for outcome in told.outcomes] == [
        _shown(outcome) for part in in_parts for outcome in part.outcomes
    ]
    assert told.learned == sum(part.learned for part in in_parts)
    assert whole.forest.dumps() == parts.forest.dumps()


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_replay_and_restoring_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    live = model(**limits)
    live.apply(events, publish=True)
    replayed = model(**limits)
    for batch in batches(events, cuts):
        replayed.apply(batch, publish=False)
        if replayed.forest.n_samples:
            models = Models(config(**limits).models.params_for)
            models.restore("key", replayed.spec, replayed.forest.dumps())
            replayed = models.get("key")
    assert replayed.forest.dumps() == live.forest.dumps()


@given(EVENTS, LIMITS)
def test_rejected_events_are_as_if_they_had_never_been(events: list[Event], limits: dict[str, Any]) -> None:
    everything, accepted = model(**limits), model(**limits)
    outcomes = everything.apply(events, publish=True).outcomes
    kept = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Prediction)]
    again = accepted.apply([events[i] for i in kept], publish=True).outcomes
    assert [_shown(outcomes[i]) for i in kept] == [_shown(outcome) for outcome in again]
    assert everything.forest.dumps() == accepted.forest.dumps()


def _shown(outcome: Prediction | Reject | None) -> Any:
    if not isinstance(outcome, Prediction):
        return outcome
    known = outcome.classes[: len(outcome.probabilities)]
    return known, outcome.probabilities, outcome.prediction, outcome.label, outcome.loss, outcome.learned


# The models of a partition


def test_asking_leaves_no_trace() -> None:
    models = Models(config().models.params_for)
    asked = models.get("key")
    assert (len(models), "key" in models, list(models)) == (0, False, [])
    models.keep(asked)
    assert models.get("key") is asked
    assert (len(models), "key" in models, list(models)) == (1, True, [asked])


def test_a_forgotten_model_starts_anew() -> None:
    models = Models(config().models.params_for)
    first = models.get("key")
    fresh = first.forest.dumps()
    first.apply([event([1.0], "a")], publish=True)
    models.keep(first)
    models.forget("key")
    models.forget("key")
    assert models.get("key").forest.dumps() == fresh


def test_a_restored_model_keeps_its_spec() -> None:
    models = Models(config(seed=1).models.params_for)
    models.restore("key", "another spec", model().forest.dumps())
    assert models.get("key").spec == "another spec"
    assert models.configured_spec("key") == spec_of("key", replace(PARAMS, seed=1))
