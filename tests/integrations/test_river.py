"""The river models: river's own checks, all of them, and what these do not ask."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from river import checks, compose, datasets, evaluate, forest, metrics, preprocessing

import amf
from amf.integrations.river import AdaptiveAMFClassifier, AdaptiveAMFRegressor, AMFClassifier, AMFRegressor

MODELS = [AMFClassifier, AMFRegressor, AdaptiveAMFClassifier, AdaptiveAMFRegressor]
CITIES = ["Rome", "Oslo", "Bern"]

models = pytest.mark.parametrize("kind", MODELS)


def own_checks() -> list[Any]:
    found = [(kind, check) for kind in MODELS for check in checks.yield_checks(kind())]
    return [
        pytest.param(kind, check, id=f"{kind.__name__}-{number}-{check.__name__}")
        for number, (kind, check) in enumerate(found)
    ]


@pytest.mark.parametrize(("kind", "check"), own_checks())
def test_rivers_own_checks_pass(kind: type, check: Callable[[Any], None]) -> None:
    model = kind()
    assert not model._unit_test_skips()
    check(model)


def stream(kind: type, n: int = 150, *, seed: int = 0) -> list[tuple[dict[str, Any], Any]]:
    """Samples whose labels depend on a number and on a category, either of which may be missing or absent."""
    rng = np.random.default_rng(seed)
    samples = []
    for row in range(n):
        age, city = float(rng.normal(40, 10)), CITIES[rng.integers(0, 1 + row * 3 // n)]
        signal = age + (30 if city == "Oslo" else 0)
        x = {"age": age, "city": city, "noise": float(rng.normal())}
        for name in ("age", "city", "noise"):
            if rng.random() < 0.1:
                x[name] = None
            elif rng.random() < 0.1:
                del x[name]
        samples.append((x, signal if issubclass(kind, AMFRegressor) else signal > 50))
    return samples


def learned(model: Any, samples: list[tuple[dict[str, Any], Any]]) -> Any:
    for x, y in samples:
        model.learn_one(x, y)
    return model


def forecast(model: Any, x: dict[str, Any]) -> Any:
    return model.predict_proba_one(x) if isinstance(model, AMFClassifier) else model.predict_one(x)


@models
def test_a_model_is_the_forest_with_that_seed(kind: type) -> None:
    samples = [({"a": float(a), "b": float(b)}, y) for (a, b), y in zip(NUMBERS, LABELS[kind], strict=True)]
    model = learned(kind(4, seed=9, max_bytes=10**6), samples)
    other = getattr(amf, kind.__name__)(4, seed=9, max_bytes=10**6)
    other.add_features(["a", "b"])
    other.partial_fit(NUMBERS, LABELS[kind])
    assert model.forest.dumps() == other.dumps()
    if issubclass(kind, AMFClassifier):
        expected = dict(zip(other.class_labels, other.predict_proba(NUMBERS[:1])[0], strict=True))
    else:
        expected = other.predict(NUMBERS[:1])[0]
    assert forecast(model, samples[0][0]) == expected


NUMBERS = np.random.default_rng(0).normal(size=(60, 2))
LABELS = {kind: (NUMBERS[:, 0] if issubclass(kind, AMFRegressor) else NUMBERS[:, 0] > 0).tolist() for kind in MODELS}


@models
def test_before_the_first_label_there_is_no_class_and_the_number_is_zero(kind: type) -> None:
    """As river's own models have it, whose wrappers reckon with a number."""
    model, table = kind(3), pd.DataFrame({"a": [1.0, 2.0]}, index=[7, 8])
    model.learn_one({"a": 1.0}, None)
    if issubclass(kind, AMFClassifier):
        assert model.predict_one({"a": 1.0, "b": "x"}) is None
        assert model.predict_proba_one({"a": 1.0}) == {}
        assert model.predict_proba_many(table).shape == (2, 0)
    else:
        assert model.predict_one({"a": 1.0, "b": "x"}) == 0.0
        assert model.predict_many(table).to_dict() == {7: 0.0, 8: 0.0}
    assert model.forest.feature_names is None


def test_a_category_tells_as_much_as_a_number() -> None:
    model = AMFClassifier(seed=0)
    for row in range(60):
        model.learn_one({"city": CITIES[row % 3]}, CITIES[row % 3].upper())
    for city in CITIES:
        assert model.predict_one({"city": city}) == city.upper()
        assert model.predict_proba_one({"city": city})[city.upper()] > 0.9


@models
def test_features_come_with_what_is_learned_and_not_with_what_is_asked(kind: type) -> None:
    model = learned(kind(3, seed=0), stream(kind, 20))
    before = model.forest.dumps()
    forecast(model, {"age": 30.0, "height": 1.8, "city": "Lima"})
    assert model.forest.dumps() == before
    model.learn_one({"height": 1.8}, None)
    model.learn_one({"height": 1.8}, float("nan"))
    assert model.forest.dumps() == before
    model.learn_one({"height": 1.8}, 1)
    assert model.forest.feature_names[-1] == "height"


@models
def test_a_batch_is_bit_for_bit_one_sample_after_the_other(kind: type) -> None:
    samples = stream(kind)
    samples[5] = (samples[5][0], None)
    one, many = learned(kind(4, seed=2), samples), kind(4, seed=2)
    for start, stop in ((0, 1), (1, 40), (40, 150)):
        x, y = zip(*samples[start:stop], strict=True)
        many.learn_many(pd.DataFrame(list(x)), pd.Series(y, dtype=object))
    assert many.forest.dumps() == one.forest.dumps()

    table = pd.DataFrame([x for x, _ in samples[:9]], index=range(50, 59))
    if issubclass(kind, AMFClassifier):
        rows = many.predict_proba_many(table).to_dict("index")
    else:
        rows = many.predict_many(table).to_dict()
    assert rows == {50 + place: forecast(one, x) for place, (x, _) in enumerate(samples[:9])}


@models
def test_tables_of_arrow_are_learned_and_answered_in_kind(kind: type) -> None:
    """As river's own methods for many rows take them: it hands on what it was given in a pipeline."""
    frame = pd.DataFrame({"a": NUMBERS[:, 0], "c": np.where(NUMBERS[:, 1] > 0.5, "u", None)})
    table, labels = pa.Table.from_pandas(frame), LABELS[kind]
    one, other = kind(3, seed=1), kind(3, seed=1)
    empty = [None] * 60 if issubclass(kind, AMFClassifier) else [0.0] * 60
    assert one.predict_many(table).to_pylist() == other.predict_many(frame).tolist() == empty
    one.learn_many(table, pa.array(labels))
    other.learn_many(frame, pd.Series(labels))
    assert one.forest.dumps() == other.forest.dumps()
    assert one.predict_many(table).to_pylist() == other.predict_many(frame).tolist()
    if issubclass(kind, AMFClassifier):
        by_name = {str(name): column.tolist() for name, column in other.predict_proba_many(frame).items()}
        assert one.predict_proba_many(table).to_pydict() == by_name
    twice = pa.table([[1.0], [2.0]], names=["a", "a"])
    for call in (one.predict_many, lambda rows: one.learn_many(rows, labels[:1])):
        with pytest.raises(ValueError, match=r"X has two columns of one name, such as \['a'\]"):
            call(twice)
        with pytest.raises(TypeError, match="ndarray"):
            call(NUMBERS)


@models
def test_labels_of_a_batch_may_be_a_list_and_are_as_many_as_its_rows(kind: type) -> None:
    table = pd.DataFrame(NUMBERS, columns=["a", "b"])
    listed, others = kind(3, seed=1), (kind(3, seed=1), kind(3, seed=1))
    listed.learn_many(table, LABELS[kind])
    for other, labels in zip(others, (pd.Series(LABELS[kind]), np.array(LABELS[kind])), strict=True):
        other.learn_many(table, labels)
        assert other.forest.dumps() == listed.forest.dumps()
    with pytest.raises(ValueError, match="y has 2 labels for 60 rows of X"):
        listed.learn_many(table, [1, 0])
    assert listed.forest.n_samples == 60


@pytest.mark.parametrize("kind", [AMFRegressor, AdaptiveAMFRegressor])
def test_a_regressor_works_within_rivers_wrappers(kind: type) -> None:
    for wrapped in (
        preprocessing.TargetStandardScaler(kind(3, seed=1)),
        compose.TargetTransformRegressor(kind(3, seed=1), func=lambda y: 2 * y, inverse_func=lambda y: y / 2),
    ):
        evaluate.progressive_val_score(islice(datasets.TrumpApproval(), 50), wrapped, metrics.MAE())
        assert wrapped.predict_one(next(iter(datasets.TrumpApproval()))[0]) > 0


def test_a_time_that_is_missing_is_missing() -> None:
    model, other = AMFClassifier(2, seed=1), AMFClassifier(2, seed=1)
    model.learn_one({"a": 1.0, "since": pd.NaT}, "x")
    model.learn_one({"a": 2.0}, pd.NaT)
    other.learn_one({"a": 1.0}, "x")
    assert model.forest.dumps() == other.forest.dumps()


@models
def test_neither_the_order_within_an_object_nor_the_type_of_a_name_matters(kind: type) -> None:
    samples = stream(kind, 40)
    turned = [(dict(reversed(x.items())), y) for x, y in samples]
    assert learned(kind(3, seed=1), turned).forest.dumps() == learned(kind(3, seed=1), samples).forest.dumps()
    model = kind(3, seed=1)
    model.learn_one({10: 0.5, "b": 1.0}, 1)
    assert model.forest.feature_names == ("10", "b")


@models
def test_a_seed_is_drawn_where_none_is_given(kind: type) -> None:
    samples = stream(kind, 40)

    def bytes_of(seed: int | None) -> bytes:
        return learned(kind(3, seed=seed), samples).forest.dumps()

    assert bytes_of(1) == bytes_of(1) != bytes_of(2)
    assert bytes_of(None) != bytes_of(None)


@models
def test_a_clone_has_the_parameters_and_none_of_the_learning(kind: type) -> None:
    model = learned(kind(3, seed=1, max_bytes=10**6), stream(kind, 40))
    clone = model.clone({"n_estimators": 2})
    assert (clone.forest.params.n_estimators, clone.forest.params.max_bytes) == (2, 10**6)
    assert clone.forest.n_samples == 0
    assert "max_bytes" in repr(clone)


PASSED_ON = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "clone": lambda model: model.clone(include_attributes=True),
}


@models
@pytest.mark.parametrize("passed_on", PASSED_ON.values(), ids=PASSED_ON)
def test_a_copy_goes_on_learning_on_its_own_bit_for_bit(kind: type, passed_on: Callable[[Any], Any]) -> None:
    samples = stream(kind)
    model = learned(kind(3, seed=1), samples[:30])
    before, copied = model.forest.dumps(), passed_on(model)
    learned(copied, samples[30:])
    assert model.forest.dumps() == before
    assert copied.forest.dumps() == learned(model, samples[30:]).forest.dumps()


@models
def test_memory_is_that_of_the_forest(kind: type) -> None:
    model = kind(3, seed=1)
    small = model._raw_memory_usage
    learned(model, stream(kind))
    assert model._raw_memory_usage == model.forest.nbytes > small


@models
def test_a_parameter_or_a_value_that_cannot_be_is_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="surprise"):
        kind(surprise=1)
    with pytest.raises(ValueError, match="n_estimators"):
        kind(n_estimators=0)
    model = learned(kind(3, max_features=2), [({"a": 1.0, "b": 2.0}, 1)])
    with pytest.raises(ValueError, match="max_features"):
        model.learn_one({"c": 1.0}, 1)
    with pytest.raises(ValueError, match="infinite"):
        model.learn_one({"a": float("inf")}, 1)


def test_samples_without_any_feature_wait_for_the_first_that_has_one() -> None:
    model = learned(AMFClassifier(3, seed=0), [({}, "a"), ({"x": 1.0}, "b"), ({}, "b")])
    assert model.predict_proba_one({}) == {"b": pytest.approx(1.0)}
    assert model.forest.n_samples == 2


@pytest.mark.parametrize(
    ("own", "rivers", "rows", "metric"),
    [
        (AMFClassifier, forest.AMFClassifier, datasets.Phishing, metrics.LogLoss),
        (AMFRegressor, forest.AMFRegressor, lambda: islice(datasets.TrumpApproval(), 500), metrics.MAE),
    ],
    ids=["classifier", "regressor"],
)
def test_it_beats_rivers_own_in_rivers_own_evaluation(own: Any, rivers: Any, rows: Any, metric: Any) -> None:
    models = own(seed=1), preprocessing.MinMaxScaler() | rivers(seed=1)
    ours, theirs = (evaluate.progressive_val_score(rows(), model, metric()).get() for model in models)
    assert ours < theirs


def test_two_features_of_one_name_are_refused() -> None:
    """One of them would be lost, as pandas does with columns."""
    model, frame = AMFClassifier(2, seed=1), pd.DataFrame([[1.0, 2.0], [3.0, 4.0]])
    for columns in (["a", "a"], [1, 1]):
        for call in (lambda rows: model.learn_many(rows, [0, 1]), model.predict_many, model.predict_proba_many):
            with pytest.raises(ValueError, match=r"X has two columns of one name, such as \S+: give each"):
                call(frame.set_axis(columns, axis=1))
    for call in (
        lambda: model.learn_one({1: 1.0, "1": 2.0}, 0),
        lambda: model.learn_many(frame.set_axis([1, "1"], axis=1), [0, 1]),
    ):
        with pytest.raises(ValueError, match="two features have one name as text, such as '1'"):
            call()
    assert model.forest.n_samples == 0


@pytest.mark.parametrize("labels", [{0: "a", 1: "b"}, "ab", {"a"}, 1, pd.DataFrame({"y": [0, 1]})], ids=repr)
def test_what_is_no_row_of_labels_is_refused_in_a_batch(labels: Any) -> None:
    with pytest.raises(TypeError, match=r"y is a \w+.*; it must hold a label for each row"):
        AMFClassifier(2).learn_many(pd.DataFrame({"a": [1.0, 2.0]}), labels)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"a": np.inf}, ValueError, "feature 'a' of row 4 is infinite"),
        ({"c": ("t",)}, TypeError, "feature 'c' is a tuple"),
        ({"label": "high"}, TypeError, r"y\[4\] is 'high'"),
        ({"c": "w"}, ValueError, "7 features are more than max_features=6"),
    ],
    ids=str,
)
def test_of_a_batch_with_a_row_that_is_refused_nothing_is_learned(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Whoever mends the row and gives the batch once more has learned none of the others twice."""
    rows: list[dict[str, Any]] = [{"a": float(i), "c": "xyzxy"[i], "label": 0.5} for i in range(5)]
    broken = pd.DataFrame([*rows[:4], rows[4] | changes])
    model, other = (AMFRegressor(2, seed=1, max_features=6) for _ in range(2))
    for one in (model, other):
        one.learn_one({"b": 1.0}, 1)
    before = model.forest.dumps()
    with pytest.raises(error, match=message):
        model.learn_many(broken[["a", "c"]], broken["label"].tolist())
    assert model.forest.dumps() == before
    for one in (model, other):
        one.learn_many(pd.DataFrame(rows)[["a", "c"]], [0.5] * 5)
    assert model.forest.dumps() == other.forest.dumps()


def test_what_is_refused_brings_no_columns() -> None:
    model = AMFClassifier(seed=1, n_estimators=2)
    model.learn_one({"a": 1.0}, 0)
    before = model.forest.dumps()
    for value in (np.inf, np.float32("-inf")):
        for name in ("a", "b"):
            with pytest.raises(ValueError, match=f"feature '{name}' is infinite"):
                model.learn_one({name: value, "c": "q"}, 1)
    assert model.forest.dumps() == before
    assert model._learner.columns.names == ["a"]


def test_what_pandas_has_for_missing_is_missing() -> None:
    model, other = (AMFClassifier(seed=1, n_estimators=2) for _ in range(2))
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": pd.array(["u", "v", None], "string")})
    model.learn_many(frame, pd.Series([1, None, 0], dtype="Int64"))
    model.learn_one({"a": 1}, pd.NA)
    for x, y in [({"a": 1.0, "b": "u"}, 1), ({"b": "v"}, None), ({"a": 3.0}, 0)]:
        other.learn_one(x, y)
    assert model.forest.dumps() == other.forest.dumps()
    assert model.predict_proba_one({"a": pd.NA}) == other.predict_proba_one({})


@pytest.mark.parametrize("kind", [AMFClassifier, AdaptiveAMFClassifier])
def test_given_classes_are_equally_likely_before_the_first_label(kind: type) -> None:
    model = kind(2, seed=1, classes=["a", "b"])
    for sample in ({}, {"x": 1.0}, {"x": "red"}):
        assert model.predict_proba_one(sample) == {"a": 0.5, "b": 0.5}
        assert model.predict_one(sample) in ("a", "b")
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]})
    assert model.predict_proba_many(frame).to_numpy().tolist() == [[0.5, 0.5]] * 3


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"b": 1.0}, "c", "none of the given classes"),
        ({"b": 1.0}, b"a", "y.0. is a bytes"),
        ({"b": Decimal("-Infinity")}, "a", "feature 'b' is infinite"),
        ({"b": np.array(np.inf)}, "a", "feature 'b' is infinite"),
    ],
)
def test_a_sample_that_is_refused_leaves_no_column_behind(x: dict[str, Any], y: Any, message: str) -> None:
    model = AMFClassifier(2, seed=1, classes=["a", "b"])
    model.learn_one({"a": 1.0}, "a")
    before = model.forest.dumps()
    with pytest.raises((TypeError, ValueError), match=message):
        model.learn_one(x, y)
    assert model.forest.dumps() == before
    assert model._learner.columns.names == ["a"]
