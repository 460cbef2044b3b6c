"""Rows of a text file: what becomes of each cell, and what is refused with its place."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import sys
import tarfile
import tracemalloc
from io import BufferedReader, BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.support.rows import PEOPLE, CsvFile
from worker.base.errors import ConfigError
from worker.cli.dataset import Row, message, open_rows, record_of


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


def test_blanks_quotes_line_ends_and_a_byte_order_mark_are_read_as_people_write_them(csv_file: CsvFile) -> None:
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", ":"])
def test_a_first_line_for_spreadsheets_tells_what_stands_between_the_cells(csv_file: CsvFile, delimiter: str) -> None:
    text = f"\ufeffsep={delimiter}\r\na,b{delimiter}y\r\n1{delimiter}no\r\n"
    text = text.replace("a,b", '"a,b"')
    [row] = rows = list(open_rows(csv_file(text), label="y"))
    assert (row.features, row.label, len(rows)) == ({"a,b": 1.0}, "no", 1)
    with pytest.raises(ConfigError, match=r"rows\.csv:3: expected 2 cells"):
        list(open_rows(csv_file(f"sep={delimiter}\na{delimiter}y\n1\n"), label="y"))


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


def test_a_line_without_end_takes_no_memory(csv_file: CsvFile) -> None:
    path = csv_file(gzip.compress(b"a,b\n" + b"x" * 150_000_000, compresslevel=1))
    rows = iter(open_rows(path))
    tracemalloc.start()
    with pytest.raises(ConfigError, match=r":2: expected CSV, found something else: field larger than"):
        next(rows)
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_a_pipe_by_its_path_is_refused_before_its_rows_are_lost() -> None:
    read, write = os.pipe()
    os.write(write, b"a,b\n1,2\n")
    os.close(write)
    with pytest.raises(ConfigError, match="is a pipe, which can be read only once: give it as stdin, and - for the"):
        open_rows(f"/dev/fd/{read}")
    assert os.read(read, 100) == b"a,b\n1,2\n"
    os.close(read)


def tar_gz(text: bytes) -> bytes:
    """An archive with one file."""
    packed, about = BytesIO(), tarfile.TarInfo("rows.csv")
    about.size = len(text)
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(about, BytesIO(text))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        ("a,b\n1,2\n1\n", {}, ":3: expected 2 cells as in the header, found 1"),
        ("a,b\n1,2\n1,2,3\n", {}, ":3: expected 2 cells as in the header, found 3"),
        ("a,b,a\n", {}, ":1: column 3 has the name 'a', which another one has"),
        (",b\n", {}, ":1: column 1 has no name; give every column a name of its own (pandas"),
        ("a,b\n", {"label": "c"}, ":1: there is no column 'c' for --label; there are a, b"),
        (
            'a\x1b[2J,b\u00a0,"c\nd",y ,z\n',
            {"label": "y"},
            r" 'y' for --label; there are 'a\x1b[2J', 'b\xa0', 'c\nd', 'y ', z",
        ),
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
        (b"a,b\n1,2\n1,\xff\n", {}, ":3: expected text in UTF-8, found other bytes, 0xff first; spreadsheets"),
        ("\u00fe,b\n1,2\n".encode("cp1252"), {}, "`iconv -f WINDOWS-1252 -t UTF-8` converts"),
        ("a\tb\n1\t2\n".encode("utf-16"), {}, "`iconv -f UTF-16 -t UTF-8` converts"),
        pytest.param(
            bz2.compress(b"a,b\n"),
            {},
            ": expected text, packed by gzip or not, found what bzip2 has packed",
            id="bzip2",
        ),
        pytest.param(lzma.compress(b"a,b\n"), {}, "found what xz has packed: `xz -dc` unpacks it", id="xz"),
        pytest.param(b"\x28\xb5\x2f\xfd$\x08", {}, "found what zstd has packed: `zstd -dc` unpacks it", id="zstd"),
        pytest.param(b"PK\x03\x04\x14", {}, "found a zip archive: `unzip -p` writes what is in it, and", id="zip"),
        ("a\tb\n1\t2\n".encode("utf-16-le"), {}, ":1: expected a header in UTF-8, found zero bytes: of UTF-16 `iconv"),
        pytest.param(tar_gz(b"a,b\n1,2\n"), {}, "and `tar -xO` writes what is in an archive", id="tar"),
        pytest.param(b"PAR1\x15\x04", {}, "found a Parquet file: give it by its path, with a name", id="parquet"),
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


def test_the_field_that_the_configuration_names_is_the_key_unless_another_is_named(csv_file: CsvFile) -> None:
    path = csv_file("shop,town,x\na,Rome,1\nb,Oslo,2\n")
    rows = [*open_rows(path, key_field="shop")]
    assert [(row.key, row.features) for row in rows] == [
        ("a", {"town": "Rome", "x": 1.0}),
        ("b", {"town": "Oslo", "x": 2.0}),
    ]
    assert [row.key for row in open_rows(path, key="town", key_field="shop")] == ["Rome", "Oslo"]
    with pytest.raises(
        ConfigError, match=r"no column 'owner' for input\.model_key \(or --key COLUMN, or --keys N\); there are shop"
    ):
        open_rows(path, key_field="owner")
    with pytest.raises(
        ConfigError, match=r"'shop' is the column of the labels and, by input\.model_key .*, that of the keys"
    ):
        open_rows(path, label="shop", key_field="shop")


def test_an_id_gives_way_to_no_key_unsaid(csv_file: CsvFile) -> None:
    path = csv_file("id,tx,x\npump-1,7,1\n")
    with pytest.raises(
        ConfigError, match=r"the field id of an event is its model key, .* no room for 'tx': leave --id"
    ):
        open_rows(path, id="tx", key_field="id")
    [row] = open_rows(path, id="id", key_field="id")
    assert json.loads(message(row, key_field="id"))["id"] == "pump-1"


def test_a_wrong_header_is_found_before_a_row_is_read(csv_file: CsvFile) -> None:
    with pytest.raises(ConfigError, match="no column 'z'"):
        open_rows(csv_file(PEOPLE), label="z")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("none.csv", "none.npz"):
        with pytest.raises(ConfigError, match=f"{name}: cannot be read: No such file"):
            open_rows(tmp_path / name)


@pytest.mark.parametrize(
    ("cell", "label"),
    [("1.5", 1.5), ("-2e3", -2000.0), ("7", 7), ("", None), ("007", 7.0), ("a", "a"), ("nan", "nan"), ("1_0", "1_0")],
)
def test_labels_are_numbers_where_the_model_takes_numbers(csv_file: CsvFile, cell: str, label: Any) -> None:
    path = csv_file(f"a,k,y\n1,m,{cell}\n1,n,{cell}\n")
    number, other = open_rows(path, label="y", key="k", has_numbers=lambda key: key == "m")
    assert (number.label, type(number.label)) == (label, type(label))
    assert other.label == (None if not cell else 7 if cell == "7" else cell)


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


def test_a_row_without_a_key_has_none_and_is_counted(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file("a,k\n1,x\n2,\n"), key="k")
    assert [row.key for row in rows] == ["x", None]
    assert rows.notes == ["1 row has no key: no model takes such a row, unless models.null_key names one"]
