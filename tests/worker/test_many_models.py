"""Many models at once: whatever is asked of them together is what each would have done by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import amf
from tests.worker.support.fakes import config
from worker.base.records import Event, Features, Label, Reject
from worker.state import many_models
from worker.state.many_models import Share, apply_all
from worker.state.model import Model
from worker.state.model_store import ModelStore

ALGORITHMS = ("amf-classifier", "amf-regressor", "adaptive-classifier", "mondrian-classifier", "bsp-regressor")
CITIES = ("Rome", "Oslo", "Bern", "Riga")


def features_of(kind: int, rng: np.random.Generator) -> Features:
    """Arrays, objects of numbers, of texts, and of what is now this and now that."""
    x, y = rng.random(2).round(3).tolist()
    if kind == 0:
        return [x, y]
    if kind == 1:
        return {"x": x, "y": y}
    if kind == 2:
        return {"x": x, "city": CITIES[rng.integers(4)]}
    return [x, y] if rng.random() < 0.7 else {"x": x} if rng.random() < 0.5 else [x]


def label_of(algorithm: str, rng: np.random.Generator) -> Label | None:
    if rng.random() < 0.3:
        return None
    if algorithm.endswith("regressor"):
        return "none" if rng.random() < 0.05 else round(rng.normal(), 3)
    return ("a", "b", "c", 4, True)[rng.integers(5)] if rng.random() < 0.95 else 1.5


def turns(algorithm: str, n_models: int, n_turns: int, seed: int) -> list[dict[str, list[Event]]]:
    rng = np.random.default_rng(seed)
    return [
        {
            f"key-{i}": [
                Event(features_of(i % 4, rng), label_of(algorithm, rng), None) for _ in range(rng.integers(1, 5))
            ]
            for i in rng.permutation(n_models)[: rng.integers(1, n_models + 1)].tolist()
        }
        for _ in range(n_turns)
    ]


def figures(model: Model) -> tuple[Any, ...]:
    return model.forest.dumps(), model.scores, None if model.ranking is None else str(model.ranking.auc)


def store(algorithm: str, max_models: int | None = None) -> ModelStore:
    return ModelStore(config(algorithm=algorithm, n_estimators=3).models.params_for, max_models=max_models)


def pass_through(models: ModelStore, shares: Sequence[Share], explain: int, *, together: bool) -> list[Any]:
    if together:
        applied = apply_all(shares, explain)
    else:
        applied = [model.apply(events, publish=publish, explain=explain) for model, events, publish in shares]
    for share, one in zip(shares, applied, strict=True):
        if one.learned:
            models.keep(share.model)
    return [
        (
            one.outcomes,
            one.predicted,
            one.learned,
            one.scores,
            np.concatenate([*one.depths, []]).tolist(),
            round(one.weighted_depth, 9),
            one.confidences,
            one.hits,
        )
        for one in applied
    ]


@pytest.mark.parametrize("explain", [0, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_together_is_one_by_one(algorithm: str, explain: int) -> None:
    ours, theirs = store(algorithm), store(algorithm)
    for number, events in enumerate(turns(algorithm, 13, 12, seed=1)):
        found = []
        for models, together in ((ours, True), (theirs, False)):
            # Every fifth model is refused, and learns all the same; replay is a turn in which nobody is asked.
            shares = [Share(models.get(key), some, number % 4 != 3 and key[-1] != "5") for key, some in events.items()]
            found.append(pass_through(models, shares, explain, together=together))
            if number == 3 and (entry := models.entry("key-0")):
                entry.watch()
        assert found[0] == found[1]
    assert len(ours) == len(theirs) > 10
    for mine, other in zip(ours, theirs, strict=True):
        assert figures(mine) == figures(other)


def test_models_without_room_answer_and_refuse_to_learn() -> None:
    models = ModelStore(config(algorithm="amf-classifier", features=2).models.params_for, max_models=0)
    events = [Event([0.1, 0.2], "a", None), Event([0.1, 0.2], None, None), Event([0.3, 0.4], "b", None)]
    (applied,) = apply_all([Share(models.get("key"), events, True)])
    codes = [one.code if isinstance(one, Reject) else None for one in applied.outcomes]
    assert codes == ["too-many-models", None, "too-many-models"]
    assert (applied.learned, applied.predicted) == (0, 1)


def test_models_that_have_met_everything_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    models, rng = store("amf-classifier"), np.random.default_rng(0)
    for kind in range(2):
        for key in range(10):
            model = models.get(f"{kind}-{key}")
            model.apply([Event(features_of(kind, rng), label, None) for label in "ab" * 5], publish=True)
            models.keep(model)
    sizes: list[int] = []

    def call(forests: list[amf.Learner], *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(forests))
        return predict_learn_many(forests, *args, **kwargs)

    predict_learn_many = amf.predict_learn_many
    monkeypatch.setattr(many_models.amf, "predict_learn_many", call)
    kinds = [
        Share(models.get(f"{i % 2}-{i // 2}"), [Event(features_of(i % 2, rng), "a", None)], True) for i in range(20)
    ]
    apply_all(kinds)
    assert sizes == [20]
    # One with many events goes by itself.
    many = [Event(features_of(0, rng), "a", None)] * (many_models.FEW + 1)
    apply_all([Share(models.get("0-0"), many, True), *kinds[2:]])
    assert sizes == [20, 18]
