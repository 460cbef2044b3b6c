"""Features with names: which columns they get, how objects become rows, and that only learning leaves a trace."""

from __future__ import annotations

import doctest
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import amf
from amf.inputs.columns import Column, Columns

NAN = math.nan


@dataclass
class Limits:
    max_categories: int = 100
    max_features: int = 1000


@dataclass
class Named:
    """A forest of names alone, which remembers what it is given of each."""

    params: Limits = field(default_factory=Limits)
    feature_names: tuple[str, ...] | None = None
    like: list[int | None] = field(default_factory=list)
    in_unit_cube: bool = False

    def add_features(self, names: Sequence[str], *, like: Sequence[int | None] | None = None) -> None:
        self.feature_names = (*(self.feature_names or ()), *names)
        self.like += like or [None] * len(names)


def learned(*objects: dict[str, Any], **limits: int) -> tuple[Columns, Named]:
    """The columns, and their forest, after these objects."""
    forest = Named(Limits(**limits))
    columns = Columns(forest)
    for features in objects:
        columns.add(columns.new(features))
    return columns, forest


def rows(columns: Columns, *objects: dict[str, Any]) -> list[list[float]]:
    return columns.matrix(objects).tolist()  # type: ignore[no-any-return]


# Names of columns


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("age"), "age"),
        (Column("city", "Rome"), "city=Rome"),
        (Column("city=Rome"), r"city\=Rome"),
        (Column("city", "=Rome"), "city==Rome"),
        (Column("city=", "Rome"), r"city\==Rome"),
        (Column("city\\", "Rome"), r"city\\=Rome"),
        (Column("city", "a\\=b\n"), "city=a\\=b\n"),
        (Column(""), ""),
        (Column("", ""), "="),
        (Column("city", ""), "city="),
        (Column("city", "", of_missing=False), "city="),
        (Column("city", of_missing=True), r"city\missing"),
        (Column(r"city\missing"), r"city\\missing"),
        (Column("city", r"\missing"), r"city=\missing"),
        (Column("", of_missing=True), r"\missing"),
    ],
)
def test_the_name_of_a_column(column: Column, text: str) -> None:
    assert str(column) == text
    assert Column.parse(text) == column


any_text = st.text(alphabet="ab=\\\n ") | st.text()
any_column = st.builds(Column, any_text, st.none() | any_text, st.just(False)) | st.builds(
    Column, any_text, st.none(), st.just(True)
)


@given(any_column, any_column)
def test_no_two_columns_have_one_name(one: Column, other: Column) -> None:
    assert Column.parse(str(one)) == one
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.parametrize("text", ["\\", "a\\", "a\\b", "a\\\n=b", "\\\\\\", "a\\missing=", "a\\missing\\missing"])
def test_what_no_column_is_called_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a column"):
        Column.parse(text)
    with pytest.raises(ValueError, match="is not the name of a column"):
        Columns(Named(feature_names=("a", text)))


# Which columns there are


def test_columns_come_in_the_order_of_the_object() -> None:
    columns, forest = learned({"b": 1.0, "city": "Rome", "a": 2}, {"a": 1.0, "city": "Oslo", "c": True, "b": 2})
    assert forest.feature_names == ("b", "city=Rome", "a", "city=Oslo", "c")
    assert len(columns) == 5


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_leaves_the_columns_that_the_forest_has(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    columns, forest = learned({"a": 1.0, "city": "Rome"})
    enter = Columns._enter

    def interrupted(self: Columns, new: Sequence[Column]) -> None:
        monkeypatch.undo()
        if late:
            enter(self, new[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(Columns, "_enter", interrupted)
    new = columns.new({"b": 2, "city": "Oslo"})
    with pytest.raises(KeyboardInterrupt):
        columns.add(new)
    assert columns.new({"a": 3.0, "b": 2, "city": "Oslo"}) == []
    assert repr(rows(columns, {"b": 7.0})) == repr(rows(Columns(forest), {"b": 7.0}))


def test_what_is_known_or_was_missing_brings_no_column() -> None:
    columns, _ = learned({"a": 1.0, "city": "Rome"}, {"a": None})
    for features in ({"a": 7.0, "city": "Rome"}, {"a": None, "new": None}, {"new": NAN, "other": np.float32(NAN)}, {}):
        assert columns.new(features) == []


def test_a_known_feature_that_an_object_lacks_brings_a_column_once() -> None:
    columns, forest = learned({"a": 1.0, "city": "Rome", "b": 2}, {"city": "Rome"}, {"a": 1.0, "b": 2}, {}, {"a": NAN})
    assert forest.feature_names == ("a", "city=Rome", "b", r"a\missing", r"b\missing", r"city\missing")
    assert forest.like[3:] == [0, 2, 1]
    assert repr(rows(columns, {"a": 5.0}, {"city": "Oslo", "b": None})) == repr(
        [[5.0, NAN, NAN, 0.0, 1.0, 1.0], [NAN, 0.0, NAN, 1.0, 1.0, 0.0]]
    )


def test_what_an_object_brings_comes_before_what_it_lacks() -> None:
    _, forest = learned({"a": 1.0}, {"b": 2.0, "c": "x"})
    assert forest.feature_names == ("a", "b", "c=x", r"a\missing")
    assert forest.like == [None, None, None, 0]


@pytest.mark.parametrize("missing", [None, NAN, np.float32(NAN), Decimal("nan"), pd.NA])
def test_whatever_is_missing_is_lacked(missing: Any) -> None:
    columns, _ = learned({"a": 1.0, "b": 2})
    assert not columns.may_lack
    assert columns.new({"a": missing, "b": np.int64(2)}) == [Column("a", of_missing=True)]


def test_columns_of_what_is_missing_leave_room_for_values() -> None:
    columns, forest = learned({name: 1.0 for name in "abcd"}, {}, max_features=7)
    assert forest.feature_names == ("a", "b", "c", "d", r"a\missing", r"b\missing", r"c\missing")
    assert columns.may_lack
    columns, forest = learned({name: 1.0 for name in "abcd"}, {"e": 1.0, "f": 1.0}, max_features=7)
    assert forest.feature_names == ("a", "b", "c", "d", "e", "f", r"a\missing")
    assert learned({"a": 1.0}, {}, max_features=1)[1].feature_names == ("a",)


@pytest.mark.parametrize("most", range(1, 12))
def test_columns_of_what_is_missing_are_half_of_all_at_most(most: int) -> None:
    """Whatever comes in which order, as far as there is room for it."""
    random = Random(most)
    for _ in range(50):
        columns, forest = learned(max_features=most)
        for _ in range(12):
            new = columns.new({name: random.choice([1.0, "x", "y"]) for name in "abcdef" if random.random() < 0.4})
            if len(columns) + len(new) <= most:
                columns.add(new)
        missing = [name for name in forest.feature_names or () if name.endswith(r"\missing")]
        assert len(missing) <= most // 2


def test_nothing_may_be_missing_in_the_unit_cube() -> None:
    columns = Columns(Named(feature_names=("a",), in_unit_cube=True))
    assert columns.new({}) == []
    assert columns.may_lack


def test_a_feature_of_both_sorts_is_missing_where_it_is_neither() -> None:
    columns, forest = learned({"x": "a"}, {}, {"x": 1.5}, {"x": "b"})
    assert forest.feature_names == ("x=a", r"x\missing", "x", "x=b")
    assert repr(rows(columns, {"x": 2.5}, {"x": "b"}, {"x": None})) == repr(
        [[NAN, 0.0, 2.5, NAN], [0.0, 0.0, NAN, 1.0], [NAN, 1.0, NAN, NAN]]
    )


def test_a_column_of_what_is_missing_has_a_feature() -> None:
    with pytest.raises(ValueError, match="no column is of 'b'"):
        Columns(Named(feature_names=("a", r"b\missing", "b")))
    with pytest.raises(ValueError, match="no column is of 'a'"):
        Columns(Named(feature_names=("a", r"a\missing", r"a\missing")))


def test_a_column_that_cannot_be_leaves_the_forest_without_it() -> None:
    """The forest had it, and its columns could not be read any more."""
    columns, forest = learned({"a": 1.0})
    with pytest.raises(ValueError, match="no column is of 'b'"):
        columns.add([Column("b", of_missing=True)])
    assert forest.feature_names == ("a",)


def test_there_is_at_least_one_column() -> None:
    _, forest = learned({"city": None, "a": NAN})
    assert forest.feature_names == ("city",)


def test_asking_leaves_no_trace() -> None:
    columns, forest = learned({"a": 1.0, "city": "Rome"})
    unknown = {"a": "x", "city": "Oslo", "b": 1.0}
    assert columns.new(unknown) == [Column("a", "x"), Column("city", "Oslo"), Column("b")] == columns.new(unknown)
    assert columns.new({}) == [Column("a", of_missing=True), Column("city", of_missing=True)] == columns.new({})
    assert repr(rows(columns, unknown)) == repr(rows(columns, {"city": "Oslo"})) == "[[nan, 0.0]]"
    assert forest.feature_names == ("a", "city=Rome")


def test_categories_are_bounded_feature_by_feature() -> None:
    columns, forest = learned(*({"x": c, "y": c.upper()} for c in "abcab"), {"x": 1.0, "y": "A"}, max_categories=2)
    assert forest.feature_names == ("x=a", "y=A", "x=b", "y=B", "x")
    assert repr(rows(columns, {"x": "c", "y": "B"})) == repr([[0.0, 0.0, 0.0, 1.0, NAN]])


def test_a_new_category_is_like_the_first_of_its_feature() -> None:
    """Earlier samples had another category where they have a value in the column that `like` names."""
    _, forest = learned(
        {"n": 1.0, "x": "a", "y": "a"}, {"y": "b", "x": "b"}, {"x": 3.0, "y": "c"}, {"x": "c", "n": "a"}, {"n": "b"}
    )
    told = dict(zip(forest.feature_names or (), forest.like, strict=True))
    of_values = {name: like for name, like in told.items() if not name.endswith(r"\missing")}
    assert of_values == {"n": None, "x=a": None, "y=a": None, "y=b": 2, "x=b": 1, "x": None, "y=c": 2, "x=c": 1,
                         "n=a": None, "n=b": 9}  # fmt: skip
    assert [*told.items()][5] == (r"n\missing", 0)


def test_columns_are_found_again_by_their_names() -> None:
    objects = [{"a=b": 1.0, "x": "a=b"}, {"x": "\\", "a": "b"}, {"x": 2.0}]
    columns, forest = learned(*objects, max_categories=2)
    again = Columns(forest)
    assert repr(rows(again, *objects)) == repr(rows(columns, *objects))
    for features in (*objects, {"x": "third"}, {"a": "c", "new": "d"}):
        assert again.new(features) == columns.new(features)


# Objects as rows


def test_a_category_is_1_where_it_is_the_value_0_where_another_is_and_missing_where_none_is() -> None:
    columns, _ = learned({"city": "Rome"}, {"city": "Oslo", "age": 1.0})
    assert not columns.may_lack
    told = rows(
        columns,
        {"city": "Rome", "age": 41.0},
        {"age": None, "city": "Oslo"},
        {"city": "Bern"},
        {"city": None, "age": -0.0},
        {"city": 7.0, "age": "old"},
        {},
    )
    assert repr(told) == repr(
        [[1.0, 0.0, 41.0], [0.0, 1.0, NAN], [0.0, 0.0, NAN], [NAN, NAN, -0.0], [NAN, NAN, NAN], [NAN, NAN, NAN]]
    )


def test_a_feature_of_both_sorts_fills_the_columns_of_one() -> None:
    columns, forest = learned({"x": 1.5}, {"x": "a"}, {"x": "b"})
    assert forest.feature_names == ("x", "x=a", "x=b")
    assert repr(rows(columns, {"x": 2.5}, {"x": "b"})) == repr([[2.5, NAN, NAN], [NAN, 0.0, 1.0]])


def test_a_number_that_is_called_like_a_category_is_another_column() -> None:
    columns, _ = learned({"city": "Rome", "city=Rome": 3.0})
    assert repr(rows(columns, {"city=Rome": 5.0}, {"city": "Rome"})) == repr([[NAN, 5.0], [1.0, NAN]])


def test_numbers_of_every_type_are_numbers_and_strings_of_every_type_categories() -> None:
    features = {"a": np.float32(0.5), "b": np.int64(3), "c": False, "d": np.str_("x"), "e": np.bool_(True)}
    columns, forest = learned(features)
    assert forest.feature_names == ("a", "b", "c", "d=x", "e")
    assert rows(columns, features) == [[0.5, 3.0, 0.0, 1.0, 1.0]]


def test_what_is_no_object_is_named() -> None:
    with pytest.raises(TypeError, match=r"^objects\[1\] is a list, not a mapping of names to values; .*to_dict"):
        learned({"a": 1.0})[0].matrix([{"a": 1.0}, [1.0]])  # type: ignore[list-item]


def test_no_objects_are_no_rows() -> None:
    assert Columns(Named()).matrix([]).shape == (0, 0)
    assert learned({"a": 1.0, "b": "x"})[0].matrix([]).shape == (0, 2)


values = st.none() | st.sampled_from([0.0, -0.0, 1.0, 1e300]) | st.sampled_from(["r", "g", "b", "1", ""])
objects = st.dictionaries(st.sampled_from("xyz"), values, max_size=3)


@given(st.lists(objects, max_size=12), objects, st.integers(1, 3))
def test_rows_are_what_the_names_say(seen: list[dict[str, Any]], asked: dict[str, Any], most: int) -> None:
    columns, forest = learned(*seen, max_categories=most)
    known = [Column.parse(name) for name in forest.feature_names or ()]
    sorts = {(feature, category is not None) for feature, category, of_missing in known if not of_missing}
    expected = []
    for feature, category, of_missing in known:
        value = asked.get(feature)
        if of_missing:
            # A value of a sort that the feature never had is as good as none.
            expected.append(float(value is None or (feature, isinstance(value, str)) not in sorts))
        elif category is None:
            expected.append(NAN if value is None or isinstance(value, str) else value)
        else:
            expected.append(float(value == category) if isinstance(value, str) else NAN)
    assert repr(rows(columns, asked)) == repr([expected])
    if columns.numbers_only and list(asked) == columns.names and not any(isinstance(v, str) for v in asked.values()):
        assert columns.cells(asked) == list(asked.values())


# With a forest


def learn(forest: amf.AMFClassifier, objects: Sequence[dict[str, Any]], labels: Sequence[str]) -> Columns:
    """One by one, as they come."""
    columns = Columns(forest)
    for features, label in zip(objects, labels, strict=True):
        columns.add(columns.new(features))
        forest.partial_fit(columns.matrix([features]), [label])
    return columns


def events(n: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Objects whose label a category tells, one time in ten a wrong one; categories come in one after the other."""
    rng = np.random.default_rng(5)
    cities = rng.integers(np.minimum(2 + np.arange(n) // 20, 8)).tolist()
    ages, wrong = rng.normal(size=n).tolist(), (rng.random(n) < 0.1).tolist()
    objects = [{"city": f"city-{city}", "age": age} for city, age in zip(cities, ages, strict=True)]
    return objects, [("even", "odd")[(city + is_wrong) % 2] for city, is_wrong in zip(cities, wrong, strict=True)]


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 1), [1.0], {"a": 1}, memoryview(b"1")], ids=lambda value: type(value).__name__
)
def test_a_value_that_is_no_feature_is_named_and_leaves_no_trace(value: Any) -> None:
    columns = Columns(Named())  # type: ignore[arg-type]
    said = f"feature 'x' is a {type(value).__name__}; a feature is a number, a string, or None or NaN"
    with pytest.raises(TypeError, match=said):
        columns.new({"y": 1.0, "x": value})
    assert len(columns) == 0
    columns.add(columns.new({"y": 1.0, "x": 2.0**53 + 1}))
    with pytest.raises(TypeError, match=said):
        columns.matrix([{"y": 1.0, "x": 1}, {"y": None, "x": value}])


def test_a_forest_learns_from_categories() -> None:
    objects, labels = events(600)
    forest = amf.AMFClassifier(seed=3)
    columns = learn(forest, objects, labels)
    told = forest.predict(columns.matrix([{"city": f"city-{city}"} for city in range(8)]))
    assert told.tolist() == ["even", "odd"] * 4


def test_a_forest_takes_its_columns_along() -> None:
    objects, labels = events(60)
    forest = amf.AMFClassifier(2, seed=3)
    learn(forest, objects[:40], labels[:40])
    again = amf.loads(forest.dumps())
    learn(forest, objects[40:], labels[40:])
    learn(again, objects[40:], labels[40:])
    assert again.dumps() == forest.dumps()


@pytest.mark.parametrize("scaling", ["auto", "none"])
def test_categories_that_come_late_might_have_been_there_from_the_start(scaling: str) -> None:
    objects, labels = events(200)
    objects[7::7] = [{"city": None, "age": features["age"]} for features in objects[7::7]]
    late, early = (amf.AMFClassifier(2, seed=3, scaling=scaling) for _ in range(2))
    learn(late, objects, labels)
    columns = Columns(early)
    columns.add([Column.parse(name) for name in late.feature_names or ()])
    early.partial_fit(columns.matrix(objects), labels)
    assert late.dumps() == early.dumps()


@pytest.mark.parametrize("new", [amf.AMFClassifier, amf.AMFRegressor, amf.AdaptiveAMFClassifier])
def test_a_column_that_is_like_one_without_a_value_is_like_none(new: Any) -> None:
    """It is 0 in no sample: the first value that comes is the first one there is."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=90), np.full(90, NAN), rng.normal(5.0, 1.0, 90)])
    x[:70, 2] = NAN
    y = (x[:, 0] > 0).astype(int)
    alike, unlike = new(2), new(2)
    for forest in (alike, unlike):
        forest.add_features(["a", "b=x"])
        forest.partial_fit(x[:70, :2], y[:70])
    alike.add_features(["b=y"], like=[1])
    unlike.add_features(["b=y"])
    assert alike.dumps() == unlike.dumps()
    np.testing.assert_array_equal(alike.predict_learn(x[70:], y[70:]), unlike.predict_learn(x[70:], y[70:]))
    assert alike.dumps() == unlike.dumps()


@pytest.mark.parametrize(("module", "n_examples"), [(amf.inputs.columns, 9), (amf.forests.amf, 11)])
def test_the_examples_of_docstrings_run(module: ModuleType, n_examples: int) -> None:
    assert doctest.testmod(module) == (0, n_examples)


# Values and names of other kinds


class City(str, enum.Enum):  # noqa: UP042
    ROME = "Rome"
    NAME = "city"


def test_members_of_enumerations_are_their_values() -> None:
    columns, forest = learned({City.NAME: City.ROME}, {"city": "Rome"}, {"city": City.ROME})
    assert forest.feature_names == ("city=Rome",)
    assert {*map(type, forest.feature_names)} == {str}
    assert rows(columns, {City.NAME: City.ROME}, {"city": "Rome"}) == [[1.0], [1.0]]


def test_what_pandas_has_for_missing_is_missing() -> None:
    columns, forest = learned({"age": 3, "city": pd.NA}, {"age": pd.NA, "city": "Rome"})
    assert forest.feature_names == ("age", "city=Rome", r"age\missing")
    np.testing.assert_array_equal(rows(columns, {"age": pd.NA, "city": pd.NA}), [[NAN, NAN, 1.0]])


@pytest.mark.parametrize("name", [1, None, b"age"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match=f"the name of a feature is a str, got {name!r}"):
        learned({name: 1.0})


@pytest.mark.parametrize(
    "value", [b"1", np.bytes_(b"1"), np.datetime64(5, "s"), np.timedelta64(5, "s"), np.complex64(1)]
)
def test_what_numpy_would_take_for_a_number_is_no_feature(value: Any) -> None:
    columns, forest = learned()
    with pytest.raises(TypeError, match="feature 'age'"):
        columns.new({"age": value})
    assert forest.feature_names is None
    columns.add(columns.new({"age": 41, "height": 1.8}))
    with pytest.raises(TypeError, match="feature 'age'"):
        columns.matrix([{"age": 41, "height": 1.7}, {"height": None, "age": value}])


def test_a_forest_takes_places_and_names_of_numpy() -> None:
    forest = amf.AMFClassifier(2)
    forest.add_features([np.str_("a"), City.ROME])
    forest.add_features(["b"], like=[np.int64(0)])
    assert forest.feature_names == ("a", "Rome", "b")
    assert {*map(type, forest.feature_names)} == {str}
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()
