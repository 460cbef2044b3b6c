"""The producer of outputs, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from types import MappingProxyType
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.worker.support.fakes import config
from worker.adapters.kafka import producer as adapter
from worker.adapters.kafka.producer import KafkaOutput, _allowed, transactional_id
from worker.base.errors import Abort, Fatal, Refused, Unanswered, Unknown, WorkerError
from worker.base.records import CommittedOffset, Membership, Outgoing


def test_without_transactions_it_is_noted_what_is_not_delivered() -> None:
    output = KafkaOutput(config(delivery="at-least-once"), None)
    output._send([Outgoing("predictions", b"key", b"value", [("spec", b"1")], 1_000)])
    output._producer.purge()
    output._producer.flush(10)
    assert output._failed is not None
    assert output._failed.code() == KafkaError._PURGE_QUEUE
    output.close()


@pytest.mark.parametrize(
    ("name", "needed"),
    [("one", "group:one"), ("", "group: (a prefix: without kafka.group.instance.id each start has another)")],
)
def test_what_an_acl_must_name_stays_from_start_to_start(name: str, needed: str) -> None:
    settings = config()
    kafka = {**settings.kafka, "group.id": "group", "group.instance.id": name}
    settings = replace(settings, kafka=MappingProxyType({key: value for key, value in kafka.items() if value}))
    assert _allowed(settings, transactional_id(settings)) == needed
    # Who has no name has another id at each start: two with one id would fence each other for ever.
    assert (transactional_id(settings) == transactional_id(settings)) == bool(name)


@pytest.fixture
def output() -> Iterator[KafkaOutput]:
    output = KafkaOutput(config(delivery="at-least-once"), None)
    output._producer, client = Mock(**{"flush.return_value": 0}), output._producer
    yield output
    output._producer = client
    output.close()


REFUSED, LATE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), KafkaError(KafkaError._MSG_TIMED_OUT)
RECORD = Outgoing("predictions", b"key", b"value", [], 1_000)


def publish(output: KafkaOutput, *reports: KafkaError | None, left: int = 0) -> None:
    """Publish records of which the client reports this while it is flushed, and nothing of so many."""

    def flush(timeout_s: float) -> int:
        for error in reports:
            output._on_delivery(error, None)
        return left

    output._producer.flush.side_effect = flush
    output.publish([RECORD] * (len(reports) + left), {}, Membership("me", None))


@pytest.mark.parametrize("reports", [(REFUSED, LATE), (LATE, REFUSED), (None, REFUSED, None)])
def test_a_refusal_counts_whatever_becomes_of_the_records_beside_it(
    output: KafkaOutput, reports: tuple[KafkaError | None, ...]
) -> None:
    with pytest.raises(Refused):
        publish(output, *reports)


def test_what_is_refused_while_others_are_on_their_way_is_an_unknown_outcome(output: KafkaOutput) -> None:
    """Those that are left may yet arrive, in whatever is sent next."""
    with pytest.raises(Unknown):
        publish(output, REFUSED, left=1)
    with pytest.raises(Unknown):
        publish(output, LATE)
    output._producer.produce.reset_mock()  # type: ignore[attr-defined]
    publish(output, None, None)
    assert output._producer.produce.call_count == 2  # type: ignore[attr-defined]


def test_what_is_left_is_dropped_and_no_success(output: KafkaOutput) -> None:
    """It would arrive beside what is sent again."""
    with pytest.raises(Unknown, match="1 records not acknowledged"):
        publish(output, None, left=1)
    output._producer.purge.assert_called_once()  # type: ignore[attr-defined]


# Transactions, with a client that does as it is told


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    client = MagicMock(**{"__len__.return_value": 0})
    monkeypatch.setattr(adapter, "client", lambda *_: client)
    return client


@pytest.fixture
def transactional(client: MagicMock) -> KafkaOutput:
    return KafkaOutput(config(), "group:one")


def fault(code: int, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "of a test", **flags))


def transact(output: KafkaOutput) -> None:
    output.publish([RECORD], {0: CommittedOffset(3)}, Membership("me", "metadata"))


LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


def test_what_may_be_tried_again_is_and_comes_to_an_end(client: MagicMock, transactional: KafkaOutput) -> None:
    passing = fault(LOADING, retriable=True)
    client.commit_transaction.side_effect = [passing, passing, None]
    transact(transactional)
    client.commit_transaction.side_effect = [passing] * 3
    with pytest.raises(Unknown, match="commit_transaction"):
        transact(transactional)
    assert client.commit_transaction.call_count == 6


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Refused),
        (KafkaError._STATE, Unknown),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Fatal),
    ],
)
def test_a_record_that_the_client_does_not_take_is_one_decision(
    client: MagicMock, transactional: KafkaOutput, code: int, kind: type[WorkerError]
) -> None:
    client.produce.side_effect = fault(code)
    with pytest.raises(kind, match="produce"):
        transact(transactional)
    client.commit_transaction.assert_not_called()
    # Who ends leaves no transaction open, before which readers would wait; else the caller aborts it.
    assert client.abort_transaction.call_count == (1 if kind is Fatal else 0)


@pytest.mark.parametrize("flags", [{"retriable": True}, {"txn_requires_abort": True}])
def test_an_abort_that_fails_leaves_an_unknown_outcome(
    client: MagicMock, transactional: KafkaOutput, flags: dict[str, bool]
) -> None:
    client.abort_transaction.side_effect = fault(LOADING, **flags)
    with pytest.raises(Unknown, match="abort_transaction"):
        transactional.abort()


def test_who_ends_says_why_though_the_abort_fails_too(client: MagicMock, transactional: KafkaOutput) -> None:
    client.produce.side_effect = fault(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    client.abort_transaction.side_effect = fault(KafkaError._FENCED, fatal=True)
    with pytest.raises(Fatal, match="WRITE on topic predictions"):
        transact(transactional)


def coordinate(client: MagicMock, error: KafkaException | None = None) -> list[str]:
    """Have the coordinator answer once there is a record, with the error if there is one; returns what has ended."""
    has_record, ended = Event(), list[str]()

    def send_offsets(*_: Any) -> None:
        assert has_record.wait(10), "the offsets wait for no record, and the records for no offsets"
        ended.append("send_offsets_to_transaction")
        if error is not None:
            raise error

    def produce(*_: Any) -> None:
        has_record.set()
        if error is not None:
            raise fault(KafkaError._STATE)

    client.send_offsets_to_transaction.side_effect, client.produce.side_effect = send_offsets, produce
    client.begin_transaction.side_effect = lambda *_: ended.append("begin_transaction")
    client.commit_transaction.side_effect = lambda *_: ended.append("commit_transaction")
    return ended


def test_offsets_are_sent_beside_the_records_and_both_before_the_commit(
    client: MagicMock, transactional: KafkaOutput
) -> None:
    ended = coordinate(client)
    transact(transactional)
    assert ended == ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]


def test_where_offsets_are_refused_that_is_the_reason_and_not_that_records_are_refused_as_well(
    client: MagicMock, transactional: KafkaOutput
) -> None:
    coordinate(client, fault(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True))
    with pytest.raises(Abort, match=r"^send_offsets_to_transaction: of a test"):
        transact(transactional)
    client.commit_transaction.assert_not_called()


def test_offsets_that_the_client_never_sends_are_an_unknown_outcome(
    client: MagicMock, transactional: KafkaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SEND_OFFSETS_S", 0.01)
    released = Event()

    def stuck(*_: Any) -> None:
        released.wait(30)

    client.send_offsets_to_transaction.side_effect = stuck
    with pytest.raises(Unknown, match=r"did not return in 0\.01 s"):
        transact(transactional)
    released.set()
    client.commit_transaction.assert_not_called()


def test_offsets_that_the_group_refuses_abort_the_transaction(client: MagicMock, transactional: KafkaOutput) -> None:
    client.send_offsets_to_transaction.side_effect = fault(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
    with pytest.raises(Abort):
        transact(transactional)
    client.commit_transaction.assert_not_called()


def test_who_is_no_member_begins_no_transaction(client: MagicMock, transactional: KafkaOutput) -> None:
    with pytest.raises(Abort, match="no member of the group"):
        transactional.publish([RECORD], {0: CommittedOffset(3)}, Membership("", None))
    client.begin_transaction.assert_not_called()


def test_a_client_is_closed_once_and_in_time_though_it_keeps_its_records(
    client: MagicMock, transactional: KafkaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "DROP_S", 0.02)
    client.__len__.return_value = 1
    client.purge.side_effect = fault(KafkaError._FENCED, fatal=True)
    transactional.close()
    transactional.close()
    assert client.purge.called


@pytest.mark.parametrize(
    ("code", "trouble", "kind", "why"),
    [
        (KafkaError._TIMED_OUT, None, Unanswered, r"of a test$"),
        (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, Unanswered, r"of a test \(refused\)$"),
        (KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION, Fatal, r"refused; check kafka\.sasl\.mechanism"),
        (KafkaError._FENCED, None, Unknown, r"of a test$"),
    ],
)
def test_a_producer_that_does_not_open_says_what_its_connections_failed_of(
    monkeypatch: pytest.MonkeyPatch, code: int, trouble: int | None, kind: type[WorkerError], why: str
) -> None:
    """They report when the client is polled, and only then."""
    made = MagicMock()
    made.init_transactions.side_effect = fault(code)

    def client(_: Any, __: Any, admission: Any) -> MagicMock:
        if trouble is not None:
            made.poll.side_effect = lambda _: admission(KafkaError(trouble, "refused"))
        return made

    monkeypatch.setattr(adapter, "client", client)
    with pytest.raises(kind, match=why) as failed:
        KafkaOutput(config(), "group:one")
    assert type(failed.value) is kind


def test_a_call_that_came_too_late_has_the_reason_of_its_transaction(
    client: MagicMock, transactional: KafkaOutput
) -> None:
    client.begin_transaction.side_effect = fault(KafkaError._STATE, txn_requires_abort=True)
    client.commit_transaction.side_effect = fault(KafkaError.INVALID_RECORD, txn_requires_abort=True)
    with pytest.raises(Refused):
        transact(transactional)


def test_a_client_that_is_fatally_ill_says_so_when_it_is_polled(client: MagicMock, transactional: KafkaOutput) -> None:
    client.poll.side_effect = fault(KafkaError._FENCED, fatal=True)
    with pytest.raises(Unknown, match="produce: of a test"):
        transact(transactional)
    client.commit_transaction.assert_not_called()
