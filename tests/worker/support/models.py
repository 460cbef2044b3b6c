"""A model of a configuration, events for it, and what it made of them."""

from __future__ import annotations

from typing import Any

from tests.worker.support.fakes import config
from worker.base.records import Estimate, Event, Features, Label, Prediction, Reject
from worker.state.model import Model
from worker.state.model_store import ModelStore
from worker.state.runs import Applied

PARAMS = config().models.default


def model(key: str = "key", **params: Any) -> Model:
    """A new model with these parameters beside the defaults of the tests."""
    return ModelStore(config(**params).models.params_for).get(key)


def event(features: Features, label: Label | None = None, id: str | None = None) -> Event:
    return Event(features, label, id)


def reject_codes(applied: Applied) -> list[str | None]:
    """The code of each reject, None for a prediction."""
    return [outcome.code if isinstance(outcome, Reject) else None for outcome in applied.outcomes]


def estimates(applied: Applied) -> list[Estimate]:
    """Those of all events, of which none was rejected."""
    assert reject_codes(applied) == [None] * len(applied.outcomes)
    return applied.outcomes  # type: ignore[return-value]


def predictions(applied: Applied) -> list[Prediction]:
    """Those of all events, of which none was rejected."""
    assert reject_codes(applied) == [None] * len(applied.outcomes)
    return applied.outcomes  # type: ignore[return-value]


UNRESTRICTED = "unrestricted-amf-classifier"
