"""The models of a partition: asked for, kept, forgotten, restored."""

from __future__ import annotations

from dataclasses import replace

from tests.worker.support.fakes import config
from tests.worker.support.models import PARAMS, event, model
from worker.base.records import ClassScores
from worker.checkpoint import SavedModel
from worker.codec.dead_letters import DECODER
from worker.state.model import spec_of
from worker.state.model_store import ModelStore


def test_asking_leaves_no_trace() -> None:
    models = ModelStore(config().models.params_for)
    asked = models.get("key")
    assert (len(models), "key" in models, list(models)) == (0, False, [])
    models.keep(asked, ClassScores())
    assert models.get("key") is asked
    assert (len(models), "key" in models, list(models)) == (1, True, [asked])


def test_a_forgotten_model_starts_anew() -> None:
    models = ModelStore(config().models.params_for)
    first = models.get("key")
    fresh = first.forest.dumps()
    first.apply([event([1.0], "a")], predict=True)
    models.keep(first, ClassScores())
    models.drop("key")
    models.drop("key")
    assert models.get("key").forest.dumps() == fresh


def test_a_restored_model_keeps_its_spec() -> None:
    models = ModelStore(config(seed=1).models.params_for)
    models.restore("key", SavedModel("another spec", model().forest.dumps(), {}))
    assert models.get("key").spec == "another spec"
    assert models.configured_spec("key") == spec_of("key", replace(PARAMS, seed=1), DECODER)
