"""What an error of Kafka's client means: each is one recovery decision."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from worker.adapters.kafka import decision, errors
from worker.adapters.kafka.errors import PropertyRefused, client, failure
from worker.base.errors import Abort, Fatal, Refused, Transient, Unanswered, Unknown, WorkerError


@pytest.mark.parametrize(
    ("code", "flags", "meaning"),
    [
        (KafkaError._TIMED_OUT, {}, Unknown),
        (KafkaError._TIMED_OUT, {"retriable": True}, Unknown),
        (KafkaError.REQUEST_TIMED_OUT, {"txn_requires_abort": True}, Unknown),
        (KafkaError._FENCED, {"fatal": True}, Unknown),
        (KafkaError.INVALID_PRODUCER_EPOCH, {"fatal": True, "txn_requires_abort": True}, Unknown),
        (KafkaError.ILLEGAL_GENERATION, {"txn_requires_abort": True}, Abort),
        (KafkaError.UNKNOWN_MEMBER_ID, {"txn_requires_abort": True, "retriable": True}, Abort),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, {"retriable": True}, Transient),
        (KafkaError._STATE, {}, Unknown),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {"txn_requires_abort": True}, Fatal),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, {"txn_requires_abort": True}, Fatal),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"fatal": True}, Fatal),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, {"fatal": True}, Fatal),
        (KafkaError.MSG_SIZE_TOO_LARGE, {}, Refused),
        (KafkaError.MSG_SIZE_TOO_LARGE, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_RECORD, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_TIMESTAMP, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_RECORD, {"fatal": True}, Unknown),
    ],
)
def test_an_error_of_the_client_is_one_decision(code: int, flags: dict[str, bool], meaning: type[WorkerError]) -> None:
    assert decision(KafkaError(code, "reason", **flags)) is meaning


@pytest.mark.parametrize(
    ("code", "flags", "otherwise", "meaning"),
    [
        (KafkaError._TRANSPORT, {}, Transient, Unanswered),
        (KafkaError._TRANSPORT, {}, Fatal, Unanswered),
        # Nobody answered, but what of the transaction?
        (KafkaError._TRANSPORT, {}, Unknown, Unknown),
        (KafkaError.NOT_COORDINATOR, {}, Abort, Abort),
        (KafkaError._TIMED_OUT, {"fatal": True}, Transient, Transient),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, {}, Transient, Transient),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, {}, Transient, Fatal),
    ],
)
def test_that_nobody_answers_is_told_apart_where_it_says_all(
    code: int, flags: dict[str, bool], otherwise: type[WorkerError], meaning: type[WorkerError]
) -> None:
    found = failure(KafkaError(code, "reason", **flags), otherwise, "a call", "READ on topic a", "READ on group b")
    assert type(found) is meaning
    advice = "; the worker's user needs ACLs that allow READ on group b" if meaning is Fatal else ""
    assert str(found) == f"a call: reason{advice}"


def test_where_no_need_is_known_of_what_is_refused_it_is_named_all_the_same() -> None:
    found = failure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "reason"), Transient, "a call", "READ on group b")
    assert str(found) == "a call: reason; the worker's user needs ACLs that allow this use of the topic"


def test_properties_that_a_client_was_made_with_are_no_mistake_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their file is being replaced, or there are too many open ones: who is at work waits, a start is refused."""
    monkeypatch.setattr(errors, "_taken", set())
    properties, refusal = {"ssl.ca.location": "ca.pem"}, KafkaException(KafkaError(-1, 'Invalid value "x" for y'))
    kind = Mock(side_effect=[refusal, "a client", refusal, refusal])
    with pytest.raises(PropertyRefused, match=r"librdkafka refuses the properties: Invalid value \*+ for y"):
        client(kind, properties)
    assert client(kind, properties) == "a client"
    with pytest.raises(Transient, match="no client can be made at the moment"):
        client(kind, properties)
    with pytest.raises(PropertyRefused):
        client(kind, properties | {"group.id": "g"})


def test_a_client_reports_to_who_listens_and_to_nobody_else() -> None:
    kind, admission = Mock(), errors.Admission()
    client(kind, {})
    client(kind, {}, admission)
    assert [call.args for call in kind.call_args_list] == [({},), ({"error_cb": admission},)]


def test_troubles_with_tls_may_be_a_broker_that_goes_down() -> None:
    admission = errors.Admission()
    admission.require("x")
    admission(KafkaError(KafkaError._SSL, "of a broker that goes down"))
    admission.require("x")


def test_what_a_client_says_of_itself_is_a_warning_at_most_and_the_same_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What comes of it the calls say that fail; and lines that are alike are not repeated."""
    caplog.set_level(logging.DEBUG, errors.__name__)
    for n, level in enumerate((logging.DEBUG, logging.WARNING, logging.ERROR, logging.CRITICAL)):
        logging.getLogger(errors.__name__).log(level, "FAIL [rdkafka#consumer-%d]: refused (after %dms)", n, n)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, *[logging.WARNING] * 3]
    facts = {record.event.fact for record in caplog.records}  # type: ignore[attr-defined]
    assert facts == {"FAIL : refused ()"}
