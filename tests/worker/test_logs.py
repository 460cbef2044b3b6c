"""What is written to stderr: how a line looks, and how often the same one comes."""

from __future__ import annotations

import ast
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker.support.bench import Bench
from tests.worker.support.fakes import FakeClock
from worker.adapters.kafka import errors
from worker.base.errors import PartitionStopped
from worker.base.log import Log
from worker.cli import logs
from worker.cli.logs import EVERY_S, MOST_LINES, Human, Json, RateLimited

ROOT = Path(__file__).parents[2]
SAYS = {"info", "warning", "error"}


class Written(logging.Handler):
    """Lines as they would be written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def take(self) -> list[dict[str, Any]]:
        taken, self.lines = [json.loads(line) for line in self.lines], []
        return taken


class Desk:
    """The log of the worker, written as JSON, and the clock that it goes by."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.written = Written(Json())
        self.handler = RateLimited(self.written, self.clock.monotonic)
        self.log = Log("worker.somewhere")

    def take(self) -> list[dict[str, Any]]:
        return self.written.take()


@pytest.fixture
def desk() -> Iterator[Desk]:
    made, root = Desk(), logging.getLogger("worker")
    handlers, level = root.handlers, root.level
    root.handlers = [made.handler]
    root.setLevel("INFO")
    yield made
    root.handlers = handlers
    root.setLevel(level)


# How a line looks


@pytest.mark.parametrize("chosen", ["json", "human"])
def test_what_asyncio_says_is_a_line_like_any_other(chosen: logs.Format, capsys: pytest.CaptureFixture[str]) -> None:
    logs.write_to_stderr("info")
    logs.use_format(chosen)
    asyncio = logging.getLogger("asyncio")
    for _ in range(3):
        asyncio.warning("socket.send() raised\nexception.")
    asyncio.info("nobody asked for this")
    [line] = capsys.readouterr().err.splitlines()
    if chosen == "json":
        told = json.loads(line)
        assert (told["logger"], told["fact"]) == ("asyncio", "socket.send() raised\nexception.")
    else:
        assert line.endswith(r"Z WARNING asyncio: socket.send() raised\nexception.")


def test_a_line_of_json_has_the_parts_of_the_event(desk: Desk) -> None:
    error = PartitionStopped("group-rewound", "the group is at 3", "Set it to 5")
    desk.log.error("partition-stopped", "partition 3 stops", detail=error, partition=3, code=error.code)
    [line] = desk.take()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "error",
        "logger": "worker.somewhere",
        "event": "partition-stopped",
        "fact": "partition 3 stops",
        "detail": "the group is at 3",
        "hint": "Set it to 5",
        "partition": 3,
        "code": "group-rewound",
    }


def test_a_line_for_people_is_a_sentence(desk: Desk) -> None:
    desk.written.setFormatter(Human())
    desk.log.warning("topic-not-seen", "topic x cannot be looked at", detail="no answer", hint="Look at the broker")
    [line] = desk.written.lines
    assert line.partition("Z ")[2] == (
        "WARNING topic-not-seen: topic x cannot be looked at: no answer. Look at the broker"
    )


def test_nothing_that_others_say_ends_a_line_or_moves_the_cursor(desk: Desk) -> None:
    for formatter in (Human(), Json()):
        desk.written.setFormatter(formatter)
        desk.log.warning(f"e{formatter}", "a\n2026-01-01T00:00:00.000Z ERROR forged", detail="\x1b[2J\u2028\x00é")
        [line] = desk.written.lines
        desk.written.lines.clear()
        assert line.isprintable()
        assert line.splitlines() == [line]


def test_a_mistake_of_ours_has_a_name_and_its_traceback(desk: Desk) -> None:
    try:
        raise LookupError("nothing there")
    except LookupError:
        desk.log.exception("no-answer", "no answer to GET /models")
    [line] = desk.take()
    assert (line["event"], line["level"], line["fact"]) == ("no-answer", "error", "no answer to GET /models")
    assert "LookupError: nothing there" in line["exception"]
    assert __name__.rpartition(".")[2] in line["exception"]


def test_a_line_of_the_log_is_of_bounded_length(desk: Desk) -> None:
    desk.log.warning("e", "x" * 100_000, detail="y" * 100_000)
    assert len(json.dumps(desk.take())) < 10_000


@pytest.mark.parametrize(("chosen", "is_terminal", "is_json"), [
    ("auto", True, False), ("auto", False, True), ("human", False, False), ("json", True, True),
])  # fmt: skip
def test_lines_are_for_people_on_a_terminal(
    chosen: logs.Format, is_terminal: bool, is_json: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
    logs.use_format(chosen)
    desk.log.info("e", "fact")
    assert desk.written.lines[0].startswith("{") == is_json


@pytest.mark.parametrize("chosen", ["human", "json"])
def test_lines_say_whose_they_are_where_that_is_known(chosen: logs.Format, desk: Desk) -> None:
    logs.use_format(chosen)
    desk.log.info("e", "one")
    logs.use_format(chosen, "host-1\n")
    desk.log.info("e", "two")
    one, two = desk.written.lines
    assert "host-1" not in one
    assert ('"worker": "host-1\\n"' if chosen == "json" else " INFO [host-1\\n] e: two") in two


# How often


def test_the_same_line_comes_once_a_minute_and_then_says_how_often_it_came(desk: Desk) -> None:
    for offset in range(133):
        desk.log.warning(
            "dead-letter", f"20 records, the last at offset {offset}", partition=3, count=20, offset=offset
        )
        desk.clock.now_s += 0.1
    [first] = desk.take()
    assert (first["offset"], first["count"], "lines" in first) == (0, 20, False)
    desk.clock.now_s += EVERY_S
    desk.log.info("e", "anything else")
    summary, _ = desk.take()
    assert (summary["offset"], summary["count"], summary["lines"]) == (132, 132 * 20, 132)
    assert summary["fact"] == "20 records, the last at offset 132"
    # The summary was a line of this minute.
    desk.log.warning("dead-letter", "20 records, the last at offset 500", partition=3, count=20, offset=500)
    assert desk.take() == []
    desk.clock.now_s += EVERY_S
    desk.log.warning("dead-letter", "20 records, the last at offset 501", partition=3, count=20, offset=501)
    assert [line["offset"] for line in desk.take()] == [500]


def test_what_differs_in_more_than_a_number_is_another_line(desk: Desk) -> None:
    for partition in (1, 2):
        for code in ("null-key", "too-large"):
            for level in (desk.log.warning, desk.log.error):
                level("e", f"partition {partition} has 7 of {code} at 127.0.0.1:1", partition=partition)
                level("e", f"partition {partition} has 8 of {code} at 127.0.0.1:1", partition=partition)
    desk.log.warning("e", "partition 1 has 7 of null-key at 127.0.0.1:2", partition=1)
    assert len(desk.take()) == 2 * 2 * 2 + 1


def test_information_is_left_out_only_where_it_is_word_for_word_the_same(desk: Desk) -> None:
    for numbers in ([0], [0, 1], [0]):
        desk.log.info("rebalance", f"partitions assigned: {numbers}")
    assert [line["fact"] for line in desk.take()] == ["partitions assigned: [0]", "partitions assigned: [0, 1]"]


def test_whoever_asks_for_debug_lines_gets_them_all(desk: Desk) -> None:
    logging.getLogger("worker").setLevel("DEBUG")
    for _ in range(3):
        logging.getLogger(errors.__name__).debug("BROADCAST [thrd:main]: Broadcasting state change")
    assert len(desk.take()) == 3


def test_the_end_says_what_was_left_out(desk: Desk) -> None:
    desk.written.setFormatter(Human())
    for _ in range(3):
        desk.log.error("e", "fact", count=5)
    logs.say_what_was_left_out()
    logs.say_what_was_left_out()
    assert [line.partition("fact")[2] for line in desk.written.lines] == ["", " [one of 2 such lines, 10 in all]"]


def test_the_minute_is_over_though_nobody_says_anything(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "EVERY_S", 0.01)
    before = threading.active_count()
    for n_written in (2, 3):  # of the second minute those that follow upon the summary of the first one
        for _ in range(3):
            desk.log.error("e", "fact")
        desk.clock.now_s += 1
        until(lambda n_written=n_written: len(desk.written.lines) >= n_written)
        assert threading.active_count() <= before + 1
    assert sum(line.get("lines", 1) for line in desk.take()) == 6


def test_an_error_is_not_lost_among_a_thousand_lines_of_another_event(desk: Desk) -> None:
    for number in range(2 * MOST_LINES):
        desk.log.info("partition-live", f"partition {number} is live")
    desk.log.error("partition-stopped", "partition 7 has stopped", partition=7, code="retention-gap")
    desk.log.error("checkpoint-failed", "partition 8 is not saved", partition=8)
    assert [line["event"] for line in desk.take()[-2:]] == ["partition-stopped", "checkpoint-failed"]


def test_lines_of_all_kinds_take_bounded_memory_and_space(desk: Desk) -> None:
    for i in range(10 * MOST_LINES):
        desk.log.error("e", f"model 'k{i}x' is damaged")
    assert len(desk.handler._windows) == MOST_LINES + 1
    assert len(desk.take()) == MOST_LINES + 1
    desk.clock.now_s += EVERY_S
    desk.log.info("e", "later")
    summary, later = desk.take()
    assert (summary["lines"], later["fact"]) == (9 * MOST_LINES - 1, "later")
    desk.clock.now_s += EVERY_S
    desk.log.info("e", "later still")
    assert len(desk.handler._windows) == 1


# Who says something


def test_what_clients_of_kafka_say_of_themselves_is_limited_by_what_and_of_which_broker(desk: Desk) -> None:
    client = logging.getLogger(errors.__name__)
    for attempt in range(232):
        for name, broker in (("producer-1", "10.0.0.1:9092"), ("consumer-2", "10.0.0.2:9092")):
            client.error(
                "FAIL [rdkafka#%s] [thrd:%s]: %s: Connection refused (after %dms in state CONNECT, "
                "%d identical error(s) suppressed)", name, broker, broker, attempt, attempt
            )  # fmt: skip
    lines = desk.take()
    assert [(line["level"], line["event"]) for line in lines] == [("warning", "kafka-client")] * 2
    assert ["10.0.0.1:9092" in lines[0]["fact"], "10.0.0.2:9092" in lines[1]["fact"]] == [True, True]


def test_dead_letters_are_logged_with_code_partition_offset_and_count(desk: Desk) -> None:
    bench = Bench(2)
    bench.feed("a", partition=1)
    bench.feed_bad(3, partition=1)
    bench.worker().join().turns(3).close()
    [line] = [line for line in desk.take() if line["event"] == "dead-letter"]
    assert (line["level"], line["partition"], line["code"], line["offset"], line["count"]) == (
        "warning", 1, "malformed-json", 3, 3,
    )  # fmt: skip
    assert "not JSON" in line["detail"]
    assert "headers" in line["hint"]


def calls_of(path: Path) -> Iterator[ast.Call]:
    """Where the module says something."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of, name = node.func.value, node.func.attr
            if isinstance(of, ast.Name) and of.id == "_log" and name in SAYS:
                yield node


def test_every_event_has_a_stable_name() -> None:
    names = []
    for path in sorted((ROOT / "worker").rglob("*.py")):
        for call in calls_of(path):
            event = call.args[0]
            assert isinstance(event, ast.Constant), f"{path}:{call.lineno}: the name of an event is written out"
            assert isinstance(event.value, str)
            assert event.value.replace("-", "").isalpha(), f"{path}:{call.lineno}"
            assert event.value.islower(), f"{path}:{call.lineno}"
            names.append(event.value)
    assert len(names) > 30
    log = (ROOT / "deploy/RUNBOOK.md").read_text().partition("## The log")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", log, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)} <= {*names}
    assert len(rows) > 5
