"""What consumers get, as the contract says: the first forecasts of a model, types of labels, labels that come late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.worker.support.fakes import config
from tests.worker.support.tasks import live
from worker.base.records import Record
from worker.task.task import Task

CONTRACT = (Path(__file__).parents[2] / "worker" / "codec" / "README.md").read_text("utf-8")


def published(events: Sequence[dict[str, Any]], **params: Any) -> list[bytes]:
    """Values that are published of events of the model `merchant-7`."""
    records = [Record(i, 0, b"merchant-7", msgspec.json.encode(event), []) for i, event in enumerate(events)]
    task = live(Task(0, config(**params), 1_000_000))
    return [each.value or b"" for each in task.process(records).outgoing]


def predictions(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(value) for value in published(events)]


def event(label: object = None, **more: object) -> dict[str, Any]:
    return {"features": {"amount": 12.5}, "label": label, **more}


@pytest.mark.parametrize("params", [{}, {"algorithm": "amf-regressor"}, {"classes": ("no", "yes")}], ids=str)
def test_the_first_forecast_of_a_model_is_as_the_contract_shows_it(params: dict[str, Any]) -> None:
    [value] = published([event(id="tx-1")], **params)
    assert f"\n{value.decode()}\n" in CONTRACT


@pytest.mark.parametrize("labels", [(1, 0), (True, False), ("yes", "no"), ("1", "0"), (-3, 2**62)])
def test_a_prediction_is_of_the_type_of_the_labels_and_probabilities_go_by_their_texts(labels: tuple[Any, Any]) -> None:
    *_, last = predictions([event(labels[0]), event(labels[1]), event()])
    assert last["prediction"] in labels
    assert {type(last["prediction"])} == {*map(type, labels)}
    assert list(last["probabilities"]) == [msgspec.json.encode(label).decode().strip('"') for label in labels]


def test_a_class_that_comes_in_two_types_goes_by_the_first_one() -> None:
    *_, last = predictions([event(1), event("1"), event()])
    assert (last["prediction"], last["probabilities"]) == (1, {"1": 1.0})
    assert type(last["prediction"]) is int
    last = msgspec.json.decode(published([event(1), event()], classes=("0", "1"))[-1])
    assert last["prediction"] == "1"


def test_a_label_that_comes_late_comes_with_its_event_and_is_told_apart_by_its_label() -> None:
    first, again, after = predictions([event(id="tx-1"), event("ok", id="tx-1"), event(id="tx-2")])
    assert (first["id"], first["learned"], "label" in first) == ("tx-1", 0, False)
    assert (again["id"], again["learned"], again["label"]) == ("tx-1", 0, "ok")
    assert (after["learned"], "label" in after) == (1, False)


def test_a_label_alone_is_a_dead_letter() -> None:
    records = [Record(0, 0, b"merchant-7", b'{"label": "ok", "id": "tx-1"}', [])]
    [letter] = live(Task(0, config(), 1_000_000)).process(records).outgoing
    assert dict(letter.headers)["error-code"] == b"missing-features"
