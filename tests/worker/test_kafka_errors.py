"""What an error of Kafka's client means: each is one recovery decision."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from worker.adapters.kafka import decision
from worker.base.errors import Abort, Fatal, Refused, Transient, Unknown, WorkerError


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
