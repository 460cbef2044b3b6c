"""Questions about offsets: what an answer that is none is taken for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicPartition

from tests.worker.support.fakes import config
from worker.adapters.kafka.offsets import EARLIEST, LATEST, Offsets
from worker.base.errors import Transient
from worker.base.records import Bounds


class Admin:
    """Answers questions about offsets with these, one after the other."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)
        self.leaders = [1]

    def list_topics(self, topic: str, **_: Any) -> Any:
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(self.leaders)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        future = Future[Any]()
        future.set_result(SimpleNamespace(offset=self._offsets.pop(0)))
        return dict.fromkeys(asked, future)


@pytest.mark.parametrize(
    "answers",
    [(OFFSET_INVALID,) * 3, (3, OFFSET_INVALID, 4), (OFFSET_INVALID, 3, 3), (3, 3, OFFSET_INVALID)],
)
def test_a_partition_of_which_the_broker_names_no_offsets_is_asked_about_again(
    answers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [Admin(*answers), Admin(3, 7, 9)]
    monkeypatch.setattr("worker.adapters.kafka.offsets.client", lambda kind, properties: clients.pop(0))
    offsets = Offsets(config())
    with pytest.raises(Transient, match="the partition may have no leader"):
        offsets.bounds(0)
    assert offsets.bounds(0) == (3, 7, 9)


@pytest.mark.parametrize("leaders", [[], [-1], [1, -1]])
def test_no_offsets_are_asked_for_before_the_leader_is_known(
    leaders: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may crash where it has to find it out."""
    admin = Admin(3, 7, 9)
    monkeypatch.setattr("worker.adapters.kafka.offsets.client", lambda kind, properties: admin)
    offsets, admin.leaders = Offsets(config()), leaders
    with pytest.raises(Transient, match="the partition may have no leader"):
        offsets.bounds(len(leaders) and len(leaders) - 1)
    admin.leaders = [1, 1]
    assert offsets.bounds(1) == (3, 7, 9)


def test_where_records_end_is_asked_for_with_and_without_those_of_open_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition would else wait for ever for what an open transaction has written."""
    asked: list[Any] = []

    class Asking(Admin):
        def list_offsets(self, of: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Future[Any]]:
            asked.append((*of.values(), options["isolation_level"]))
            return super().list_offsets(of, **options)

    monkeypatch.setattr("worker.adapters.kafka.offsets.client", lambda kind, properties: Asking(3, 7, 9))
    assert Offsets(config()).bounds(0) == Bounds(low=3, high=7, end=9)
    of_all, of_committed = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
    assert asked == [(EARLIEST, of_all), (LATEST, of_committed), (LATEST, of_all)]
