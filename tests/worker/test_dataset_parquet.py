"""Rows of a Parquet file, whose columns have types."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from worker.base.errors import ConfigError
from worker.cli.dataset import Row, open_rows
from worker.cli.dataset.glance import odd_columns


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


def test_names_of_columns_are_their_own(tmp_path: Path) -> None:
    path = tmp_path / "joined.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 3, ["x", "y", "x"]), path)
    with pytest.raises(ConfigError, match=r"parquet: column 3 has the name 'x', which another one has; give every"):
        open_rows(path)


def test_large_integers_are_rounded_to_features(tmp_path: Path) -> None:
    path = tmp_path / "hashes.parquet"
    hashes = {"signed": [2**62 + 1, None], "unsigned": pa.array([2**64 - 1, 7], pa.uint64())}
    pq.write_table(pa.table(hashes), path)
    assert [row.features for row in open_rows(path)] == [
        {"signed": 2.0**62, "unsigned": 2.0**64},
        {"signed": None, "unsigned": 7.0},
    ]


def test_keys_and_ids_are_written_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "exported.parquet"
    ids = [Decimal(10**20), Decimal(10**20 + 1)]  # what databases export integers as
    pq.write_table(pa.table({"x": [1.0, 2.0], "id": pa.array(ids, pa.decimal128(38, 0)), "vip": [True, False]}), path)
    assert [row.id for row in open_rows(path, id="id")] == ["100000000000000000000", "100000000000000000001"]
    assert [row.key for row in open_rows(path, key="id")] == ["100000000000000000000", "100000000000000000001"]
    assert [row.key for row in open_rows(path, key="vip")] == ["true", "false"]


def test_numbers_that_are_texts_are_named_with_no_option_that_is_for_text_files(tmp_path: Path) -> None:
    path = tmp_path / "amounts.parquet"
    pq.write_table(pa.table({"amount": ["7,49"] * 60}), path)
    [sentence] = odd_columns(open_rows(path))
    assert sentence.endswith("which are taken for texts: a file of this kind has types, so write them as numbers there")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "worker.cli.dataset.parquet", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[parquet\]'"):
        open_rows(tmp_path / "rows.parquet")
