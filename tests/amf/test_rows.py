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
    ours, theirs = (amf.AMFClassifier(2).partial_fit(x, Y) for x in (given, np.array(meant, float)))
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


def test_probabilities_of_quantiles_come_in_any_form() -> None:
    forest = amf.AMFRegressor(2).partial_fit(X, X[:, 0])
    listed = forest.predict_quantiles(X, [0.1, 0.9])
    np.testing.assert_array_equal(forest.predict_quantiles(X, (p for p in (0.1, 0.9))), listed)
    np.testing.assert_array_equal(forest.predict_quantiles(X, np.array([0.1, 0.9])), listed)
    np.testing.assert_array_equal(forest.predict_quantiles(X, 0.9), listed[:, 1:])
    with pytest.raises(ValueError, match=r"between 0 and 1, got \[1.5\]"):
        forest.predict_quantiles(X, 1.5)
