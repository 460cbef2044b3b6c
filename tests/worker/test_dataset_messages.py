"""Rows as events, and that no file must fit in memory."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.worker.support.fakes import config
from tests.worker.support.rows import PEOPLE, CsvFile
from worker import codec
from worker.base.records import Event, Record
from worker.cli.dataset import Row, message, open_rows
from worker.repartition.model_key import key_reader


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


@pytest.mark.parametrize("written", ["json", "msgpack"])
def test_a_message_has_the_field_by_which_models_are_told(csv_file: CsvFile, written: Any) -> None:
    """Else each row of a file would end as a dead letter, missing-model-key."""
    given = config()
    of_input = replace(given.input, model_key="field:city", repartition=True, codec=written)
    key_of = key_reader(replace(given, input=of_input))
    rows = list(open_rows(csv_file(PEOPLE), label="churned", key="city"))
    values = [message(row, written, "city") for row in rows]
    assert [key_of(Record(0, 0, None, value, [])) for value in values] == [b"Rome", b"Oslo", b"Rome"]
    assert message(Row(2, None, {"a": None}, None), "json", "city") == b'{"id":"2","features":{"a":null}}'


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
