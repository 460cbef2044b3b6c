"""What is refused, with which words; a refused call leaves the forest as it was."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import amf


def ones(n, d=5):
    return np.ones((n, d))


BAD_PARAMETERS = [
    ({"n_estimators": 0}, "n_estimators must be a whole number from 1"),
    ({"n_estimators": 2.0}, "n_estimators must be a whole number"),
    ({"n_estimators": True}, "n_estimators must be a whole number"),
    ({"seed": -1}, "seed must be a whole number from 0"),
    ({"seed": 2**64}, "seed must be a whole number from 0"),
    ({"scaling": "minmax"}, "scaling must be 'auto' or 'none', got 'minmax'"),
    ({"mode": None}, "mode must be 'existing', 'sampled' or 'expected', got None"),
    ({"charge_first": 1}, "charge_first must be True or False"),
    ({"split_pure": "no"}, "split_pure must be True or False"),
    ({"calibration": 1}, "calibration must be True or False, got 1"),
    ({"purity": -1.0}, "purity must be a number from 0 to 1e\\+09"),
    ({"purity": True}, "purity must be a number from 0"),
    ({"max_bytes": 0}, "max_bytes must be a whole number from 1"),
    ({"max_bytes": 1e6}, "max_bytes must be a whole number"),
    ({"max_features": 0}, "max_features must be a whole number from 1"),
    ({"n_threads": 0}, "n_threads must be a whole number from 1"),
    ({"n_threads": -1}, "n_threads must be a whole number from 1"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=str)
def test_a_bad_parameter_is_named(system, parameters, message):
    params = system.kind.Parameters
    if not parameters.keys() <= {each.name for each in fields(params)} | {"n_threads"}:
        with pytest.raises(TypeError, match=str(*parameters)):
            system.new(**parameters)
        return
    with pytest.raises(ValueError, match=message):
        system.new(**parameters)


@pytest.mark.parametrize(
    "y",
    [
        pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, 4.0]}),
        pd.DataFrame({"u": [1.0, 2.0]}),
        {"a": 1, "b": 2},
        {1, 2},
        frozenset([0, 1]),
        bytearray(b"ab"),
        ones(2, 1),
        np.array(1),
    ],
    ids=["frame", "column", "mapping", "set", "frozenset", "bytearray", "table", "scalar"],
)
def test_what_is_no_row_of_labels_is_refused(system, y):
    """The names of a frame's columns, and the keys of a mapping, are not its labels, and a set has no order."""
    forest = system.new()
    for n in (1, 2):
        with pytest.raises(TypeError, match=r"y is a \w+.*; it must hold a label for each row, \(n,\)"):
            forest.partial_fit(ones(n), y)
    assert forest.n_samples == 0


@pytest.mark.parametrize("y", [1, 1.5, "a", None, np.float64(2.0), np.array(1), pd.NA, True], ids=repr)
def test_a_single_label_is_refused_with_what_to_give(system, y):
    with pytest.raises(TypeError, match=r"^y is a \w+.*; it must hold a label for each row, \(n,\)") as refused:
        system.new().partial_fit(ones(1), y)
    assert isinstance(y, str) or str(refused.value).endswith(
        "; give [label] for a single row, [None] where it has none"
    )


@pytest.mark.parametrize(
    "y", [np.zeros((2, 1)), pd.DataFrame({"y": [0, 1]}), pa.table({"y": [0, 1]})], ids=["array", "pandas", "arrow"]
)
def test_a_column_of_labels_is_refused_with_how_to_take_it(system, y):
    advice = r"; give its one column alone, as y\.ravel\(\) of an array and y\[name\] of a table$"
    with pytest.raises(TypeError, match=advice):
        system.new().partial_fit(ones(2), y)


def test_a_single_row_or_column_of_numbers_is_refused_with_how_to_give_it(system):
    for x in (ones(2)[0], pd.Series([1.0, 2.0])):
        with pytest.raises(
            ValueError, match=r"give \[row\] for a single row, X\.reshape\(-1, 1\) for a single feature"
        ):
            system.new().partial_fit(x, [0, 1])


def test_names_of_features_are_not_set_by_hand():
    """Where they were not as many as the features, the bytes of the forest could not be read."""
    forest = amf.AMFClassifier(1).partial_fit(ones(2), [0, 1])
    with pytest.raises(AttributeError, match="feature_names"):
        forest.feature_names = ["a"]
    assert amf.loads(forest.dumps()).feature_names is None


def test_names_may_come_from_a_generator():
    """They were used up by the look at their types, and none was added, without a word."""
    forest = amf.AMFClassifier(1)
    forest.add_features(name for name in "ab")
    assert forest.feature_names == ("a", "b")


@pytest.mark.parametrize("label", [Decimal("1.5"), Fraction(3, 2)], ids=repr)
def test_numbers_of_other_kinds_are_refused_with_what_to_give(system, label):
    """A Decimal of an event's JSON, say, is a number to whoever sends it."""
    given = [None, label], np.array([None, label], object)
    for y in given:
        with pytest.raises(TypeError, match=r"^y\[1\] is a (Decimal|Fraction); a label is .*: give float\(label\)$"):
            system.new().partial_fit(ones(2), y)


@pytest.mark.parametrize(
    ("names", "like", "kind"),
    [
        ("abc", None, TypeError),
        (["z"], [0.0], TypeError),
        (["z"], ["a"], TypeError),
        (["z"], [False], TypeError),
        (["z"], [1], ValueError),
        (["y", "z"], [2, None], ValueError),
        (["z"], [-1], ValueError),
        (["z"], [0, 0], ValueError),
        (["a"], None, ValueError),
    ],
)
def test_bad_columns_leave_the_forest_as_it_was(system, names, like, kind):
    forest = system.new()
    forest.add_features(["a"])
    with pytest.raises(kind):
        forest.add_features(names, like=like)
    assert forest.feature_names == ("a",)
    assert forest.dumps()


def test_a_parameter_that_there_is_not_is_named_with_those_that_there_are(system):
    with pytest.raises(TypeError, match=r"^\w+ has no parameter 'random_state'; there are .*n_threads.*, seed"):
        system.new(random_state=3)
    with pytest.raises(TypeError, match=r"^\w+ has no parameter 'random_state'; there are "):
        type(system.new()).preset("default", random_state=3)


def test_numbers_of_numpy_are_parameters_as_those_of_python_are(system):
    """Searches over parameters hand them in."""
    given = system.new(n_estimators=np.int64(2), seed=np.uint64(3), calibration=np.bool_(False), n_threads=np.int8(1))
    assert given.dumps() == system.new(n_estimators=2, seed=3, calibration=False).dumps()
    assert given.with_seed(np.int64(4)).dumps() == given.with_seed(4).dumps()


BAD_PARAMETERS_OF_ONE = [
    (amf.AMFClassifier, {"prior": None}, "prior must be 'parent' or 'dirichlet'"),
    (amf.AMFClassifier, {"smoothing": 0.0}, "smoothing must be a number from 1e-09 to 1e\\+09, got 0.0"),
    (amf.AMFClassifier, {"smoothing": float("nan")}, "smoothing must be a number from 1e-09"),
    (amf.AMFClassifier, {"prior": "dirichlet", "dirichlet": 10**400}, "dirichlet must be a number from 1e-09"),
    (amf.AMFClassifier, {"classes": "ab"}, "classes is a str; give a list of the labels, in the order of the columns"),
    (amf.AMFClassifier, {"classes": {"a": 0, "b": 1}}, "classes is a dict; give a list"),
    (amf.AMFClassifier, {"classes": 3}, "classes is a int; give a list of the labels, in the order of the columns"),
    (amf.AMFClassifier, {"pause": 0.0}, "pause must be a number from 1e-06 to 1, got 0.0"),
    (amf.AMFClassifier, {"dirichlet": 0.5}, "dirichlet needs prior='dirichlet'"),
    (amf.AMFRegressor, {"loss": "log"}, "loss must be 'student' or 'square', got 'log'"),
    (amf.AMFRegressor, {"loss": "square"}, "loss='square' needs bound"),
    (amf.AMFRegressor, {"loss": "square", "bound": 0}, "bound must be a number from 1e-75 to 1e\\+75, got 0"),
    (amf.AMFRegressor, {"bound": 1.0}, "bound needs loss='square'"),
]


@pytest.mark.parametrize(("new", "parameters", "message"), BAD_PARAMETERS_OF_ONE, ids=str)
def test_a_bad_parameter_of_one_system_is_named(new, parameters, message):
    with pytest.raises(ValueError, match=message):
        new(**parameters)


def test_a_parameter_or_preset_that_does_not_exist_is_an_error(system):
    with pytest.raises(TypeError, match="learning_rate"):
        system.new(learning_rate=1)
    with pytest.raises(ValueError, match="preset must be 'default' or 'paper', got 'best'"):
        system.kind.preset("best")


BAD_CALLS = {
    "one dimension": (lambda f, ask, a, b: f.partial_fit(np.ones(5), [a]), r"got shape \(5,\): give \[row\] for"),
    "three dimensions": (lambda f, ask, a, b: ask(np.ones((1, 5, 1))), r"two dimensions .*got shape \(1, 5, 1\)"),
    "too narrow": (lambda f, ask, a, b: f.partial_fit(ones(1, 4), [a]), "X has 4 features, this forest learned from 5"),
    "too wide": (lambda f, ask, a, b: ask(ones(1, 6)), "X has 6 features, this forest learned from 5"),
    "no features": (lambda f, ask, a, b: ask(np.ones((2, 0))), "X has 0 features"),
    "too few labels": (lambda f, ask, a, b: f.partial_fit(ones(3), [a, a]), "y has 2 labels for 3 rows of X"),
    "infinite": (lambda f, ask, a, b: f.partial_fit([[0] * 5, [0, 0, 0, -np.inf, 0]], [a, b]), r"X\[1, 3\] is inf"),
    "infinite float32": (lambda f, ask, a, b: ask(np.float32([[0, np.inf, 0, 0, 0]])), r"X\[0, 1\] is inf"),
    "text": (lambda f, ask, a, b: f.partial_fit([["a", "b", "c", "d", "e"]], [a]), "could not convert string"),
    "label is a list": (lambda f, ask, a, b: f.partial_fit(ones(2), [a, [a]]), r"y\[1\] is a list; a label is"),
    "label is bytes": (lambda f, ask, a, b: f.partial_fit(ones(2), [b"no", a]), r"y\[0\] is a bytes; a label is"),
    "labels in columns": (
        lambda f, ask, a, b: f.partial_fit(ones(2), np.ones((2, 1))),
        "it must hold a label for each row",
    ),
    "labels in a text": (lambda f, ask, a, b: f.partial_fit(ones(3), "abc"), "y is a str; it must hold a label for"),
    "names for an array": (lambda f, ask, a, b: f.add_features(["a"]), "the features of this forest have no names"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_says_what_is_wrong_and_learns_nothing(system, call):
    forest, *_ = system.learned()
    before = forest.dumps()
    do, message = BAD_CALLS[call]
    with pytest.raises((ValueError, TypeError), match=message):
        do(forest, lambda x: system.ask(forest, x), *system.examples)
    assert forest.dumps() == before


@pytest.mark.parametrize(
    ("label", "error", "message"),
    [
        ("3", TypeError, r"y\[1\] is '3'; a label is a number, or None"),
        (True, TypeError, r"y\[1\] is True; a label is a number, or None"),
        (float("inf"), ValueError, r"y\[1\] is inf; labels must lie within 1e\+75 of 0"),
        (-1e76, ValueError, r"y\[1\] is -1e\+76"),
    ],
)
def test_a_label_that_is_no_usable_number_is_refused_by_a_regressor(label, error, message):
    forest = amf.AMFRegressor().partial_fit(ones(2), [1.0, 2.0])
    before = forest.dumps()
    with pytest.raises(error, match=message):
        forest.partial_fit(ones(2), [1.0, label])
    assert forest.dumps() == before


def test_limits_are_errors_and_nothing_is_learned(system):
    forest = system.new(max_features=3)
    empty = forest.dumps()
    with pytest.raises(ValueError, match="X has 4 features; it needs 1 to max_features=3"):
        forest.partial_fit(ones(1, 4), [system.examples[0]])
    with pytest.raises(ValueError, match="4 features are more than max_features=3"):
        forest.add_features(["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="named twice"):
        forest.add_features(["a", "b", "a"])
    with pytest.raises(TypeError, match=r"the name of a feature is a str in a list of names, got \[1\]"):
        forest.add_features([1])
    forest.add_features([])
    assert forest.dumps() == empty
    forest.add_features(["a", "b"])
    named = forest.dumps()
    with pytest.raises(ValueError, match=r"named twice: \['b'\]"):
        forest.add_features(["b"])
    assert forest.dumps() == named
    forest.partial_fit(ones(1, 2), [system.examples[0]])
    assert forest.n_samples == 1


def test_a_forecast_before_the_first_label_is_an_error(system):
    forest = system.new()
    forest.partial_fit(ones(2), [None, None])
    for question in system.questions:
        with pytest.raises(ValueError, match="seen no label yet") as refused:
            getattr(forest, question)(ones(1))
        assert ("classes" in str(refused.value)) == (forest.class_labels is not None)
    said = forest.predict_learn(ones(2), [None, None])
    assert len(said) == 2
    assert np.all(np.isnan(said))
    assert forest.dumps() == system.new().dumps()


def test_no_rows_are_no_error(system):
    forest, x, _ = system.learned()
    before = forest.dumps()
    assert forest.predict_learn(np.empty((0, 5)), []).shape == (0, *system.ask(forest, x).shape[1:])
    assert forest.predict(np.empty((0, 5))).shape == (0,)
    assert forest.dumps() == before


def test_a_class_too_long_for_a_text_is_refused():
    """Python writes no more than 4,300 digits."""
    forest = amf.AMFClassifier(2)
    with pytest.raises(ValueError, match="a label is a whole number of some 16610 bits, too long for a text"):
        forest.partial_fit(ones(2), [10**5000, 1])
    assert forest.n_samples == 0


@pytest.mark.parametrize(
    ("probabilities", "error", "message"),
    [
        (["a"], TypeError, r"probabilities must be numbers between 0 and 1, got \['a'\]"),
        ([0.5, None], TypeError, "probabilities must be numbers"),
        ([0.5, 1.0], ValueError, "probabilities must lie between 0 and 1"),
    ],
)
def test_probabilities_that_are_none_are_named(probabilities, error, message):
    forest = amf.AMFRegressor(2).partial_fit(ones(2), [1.0, 2.0])
    with pytest.raises(error, match=message):
        forest.predict_quantiles(ones(2), probabilities)


def test_texts_are_sent_to_columns(system):
    for rows in ([[1.0, "Rome"]], np.array([[1.0, "Rome"]], object)):
        with pytest.raises(ValueError, match=r"X holds text .*'Rome'.*amf\.Columns makes rows of objects"):
            system.new().partial_fit(rows, [None])


@pytest.mark.parametrize("given", [3, None, amf.AMFClassifier, b"bytes"], ids=repr)
def test_what_is_no_forest_has_no_bytes(given):
    with pytest.raises(TypeError, match=r"^expected a forest, got .*`forest_`, a model for river as `forest`$"):
        amf.dumps(given)


@pytest.mark.parametrize(
    "systems", [["amf-classifier"], "amf-classifier", amf.AMFClassifier, 3, [amf.AMFClassifier(1)]]
)
def test_kernels_are_those_of_classes_in_a_list(systems):
    with pytest.raises(
        TypeError, match=r"^systems must be a list of classes of forests, got .*amf\.SYSTEMS\['amf-clas"
    ):
        amf.compile_kernels(systems)


def test_a_forest_has_the_parameters_of_its_own_system():
    """With those of a system that derives from its own it learned, and none of its checkpoints could be read."""
    for params in (amf.AdaptiveAMFClassifierParams(), amf.AMFRegressorParams(), {}, None):
        with pytest.raises(TypeError, match=r"^AMFClassifier has AMFClassifierParams, got "):
            amf.AMFClassifier.from_params(params)
