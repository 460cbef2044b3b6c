"""Rows in whatever form they come: what is missing, and what is no number."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
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
        (np.array([[b"1.5", 1.0]] * 20, object), "X holds bytes"),
        ([[np.datetime64("2020"), 1.0]] * 20, "X holds dates .* give seconds since some day as float"),
        ([[np.timedelta64(1, "s"), 1.0]] * 20, "X holds durations"),
        (pd.DataFrame(X, columns=["a", "b"]).to_records(index=False), "X holds records"),
        (csr_matrix(X), r"X is a csr_matrix, a sparse matrix; a forest takes dense rows: X.toarray\(\)"),
        ((row for row in X), r"^X is a generator; a forest takes rows of numbers \(n, d\)$"),
        ({"a": 1.0}, "^X is a dict; .* amf.Columns makes rows of objects with names and texts$"),
        ([{"a": 1.0}] * 20, "'dict'.*: amf.Columns makes rows of objects"),
        ([[pd.Timestamp("2020"), 1.0]] * 20, "'Timestamp'.*: give times as seconds since some day"),
        (np.array([[1.0, {2.0}]] * 20, object), "'set'.*: give NaN where a value is missing$"),
    ],
    ids=[
        *("M8", "frame of dates", "m8", "complex", "bytes", "byte", "date", "duration", "records"),
        *("sparse", "generator", "dict", "dicts", "times", "sets"),
    ],
)
def test_what_is_no_number_is_refused(given: Any, message: str) -> None:
    forest = amf.AMFClassifier(2)
    with pytest.raises(TypeError, match=message):
        forest.partial_fit(given, Y)
    assert forest.n_features == 0


@pytest.mark.parametrize(
    "given", [pd.DataFrame({"a": ["04109", "1_000"] * 10}), np.array([["04109"]] * 20)], ids=["frame", "array"]
)
def test_texts_are_no_numbers_though_they_look_like_it(given: Any) -> None:
    """Such as codes are, which numpy makes numbers of."""
    with pytest.raises(ValueError, match=r"X holds text \('04109'\)"):
        amf.AMFClassifier(2).partial_fit(given, Y)


def test_a_number_beyond_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="X holds a number beyond the range of float64"):
        amf.AMFClassifier(2).partial_fit([[10**400, 0.0]] * 20, Y)


LONG = np.where(np.arange(40).reshape(20, 2) == 5, np.longdouble("1e4000"), X.astype(np.longdouble))


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="long doubles are float64 here")
@pytest.mark.parametrize("given", [LONG, list(LONG), np.ma.array(LONG, mask=X > 100)], ids=["array", "list", "masked"])
def test_a_long_double_beyond_float64_is_named(given: Any) -> None:
    """Without a warning of numpy, which an error here would be."""
    with pytest.raises(ValueError, match=r"^X\[2, 1\] is 1e\+4000, a number beyond the range of float64$"):
        amf.AMFClassifier(2).partial_fit(given, Y)
    with pytest.raises(ValueError, match=r"^y\[5\] is 1e\+4000; labels must lie within"):
        amf.AMFRegressor(2).partial_fit(np.zeros((40, 1)), LONG.ravel())


def test_long_doubles_are_numbers() -> None:
    holes = HOLES.astype(np.longdouble)
    holes[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[3, 1\] is infinite"):
        amf.AMFClassifier(2).partial_fit(holes, Y)
    masked = np.ma.array(holes, mask=np.isinf(holes))
    ours, theirs = amf.AMFClassifier(2).partial_fit(masked, Y), amf.AMFClassifier(2)
    assert ours.dumps() == theirs.partial_fit(np.where(np.isinf(holes), np.nan, HOLES), Y).dumps()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1, 2], [3, 4], [5]], r"^X\[0\] has 2 values and X\[2\] has 1: give NaN where one is missing$"),
        (np.array([[1, 2], [3]], object), r"^X\[0\] has 2 values and X\[1\] has 1"),
        ([np.zeros(3), np.zeros(2)], r"^X\[0\] has 3 values and X\[1\] has 2"),
        ([[1, 2], 3], r"^X\[1\] is a int, not a row of numbers: X must be \(n, d\)$"),
        ([[1, [2, 3]], [3, 4]], r"^X\[0, 1\] is a list: a feature of a row is a single number; spread"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, [4.0, 5.0]]}), r"^X\[1, 1\] is a list: a feature"),
    ],
    ids=["lists", "array of lists", "arrays", "a number", "a list in a row", "frame"],
)
def test_rows_that_are_none_are_named(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        amf.AMFClassifier(2).partial_fit(given, [0] * len(given))


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


class ArrowTable(NamedTuple):
    """What a table of Arrow has: `columns` are arrays there."""

    columns: list[NDArray[np.float64]]
    column_names: list[str]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.float64]:
        return np.column_stack(self.columns)


def test_tables_of_arrow_have_names_too() -> None:
    table = ArrowTable(list(X.T), ["age", "height"])
    forest = amf.AMFClassifier(2).partial_fit(table, Y)
    assert forest.dumps() == amf.AMFClassifier(2).partial_fit(FRAME, Y).dumps()
    with pytest.raises(ValueError, match="in another order"):
        forest.predict(ArrowTable(table.columns[::-1], table.column_names[::-1]))


@pytest.mark.parametrize("times", [date(2020, 1, 1), datetime(2020, 1, 1), timedelta(1)], ids=repr)
def test_a_table_of_arrow_with_times_beside_numbers_is_refused_with_what_to_do(times: Any) -> None:
    with pytest.raises(TypeError, match=r"^X holds times beside numbers: give times as seconds since some day"):
        amf.AMFClassifier(2).partial_fit(pa.table({"at": [times] * 20, "height": X[:, 0]}), Y)


class OfTime:
    """What polars has for the type of a column of dates, datetimes, durations or times of day."""

    @classmethod
    def is_temporal(cls) -> bool:
        return True


class OfNumbers(OfTime):
    @classmethod
    def is_temporal(cls) -> bool:
        return False


class PolarsTable(NamedTuple):
    """What a table of polars has: it makes numbers of times that stand beside numbers."""

    columns: list[str]
    dtypes: list[type[OfTime]]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.float64]:
        return X


def test_a_table_of_polars_with_times_beside_numbers_is_refused_with_what_to_do() -> None:
    forest = amf.AMFClassifier(2)
    with pytest.raises(TypeError, match=r"^X holds times beside numbers: give times as seconds since some day"):
        forest.partial_fit(PolarsTable(["at", "height"], [OfTime, OfNumbers]), Y)
    assert forest.n_features == 0
    forest.partial_fit(PolarsTable(["age", "height"], [OfNumbers, OfNumbers]), Y)
    assert forest.dumps() == amf.AMFClassifier(2).partial_fit(FRAME, Y).dumps()


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


def test_a_table_with_two_columns_of_one_name_is_refused() -> None:
    frame, forest = pd.DataFrame(np.hstack((X, X)), columns=["a", "b", "b", "a"]), amf.AMFClassifier(2)
    with pytest.raises(ValueError, match=r"X has two columns of one name, such as \['a', 'b'\]: give each"):
        forest.partial_fit(frame, Y)
    assert forest.n_features == 0
    of_arrays = forest.partial_fit(frame.to_numpy(), Y)
    with pytest.raises(ValueError, match="X has two columns of one name"):
        of_arrays.predict(frame)


@pytest.mark.parametrize("columns", [[0, 1], [0, 0], ["a", 1], pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])])
def test_columns_whose_names_are_no_texts_have_none(columns: Any) -> None:
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
