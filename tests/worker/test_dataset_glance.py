"""What the first rows tell: labels that are quantities, columns that teach nothing, thousands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import numpy as np
import pytest

from tests.worker.support.rows import CsvFile, NpzFile
from worker.base.errors import ConfigError
from worker.cli.dataset import FileRows, open_rows
from worker.cli.dataset.glance import labels_are_numbers, odd_columns


def rows_with_labels(csv_file: CsvFile, cells: list[Any]) -> FileRows:
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
        ([i + 0.5 for i in range(60)] + ["NA", "n/a", "NULL"], True),
        ([*(i + 0.5 for i in range(60)), "many"], False),
        (["yes", "no"] * 50, False),
        ([], False),
    ],
)
def test_labels_that_are_quantities_are_told_from_classes(csv_file: CsvFile, cells: list[Any], numbers: bool) -> None:
    reason = labels_are_numbers(rows_with_labels(csv_file, cells))
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


@pytest.mark.parametrize(
    "day", ["2026-01-{:02}", "2026-01-{:02} 12:30:00", "{:02}.01.2026", "1/{}/2026", "2026/1/{}T9:00"]
)
def test_a_column_of_dates_is_named_though_they_recur(csv_file: CsvFile, day: str) -> None:
    path = csv_file("day,y\n" + "".join(f"{day.format(i % 28 + 1)},{i % 2}\n" for i in range(400)))
    [sentence] = odd_columns(open_rows(path, label="y"))
    assert sentence.startswith(f"column 'day' has dates such as {day.format(1)!r}, which are taken for categories")
    others = csv_file("a,b,y\n" + "1.2.3,10.0.0.1,2026-01-02\n" * 60)
    assert not list(odd_columns(open_rows(others, label="y")))


@pytest.mark.parametrize("number", ["$1{}.50", "-$ 1,{}", "1{} %", "1{},50 €"])
def test_numbers_with_the_sign_of_a_unit_are_named(csv_file: CsvFile, number: str) -> None:
    """They are as good as unique, and to leave them out would be the worst of advice."""
    path = csv_file("a;amount;y\n" + "".join(f"{i};{number.format(i)};{number.format(i)}\n" for i in range(100, 400)))
    assert list(odd_columns(open_rows(path, label="y"))) == [
        f"column {name!r} has numbers such as {number.format(100)!r}, which are taken for texts: write them without "
        "the sign"
        for name in ("amount", "y")
    ]


@pytest.mark.parametrize("text", ["NA", "nan", "Null", "?"])
def test_labels_that_look_as_if_there_was_none_are_named(csv_file: CsvFile, text: str) -> None:
    [sentence] = odd_columns(rows_with_labels(csv_file, ["yes", "no", text] * 20))
    assert sentence == (
        f"column 'y' has {text!r} in 20 of 60 rows, which is taken for a label as any other: where there is no label, "
        "leave the cell empty"
    )
    for others in (["yes", "no", "none", ""], [text, ""]):
        assert not list(odd_columns(rows_with_labels(csv_file, others * 20)))


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
        ("7,49", "."),
        ("0,125", "."),
        ("1201,500", "."),
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


@pytest.mark.parametrize(
    ("cells", "argument", "values"),
    [
        (["1,250", "7,49"], ".", [1.25, 7.49]),
        (["7,49", "1.201,50"], ".", [7.49, 1201.5]),
        (["7,49", "1 201,50"], '" "', [7.49, 1201.5]),
        (["1'201,50", "7,4"], '"\'"', [1201.5, 7.4]),
        (["1,250", "1,201.50"], ",", [1250.0, 1201.5]),
    ],
)
def test_the_option_that_is_named_reads_all_numbers_of_the_column(
    csv_file: CsvFile, cells: list[str], argument: str, values: list[float]
) -> None:
    path = csv_file("a,b\n" + "".join(f'"{cell}",1\n' for cell in cells * 30))
    [sentence] = odd_columns(open_rows(path))
    assert f"--thousands {argument} reads them" in sentence
    rows = list(open_rows(path, thousands=shlex.split(argument)[0]))
    assert [row.features["a"] for row in rows[:2]] == values
    assert not list(odd_columns(open_rows(path, thousands=shlex.split(argument)[0])))


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
        (" ", ",", "1 201,5", 1201.5),
        ("'", ",", "3,5", 3.5),
        (" ", ",", "12 34", "12 34"),
    ],
)
def test_thousands_are_read_as_the_option_says(
    csv_file: CsvFile, thousands: str, delimiter: str, cell: str, value: Any
) -> None:
    path = csv_file(f'a{delimiter}k{delimiter}y\n"{cell}"{delimiter}"{cell}"{delimiter}"{cell}"\n')
    [row] = open_rows(path, label="y", key="k", thousands=thousands, has_numbers=lambda key: True)
    assert (row.features, row.key, row.label) == ({"a": value}, cell, value)


def test_a_file_of_numbers_has_no_thousands(npz_file: NpzFile) -> None:
    with pytest.raises(ConfigError, match="--thousands is for cells of text"):
        open_rows(npz_file(X=np.ones((2, 2))), thousands=",")


def test_a_look_at_the_first_rows_takes_nothing_away(csv_file: CsvFile) -> None:
    rows = open_rows(csv_file("a\n" + "1e400\n" * 5 + "2\n" * 5))
    assert len(rows.peek(7)) == 7
    assert len(list(rows)) == len(list(rows)) == 10
    assert rows.not_finite == 5
