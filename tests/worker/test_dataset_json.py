"""Rows of JSON lines, as events and as flat objects: what becomes of a line, and what is refused with its place."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from io import BufferedReader, BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.support.fakes import config
from tests.worker.support.malformed import MAX_BYTES, malformed
from worker import codec
from worker.base.errors import ConfigError
from worker.base.records import Event, Record, Reject
from worker.cli.dataset import Row, message, open_rows
from worker.cli.dataset.glance import FIRST_ROWS, labels_are_numbers, odd_columns
from worker.codec import msgpack
from worker.repartition.model_key import key_reader

EVENT = '{"features": {"a": 1, "c": "IT", "b": true}, "label": "x", "id": 7, "shop": "k1", "t": 1715949000}'
FLAT = '{"amount": 1.5, "country": "IT", "fraud": true, "shop": 3}'

JsonFile = Callable[..., Path]


@pytest.fixture
def json_file(tmp_path: Path) -> JsonFile:
    """Makes a file of lines, or of bytes."""

    def write(*lines: str | bytes, name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(line if isinstance(line, bytes) else f"{line}\n".encode() for line in lines))
        return path

    return write


def test_the_fields_of_a_flat_object_are_columns_and_keep_their_types(json_file: JsonFile) -> None:
    path = json_file(
        FLAT, '{"amount": null, "country": "", "fraud": null, "shop": "3", "new": false}', '{"shop": null}'
    )
    rows = open_rows(path, label="fraud", key="shop")
    assert list(rows) == [
        Row(0, "3", {"amount": 1.5, "country": "IT"}, True),
        Row(1, "3", {"amount": None, "country": "", "new": 0.0}, None),
        Row(2, None, {}, None),
    ]
    assert (rows.columns, rows.labelled, rows.are_events) == (["amount", "country", "fraud", "shop"], True, False)
    assert rows.notes == ["1 row has no key: no model takes such a row, unless models.null_key names one"]


def test_an_event_is_taken_as_it_stands(json_file: JsonFile) -> None:
    other = '{"id": null, "features": {"z": 2.5}, "more": [1, {"b": 2}], "shop": 9}'
    rows = open_rows(json_file(EVENT, other), key="shop", time="t")
    first, second = rows
    assert first == Row(0, "k1", {"a": 1.0, "c": "IT", "b": 1.0}, "x", "7", 1715949000000, EVENT.encode())
    assert (second.key, message(second)) == ("9", other.encode())
    assert (rows.labelled, rows.are_events, rows.roles.label) == (True, True, "label")


@pytest.mark.parametrize("features", ["[1, 2]", "{}", "[]"])
def test_lines_are_events_where_the_first_one_has_features(json_file: JsonFile, features: str) -> None:
    assert open_rows(json_file(f'{{"features": {features}}}')).are_events
    assert not open_rows(json_file('{"features": 3}')).are_events


def test_what_a_worker_refuses_of_an_event_it_still_refuses(json_file: JsonFile) -> None:
    """Each line gets the verdict that its value would get from a topic; broken text alone is an error of the file."""
    values = [value for value, _ in malformed(seed=3, count=400) if value and len(value) < MAX_BYTES]
    one_line = [value for value in values if b"\n" not in value and value == value.strip()]
    verdicts = [codec.decode(value, MAX_BYTES) for value in one_line]
    kept = [
        (value, verdict)
        for value, verdict in zip(one_line, verdicts, strict=True)
        if isinstance(verdict, Reject) and verdict.code != "malformed-json"
    ]
    assert len({verdict.code for _, verdict in kept}) > 8
    rows = list(open_rows(json_file(EVENT, *(value + b"\n" for value, _ in kept))))[1:]
    assert [codec.decode(message(row), MAX_BYTES) for row in rows] == [verdict for _, verdict in kept]
    broken = [
        value
        for value, verdict in zip(one_line, verdicts, strict=True)
        if isinstance(verdict, Reject) and verdict.code == "malformed-json"
    ]
    assert len(broken) > 10
    for value in broken:
        with pytest.raises(ConfigError, match=r"rows\.jsonl:2: "):
            list(open_rows(json_file(EVENT, value + b"\n")))


def test_the_key_is_read_as_the_forwarder_reads_it(json_file: JsonFile) -> None:
    keys = ['"k"', "1", "-7", "true", "null", "1.5", "[1]", '"\\u00e9"', "18446744073709551616", '"' + "k" * 600 + '"']
    lines = [f'{{"features": [1], "shop": {key}}}' for key in keys] + ['{"features": [1], "shop": 1, "shop": 2}']
    given = config()
    key_of = key_reader(replace(given, input=replace(given.input, model_key="field:shop", repartition=True)))
    read = [row.key for row in open_rows(json_file('{"features": [1], "shop": "first"}', *lines), key="shop")][1:]
    for line, found in zip(lines, read, strict=True):
        expected = key_of(Record(0, 0, None, line.encode(), []))
        if isinstance(expected, Reject):
            assert found is None or expected.code == codec.decode_key(found.encode()).code  # type: ignore[union-attr]
        else:
            assert found is not None
            assert found.encode() == expected


@pytest.mark.parametrize("line", [EVENT, FLAT])
def test_the_field_that_the_configuration_names_is_the_key(json_file: JsonFile, line: str) -> None:
    path = json_file(line)
    assert [row.key for row in open_rows(path, key_field="shop")] in (["k1"], ["3"])
    with pytest.raises(ConfigError, match=r"no line has 'owner' for input\.model_key .*; in the first one there are"):
        open_rows(path, key_field="owner")
    if line is EVENT:
        assert [row.key for row in open_rows(path, key="id", key_field="shop")] == ["7"]


def test_the_field_by_which_models_are_told_is_written_into_an_event(json_file: JsonFile) -> None:
    [row] = open_rows(json_file(EVENT), key="id")
    assert message(row, key_field="id") == EVENT.encode()
    assert json.loads(message(row, key_field="shop")) == {**json.loads(EVENT), "shop": "7"}
    [of_turns] = open_rows(json_file('{"features": [1e400]}'))
    assert message(of_turns, key_field="shop") == b'{"features":[1e400],"shop":"model-0"}'
    [not_finite] = open_rows(json_file('{"features": [NaN]}'))
    assert message(not_finite, key_field="shop") == b'{"features": [NaN]}'
    with pytest.raises(ConfigError, match="lines that are events are JSON, and are published as they stand"):
        message(row, "msgpack")


def test_features_of_an_event_may_be_left_out(json_file: JsonFile) -> None:
    deep = '{"features": {"b": {"no": "feature"}, "a": 1e0}, "label": 2, "more": 1.0}'
    first, second, third = open_rows(json_file(EVENT, deep, '{"features": [1]}'), drop=["b", "c"])
    assert (first.features, json.loads(message(first))["features"]) == ({"a": 1.0}, {"a": 1})
    assert message(second) == b'{"features":{"a":1e0},"label":2,"more":1.0}'
    assert codec.decode(message(second), 1000) == Event({"a": 1.0}, 2, None)
    assert message(third) == b'{"features": [1]}'


def test_blank_lines_line_ends_and_a_byte_order_mark_are_read_as_they_are_written(json_file: JsonFile) -> None:
    expected = list(open_rows(json_file(FLAT, FLAT)))
    assert list(open_rows(json_file(f"\ufeff\r\n  {FLAT}\r\n\r\n", FLAT.encode()))) == expected
    assert list(open_rows(json_file(f"\ufeff{FLAT} ", "", "\t", FLAT))) == expected


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.JSONL.gz", "rows.json", "rows.log", "rows"])
@pytest.mark.parametrize("packed", [False, True])
def test_json_is_known_by_how_it_begins_and_read_packed_or_not(json_file: JsonFile, name: str, packed: bool) -> None:
    expected = list(open_rows(json_file(FLAT, FLAT)))
    content = f"{FLAT}\n{FLAT}".encode()
    rows = open_rows(json_file(gzip.compress(content) if packed else content, name=name))
    assert list(rows) == list(rows) == expected
    assert rows.fraction == 1.0


@pytest.mark.parametrize("packed", [False, True])
def test_stdin_is_read_once(json_file: JsonFile, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    content = f"{EVENT}\n{EVENT}\n".encode()
    stdin = SimpleNamespace(buffer=BufferedReader(BytesIO(gzip.compress(content) if packed else content)))
    monkeypatch.setattr(sys, "stdin", stdin)
    rows = open_rows("-", key="owner")
    assert len(rows.peek(1)) == 1
    assert [row.value for row in rows] == [EVENT.encode()] * 2
    assert "no line had 'owner' for --key" in rows.notes
    assert not stdin.buffer.closed


def test_a_column_that_only_later_lines_have_is_one(json_file: JsonFile) -> None:
    lines = ['{"a": 1}'] * 3000 + ['{"b": 2, "y": "late"}']
    *_, last = open_rows(json_file(*lines), label="y")
    assert (last.features, last.label) == ({"b": 2.0}, "late")


def test_numbers_that_are_not_finite_are_missing_and_counted(json_file: JsonFile) -> None:
    huge, longer = "1" * 400, "1" * 5000
    path = json_file(f'{{"a": NaN, "b": -Infinity, "c": 1e400, "d": {huge}, "e": {longer}, "f": -{huge}}}', '{"a": 1}')
    rows = open_rows(path)
    for _ in range(2):
        assert [row.features for row in rows] == [dict.fromkeys("abcdef"), {"a": 1.0}]
        assert rows.notes == ["6 cells are no finite number and taken as missing, the first in line 1, column 'a'"]


@pytest.mark.parametrize(
    ("label", "code"),
    [("1" * 400, "number-out-of-range"), ('"' + "x" * 200 + '"', "label-too-long")],
)
def test_a_label_that_is_none_is_refused_as_in_an_event(json_file: JsonFile, label: str, code: str) -> None:
    rows = open_rows(json_file(f'{{"a": 1, "y": {label}}}'), label="y")
    labels_are_numbers(rows)
    [row] = rows
    verdict = codec.decode(message(row), 10_000)
    assert isinstance(verdict, Reject)
    assert verdict.code == code
    assert isinstance(msgpack.decode(message(row, "msgpack"), 10_000), Reject)


@pytest.mark.parametrize("label", [2**63, 2**64 - 1, -(2**63), 2**64, -(10**30), 10**74])
def test_a_large_label_arrives_however_it_is_written(json_file: JsonFile, label: int) -> None:
    [row] = open_rows(json_file(f'{{"a": 1, "y": {label}}}'), label="y", has_numbers=lambda key: True)
    for event in (codec.decode(message(row), 1000), msgpack.decode(message(row, "msgpack"), 1000)):
        assert isinstance(event, Event)
        assert event.label == label or event.label == float(label)


def test_the_last_one_counts_of_fields_of_one_name(json_file: JsonFile) -> None:
    [row] = open_rows(json_file('{"a": 1, "a": 2}'))
    assert row.features == {"a": 2.0}


@pytest.mark.parametrize(
    ("lines", "options", "complaint"),
    [
        ([""], {}, ": expected a JSON object on each line, found nothing"),
        ([FLAT, FLAT[:20]], {}, ":2: expected a whole JSON object on each line: the line is not JSON at character 16"),
        ([EVENT, "", EVENT[:20]], {}, ":3: expected a whole JSON object on each line: the line is not JSON at charact"),
        ([FLAT, FLAT[:20]], {}, "rows.jsonl` leaves out what is none"),
        ([FLAT + FLAT], {}, "not JSON at character 58: Extra data; `jq -c . "),
        (['[{"a": 1}, {"a": 2}]'], {}, ":1: expected a JSON object on each line, found an array; `jq -c '.[]' "),
        (["[", FLAT, "]"], {}, "`jq -c '.[]' "),
        (["{", '"a": 1', "}"], {}, "` writes documents of many lines on one each"),
        ([FLAT, "3"], {}, ":2: expected a JSON object on each line, found none"),
        ([FLAT.encode("utf-16")], {}, ":1: expected text in UTF-8, found other bytes, 0xff first; `iconv -f UTF-16"),
        ([FLAT, b'{"a": "\xfc"}'], {}, ":2: expected text in UTF-8, found other bytes, 0xfc first; `iconv -f WINDOWS"),
        ([EVENT, b'{"features": {"a": "\xfc"}}'], {}, ":2: expected text in UTF-8, found other bytes, 0xfc first"),
        (['{"a": "\\ud800"}'], {}, ":1: expected a whole JSON object on each line: a \\u escape is half of a surrogat"),
        (['{"a": ' + "[" * 100_000], {}, ":1: expected a whole JSON object on each line: the line is nested deeper"),
        ([FLAT, '{"b": {"c": 1}}'], {}, ":2: 'b' is an object, which no feature can be; --drop b leaves it out"),
        ([FLAT, '{"b": [1]}'], {"label": "b"}, ":2: 'b' is an array, which nothing can be for --label; write it as"),
        ([FLAT, EVENT], {}, "If lines are events, the first one must be one, too"),
        ([FLAT], {"label": "fruad"}, ": no line has 'fruad' for --label; in the first one there are amount, country"),
        ([FLAT, FLAT], {"drop": ["x"]}, ": no line has 'x' for --drop"),
        ([EVENT], {"key": "a"}, ": no line has 'a' for --key; in the first one there are features, label, id, shop, t"),
        ([EVENT], {"label": "shop"}, "leave --label out; `jq -c '.label = .[\"shop\"]'` makes another field it"),
        ([EVENT], {"id": "shop"}, "leave --id out"),
        ([EVENT], {"key": "label"}, "'label' is the column of the labels and, by --key, that of the keys"),
        (['{"a": 1, "t": "soon"}'], {"time": "t"}, ":1: expected a date and time"),
        (['{"a": 1, "t": true}'], {"time": "t"}, ":1: expected a date and time"),
        (['{"a": 1, "t": 20240517123000}'], {"time": "t"}, ", or seconds since 1970, found '20240517123000'"),
        (['{"a": 1, "t": ' + "1" * 400 + "}"], {"time": "t"}, ":1: expected a date and time"),
        ([FLAT], {"thousands": ","}, "--thousands is for cells of text"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(
    json_file: JsonFile, lines: list[str | bytes], options: dict[str, Any], complaint: str
) -> None:
    path = json_file(*lines)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}.*{re.escape(complaint)}"):
        list(open_rows(path, **options))


def test_a_line_without_an_end_is_not_read_into_memory(json_file: JsonFile) -> None:
    path = json_file(gzip.compress(b'{"a": "' + b"x" * 100_000_000 + b'"}'))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r":1: expected a JSON object on each line, found a line of 16,777,216"):
            open_rows(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000


@pytest.mark.parametrize(
    "line", ['{{"id": "tx-{0}", "y": {0}.5}}', '{{"features": {{"id": "tx-{0}"}}, "label": {0}.5}}']
)
def test_what_the_first_rows_tell_is_said(json_file: JsonFile, line: str) -> None:
    path = json_file('{"y": 0}' if "features" not in line else '{"features": {"a": 0}}', *map(line.format, range(400)))
    rows = open_rows(path, label=None if "features" in line else "y")
    assert len(rows.peek(FIRST_ROWS)) == 401
    [sentence] = odd_columns(rows)
    assert sentence.startswith("column 'id' has 400 different texts in 400 rows: as good as unique")
    assert labels_are_numbers(rows) is not None


def test_a_number_that_is_a_date_is_no_number_of_seconds(json_file: JsonFile) -> None:
    rows = open_rows(json_file('{"a": 1, "t": 20240517}', '{"a": 1, "t": 1715904000}'), time="t")
    assert [row.time_ms for row in rows] == [1715904000_000] * 2
