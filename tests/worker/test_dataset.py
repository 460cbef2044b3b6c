"""Files of rows: what becomes of each cell, what is refused and how it is said, and that no file must fit in memory."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from worker import codec
from worker.cli.dataset import Row, message, open_rows
from worker.errors import ConfigError
from worker.records import Event

CsvFile = Callable[[str | bytes], Path]
NpzFile = Callable[..., Path]

PEOPLE = "age,income,city,churned\n41,1.5e3,Rome,yes\n,-0.25,Oslo,no\n33,7,Rome,\n"


@pytest.fixture
def csv_file(tmp_path: Path) -> CsvFile:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def npz_file(tmp_path: Path) -> NpzFile:
    def write(**columns: Any) -> Path:
        path = tmp_path / "rows.npz"
        np.savez(path, **columns)
        return path

    return write


# CSV


def test_every_column_but_label_and_key_is_a_feature(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file(PEOPLE), label="churned", key="city")
    assert list(rows) == [
        Row(0, "Rome", {"age": 41.0, "income": 1500.0}, "yes"),
        Row(1, "Oslo", {"age": None, "income": -0.25}, "no"),
        Row(2, "Rome", {"age": 33.0, "income": 7.0}, None),
    ]
    assert (rows.columns, rows.labelled, rows.total) == (["age", "income", "city", "churned"], True, None)


def test_without_a_key_rows_take_turns(csv_file: CsvFile) -> None:
    path = csv_file("a\n" + "1\n" * 5)
    assert [row.key for row in open_rows(path)] == ["model-0"] * 5
    assert [row.key for row in open_rows(path, n_keys=2)] == ["model-0", "model-1", "model-0", "model-1", "model-0"]
    assert not open_rows(path).labelled


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ("yes", "yes"),
        ("3", 3),
        ("-17", -17),
        ("0", 0),
        ("", None),
        # Another text than that of the integer is another class.
        ("03", "03"),
        ("-0", "-0"),
        ("1.0", "1.0"),
        ("true", "true"),
        ("1" * 30, "1" * 30),
    ],
)
def test_a_label_keeps_its_class(csv_file: CsvFile, cell: str, label: Any) -> None:
    [row] = open_rows(csv_file(f"a,y\n1,{cell}\n"), label="y")
    assert (row.label, type(row.label)) == (label, type(label))


def test_csv_as_it_is_found_in_the_wild(csv_file: CsvFile) -> None:
    text = '\ufeffa, "b, c",y\r\n\r\n1, 2,"two\nlines"\r\n 3,4, ">50K"\r\n'
    assert list(open_rows(csv_file(text), label="y")) == [
        Row(0, "model-0", {"a": 1.0, "b, c": 2.0}, "two\nlines"),
        Row(1, "model-0", {"a": 3.0, "b, c": 4.0}, ">50K"),
    ]


def test_a_cell_is_a_number_or_a_category_by_itself(csv_file: CsvFile) -> None:
    cells = ["7", "1e3", "Rome", "1_000", "12.5 kg", "", "-.5", "NA", "0x10", "Roma, Italia"]
    rows = open_rows(csv_file("a,b\n" + "".join(f'{i},"{cell}"\n' for i, cell in enumerate(cells))))
    found = [7.0, 1000.0, "Rome", "1_000", "12.5 kg", None, -0.5, "NA", "0x10", "Roma, Italia"]
    assert [row.features for row in rows] == [{"a": float(i), "b": value} for i, value in enumerate(found)]


def test_a_row_does_not_depend_on_the_rows_after_it(csv_file: CsvFile) -> None:
    lines = ["a,b", "1,2", ",Rome", "x,3", "2,1_0"]
    whole = list(open_rows(csv_file("\n".join(lines))))
    for n in range(1, len(lines)):
        assert list(open_rows(csv_file("\n".join(lines[: n + 1])))) == whole[:n]


def test_large_numbers_are_numbers_although_their_sum_is_none(csv_file: CsvFile) -> None:
    [row] = open_rows(csv_file("a,b\n1.7e308,1.7e308\n"))
    assert row.features == {"a": 1.7e308, "b": 1.7e308}
    [row] = open_rows(csv_file("a,b,c\n1.7e308,1.7e308,x\n"))
    assert row.features == {"a": 1.7e308, "b": 1.7e308, "c": "x"}


def test_rows_can_be_read_again_and_tell_how_far_they_are(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file("a\n" + "1\n" * 20_000))
    first = [(row, rows.fraction) for row in rows]
    fractions = [fraction for _, fraction in first]
    assert fractions == sorted(fractions)
    assert 0.4 < fractions[10_000] < 0.7
    assert rows.fraction == 1.0
    assert list(rows) == [row for row, _ in first]


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (
            'a,b,y\n"1\n",2,b\n1,nan,c\n',
            {"label": "y"},
            ":4: column 'b': expected a finite number or text, found 'nan'",
        ),
        ("a,y\n1,b\n-Infinity,c\n", {"label": "y"}, ":3: column 'a': expected a finite number or text, found '-Inf"),
        ("a,b\n1,1e999\n", {}, ":2: column 'b': expected a finite number or text, found '1e999'; leave the cell empty"),
        ("a,b\nRome,NAN\n", {}, ":2: column 'b': expected a finite number or text, found 'NAN'"),
        ("a,b\n1,2\n1\n", {}, ":3: expected 2 cells as in the header, found 1"),
        ("a,b\n1,2\n1,2,3\n", {}, ":3: expected 2 cells as in the header, found 3"),
        ("a,b,a\n", {}, ":1: column 3 has the name 'a', which another one has"),
        (",b\n", {}, ":1: column 1 has no name"),
        ("a,b\n", {"label": "c"}, ":1: there is no column 'c' for --label; there are a, b"),
        ("a,b\n", {"key": "c"}, ":1: there is no column 'c' for --key; there are a, b"),
        ("y\n1\n", {"label": "y"}, ":1: there is no column left for the features"),
        ("", {}, ": expected a header with the names of the columns, found nothing"),
        ('a,b\n1,"2\n', {}, ": expected CSV with commas, found something else"),
        (b"a,b\n1,\xff\n", {}, ": expected text in UTF-8, found other bytes"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(
    csv_file: CsvFile, text: str | bytes, options: dict[str, str], complaint: str
) -> None:
    path = csv_file(text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}.*{re.escape(complaint)}"):
        list(open_rows(path, **options))  # type: ignore[arg-type]


def test_a_wrong_header_is_found_before_a_row_is_read(csv_file: CsvFile) -> None:
    with pytest.raises(ConfigError, match="no column 'z'"):
        open_rows(csv_file(PEOPLE), label="z")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("none.csv", "none.npz"):
        with pytest.raises(ConfigError, match=f"{name}: cannot be read: No such file"):
            open_rows(tmp_path / name)


# .npz


def test_an_npz_has_numbered_features_and_the_label_y(npz_file: NpzFile) -> None:
    rows = open_rows(npz_file(X=[[1.0, np.nan], [3.0, 4.0]], y=[7, 8]), n_keys=2)
    assert list(rows) == [
        Row(0, "model-0", {"f0": 1.0, "f1": None}, 7),
        Row(1, "model-1", {"f0": 3.0, "f1": 4.0}, 8),
    ]
    assert (rows.labelled, rows.total, rows.fraction) == (True, 2, 1.0)
    assert not open_rows(npz_file(X=[[1.0]])).labelled


@pytest.mark.parametrize(
    ("cell", "label"),
    [("1.5", 1.5), ("-2e3", -2000.0), ("7", 7), ("", None), ("007", 7.0), ("a", "a"), ("nan", "nan"), ("1_0", "1_0")],
)
def test_labels_are_numbers_where_the_model_takes_numbers(csv_file: CsvFile, cell: str, label: Any) -> None:
    path = csv_file(f"a,k,y\n1,m,{cell}\n1,n,{cell}\n")
    number, other = open_rows(path, label="y", key="k", has_numbers=lambda key: key == "m")
    assert (number.label, type(number.label)) == (label, type(label))
    assert other.label == (None if not cell else 7 if cell == "7" else cell)


def test_an_npz_has_numbers_where_the_model_takes_numbers(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0], [2.0], [3.0], [4.0]], y=[1.0, 2.0, np.nan, 4.5])
    rows = open_rows(path, n_keys=2, has_numbers=lambda key: key == "model-1")
    labels = [row.label for row in rows]
    assert [(label, type(label)) for label in labels] == [(1, int), (2.0, float), (None, type(None)), (4.5, float)]
    for has_numbers, y, problem in ((True, np.inf, "inf; a label is a finite number"), (False, 4.5, "4.5; a label is")):
        path = npz_file(X=[[1.0], [2.0]], y=[1.0, y])
        with pytest.raises(ConfigError, match=rf"y\[1\] is {problem}"):
            list(open_rows(path, has_numbers=lambda key, answer=has_numbers: answer))


def test_other_arrays_can_be_label_and_key(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0], [2.0]], y=[7, 8], kind=["a", "b"], user=[10, 11])
    assert [(row.key, row.label) for row in open_rows(path, label="kind", key="user")] == [("10", "a"), ("11", "b")]


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.array([True, False]), [True, False]),
        (np.array(["a", ""]), ["a", None]),
        (np.array([1.0, np.nan], np.float32), [1, None]),
        (np.array([2**64 - 1, 0], np.uint64), [2**64 - 1, 0]),
    ],
)
def test_labels_become_what_json_has(npz_file: NpzFile, y: Any, labels: list[Any]) -> None:
    found = [row.label for row in open_rows(npz_file(X=[[1.0], [2.0]], y=y))]
    assert [(label, type(label)) for label in found] == [(label, type(label)) for label in labels]


@pytest.mark.parametrize("layout", ["rows", "columns", "compressed", "foreign"])
def test_every_layout_gives_the_same_rows(tmp_path: Path, layout: str) -> None:
    x = np.arange(3000 * 3, dtype=np.float32).reshape(3000, 3)
    path = tmp_path / "rows.npz"
    if layout == "compressed":
        np.savez_compressed(path, X=x, y=np.arange(3000))
    else:
        stored = {"rows": x, "columns": np.asfortranarray(x), "foreign": x.astype(">f4")}[layout]
        np.savez(path, X=stored, y=np.arange(3000))
    rows = list(open_rows(path))
    assert [list(row.features.values()) for row in rows] == x.tolist()
    assert [row.label for row in rows] == list(range(3000))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"y": [1]}, "there is no array 'X' for the features; there are y"),
        ({"X": [1.0, 2.0]}, "expected X to be numbers in 2-d, found float64 in 1-d"),
        ({"X": [["a"]]}, "expected X to be numbers in 2-d, found <U1 in 2-d"),
        ({"X": [[1.0]], "y": [1, 2]}, "y has not as many entries as X has rows, 1"),
        ({"X": np.empty((3, 0))}, "X has no columns"),
        ({"X": [[1.0], [np.inf]]}, r"X\[1, 0\] is infinite"),
        ({"X": [[1.0], [2.0]], "y": [1.0, 1.5]}, r"y\[1\] is 1.5; a label is text, an integer or a boolean"),
        ({"X": [[1.0]], "y": [1e300]}, r"y\[0\] is 1e\+300"),
        ({"X": [[1.0]], "y": np.array([{}], object)}, "expected y to be numbers or text in 1-d, found object in 1-d"),
    ],
)
def test_what_is_wrong_with_an_npz_is_said(npz_file: NpzFile, columns: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"rows.npz: {complaint}"):
        list(open_rows(npz_file(**columns)))


def test_a_damaged_npz_is_no_crash(npz_file: NpzFile, tmp_path: Path) -> None:
    path = npz_file(X=np.ones((5000, 4)), y=np.zeros(5000, int))
    whole = path.read_bytes()
    damaged = tmp_path / "damaged.npz"
    for data in (b"", b"PK\3\4 but no zip", whole[: len(whole) // 2], whole.replace(b"\0\0\xf0?", b"\0\0\xf1?")):
        damaged.write_bytes(data)
        with pytest.raises(ConfigError, match=r"damaged.npz: expected an .npz file"):
            list(open_rows(damaged))


# Messages


@given(
    arrays(
        np.float32,
        st.tuples(st.just(1), st.integers(1, 5)),
        elements=st.floats(width=32, allow_infinity=False),
    )
)
def test_a_float32_arrives_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, x: Any) -> None:
    path = tmp_path_factory.mktemp("npz") / "x.npz"
    np.savez(path, X=x)
    [row] = open_rows(path)
    sent = json.loads(message(row))["features"]
    back = np.array([np.nan if value is None else value for value in sent.values()], np.float64)
    np.testing.assert_array_equal(back, x[0].astype(np.float64))


def test_a_message_is_an_event(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file(PEOPLE), label="churned", key="city")
    assert [codec.decode(message(row), 1000) for row in rows] == [
        Event({"age": 41.0, "income": 1500.0}, "yes", "0"),
        Event({"age": None, "income": -0.25}, "no", "1"),
        Event({"age": 33.0, "income": 7.0}, None, "2"),
    ]
    assert message(Row(2, "k", {"a": None}, None)) == b'{"id":"2","features":{"a":null}}'
    [first, *_] = open_rows(csv_file(PEOPLE), label="churned")
    assert codec.decode(message(first), 1000) == Event({"age": 41.0, "income": 1500.0, "city": "Rome"}, "yes", "0")


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_memory_is_bounded_by_a_piece_of_the_file(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(0).random((30_000, 20))
    path = tmp_path / f"rows.{kind}"
    if kind == "npz":
        np.savez(path, X=x)
    else:
        np.savetxt(path, x, fmt="%.17g", delimiter=",", header=",".join(f"f{i}" for i in range(20)), comments="")
    rows = open_rows(path)
    iterator = iter(rows)
    next(iterator)
    tracemalloc.start()
    try:
        n = sum(1 for _ in iterator)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n == 29_999
    assert peak < path.stat().st_size / 2
