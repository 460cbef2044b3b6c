"""`evaluate` on JSON lines: the same figures and verdicts however the rows are written."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.worker.support.configurations import document
from tests.worker.support.printed import Main, figures, without_speed

ROWS: list[dict[str, Any]] = [
    {"amount": i * 7 % 13 + 0.5, "country": "IT" if i % 3 else "DE", "shop": f"shop-{i % 2}", "fraud": i % 5 == 0}
    for i in range(200)
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows({**row, "fraud": str(row["fraud"]).lower()} for row in ROWS)
    return path


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    path = tmp_path / "flat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    lines = [
        {"features": {name: row[name] for name in ("amount", "country")}, "label": row["fraud"], "shop": row["shop"]}
        for row in ROWS
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_rows_are_the_same_in_a_table_as_flat_objects_and_as_events(
    main: Main, table: Path, flat: Path, events: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    shown = []
    for command in ((table, "--label", "fraud"), (flat, "--label", "fraud"), (events,)):
        code, printed, err = main("evaluate", *command, "--key", "shop", "--out", out)
        assert (code, err) == (0, "")
        shown.append((without_speed(printed), out.read_text()))
    assert shown[0] == shown[1] == shown[2]
    assert figures(printed)["labelled"] == "200"


def test_the_field_of_the_configuration_is_the_key(main: Main, flat: Path, events: Path, tmp_path: Path) -> None:
    config = tmp_path / "worker.yaml"
    source = "{topic: events, model_key: field:shop, repartition: true, codec: msgpack}"
    config.write_text(document(input=source, kafka="{bootstrap.servers: b, group.id: g}"))
    for command in ((flat, "--label", "fraud"), (events,)):
        code, printed, _ = main("evaluate", *command, "--config", config)
        assert (code, figures(printed)["models"], figures(printed)["refused"]) == (0, "2", "0")
        code, printed, _ = main("evaluate", *command, "--config", config, "--keys", 1)
        assert (code, figures(printed)["models"]) == (0, "1")


def test_the_field_may_be_named_on_the_command_line_alone(main: Main, flat: Path, tmp_path: Path) -> None:
    field = ("--set", "input.model_key=field:shop", "--set", "input.repartition=true")
    code, printed, _ = main("evaluate", flat, "--label", "fraud", *field)
    assert (code, figures(printed)["models"]) == (0, "2")
    # What the labels are, and so what may be said of the models, is seen after that.
    prices = tmp_path / "prices.jsonl"
    rows = ({"shop": f"shop-{i % 2}", "rooms": i % 7, "price": 1.5 * i} for i in range(200))
    prices.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, printed, err = main("evaluate", prices, "--label", "price", *field, "--set", "loss=student")
    assert (code, figures(printed)["models"]) == (0, "2")
    assert "they are estimated" in err
    code, _, err = main("evaluate", flat, "--label", "fraud", *field[:2])
    assert code == 2
    assert "input.model_key: expected input.repartition: true beside it" in err


def test_lines_that_a_worker_would_refuse_are_counted(main: Main, events: Path) -> None:
    with events.open("a") as file:
        file.write(
            '{"label": "yes", "id": 1}\n{"features": {"amount": NaN}, "label": true}\n{"features": {"amount": []}}\n'
        )
    code, printed, _ = main("evaluate", events)
    assert (code, figures(printed)["refused"]) == (0, "3")
    assert re.findall(r"^1 row was refused as ([a-z-]+), first row (\d+): ", printed, re.M) == [
        ("missing-features", "200"),
        ("non-finite-number", "201"),
        ("wrong-type", "202"),
    ]


def test_a_torn_line_is_named(main: Main, events: Path) -> None:
    events.write_text(events.read_text()[:-30])
    code, _, err = main("evaluate", events)
    assert code == 2
    assert f"{events}:200: expected a whole JSON object on each line: the line is not JSON at character" in err


def test_flat_objects_need_the_name_of_the_label(main: Main, flat: Path) -> None:
    code, _, err = main("evaluate", flat)
    assert code == 2
    assert "--label must name the column of the labels; there are amount, country, shop, fraud" in err


def test_many_numbers_among_the_labels_of_events_are_estimated(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "prices.ndjson"
    path.write_text("".join(f'{{"features": {{"a": {i % 7}}}, "label": {i % 7 * 10 + i / 100}}}\n' for i in range(100)))
    code, printed, err = main("evaluate", path)
    assert (code, "they are estimated" in err, "RMSE" in printed) == (0, True, True)
