"""Rows in whatever form they come: what is missing, and what is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import amf

X = np.random.default_rng(0).normal(size=(20, 2))
Y = [0, 1] * 10
HOLES = np.where(X > 1.0, np.nan, X)
INTEGERS = pd.DataFrame({"a": pd.array([1, None] * 10, "Int64"), "b": 1.5})


def named(forest: amf.AMFClassifier, rows: Any) -> amf.AMFClassifier:
    """With the names that rows in a table would give it."""
    if isinstance(rows, pd.DataFrame):
        forest.add_features(list(rows.columns))
    return forest


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (np.ma.array(X, mask=X > 1.0), HOLES),
        (
            np.ma.array(np.arange(40).reshape(20, 2), mask=[[True, False]] * 20),
            [[np.nan, 2 * i + 1] for i in range(20)],
        ),
        (INTEGERS, [[1, 1.5], [np.nan, 1.5]] * 10),
        ([[1, pd.NA]] * 20, [[1, np.nan]] * 20),
        ([[1, pd.NaT]] * 20, [[1, np.nan]] * 20),
        (pd.DataFrame({"a": [True, None] * 10, "b": 1.0}), [[1, 1], [np.nan, 1]] * 10),
    ],
    ids=["masked", "masked integers", "Int64", "NA", "NaT", "booleans"],
)
def test_what_is_masked_or_na_is_missing(given: Any, meant: Any) -> None:
    ours, theirs = (named(amf.AMFClassifier(2), given).partial_fit(x, Y) for x in (given, np.array(meant, float)))
    assert ours.dumps() == theirs.dumps()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.array([[1, "NaT"]] * 20, "M8[s]"), "X holds dates .* give seconds since some day as float"),
        (pd.DataFrame({"a": pd.date_range("2020", periods=20)}), "X holds dates"),
        (np.array([[1, 2]] * 20, "m8[s]"), "X holds durations"),
        (X + 1j, "X holds complex numbers"),
        (X.astype("S"), "X holds bytes"),
        (csr_matrix(X), r"X is a csr_matrix, a sparse matrix; a forest takes dense rows: X.toarray\(\)"),
        ((row for row in X), r"^X is a generator; a forest takes rows of numbers \(n, d\)$"),
        ({"a": 1.0}, "^X is a dict; .* amf.Columns makes rows of objects with names and texts$"),
        ([{"a": 1.0}] * 20, "'dict'.*: amf.Columns makes rows of objects"),
        ([[pd.Timestamp("2020"), 1.0]] * 20, "'Timestamp'.*: give times as seconds since some day"),
        (np.array([[1.0, {2.0}]] * 20, object), "'set'.*: give NaN where a value is missing$"),
    ],
    ids=["M8", "frame of dates", "m8", "complex", "bytes", "sparse", "generator", "dict", "dicts", "times", "sets"],
)
def test_what_is_no_number_is_refused(given: Any, message: str) -> None:
    forest = amf.AMFClassifier(2)
    with pytest.raises(TypeError, match=message):
        forest.partial_fit(given, Y)
    assert forest.n_features == 0


def test_a_number_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="X holds a number beyond the range of float64"):
        amf.AMFClassifier(2).partial_fit([[10**400, 0.0]] * 20, Y)


# The names of a table's columns.

FRAME = pd.DataFrame(X, columns=["age", "height"])


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AMFRegressor])
def test_a_forest_has_the_names_of_the_first_table_and_takes_arrays_all_the_same(kind: Any) -> None:
    forest, other = kind(2).partial_fit(FRAME, Y), kind(2).partial_fit(X, Y)
    assert (forest.feature_names, other.feature_names) == (("age", "height"), None)
    np.testing.assert_array_equal(forest.predict(FRAME), other.predict(X))
    np.testing.assert_array_equal(forest.predict(X), other.predict(FRAME))
    assert forest.partial_fit(X, Y).partial_fit(FRAME, Y).n_samples == 60
    unlabelled = kind(2).partial_fit(FRAME, [None] * 20)
    assert unlabelled.feature_names is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ["height", "age"],
            r"X has the columns of this forest in another order: give X\[list\(forest.feature_names\)\]",
        ),
        (["age", "weight"], r"does not know, such as \['weight'\] and lacks .*, such as \['height'\]$"),
        (["age", "height", "weight"], r"does not know, such as \['weight'\]$"),
        (["age"], r"X lacks columns that it learned from, such as \['height'\]$"),
    ],
)
def test_a_table_of_other_columns_is_refused(columns: list[str], message: str) -> None:
    """By position each column would be another feature."""
    forest = amf.loads(amf.AMFClassifier(2).partial_fit(FRAME, Y).dumps())
    before, frame = forest.dumps(), FRAME.assign(weight=1.0)[columns]
    for call in (
        forest.predict_proba,
        forest.attribute,
        forest.weighted_depth,
        lambda rows: forest.partial_fit(rows, Y),
        lambda rows: forest.predict_learn(rows, Y),
    ):
        with pytest.raises(ValueError, match=message):
            call(frame)
    assert forest.dumps() == before
    np.testing.assert_array_equal(
        forest.predict_proba(FRAME[["height", "age"]][list(forest.feature_names or ())]), forest.predict_proba(X)
    )


@pytest.mark.parametrize("columns", [[0, 1], ["a", 1], ["a", "a"], pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])])
def test_columns_whose_names_are_no_different_texts_have_none(columns: Any) -> None:
    frame = pd.DataFrame(X, columns=columns)
    assert amf.AMFClassifier(2).partial_fit(frame, Y).feature_names is None
    assert amf.AMFClassifier(2).partial_fit(FRAME, Y).predict_proba(frame).shape == (20, 2)


def test_probabilities_of_quantiles_come_in_any_form() -> None:
    forest = amf.AMFRegressor(2).partial_fit(X, X[:, 0])
    listed = forest.predict_quantiles(X, [0.1, 0.9])
    np.testing.assert_array_equal(forest.predict_quantiles(X, (p for p in (0.1, 0.9))), listed)
    np.testing.assert_array_equal(forest.predict_quantiles(X, np.array([0.1, 0.9])), listed)
    np.testing.assert_array_equal(forest.predict_quantiles(X, 0.9), listed[:, 1:])
    with pytest.raises(ValueError, match=r"between 0 and 1, got \[1.5\]"):
        forest.predict_quantiles(X, 1.5)
