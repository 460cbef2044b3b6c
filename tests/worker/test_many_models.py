"""Many models at once: whatever is asked of them together is what each would have done by itself."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

import amf
from tests.worker.support.fakes import FakeSpill, config
from worker.base.records import Answer, Event, Features, Label, Prediction, Reject
from worker.state import many_models
from worker.state.cache import Cache
from worker.state.entry import Entry
from worker.state.many_models import apply_together
from worker.state.model import Model
from worker.state.model_store import ModelStore
from worker.state.runs import Applied
from worker.task.task import Task

ALGORITHMS = ("amf-classifier", "amf-regressor", "adaptive-classifier", "mondrian-classifier", "bsp-regressor")
CITIES = ("Rome", "Oslo", "Bern", "Riga")


def features_of(kind: int, rng: np.random.Generator) -> Features:
    """Arrays, objects of numbers, of texts, of what is now this and now that, and of what is missing now and then."""
    x, y = rng.random(2).round(3).tolist()
    if kind == 0:
        return [x, y]
    if kind == 1:
        return {"x": x, "y": y}
    if kind == 2:
        return {"x": x, "city": CITIES[rng.integers(4)]}
    if kind == 4:
        return {"x": x, "y": None if rng.random() < 0.2 else y} if rng.random() < 0.8 else {"x": x}
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
                Event(features_of(i % 5, rng), label_of(algorithm, rng), None) for _ in range(rng.integers(1, 5))
            ]
            for i in rng.permutation(n_models)[: rng.integers(1, n_models + 1)].tolist()
        }
        for _ in range(n_turns)
    ]


def by_key(models: ModelStore) -> list[Entry]:
    return sorted(models.entries(), key=lambda entry: entry.key)


def figures(entry: Entry) -> tuple[Any, ...]:
    assert entry.model is not None
    shown = entry.figures()
    kept = entry.samples, entry.nodes, entry.nbytes, entry.answer_bytes, entry.clean, entry.names_given
    return entry.model.forest.dumps(), shown.scores, str(shown.auc), kept, (shown.samples, shown.nodes)


def store(algorithm: str, **given: Any) -> ModelStore:
    return ModelStore(config(algorithm=algorithm, n_estimators=3, **given).models.params_for)


def as_published(outcome: Answer | Reject | None) -> Answer | Reject | None:
    """Without the classes that the model has met since: they have no probability."""
    if not isinstance(outcome, Prediction):
        return outcome
    return msgspec.structs.replace(outcome, classes=outcome.classes[: len(outcome.probabilities)])


def pass_through(
    models: ModelStore, shares: dict[str, list[Event]], *, predict: bool, together: bool
) -> tuple[dict[str, list[Answer | Reject | None]], list[Any]]:
    """What became of the events of each key, and what is counted of all of them."""
    keys = [key for key, events in shares.items() for _ in events]
    events = [event for some in shares.values() for event in some]
    outcomes: list[Answer | Reject | None] = [None] * len(events)
    joint, left = apply_together(models, keys, events, predict=predict, apart=not together)
    through: list[tuple[list[int], Applied]] = [(places, applied) for places, _, applied in joint]
    for key, places in left.items():
        model = models.get(key)
        applied = model.apply([events[place] for place in places], predict=predict)
        if applied.tally.learned:
            models.keep(model, applied.scores)
        through.append((places, applied))
    for places, applied in through:
        for place, outcome in zip(places, applied.outcomes, strict=True):
            outcomes[place] = as_published(outcome)
    of_keys: dict[str, list[Answer | Reject | None]] = {key: [] for key in shares}
    for key, outcome in zip(keys, outcomes, strict=True):
        of_keys[key].append(outcome)
    applied_all = [applied for _, applied in through]
    counted = [
        sorted(
            (places[i], str(name), change) for places, applied in through for i, name, change in applied.kind_changes
        ),
        sum(applied.tally.predicted for applied in applied_all),
        sum(applied.tally.learned for applied in applied_all),
        sum(applied.scores.count for applied in applied_all),
        sorted(np.concatenate([depths for applied in applied_all for depths in applied.tally.depths] or [[]]).tolist()),
        round(sum(applied.tally.weighted_depth for applied in applied_all), 7),
        sorted(
            pair for applied in applied_all for pair in zip(applied.tally.confidences, applied.tally.hits, strict=True)
        ),
    ]
    return of_keys, counted


GIVEN = {
    "length": ("amf-classifier", {"features": 2}),
    "names": ("amf-classifier", {"features": ("late", "x", "city", "y")}),
    "all names": ("amf-classifier", {"features": ("x", "y")}),
    "classes": ("adaptive-classifier", {"classes": ["a", "b", 4]}),
    "cube": ("increasing-lifetime-classifier", {"domain": "cube"}),
    "few features": ("amf-regressor", {"max_features": 2}),
    "few classes": ("amf-classifier", {"max_classes": 2}),
}


@pytest.mark.parametrize(
    ("algorithm", "given"), [*((algorithm, {}) for algorithm in ALGORITHMS), *GIVEN.values()], ids=[*ALGORITHMS, *GIVEN]
)
def test_together_is_one_by_one(algorithm: str, given: dict[str, Any]) -> None:
    ours, theirs = store(algorithm, **given), store(algorithm, **given)
    for number, events in enumerate(turns(algorithm, 13, 12, seed=1)):
        predict = number % 4 != 3  # in a replay no model is asked for a forecast
        found = [pass_through(models, events, predict=predict, together=models is ours) for models in (ours, theirs)]
        assert found[0] == found[1]
        for models in (ours, theirs):
            for entry in models.entries() if number == 1 else ():
                entry.watch()
    assert len(ours) == len(theirs) > 4
    for mine, other in zip(by_key(ours), by_key(theirs), strict=True):
        assert figures(mine) == figures(other)


def test_models_without_room_answer_and_refuse_to_learn() -> None:
    models = ModelStore(config(algorithm="amf-classifier", features=2).models.params_for, max_models=0)
    events = [Event([0.1, 0.2], "a", None), Event([0.1, 0.2], None, None), Event([0.3, 0.4], "b", None)]
    outcomes, (_, predicted, learned, *_) = pass_through(models, {"key": events}, predict=True, together=True)
    codes = [one.code if isinstance(one, Reject) else None for one in outcomes["key"]]
    assert codes == ["too-many-models", None, "too-many-models"]
    assert (learned, predicted) == (0, 1)


def test_models_that_have_met_everything_share_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    models, rng = store("amf-classifier"), np.random.default_rng(0)
    keys = [f"{i % 4}-{i // 4}" for i in range(40)]
    for _ in range(2):
        first = {key: [Event(features_of(int(key[0]) % 3, rng), label, None) for label in "ab" * 20] for key in keys}
        pass_through(models, first, predict=True, together=False)
    sizes: list[int] = []

    def call(self: amf.Group, x: np.ndarray, slots: np.ndarray, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len({*slots.tolist()}))
        return predict_learn(self, x, slots, *args, **kwargs)

    predict_learn = amf.Group.predict_learn
    monkeypatch.setattr(amf.Group, "predict_learn", call)
    numbers, texts = ([key for key in keys if (key[0] == "2") == is_text] for is_text in (False, True))
    known = {key: [Event(features_of(int(key[0]) % 3, rng), "a", None)] * (1 + len(key)) for key in keys}
    _, left = apply_together(models, keys, [known[key][0] for key in keys], predict=True, apart=False)
    assert (sorted(sizes), left) == ([len(texts), len(numbers)], {})
    # What one of them has to look at is not for the others, and neither are its other events.
    sizes.clear()
    events = [Event([0.1, 0.2], "new" if i == 3 else "a", None) for i in range(6)]
    _, left = apply_together(models, ["0-0", "0-1", "0-2", "0-1", "0-2", "0-1"], events, predict=True, apart=False)
    assert (sizes, left) == ([2], {"0-1": [1, 3, 5]})


@pytest.mark.parametrize("algorithm", ["amf-classifier", "amf-regressor"])
@pytest.mark.parametrize("features", [[0.25, 0.5], {"x": 0.25, "city": "Rome"}], ids=["array", "object"])
def test_what_is_new_to_quiet_models_is_met_by_each_and_learned_together(algorithm: str, features: Features) -> None:
    models, keys = store(algorithm), [f"key-{i}" for i in range(20)]
    labels: tuple[Label, ...] = (0.5, 1.5) if algorithm.endswith("regressor") else ("a", "b", "c")
    for n, label in enumerate(labels):
        joint, left = apply_together(models, keys, [Event(features, label, None)] * 20, predict=True, apart=False)
        assert left == {}
        ((_, _, applied),) = joint
        assert applied.tally.learned == 20
        assert {model.forest.n_samples for model in models} == {n + 1}
    # What is not labelled, or is refused, makes no model.
    events = [Event(features, None, None), Event(features, "text", None), Event(features, 1.5, None)]
    _, left = apply_together(models, ["p", "q", "r"], events, predict=True, apart=False)
    refused = "q" if algorithm.endswith("regressor") else "r"
    assert sorted(left) == ["p", refused]
    assert {key for key in "pqr" if key in models} == {"q", "r"} - {refused}


@pytest.mark.parametrize("of_some", [{"max_classes": 2}, {"classes": ("a", "b")}], ids=str)
def test_models_that_have_met_the_same_have_each_its_own_limits(of_some: dict[str, Any]) -> None:
    params_for = config(n_estimators=3, overrides=[{"match": "some", **of_some}]).models.params_for
    ours, theirs = ModelStore(params_for), ModelStore(params_for)
    for turn in ({"other": "ab"}, {"some": "a"}, {"other": "a", "some": "b"}, {"other": "c", "some": "c"}):
        events = {key: [Event([0.1, 0.2], label, None) for label in labels] for key, labels in turn.items()}
        found = [pass_through(models, events, predict=True, together=models is ours) for models in (ours, theirs)]
        assert found[0] == found[1]
    assert [figures(mine) for mine in by_key(ours)] == [figures(other) for other in by_key(theirs)]


def test_a_model_that_is_made_of_another_ignores_the_names_that_that_ignores() -> None:
    models = store("amf-classifier", features=("x", "y"))
    pass_through(models, {key: [Event({"x": 0.5, "y": 1.5}, "a", None)] for key in "pq"}, predict=True, together=True)
    assert [(entry.key, entry.names_given) for entry in by_key(models)] == [("p", True), ("q", True)]


def test_a_class_of_another_kind_that_is_learned_with_others_is_told() -> None:
    models, found = store("amf-classifier"), []
    for labels in ("aa", (4, "b")):
        events = {f"key-{i}": [Event([0.1, 0.2], label, None)] for i, label in enumerate(labels)}
        _, (changes, *_) = pass_through(models, events, predict=True, together=True)
        found.append(changes)
    assert found == [[], [(0, "None", "text-to-number")]]


def test_new_models_are_made_of_others_that_have_met_the_very_same() -> None:
    """Whatever the first events of many keys have in common, and in whatever they differ that looks alike."""
    overrides: list[dict[str, Any]] = [{"match": "1-*", "classes": (1, 0)}, {"match": "t-*", "classes": (True, False)}]
    overrides.append({"match": "s-*", "seed": 7})
    params_for = config(n_estimators=3, max_features=3, overrides=overrides).models.params_for
    firsts: list[tuple[Features, Label | None]] = [
        ([0.5, 1.5], "a"), ([0.5, 1.5], 1), ([2.5, 0.5], True), ([2.5, 0.5], "1"), ([0.5], "a"), ([0.5, 1.5], None),
        ({"x": 0.5, "y": 1.5}, "a"), ({"y": 0.5, "x": 1.5}, "a"), ({"x": 0.5, "y": "red"}, "a"), ({"x": 0.5}, "a"),
        ({"x": "red", "y": 0.5}, "a"), ({"x": 0.5, "y": None}, "a"), ([0.5] * 4, "a"),
        ([0.5, 1.5], 0), ([0.5, 1.5], False), ([0.5, 1.5], 1.5), ({"x": 0.5, "y": 1.5}, True),
        ({"x": 0.5, "y": 1.5, "z": 2.5}, "a"), ({"x": 0.5, "y": None, "z": 2.5}, "a"),
    ]  # fmt: skip
    ours, theirs = ModelStore(params_for), ModelStore(params_for)
    for turn in range(3):
        events = {
            f"{kind}-{turn % 2}-{place}-{other}": [Event(features, label, None)]
            for other in range(3)
            for place, (features, label) in enumerate(firsts)
            for kind in "a1ts"
        }
        found = [pass_through(models, events, predict=True, together=models is ours) for models in (ours, theirs)]
        assert found[0] == found[1]
    assert [figures(mine) for mine in by_key(ours)] == [figures(other) for other in by_key(theirs)]
    assert len({figures(mine)[0] for mine in by_key(ours)}) == len(ours) > 200


@pytest.mark.parametrize("algorithm", ["amf-classifier", "amf-regressor"])
def test_what_many_new_models_bring_is_met_by_the_first_of_them(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, meet, met = store(algorithm), Model.meet, Counter[str]()

    def counted(model: Model, event: Event) -> bool:
        met[model.key] += 1
        return meet(model, event)

    monkeypatch.setattr(Model, "meet", counted)
    labels = [float(i) if algorithm.endswith("regressor") else "ab"[i % 2] for i in range(40)]
    for features in ([0.5, 1.5], {"x": 0.5, "y": 1.5}, {"y": 0.5, "x": 1.5}):
        keys = [f"{features}-{i}" for i in range(40)]
        events = [Event(features, label, None) for label in labels]  # type: ignore[arg-type]
        _, left = apply_together(models, keys, events, predict=True, apart=False)
        assert left == {}
    assert (len(models), met.total()) == (120, 3 if algorithm.endswith("regressor") else 6)
    for i in range(200):
        apply_together(models, [f"{i}"], [Event({f"{i}": 0.5}, labels[0], None)], predict=True, apart=False)
    assert 0 < (known := len(models.beginnings)) <= 64
    apply_together(models, ["wide"], [Event([0.5] * 1000, labels[0], None)], predict=True, apart=False)
    assert (len(models.beginnings), models.get("wide").forest.n_samples) == (known, 1)


@pytest.mark.parametrize(
    ("given", "features"),
    [({"features": ("x",)}, {"x": 0.5, "other": 1.5}), ({}, {"x": 0.5, "city": "Rome"})],
    ids=["ignored", "text"],
)
def test_a_new_model_is_not_kept_for_others_that_could_not_be_made_of_it(
    given: dict[str, Any], features: Features
) -> None:
    """Of names that are ignored an event may bring any number, which would be held beside it."""
    models = store("amf-classifier", **given)
    apply_together(models, ["key"], [Event(features, "a", None)], predict=True, apart=False)
    assert (len(models), len(models.beginnings)) == (1, 0)
    apply_together(models, ["other"], [Event({"x": 0.5}, "a", None)], predict=True, apart=False)
    assert (len(models), len(models.beginnings)) == (2, 1)


def test_a_model_that_is_used_by_itself_leaves_and_comes_back_goes_on_with_the_others() -> None:
    """Between calls for all a forest grows a class and a feature, is away, comes back and is removed."""
    rng = np.random.default_rng(5)
    spill = FakeSpill()
    tight, free = Cache(1, spill), Cache()
    ours, theirs = (
        ModelStore(config(algorithm="amf-classifier", n_estimators=3).models.params_for, each) for each in (tight, free)
    )
    keys = [f"key-{i}" for i in range(6)]
    for number in range(40):
        events = {key: [Event({"x": rng.random(), "y": rng.random()}, "ab"[number % 2], None)] * 3 for key in keys}
        if number % 7 == 3:
            events[keys[number % 6]].append(Event({"x": 0.5, "y": 0.1, f"new-{number}": 1.0}, f"c-{number}", None))
        found = [pass_through(models, events, predict=True, together=models is ours) for models in (ours, theirs)]
        assert found[0] == found[1]
        if number % 5 == 4:
            tight.shrink()
            assert {entry.model for entry in ours.entries()} == {None}
        if number % 11 == 10:
            for models in (ours, theirs):
                models.drop(keys[0])
    for key in keys:
        mine, other = ours.entry(key), theirs.entry(key)
        assert mine is not None
        assert other is not None
        saved, expected = mine.saved(), other.saved()
        # When the depth was last looked at is no part of the state.
        assert (saved.data, saved.spec, saved.summary | {"depth": 0}) == (
            expected.data,
            expected.spec,
            expected.summary | {"depth": 0},
        )
        assert mine.scores == other.scores
    tight.shrink()
    for models in (ours, theirs):
        models.close()
    assert (tight.nbytes, tight.nodes, free.nbytes, free.nodes, spill.places) == (0, 0, 0, 0, [])


def test_an_evicted_model_gives_up_its_memory() -> None:
    tight = Cache(1, FakeSpill())
    models = ModelStore(config(n_estimators=3).models.params_for, tight)
    for _ in range(3):
        pass_through(models, {"key": [Event([0.1, 0.2], "a", None)]}, predict=True, together=True)
    entry = models.entry("key")
    assert entry is not None
    assert entry.model is not None
    forest = weakref.ref(entry.model.forest)
    tight.shrink()
    gc.collect()
    assert forest() is None


def test_a_model_that_learns_with_others_is_held_for_the_snapshot_first() -> None:
    models, rng = store("amf-classifier"), np.random.default_rng(0)
    events = {f"key-{i}": [Event(rng.random(2).tolist(), label, None) for label in "abab"] for i in range(5)}
    for _ in range(2):
        pass_through(models, events, predict=True, together=True)
    before = {model.key: model.forest.dumps() for model in models}
    copies, _ = models.snapshot()
    assert not models.dirty
    pass_through(models, events, predict=True, together=True)
    assert models.dirty
    assert {key: copy.take().data for key, copy in copies.items()} == before
    models.snapshot_done()
    assert not any(entry.clean for entry in models.entries())


@pytest.mark.parametrize("algorithm", ["amf-classifier", "adaptive-classifier", "bsp-regressor"])
def test_threads_change_nothing_and_come_where_there_are_events_for_them(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[int, int]] = set()

    def call(self: amf.Group, x: np.ndarray, *args: Any, n_threads: int = 1, **kwargs: Any) -> Any:
        seen.add((len(x), n_threads))
        return predict_learn(self, x, *args, n_threads=n_threads, **kwargs)

    predict_learn = amf.Group.predict_learn
    monkeypatch.setattr(amf.Group, "predict_learn", call)
    monkeypatch.setattr(many_models, "ROWS_A_THREAD", 4)
    alone, spread, rng = store(algorithm), store(algorithm), np.random.default_rng(3)
    spread.n_threads = 3
    labels: list[Label] = [0.5, 2.0] if algorithm.endswith("regressor") else ["a", "b"]
    for n_models in (9, 9, 9, 5, 2, 9):
        events = {f"key-{i}": [Event(rng.random(2).tolist(), label, None) for label in labels] for i in range(n_models)}
        found = [pass_through(models, events, predict=True, together=True) for models in (alone, spread)]
        assert found[0] == found[1]
    # Two events of each model; those that bring the second class are learned in a call of their own.
    of_new_classes = {(9, 1), (9, 2)} if algorithm.endswith("classifier") else set()
    assert seen == {(18, 1), (18, 3), (10, 1), (10, 2), (4, 1)} | of_new_classes
    for mine, other in zip(by_key(spread), by_key(alone), strict=True):
        assert figures(mine) == figures(other)


def test_a_task_has_the_threads_that_the_configuration_says() -> None:
    assert Task(0, config(threads=2), 1_000_000).models.n_threads == 2
    assert Task(0, config(), 1_000_000).models.n_threads == 1
