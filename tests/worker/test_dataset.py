"""Files of rows: what becomes of each cell, what is refused and how it is said, and that no file must fit in memory."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BufferedReader, BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import parquet as pq

from worker import codec
from worker.base.errors import ConfigError
from worker.base.records import Event
from worker.cli.dataset import FileRows, Row, message, open_rows, record_of
from worker.cli.dataset.glance import labels_are_numbers, odd_columns

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


def test_booleans_are_those_of_an_event(csv_file: CsvFile) -> None:
    rows = list(open_rows(csv_file("a,b,y\ntrue,x,true\nFalse,TRUE,false\nfalsely,t,1\n"), label="y"))
    assert [row.features["a"] for row in rows] == [1.0, 0.0, "falsely"]
    assert [row.features["b"] for row in rows] == ["x", 1.0, "t"]
    assert [row.label for row in rows] == ["true", "false", 1]


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


def test_numbers_that_are_not_finite_are_missing_and_counted(csv_file: CsvFile) -> None:
    path = csv_file('a,b,y\n"1\n",2,nan\n1,nan,c\n-Infinity,x,c\n1e400,NAN,c\n1,2,c\n')
    rows = open_rows(path, label="y")
    for _ in range(2):
        assert [row.features for row in rows] == [
            {"a": 1.0, "b": 2.0},
            {"a": 1.0, "b": None},
            {"a": None, "b": "x"},
            {"a": None, "b": None},
            {"a": 1.0, "b": 2.0},
        ]
        assert rows.notes == ["4 cells are no finite number and taken as missing, the first in line 4, column 'b'"]
    assert next(iter(rows)).label == "nan"  # a text may be called so
    assert open_rows(csv_file("a\n1\n")).notes == []


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_header_tells_what_stands_between_the_cells(csv_file: CsvFile, delimiter: str) -> None:
    lines = [["a", "b, or c", "y"], ["1", "x,y;z|", "no"], ["", "2", "yes"]]
    text = "\n".join(delimiter.join(f'"{cell}"' for cell in cells) for cells in lines)
    assert [(row.features, row.label) for row in open_rows(csv_file(text), label="y")] == [
        ({"a": 1.0, "b, or c": "x,y;z|"}, "no"),
        ({"a": None, "b, or c": 2.0}, "yes"),
    ]


def test_between_semicolons_a_comma_is_the_point_of_a_number(csv_file: CsvFile) -> None:
    path = csv_file("a;b;y\n3,5;Rome, Italia;1,25\n-,5e3;1,2,3;2\n")
    assert [(row.features, row.label) for row in open_rows(path, label="y", has_numbers=lambda key: True)] == [
        ({"a": 3.5, "b": "Rome, Italia"}, 1.25),
        ({"a": -500.0, "b": "1,2,3"}, 2),
    ]


def test_gzip_is_read_as_what_is_in_it(csv_file: CsvFile, tmp_path: Path) -> None:
    expected = list(open_rows(csv_file(PEOPLE), label="churned"))
    packed = gzip.compress(PEOPLE.encode())
    path = tmp_path / "people.csv.gz"
    path.write_bytes(packed)
    rows = open_rows(path, label="churned")
    assert list(rows) == list(rows) == expected
    for damaged in (packed[:-9], packed[:20] + b"????" + packed[24:]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"people\.csv\.gz: expected a whole gzip file"):
            list(open_rows(path, label="churned"))


@pytest.mark.parametrize("packed", [False, True])
def test_stdin_is_read_once(csv_file: CsvFile, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    content = PEOPLE.encode()
    stdin = SimpleNamespace(buffer=BufferedReader(BytesIO(gzip.compress(content) if packed else content)))
    monkeypatch.setattr(sys, "stdin", stdin)
    rows = open_rows("-", label="churned")
    assert len(rows.peek(1)) == len(rows.peek(1)) == 1
    assert list(rows) == list(open_rows(csv_file(PEOPLE), label="churned"))
    assert not stdin.buffer.closed
    with pytest.raises(ConfigError, match="stdin can be read only once"):
        list(rows)


def test_columns_may_be_ids_times_or_nothing(csv_file: CsvFile) -> None:
    lines = ["tx-1,2024-05-17T12:30:00Z,1,x,no", ",1715949001,2,x,yes", "7,,3,x,no", "tx-2,2024-05-17,4,x,no"]
    rows = open_rows(csv_file("\n".join(["id,when,a,junk,y", *lines])), label="y", id="id", time="when", drop=["junk"])
    found = list(rows)
    assert [(row.id, row.time_ms, row.features) for row in found] == [
        ("tx-1", 1715949000_000, {"a": 1.0}),
        (None, 1715949001_000, {"a": 2.0}),
        ("7", -1, {"a": 3.0}),
        ("tx-2", 1715904000_000, {"a": 4.0}),
    ]
    assert rows.notes == ["1 row is older than the row before: sort the file by time, or models learn from the future"]
    assert [json.loads(message(row))["id"] for row in found] == ["tx-1", "1", "7", "tx-2"]
    assert [record_of(row, "json").timestamp_ms for row in found] == [row.time_ms for row in found]


@pytest.mark.parametrize(
    "text",
    [
        "1715949000",
        "1715949000.0",
        "1715949000000",
        "1715949000000000",
        "1715949000000000000",
        "2024-05-17 12:30",
        "2024-05-17T12:30:00+00:00",
        "2024-05-17T14:30:00+02:00",
    ],
)
def test_a_time_may_be_written_in_many_ways(csv_file: CsvFile, text: str) -> None:
    [row] = open_rows(csv_file(f"a,t\n1,{text}\n"), time="t")
    assert row.time_ms == 1715949000_000


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
        ("a,b\n1,2\n1\n", {}, ":3: expected 2 cells as in the header, found 1"),
        ("a,b\n1,2\n1,2,3\n", {}, ":3: expected 2 cells as in the header, found 3"),
        ("a,b,a\n", {}, ":1: column 3 has the name 'a', which another one has"),
        (",b\n", {}, ":1: column 1 has no name"),
        ("a,b\n", {"label": "c"}, ":1: there is no column 'c' for --label; there are a, b"),
        ("a,b\n", {"label": ""}, ":1: there is no column '' for --label; there are a, b"),
        ("a,b\n", {"key": "c"}, ":1: there is no column 'c' for --key; there are a, b"),
        ("a,b\n", {"label": "b", "key": "b"}, ": 'b' is the column of the labels and, by --key, that of the keys"),
        ("a,b\n", {"id": "c"}, ":1: there is no column 'c' for --id; there are a, b"),
        ("a,b\n", {"time": "c"}, ":1: there is no column 'c' for --time; there are a, b"),
        ("a,b\n", {"drop": ["a", "c"]}, ":1: there is no column 'c' for --drop; there are a, b"),
        ("a,t\n1,2\n1,soon\n", {"time": "t"}, ":3: expected a date and time such as 2024-05-17T12:30:00Z, or seconds"),
        ("a,t\n1,1e300\n", {"time": "t"}, ":2: expected a date and time"),
        ("y\n1\n", {"label": "y"}, ":1: there is no column left for the features"),
        ("y,a\n1,2\n", {"label": "y", "drop": ["a"]}, ":1: there is no column left for the features"),
        ("", {}, ": expected a header with the names of the columns, found nothing"),
        (
            'a,b\n1,2\n\n1,"2\n1,3\n1,4\n',
            {},
            ":4: expected CSV, found a quote in the row of this line that is not closed",
        ),
        (
            'a,b\n1,"2\n1,"3"\n1,4\n',
            {},
            ":2: expected CSV, found a quote in the row of this line that is closed on line 3",
        ),
        ('a,b\n1,"2"3\n', {}, ":2: expected CSV, found something else: ',' expected after"),
        ('a,"b\nc\n', {}, ":1: expected CSV, found a quote in the row of this line that is not closed"),
        (
            '{"a": 1, "y": "p"}\n{"a": 2, "y": "p"}\n',
            {},
            ": expected a header with the names of the columns, found JSON",
        ),
        ('[{"a": 1, "y": "p"}]\n', {}, "; files of rows are text (CSV and its kin), .parquet and .npz"),
        ('[\n  {"a": 1, "y": "p"}\n]\n', {}, ", found JSON; files of rows are text"),
        (b"a,b\n1,2\n1,\xff\n", {}, ":3: expected text in UTF-8, found other bytes, 0xff first; spreadsheets"),
        pytest.param(
            gzip.compress(b"a,b\n" + b"1,2\n" * 9000 + b"1,\xfc\n"), {}, ":9002: expected text in UTF-8", id="far-down"
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(
    csv_file: CsvFile, text: str | bytes, options: dict[str, str], complaint: str
) -> None:
    path = csv_file(text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}.*{re.escape(complaint)}"):
        list(open_rows(path, **options))  # type: ignore[arg-type]


def test_a_header_may_have_braces(csv_file: CsvFile) -> None:
    assert [row.features for row in open_rows(csv_file("{a},[b]\n1,2\n"))] == [{"{a}": 1.0, "[b]": 2.0}]


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
        ({"X": [[1.0]], "y": np.array([{}], object)}, "expected y to be numbers or text in 1-d, found object in 1-d"),
    ],
)
def test_what_is_wrong_with_an_npz_is_said(npz_file: NpzFile, columns: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"rows.npz: {complaint}"):
        list(open_rows(npz_file(**columns)))


def test_the_labels_that_an_npz_has_by_default_are_no_keys(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0], [2.0]], y=[1, 2], z=[1, 2])
    with pytest.raises(ConfigError, match="'y' is the column of the labels and, by --key"):
        open_rows(path, key="y")
    assert [row.key for row in open_rows(path, key="y", label="z")] == ["1", "2"]


def test_numbers_of_an_npz_that_are_not_finite_are_missing_and_counted(npz_file: NpzFile) -> None:
    path = npz_file(X=[[np.inf, 1.0], [np.nan, -np.inf]], y=[1.0, np.inf], z=[1.5, 1e300])
    rows = open_rows(path, has_numbers=lambda key: True)
    assert [(row.features, row.label) for row in rows] == [
        ({"f0": None, "f1": 1.0}, 1.0),
        ({"f0": None, "f1": None}, None),
    ]
    assert rows.notes == ["3 cells are no finite number and taken as missing, the first in X[0, 0]"]
    assert [row.label for row in open_rows(path, label="z")] == [1.5, 1e300]  # which a worker refuses, and counts


@pytest.mark.parametrize("text", ["20240517", "202405171230", "20240517123000"])
def test_a_date_of_digits_alone_is_no_number_of_seconds(csv_file: CsvFile, text: str) -> None:
    rows = open_rows(csv_file(f"a,t\n1,{text}\n"), time="t")
    if len(text) == 8:
        assert [row.time_ms for row in rows] == [1715904000000]
    else:
        with pytest.raises(ConfigError, match="expected a date and time"):
            list(rows)


def test_ten_thousand_columns_have_names_at_once(csv_file: CsvFile) -> None:
    names = [f"column-{i}" for i in range(10_000)]
    [row] = open_rows(csv_file(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n"))
    assert list(row.features) == names


def test_arrays_of_an_npz_may_be_ids_and_times(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0, 2.0]], y=[1], n=[17], t=[1715949000])
    [row] = open_rows(path, id="n", time="t", drop=["f0"])
    assert row == Row(0, "model-0", {"f1": 2.0}, 1, "17", 1715949000_000)
    with pytest.raises(ConfigError, match="there is no column 'f2' for --drop; there are f0, f1"):
        open_rows(path, drop=["f2"])
    with pytest.raises(ConfigError, match="there is no column left for the features"):
        open_rows(path, drop=["f0", "f1"])


# Parquet


@pytest.mark.parametrize("option", ["label", "key", "id", "time"])
def test_bytes_in_a_parquet_file_are_no_names(tmp_path: Path, option: str) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"x": [1.0], "who": pa.array([b"alice"], pa.binary())}), path)
    with pytest.raises(ConfigError, match=f"'who' is of type binary, which nothing can be for --{option}"):
        open_rows(path, **{option: "who"})


def test_a_parquet_file_has_types(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    when = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
    table = pa.table(
        {
            "id": [1, 2],
            "when": pa.array([when, None], pa.timestamp("us", "UTC")),
            "age": pa.array([41, None], pa.int16()),
            "amount": [1.5, float("inf")],
            "member": [True, False],
            "city": pa.array(["Rome", "Oslo"]).dictionary_encode(),
            "price": pa.array([Decimal("1.25"), None]),
            "day": [date(1970, 1, 2), None],
            "tags": [["a"], []],
            "y": [True, False],
        }
    )
    pq.write_table(table, path)
    rows = open_rows(path, label="y", id="id", time="when", drop=["tags"])
    expected = {"age": 41.0, "amount": 1.5, "member": 1.0, "city": "Rome", "price": 1.25, "day": 86_400.0}
    nothing = {"age": None, "amount": None, "member": 0.0, "city": "Oslo", "price": None, "day": None}
    for _ in range(2):
        assert list(rows) == [
            Row(0, "model-0", expected, True, "1", 1715949000_000),
            Row(1, "model-0", nothing, False, "2", -1),
        ]
    assert (rows.total, rows.fraction, rows.labelled) == (2, 1.0, True)
    assert rows.notes == ["1 cell is no finite number and taken as missing, the first in row 1, column 'amount'"]
    assert [row.time_ms for row in open_rows(path, time="id", drop=["tags"])] == [1000, 2000]
    with pytest.raises(ConfigError, match=r"expected a time for --time, found bool"):
        list(open_rows(path, time="member", drop=["tags"]))
    with pytest.raises(ConfigError, match=r"column 'tags' is of type list<.*>, which no feature can have; --drop tags"):
        open_rows(path)
    with pytest.raises(ConfigError, match="there is no column 'z' for --label"):
        open_rows(path, label="z")
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match="expected a Parquet file, found something else"):
        open_rows(path)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "worker.cli.dataset.parquet", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[parquet\]'"):
        open_rows(tmp_path / "rows.parquet")


# The first rows


def labels(csv_file: CsvFile, cells: list[Any]) -> FileRows:
    return open_rows(csv_file("a,y\n" + "".join(f"1,{cell}\n" for cell in cells)), label="y")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        ([i + 0.5 for i in range(21)], True),
        ([100 + 7 * i for i in range(30)], True),
        ([*range(1000, 1060)] * 10, True),
        ([i + 0.5 for i in range(60)] + ["", "nan"], True),
        ([i % 26 for i in range(1000)], False),
        ([0.5, 1.5] * 500, False),
        ([*(i + 0.5 for i in range(60)), "many"], False),
        (["yes", "no"] * 50, False),
        ([], False),
    ],
)
def test_labels_that_are_quantities_are_told_from_classes(csv_file: CsvFile, cells: list[Any], numbers: bool) -> None:
    reason = labels_are_numbers(labels(csv_file, cells))
    assert (reason is not None) == numbers
    if reason is not None:
        assert re.fullmatch(r"the labels are numbers, \d+ different ones in the first \d+", reason)


def test_a_text_column_that_is_as_good_as_unique_is_named(csv_file: CsvFile) -> None:
    path = csv_file("n,id,city,y\n" + "".join(f"{i},tx-{i},{i % 50},{i % 2}\n" for i in range(400)))
    [sentence] = odd_columns(open_rows(path, label="y"))
    assert sentence.startswith("column 'id' has 400 different texts in 400 rows: as good as unique")
    assert "--drop id" in sentence
    for other in ({"id": "id"}, {"drop": ["id"]}):
        assert not list(odd_columns(open_rows(path, label="y", **other)))  # type: ignore[arg-type]
    few = csv_file("id,y\n" + "".join(f"tx-{i},{i % 2}\n" for i in range(50)))
    assert not list(odd_columns(open_rows(few, label="y")))


def test_the_name_of_a_column_is_quoted_as_a_shell_takes_it(csv_file: CsvFile) -> None:
    path = csv_file("booked at,y\n" + "".join(f"at {i},1\n" for i in range(200)))
    [sentence] = odd_columns(open_rows(path, label="y"))
    assert "--drop 'booked at' leaves it out" in sentence


def test_a_column_of_numbers_with_a_few_texts_of_their_own_is_not_as_good_as_unique(csv_file: CsvFile) -> None:
    path = csv_file("n,y\n" + "".join(f"{f'{i} kg' if i % 8 == 0 else i},1\n" for i in range(1000)))
    assert not list(odd_columns(open_rows(path, label="y")))


@pytest.mark.parametrize(
    ("number", "argument"),
    [
        ("1,201.50", ","),
        ("-12,201", ","),
        ("1.201,50", "."),
        ("1.201.500", "."),
        ("1'201.50", '"\'"'),
        ("1 201,50", '" "'),
        ("1\u00a0201", '" "'),
    ],
)
def test_thousands_that_are_taken_for_texts_are_named_with_the_option_that_reads_them(
    csv_file: CsvFile, number: str, argument: str
) -> None:
    lines = "".join(f'{i},"{number}","{number}"\n' for i in range(60))
    sentences = list(odd_columns(open_rows(csv_file(f"a,amount,y\n{lines}"), label="y")))
    assert sentences == [
        f"column {name!r} has 60 numbers such as {number!r} in 60 rows, which are taken for texts: --thousands "
        f"{argument} reads them as numbers"
        for name in ("amount", "y")
    ]
    assert not list(odd_columns(open_rows(csv_file('a\n"Rome, Italia"\n' + "1\n" * 60))))


def test_commas_between_semicolons_that_may_stand_between_thousands_are_noted(csv_file: CsvFile) -> None:
    thousands = open_rows(csv_file("a;b;y\n" + "1,234;3,5;2\n" * 20), label="y")
    assert [row.features for row in thousands] == [{"a": 1.234, "b": 3.5}] * 20
    [note] = thousands.notes
    assert note.startswith("all commas of column 'a' stand before three digits, and are read as points: 1,234 is 1.234")
    points = open_rows(csv_file("a;y\n" + "1,234;2\n0,125;2\n" * 20), label="y")
    assert len(list(points)) == 40
    assert not points.notes


@pytest.mark.parametrize(
    ("thousands", "delimiter", "cell", "value"),
    [
        (",", ",", "1,201.50", 1201.5),
        (",", ";", "1,201", 1201.0),
        (",", ";", "3,5", "3,5"),
        (",", ",", " -1,201,000e", " -1,201,000e"),
        (".", ";", "1.201,50", 1201.5),
        (".", ",", "3,5", 3.5),
        ("'", ",", "1'201", 1201.0),
        (" ", ";", "1\u202f201,5", 1201.5),
        (" ", ",", "12 34", "12 34"),
    ],
)
def test_thousands_that_are_said_are_read(
    csv_file: CsvFile, thousands: str, delimiter: str, cell: str, value: Any
) -> None:
    path = csv_file(f'a{delimiter}k{delimiter}y\n"{cell}"{delimiter}"{cell}"{delimiter}"{cell}"\n')
    [row] = open_rows(path, label="y", key="k", thousands=thousands, has_numbers=lambda key: True)
    assert (row.features, row.key, row.label) == ({"a": value}, cell, value)


def test_a_file_of_numbers_has_no_thousands(npz_file: NpzFile) -> None:
    with pytest.raises(ConfigError, match="--thousands is for files of text"):
        open_rows(npz_file(X=np.ones((2, 2))), thousands=",")


def test_a_row_without_a_key_has_none_and_is_counted(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file("a,k\n1,x\n2,\n"), key="k")
    assert [row.key for row in rows] == ["x", None]
    assert rows.notes == ["1 row has no key: no model takes such a row, unless models.null_key names one"]


def test_a_look_at_the_first_rows_takes_nothing_away(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file("a\n" + "1e400\n" * 5 + "2\n" * 5))
    assert len(rows.peek(7)) == 7
    assert len(list(rows)) == len(list(rows)) == 10
    assert rows.not_finite == 5


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


@pytest.mark.parametrize(("kind", "n_rows"), [("csv", 12_000), ("npz", 30_000)])
def test_memory_is_bounded_by_a_piece_of_the_file(tmp_path: Path, kind: str, n_rows: int) -> None:
    x = np.random.default_rng(0).random((n_rows, 20))
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
    assert n == n_rows - 1
    assert peak < path.stat().st_size / 2
