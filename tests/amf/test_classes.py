"""Classes: what is one class, classes that appear, classes that are given."""

from __future__ import annotations

import enum

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import sealed, split
from reference import ReferenceForest
from reference_calibration import CalibratedForest
from rows import data, same_rows

import amf
from amf.inputs.labels import distinct


class Name(str, enum.Enum):  # noqa: UP042
    OK = "ok"
    BAD = "bad"


class Text(enum.StrEnum):
    OK = "ok"


class Whole(int, enum.Enum):
    ONE = 1


LABELS = st.one_of(st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))


def points(n, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def learned(labels, **parameters):
    return amf.AMFClassifier(2, **parameters).partial_fit(points(len(labels)), labels)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([1, "1", np.int64(1), np.str_("1")], [1]),
        (["true", True, np.True_], ["true"]),
        ([False, "false"], [False]),
        ([1, 1.0, True], [1, True]),
        ([0.0, -0.0, 0, "0"], [0.0]),
        ([2**53, 2.0**53, 2**53 + 1], [2**53, 2.0**53, 2**53 + 1]),
        ([Name.OK, "ok", Name.BAD, Text.OK, Whole.ONE, 1, "Name.OK"], ["ok", "bad", 1, "Name.OK"]),
        (["a", None, float("nan"), "b", "a"], ["a", "b"]),
        ([0.1, "0.1", 1e22, "1e+22"], [0.1, 1e22]),
        ([10**30, str(10**30)], [10**30]),
        (["", " "], ["", " "]),
    ],
    ids=str,
)
def test_a_class_is_the_text_of_its_label_and_shown_as_first_seen(labels, classes):
    forest = learned(labels)
    for known in (forest.class_labels, forest.classes_.tolist()):
        assert [(type(label), label) for label in known] == [(type(label), label) for label in classes]


@pytest.mark.parametrize(("y", "kind"), [([3, 1, 2], "i"), (["b", "a"], "U"), ([True, False], "b"), (["b", 1], "O")])
def test_classes_are_an_array_of_their_type_and_so_are_predictions(y, kind):
    forest = learned(y)
    assert forest.classes_.dtype.kind == forest.predict(points(3)).dtype.kind == kind
    assert set(forest.predict(points(3)).tolist()) <= set(y)


@given(st.lists(LABELS, min_size=1, max_size=20))
def test_any_label_survives_the_bytes(labels):
    forest = learned(labels)
    again = amf.loads(forest.dumps())
    assert [(type(label), label) for label in again.class_labels] == [(type(v), v) for v in forest.class_labels]
    assert again.dumps() == forest.dumps()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.booleans())
def test_many_classes_may_appear_at_any_row(seed, n_classes, with_room):
    """One call for all rows equals one call a row, wherever room for another class runs out."""
    rng = np.random.default_rng(seed)
    x, y = points(80, seed=seed), rng.integers(0, n_classes, 80).tolist()
    parameters = {"max_bytes": 64_000_000 if with_room else 20_000}
    whole, single = (amf.AMFClassifier(2, **parameters) for _ in range(2))
    table = whole.predict_learn(x, y)
    for row in range(80):
        got = single.predict_learn(x[row : row + 1], y[row : row + 1])
        np.testing.assert_array_equal(got[0], table[row, : got.shape[1]])
        assert not table[row, got.shape[1] :].any()
    assert single.dumps() == whole.dumps()


def test_the_row_that_brings_a_class_was_forecast_without_it():
    y = ["a", "a", "b", "a", "c", "b"]
    table = amf.AMFClassifier().predict_learn(points(6), y)
    np.testing.assert_array_equal(table > 0, [[0, 0, 0], *[[1, 0, 0]] * 2, *[[1, 1, 0]] * 2, [1, 1, 1]])
    np.testing.assert_allclose(table.sum(axis=1), [0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize("setting", [{"prior": "parent"}, {"prior": "dirichlet", "dirichlet": 0.3}], ids=str)
@pytest.mark.parametrize("charge_first", [False, True])
def test_classes_that_appear_equal_the_reference(setting, charge_first):
    x, _ = data(3, 90, 3, 4, grid=4, missing=0.1)
    x[0] = 0.0
    y = np.random.default_rng(3).integers(0, 1 + np.arange(90) // 15)
    _, first = np.unique(y, return_index=True)
    y = np.argsort(np.argsort(first))[y]  # numbered in the order of arrival, as the reference wants them
    setting = {**setting, "charge_first": charge_first}
    forest = amf.AMFClassifier(3, seed=4, scaling="none", **setting)
    reference = ReferenceForest(4, 3, n_features=3, n_classes=0, **setting)
    probabilities, raw = CalibratedForest(reference).predict_learn(x.astype(np.float32), y)
    got = forest.prequential(x, y)
    np.testing.assert_allclose(got.raw, raw, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.probabilities, probabilities, rtol=1e-9, atol=1e-12)
    same_rows(forest, reference)


# Classes that are given.


def test_given_classes_are_the_columns_from_the_start():
    forest = amf.AMFClassifier(classes=["b", 1, "a"])
    assert forest.classes_.tolist() == ["b", 1, "a"]
    np.testing.assert_allclose(forest.predict_proba(points(2)), np.full((2, 3), 1 / 3), rtol=1e-15)
    assert forest.predict(points(2)).tolist() == ["b", "b"]
    np.testing.assert_array_equal(forest.weighted_depth(points(2)), [0.0, 0.0])
    table = forest.predict_learn(points(3), ["a", "1", "a"])
    np.testing.assert_allclose(table[0], np.full(3, 1 / 3), rtol=1e-15)
    assert table[1].argmax() == 2


def test_a_label_outside_the_given_classes_is_refused():
    forest = learned(["a", "b"], classes=["a", "b"])
    before = forest.dumps()
    with pytest.raises(ValueError, match=r"y\[1\] is 'c', which is none of the given classes \['a', 'b'\]"):
        forest.partial_fit(points(3), ["a", "c", "b"])
    assert forest.dumps() == before


def test_too_many_classes_are_refused():
    forest = learned(["a", "b"], max_classes=3)
    before = forest.dumps()
    with pytest.raises(ValueError, match="more than max_classes=3"):
        forest.partial_fit(points(3), ["a", "c", "d"])
    assert forest.dumps() == before
    assert forest.partial_fit(points(2), ["a", "c"]).class_labels == ["a", "b", "c"]


def test_classes_that_cannot_be_added_change_nothing():
    forest = learned(["a", 7], max_classes=3)
    before = forest.dumps()
    for labels, message in [
        (["b", "c"], "more than max_classes=3"),
        (["b", "7"], "'7', a class already"),
        (["b", "b"], "'b', a class already"),
        (["b", None], "None, no label"),
        ([float("inf")], "infinite|is inf"),
        (["\ud83d\ude00"], "surrogate pair"),
    ]:
        with pytest.raises(ValueError, match=message):
            forest.add_classes(labels)
    with pytest.raises(TypeError, match="it must hold a label for each row"):
        forest.add_classes("b")
    assert forest.dumps() == before
    forest.add_classes(["b"])
    assert forest.class_labels == ["a", 7, "b"]
    given = learned(["a", "b"], classes=["a", "b"])
    with pytest.raises(ValueError, match=r"the classes are given, there is none but \['a', 'b'\]"):
        given.add_classes(["c"])
    with pytest.raises(ValueError, match="labels of AMFRegressor are numbers"):
        amf.AMFRegressor().add_classes([1.0])


def test_features_without_names_are_added_to_a_forest_without_features_alone():
    forest = amf.AMFClassifier(2, max_features=5)
    for n in (0, 6, True):
        with pytest.raises(ValueError, match="whole number from 1 to 5"):
            forest.add_features(n)
    with pytest.raises(ValueError, match="like is of features that have names"):
        forest.add_features(2, like=[None, None])
    forest.add_features(np.int64(2))
    assert (forest.n_features, forest.feature_names) == (2, None)
    with pytest.raises(ValueError, match="has 2 features already"):
        forest.add_features(1)


def test_classes_that_are_asked_for_while_another_one_comes_are_those_of_before(monkeypatch):
    """They are asked for out of turn, so that a thread may add one at any place."""
    forest, empty = amf.AMFClassifier(), np.empty
    forest.add_classes([1, "a"])

    def meanwhile(*shape):
        forest._classes.add("late")
        return empty(*shape)

    with monkeypatch.context() as patched:
        patched.setattr("amf.inputs.labels.np.empty", meanwhile)
        assert forest.classes_.tolist() == [1, "a"]
    assert forest.classes_.tolist() == [1, "a", "late"]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a"], "at least two labels, got 1"),
        ([1, "1"], "names one class twice"),
        (["a", None], "None or NaN"),
        ([0.5, float("nan")], "None or NaN"),
        (range(4), "max_classes is 3"),
        ({"a", "b"}, "classes is a set, which has no order; give a list"),
    ],
)
def test_bad_classes_are_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        amf.AMFClassifier(classes=classes, max_classes=3)


def test_of_equally_likely_classes_the_first_is_predicted():
    x = np.zeros((4, 1))
    # The calibration holds the younger label for a little more likely.
    forest = amf.AMFClassifier(classes=["a", "b", "c"], calibration=False).partial_fit(x, ["c", "b", "b", "c"])
    probabilities = forest.predict_proba(x[:1])[0]
    assert probabilities[1] == probabilities[2] > probabilities[0]
    assert forest.predict(x[:1]).tolist() == ["b"]


# Labels in whatever form they come.


def test_integers_are_the_same_classes_where_one_of_them_is_missing():
    forest = learned(np.array([0, 1] * 40))
    forest.partial_fit(points(80), np.array([0, 1, np.nan, 1] * 20))
    forest.partial_fit(points(2), [0.0, "1"])
    assert forest.class_labels == [0, 1]


@pytest.mark.parametrize("n", [5, 80])
def test_a_negative_zero_is_the_class_of_zero_in_one_batch_and_row_by_row(n):
    y = np.array([0.0, -0.0, 1.0, -0.0, 0.0] * (n // 5))
    whole, single = learned(y), amf.AMFClassifier(2)
    for row in range(n):
        single.partial_fit(points(n)[row : row + 1], y[row : row + 1])
    assert whole.class_labels == single.class_labels == [0.0, 1.0]
    assert whole.dumps() == single.dumps()


def test_members_of_enumerations_are_their_values_wherever_they_are_named():
    forest = learned([Name.OK, Name.BAD] * 3, classes=[Name.OK, Name.BAD])
    assert [type(label) for label in forest.class_labels] == [str, str]
    assert forest.partial_fit(points(2), [Name.OK, "bad"]).dumps() == amf.loads(forest.dumps()).dumps()
    assert [amf.class_text(label) for label in (Name.OK, Whole.ONE, 2.0, -0.0)] == ["ok", "1", "2", "0"]


@pytest.mark.parametrize("labels", [[5, 2**63 + 12345], [-5, 2**63], ["a", "a\0"], [2**63 + 1, 2**63 + 3]], ids=str)
def test_what_is_predicted_is_a_label_that_came(labels):
    forest = learned(labels * 10)
    assert forest.class_labels == forest.classes_.tolist() == labels
    for label in forest.predict(points(20)).tolist():
        assert (type(label), label) in [(type(known), known) for known in labels]


@pytest.mark.parametrize("system", [amf.AMFClassifier, amf.AMFRegressor])
def test_a_masked_label_or_row_by_itself_is_missing(system):
    """As iterating gives them: of a label numpy makes 0.0, of rows in a list what is under their masks."""
    y = np.ma.array([1, 2, 1, 2], mask=[False, True, False, False])
    x = np.ma.array(np.eye(4), mask=np.eye(4)[::-1])
    alone, whole = system(2), system(2)
    for row, label in zip(x, y, strict=True):
        alone.partial_fit([row], [label])
    whole.partial_fit(x, y)
    assert alone.n_samples == 3
    assert alone.dumps() == whole.dumps() == system(2).partial_fit(list(x), list(y)).dumps()


def test_labels_that_are_masked_are_missing():
    y = np.ma.array([0, 1, 2] * 30, mask=[False, True, False] * 30)
    forest = learned(y)
    assert (forest.n_samples, forest.class_labels) == (60, [0, 2])
    mean = amf.AMFRegressor(2).partial_fit(points(90), y.astype(float))
    assert mean.n_samples == 60


@pytest.mark.parametrize(
    ("dtype", "message"),
    [("M8[s]", "y holds dates .* seconds since"), ("m8[ns]", "y holds durations"), ("c16", "y holds complex numbers")],
)
@pytest.mark.parametrize("n", [3, 90])
def test_what_is_no_label_is_refused(dtype, message, n):
    for forest in (amf.AMFClassifier(2), amf.AMFRegressor(2)):
        with pytest.raises(TypeError, match=message):
            forest.partial_fit(points(n), np.arange(n).astype(dtype))


class ArrowArray(list):
    """What an array of Arrow has: its entries are no values of Python before they are asked for."""

    def __iter__(self):
        return iter([object()] * len(self))

    def to_pylist(self):
        return self[:]


def test_labels_may_come_in_an_array_of_arrow():
    assert learned(ArrowArray(["a", None, "b"])).dumps() == learned(["a", None, "b"]).dumps()
    x, y = points(3), [1.5, None, 2.0]
    assert amf.AMFRegressor(2).partial_fit(x, ArrowArray(y)).dumps() == amf.AMFRegressor(2).partial_fit(x, y).dumps()


@pytest.mark.parametrize("infinite", [np.inf, -np.inf, np.float32(np.inf)], ids=repr)
@pytest.mark.parametrize("as_given", [list, np.array, lambda y: np.array(y, object), pd.Series])
@pytest.mark.parametrize("n", [1, 2, 100])
def test_no_class_is_called_infinity(infinite, as_given, n):
    """It is what a division by zero left, as NaN is, which is a missing label."""
    forest = learned([1.0, None])
    before = forest.dumps()
    labels = [float(k % 3) for k in range(n)]
    labels[n // 2] = infinite
    with pytest.raises(ValueError, match=rf"^y\[{n // 2}\] is -?inf, which is no class: give None where the label is"):
        forest.partial_fit(points(n), as_given(labels))
    assert forest.dumps() == before
    assert learned(["inf", "-inf"]).class_labels == ["inf", "-inf"]


def test_bytes_with_a_class_that_is_called_infinity_are_refused():
    header, body = split(learned([1.5, 1e9]).dumps())
    with pytest.raises(amf.FormatError, match=r"classes\[1\] is inf, which is no class"):
        amf.loads(sealed(header.rstrip().replace(b"1000000000.0", b"Infinity"), body))


def test_many_labels_in_a_list_take_no_longer_than_in_an_array():
    y = list(range(30_000))
    labels, places, rows = distinct(y * 2)
    assert labels == y
    assert places.tolist() == y * 2
    assert rows.tolist() == y
    with pytest.raises(ValueError, match="more than max_classes"):
        learned(y)
