"""A feature that changes its kind in mid-stream is learned, and logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.worker.support.fakes import config
from tests.worker.support.tasks import live, restore
from worker.base.log import LogEvent
from worker.base.metrics import Metrics
from worker.base.records import Record
from worker.base.status import Board
from worker.runtime import reports
from worker.runtime.status import Reporter
from worker.service import SystemClock
from worker.task.processor import BatchResult
from worker.task.task import Task


def records(*events: tuple[str, Mapping[str, Any], str | None], first: int = 0) -> list[Record]:
    """Each of a key, features and a label."""
    return [
        Record(offset, 0, key.encode(), msgspec.json.encode({"features": features, "label": label}), [])
        for offset, (key, features, label) in enumerate(events, first)
    ]


def told(metrics: Metrics) -> dict[str, float]:
    """Of features by the change alone."""
    series = metrics.kind_changes_total.series().items()
    return {labels.change if labels.of == "feature" else f"label {labels.change}": n for labels, n in series}


def counted(results: Sequence[BatchResult]) -> dict[str, float]:
    metrics = Metrics()
    for result in results:
        reports.count(metrics, 3, result, 0)
    return told(metrics)


def a_task(**settings: Any) -> Task:
    return live(Task(3, config(**settings), 1_000_000))


NONE = {"number-to-text": 0, "text-to-number": 0, "label number-to-text": 0, "label text-to-number": 0}


def test_a_label_of_another_kind_is_a_class_and_is_counted_with_its_offset() -> None:
    task = a_task()
    first = task.process(records(("m", {"x": 1.0}, "no"), ("m", {"x": 2.0}, "yes"), ("m", {"x": 3.0}, "maybe")))
    assert counted([first]) == NONE
    later = task.process(records(("m", {"x": 1.0}, True), ("m", {"x": 1.0}, True), ("m", {"x": 1.0}, "no"), first=7))
    assert counted([later]) == NONE | {"label text-to-number": 1}
    assert later.kind_changes.first["label", "text-to-number"] == (7, "m", None)
    numbers = a_task()
    assert counted([numbers.process(records(("m", {"x": 1.0}, 0), ("m", {"x": 2.0}, True)))]) == NONE
    assert counted([numbers.process(records(("m", {"x": 1.0}, "1"), ("m", {"x": 2.0}, "one")))]) == NONE | {
        "label number-to-text": 1
    }


def test_the_first_that_is_logged_is_the_first_record_of_all_models() -> None:
    task = a_task()
    task.process(records(("a", {"x": 1.0}, "no"), ("b", {"x": 2.0}, "no")))
    later = task.process(records(("b", {"x": 1.0}, True), ("a", {"x": 1.0}, True), first=7))
    assert later.kind_changes.first["label", "text-to-number"] == (7, "b", None)
    assert counted([later]) == NONE | {"label text-to-number": 2}


def test_labels_of_a_regressor_have_one_kind() -> None:
    task = a_task(algorithm="amf-regressor")
    assert counted([task.process(records(("m", {"x": 1.0}, 1), ("m", {"x": 2.0}, 1.5)))]) == NONE


def test_a_number_that_comes_as_text_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    task, metrics = a_task(), Metrics()
    assert told(metrics) == NONE
    for result in (
        task.process(records(("m", {"amount": 1.5, "shop": "a"}, "x"), ("m", {"amount": 2, "shop": "b"}, "y"))),
        task.process(
            records(
                ("m", {"amount": "3.5", "shop": "a"}, "x"),
                ("m", {"amount": "4", "shop": "c"}, "y"),
                ("m", {"amount": 5.0, "shop": "c"}, "y"),
                first=17,
            )
        ),
        task.process(records(("m", {"amount": "6", "shop": "a"}, "x"), first=30)),
    ):
        reports.count(metrics, 3, result, 0)
    assert told(metrics) == NONE | {"number-to-text": 1}
    [event] = [each for line in caplog.records if isinstance(each := getattr(line, "event", None), LogEvent)]
    assert event.name == "feature-kind-changed"
    assert event.detail == "feature 'amount' of model 'm'"
    assert "were numbers and come as text" in event.fact
    assert event.fields == {
        "partition": 3, "offset": 17, "model": "m", "feature": "amount", "was": "number", "now": "text", "count": 1,
    }  # fmt: skip


def test_of_changes_in_batches_that_are_committed_together_the_first_is_named(caplog: pytest.LogCaptureFixture) -> None:
    task, metrics = a_task(), Metrics()
    task.process(records(*((key, {"amount": 1.5}, "x") for key in "mn")))
    result = task.process(records(("m", {"amount": "3"}, "x"), first=10))
    result.add(task.process(records(("n", {"amount": "4"}, "x"), first=11)))
    reports.count(metrics, 3, result, 0)
    assert told(metrics) == NONE | {"number-to-text": 2}
    [event] = [each for line in caplog.records if isinstance(each := getattr(line, "event", None), LogEvent)]
    assert (event.fields["offset"], event.fields["model"], event.fields["count"]) == (10, "m", 2)


def test_a_label_that_changes_its_kind_is_no_feature_of_that_name(caplog: pytest.LogCaptureFixture) -> None:
    task, metrics = a_task(), Metrics()
    for result in (
        task.process(records(("m", {"label": 1.0}, "no"), ("m", {"label": 2.0}, "yes"))),
        task.process(records(("m", {"label": 3.0}, True), ("m", {"label": "4"}, "no"), first=7)),
    ):
        reports.count(metrics, 3, result, 0)
    assert told(metrics) == NONE | {"label text-to-number": 1, "number-to-text": 1}
    events = [each for line in caplog.records if isinstance(each := getattr(line, "event", None), LogEvent)]
    assert [(event.name, event.detail, event.fields.get("feature"), event.fields["offset"]) for event in events] == [
        ("label-kind-changed", "the label of model 'm'", None, 7),
        ("feature-kind-changed", "feature 'label' of model 'm'", "label", 8),
    ]
    assert events[0].fact.startswith("partition 3: 1 labels of models were text and come as numbers")


def test_a_text_that_comes_as_a_number_is_counted_for_each_model() -> None:
    task = a_task()
    results = [
        task.process(records(*((key, {"zip": "00185"}, "x") for key in "abc"))),
        task.process(records(*((key, {"zip": 185}, "x") for key in "ab"), first=3)),
    ]
    assert counted(results) == NONE | {"text-to-number": 2}
    assert results[1].kind_changes.first["feature", "text-to-number"] == (3, "a", "zip")


def test_a_change_in_a_batch_of_many_models_has_the_offset_of_its_record() -> None:
    task = a_task()
    for first in (0, 20):
        task.process(records(*((str(i), {"f": i, "g": 1}, "xy"[i % 2]) for i in range(20)), first=first))
    some = [(str(i), {"f": "odd" if i in (7, 12) else i, "g": 1}, "x") for i in range(20)]
    result = task.process(records(*some, first=40))
    assert counted([result]) == NONE | {"number-to-text": 2}
    assert result.kind_changes.first["feature", "number-to-text"] == (47, "7", "f")


@pytest.mark.parametrize(
    "events",
    [
        [("m", {"f": 1}, "x"), ("m", {"f": None}, "x"), ("m", {"f": True}, "x"), ("m", {"g": "a"}, "x")],
        [("m", {"f": "a"}, "x"), ("m", {"f": "b", "g": 1}, "x"), ("m", {"f": None, "g": 2}, "x")],
        [("m", {"f": 1}, "x"), ("n", {"f": "a"}, "x")],
        # What is predicted only changes nothing of what a feature is.
        [("m", {"f": 1}, "x"), ("m", {"f": "a"}, None)],
        # What is refused is not learned.
        [("m", {"f": 1}, "x"), ("m", {f"f{i}": i for i in range(9)} | {"f": "a"}, "x")],
    ],
)
def test_what_keeps_its_kind_is_not_counted(events: list[tuple[str, Mapping[str, Any], str | None]]) -> None:
    task = a_task(max_features=8)
    assert counted([task.process(records(*events))]) == NONE


def test_where_names_are_listed_a_name_says_nothing_of_its_kind() -> None:
    task = a_task(features=("f", "g"))
    assert counted([task.process(records(("m", {"f": "a"}, "x"), ("m", {"g": "b", "h": 1}, "x")))]) == NONE


def test_a_replay_counts_nothing_and_remembers() -> None:
    replayed = restore(Task(3, config(), 1_000_000), live_from=2)
    assert counted([replayed.process(records(("m", {"f": 1}, "x"), ("m", {"f": "a"}, "x")))]) == NONE
    replayed.go_live()
    assert counted([replayed.process(records(("m", {"f": "b"}, "x"), ("m", {"f": 2}, "x"), first=2))]) == NONE


def test_the_status_counts_features_that_changed_their_kind() -> None:
    task, metrics, board = a_task(), Metrics(), Board()
    reports.count(metrics, 3, task.process(records(("m", {"f": 1}, "x"), ("m", {"f": "a"}, "x"))), 0)
    Reporter(board, metrics, SystemClock()).refresh({3: task}, [])
    assert board.status.totals["kind_changes"] == 1
