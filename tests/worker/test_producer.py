"""The producer of outputs, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from tests.worker.support.fakes import config
from worker.adapters.kafka.producer import KafkaOutput, _allowed, transactional_id
from worker.base.errors import Refused, Unknown
from worker.base.records import Membership, Outgoing


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
    publish(output, None, None)
