"""Batches, replay, restoring and rejects change no forecast and no byte of a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.fakes import config
from tests.worker.support.models import model
from worker.base.records import Answer, Event, Prediction, Reject
from worker.checkpoint import SavedModel
from worker.state.model_store import ModelStore

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


def in_batches(events: Sequence[Event], cuts: list[int]) -> list[Sequence[Event]]:
    ends = sorted({min(cut, len(events)) for cut in cuts} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_batches_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    whole, parts = model(**limits), model(**limits)
    told = whole.apply(events, predict=True)
    in_parts = [parts.apply(batch, predict=True) for batch in in_batches(events, cuts)]
    # The list of classes grows with the model; only those of the forecast count.
    assert [shown(outcome) for outcome in told.outcomes] == [
        shown(outcome) for part in in_parts for outcome in part.outcomes
    ]
    assert told.tally.learned == sum(part.tally.learned for part in in_parts)
    assert whole.forest.dumps() == parts.forest.dumps()


@given(EVENTS, st.lists(st.integers(0, 30), max_size=5), LIMITS)
def test_replay_and_restoring_do_not_matter(events: list[Event], cuts: list[int], limits: dict[str, Any]) -> None:
    live = model(**limits)
    live.apply(events, predict=True)
    replayed = model(**limits)
    for batch in in_batches(events, cuts):
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
    assert [shown(outcomes[i]) for i in kept] == [shown(outcome) for outcome in again]
    assert everything.forest.dumps() == accepted.forest.dumps()


def shown(outcome: Answer | Reject | None) -> Any:
    if not isinstance(outcome, Prediction):
        return outcome
    known = outcome.classes[: len(outcome.probabilities)]
    return known, outcome.probabilities, outcome.prediction, outcome.label, outcome.loss, outcome.learned
