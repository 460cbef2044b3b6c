"""Questions about offsets: what an answer that is none is taken for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from tests.worker.support.fakes import config
from worker.adapters.kafka import offsets as adapter
from worker.adapters.kafka import topic
from worker.adapters.kafka.offsets import EARLIEST, LATEST, Offsets
from worker.adapters.kafka.topic import KafkaTopic
from worker.base.errors import Fatal, Transient, Unanswered, WorkerError
from worker.base.records import Bounds, CommittedOffset


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


def failed(error: int) -> Future[Any]:
    future = Future[Any]()
    future.set_exception(KafkaException(KafkaError(error)))
    return future


@pytest.mark.parametrize("answer", [failed(KafkaError._TRANSPORT), Future[Any]()])
def test_who_does_not_answer_is_not_asked_again(answer: Future[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose broker was killed may get no answer any more."""
    monkeypatch.setattr(adapter, "CALL_S", 0.01)
    monkeypatch.setattr(adapter, "_GRACE_S", 0.01)
    stuck = Admin()
    monkeypatch.setattr(stuck, "list_offsets", lambda asked, **_: dict.fromkeys(asked, answer))
    clients = [stuck, Admin(3, 7, 9)]
    monkeypatch.setattr(adapter, "client", lambda kind, properties: clients.pop(0))
    offsets = Offsets(config())
    with pytest.raises((Transient, Unanswered), match=r"offsets of events\[0\]"):
        offsets.bounds(0)
    assert offsets.bounds(0) == (3, 7, 9)


def test_a_client_that_names_no_leaders_is_replaced_and_one_that_came_since_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, anew = Admin(), Admin(3, 7, 9)
    monkeypatch.setattr(stuck, "list_topics", Mock(side_effect=KafkaException(KafkaError(KafkaError._TRANSPORT))))
    clients = [stuck, anew]
    monkeypatch.setattr(adapter, "client", lambda kind, properties: clients.pop(0))
    offsets = Offsets(config())
    with pytest.raises(Unanswered):
        offsets.bounds(0)
    assert offsets._client() is anew  # type: ignore[comparison-overlap]
    offsets._give_up(stuck)  # type: ignore[arg-type]
    assert offsets.bounds(0) == (3, 7, 9), "another thread has found out later that the first one does not answer"


class Group:
    """Consumers that answer with these committed offsets, one answer after the other; an exception is raised."""

    def __init__(self, *answers: list[TopicPartition] | KafkaException) -> None:
        self._answers = list(answers)
        self.clients = 0

    def client(self, kind: type, properties: Any) -> Any:
        assert kind is Consumer
        self.clients += 1
        return self

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaException):
            raise answer
        return answer


def place(number: int, offset: int, error: int | None = None, metadata: str | None = None) -> Any:
    """One as the client gives it back."""
    fault = None if error is None else KafkaError(error)
    return SimpleNamespace(partition=number, offset=offset, error=fault, metadata=metadata, leader_epoch=None)


UNSTABLE = KafkaError.UNSTABLE_OFFSET_COMMIT


@pytest.fixture(autouse=True)
def again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "AGAIN_S", 0.0)


def committed_of(group: Group, monkeypatch: pytest.MonkeyPatch) -> Offsets:
    monkeypatch.setattr(adapter, "client", group.client)
    return Offsets(config())


def test_an_offset_that_a_transaction_may_still_change_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stable = [place(0, 7, metadata="pointer"), place(1, OFFSET_INVALID), place(2, 0)]
    group = Group([place(0, 5, UNSTABLE), stable[1]], [place(0, 5, UNSTABLE), stable[1]], stable)
    found = committed_of(group, monkeypatch).committed([0, 1, 2])
    assert found == {0: CommittedOffset(7, "pointer"), 1: None, 2: CommittedOffset(0, "")}
    assert group.clients == 1


def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "CALL_S", 0.01)
    with pytest.raises(Transient, match=r"committed offset of events\[1\]"):
        committed_of(Group([place(0, 5), place(1, 5, UNSTABLE)]), monkeypatch).committed([0, 1])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Transient),
        (KafkaError.NOT_COORDINATOR, Unanswered),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Fatal),
    ],
)
def test_any_other_fault_of_a_committed_offset_is_no_offset(
    error: int, kind: type[WorkerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for none, a group would begin again."""
    for answer in ([place(0, OFFSET_INVALID, error)], KafkaException(KafkaError(error))):
        with pytest.raises(kind, match="committed offset"):
            committed_of(Group(answer), monkeypatch).committed([0])


def test_a_consumer_that_failed_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(KafkaException(KafkaError(KafkaError._TRANSPORT)), [place(0, 5)])
    offsets = committed_of(group, monkeypatch)
    with pytest.raises(Unanswered):
        offsets.committed([0])
    for _ in range(2):
        assert offsets.committed([0]) == {0: CommittedOffset(5, "")}
    assert group.clients == 2


def test_an_end_that_the_broker_does_not_name_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken for a sign of records that were forwarded: the start would be refused for good."""
    monkeypatch.setattr(topic, "client", lambda kind, properties: Admin(OFFSET_INVALID, 4))
    of_topic = KafkaTopic(config(), "events")
    with pytest.raises(Transient, match=r"topic events: partition 0 has no leader"):
        of_topic.ends()
    assert of_topic.ends() == {0: 4}
