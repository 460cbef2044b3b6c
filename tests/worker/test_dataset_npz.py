"""Rows of arrays: their features, labels, keys, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.support.rows import NpzFile
from worker.base.errors import ConfigError
from worker.cli.dataset import Row, open_rows


def test_an_npz_has_numbered_features_and_the_label_y(npz_file: NpzFile) -> None:
    rows = open_rows(npz_file(X=[[1.0, np.nan], [3.0, 4.0]], y=[7, 8]), n_keys=2)
    assert list(rows) == [
        Row(0, "model-0", {"f0": 1.0, "f1": None}, 7),
        Row(1, "model-1", {"f0": 3.0, "f1": 4.0}, 8),
    ]
    assert (rows.labelled, rows.total, rows.fraction) == (True, 2, 1.0)
    assert not open_rows(npz_file(X=[[1.0]])).labelled


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
        (np.array([1.0, 2.5], np.longdouble), [1, 2.5]),
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
def test_an_npz_that_cannot_be_used_is_named_with_why(npz_file: NpzFile, columns: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"rows.npz: {complaint}"):
        list(open_rows(npz_file(**columns)))


def test_numbers_of_an_npz_that_are_not_finite_are_missing_and_counted(npz_file: NpzFile) -> None:
    path = npz_file(X=[[np.inf, 1.0], [np.nan, -np.inf]], y=[1.0, np.inf], z=[1.5, 1e300])
    rows = open_rows(path, has_numbers=lambda key: True)
    assert [(row.features, row.label) for row in rows] == [
        ({"f0": None, "f1": 1.0}, 1.0),
        ({"f0": None, "f1": None}, None),
    ]
    assert rows.notes == ["3 cells are no finite number and taken as missing, the first in X[0, 0]"]
    assert [row.label for row in open_rows(path, label="z")] == [1.5, 1e300]  # which a worker refuses, and counts


def test_arrays_of_an_npz_may_be_ids_and_times(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0, 2.0]], y=[1], n=[17], t=[1715949000])
    [row] = open_rows(path, id="n", time="t", drop=["f0"])
    assert row == Row(0, "model-0", {"f1": 2.0}, 1, "17", 1715949000_000)
    with pytest.raises(ConfigError, match="there is no column 'f2' for --drop; there are f0, f1"):
        open_rows(path, drop=["f2"])
    with pytest.raises(ConfigError, match="there is no column left for the features"):
        open_rows(path, drop=["f0", "f1"])


def test_a_damaged_npz_is_no_crash(npz_file: NpzFile, tmp_path: Path) -> None:
    path = npz_file(X=np.ones((5000, 4)), y=np.zeros(5000, int))
    whole = path.read_bytes()
    damaged = tmp_path / "damaged.npz"
    for data in (b"", b"PK\3\4 but no zip", whole[: len(whole) // 2], whole.replace(b"\0\0\xf0?", b"\0\0\xf1?")):
        damaged.write_bytes(data)
        with pytest.raises(ConfigError, match=r"damaged.npz: expected an .npz file"):
            list(open_rows(damaged))


def test_the_labels_that_an_npz_has_by_default_are_no_keys(npz_file: NpzFile) -> None:
    path = npz_file(X=[[1.0], [2.0]], y=[1, 2], z=[1, 2])
    with pytest.raises(ConfigError, match="'y' is the column of the labels and, by --key"):
        open_rows(path, key="y")
    assert [row.key for row in open_rows(path, key="y", label="z")] == ["1", "2"]
