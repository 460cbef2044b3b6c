"""The producer of the outputs: how it ends, and what it makes of timestamps."""

from __future__ import annotations

import time
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.conftest import Names
from worker.adapters.kafka import KafkaInput, KafkaOutput
from worker.adapters.kafka.mock import start_mock_cluster
from worker.base.records import Membership, Outgoing, Record
from worker.config import loads

CONFIG = """
input: {topic: events}
output: {topic: predictions}
dead_letter: {topic: dead-letters}
kafka: {bootstrap.servers: "localhost:1", group.id: group}
checkpoint: {url: "memory://producer"}
"""


class Fenced:
    """A producer that is told of its end again and again."""

    def purge(self) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    flush = purge


def test_a_producer_that_was_fenced_is_closed_all_the_same() -> None:
    output = KafkaOutput(loads(CONFIG, {}), None)
    output._producer = Fenced()
    output.close()


def test_a_timestamp_is_published_as_it_is_and_never_the_time_of_day() -> None:
    """What is published again must be equal; librdkafka has its own clock in place of a zero."""
    _cluster, bootstrap = start_mock_cluster(["predictions"])
    output = KafkaOutput(loads(CONFIG.replace("localhost:1", bootstrap), {}), None)
    stamps = [-1, -7, 0, 1, 1_700_000_000_000]
    output.publish([Outgoing("predictions", b"k", b"v", [], stamp) for stamp in stamps], {}, Membership("", None))
    output.close()
    found = [message.timestamp for message in read_all(bootstrap, "predictions", until=5)]
    assert found == [-1, -7, 1, 1, 1_700_000_000_000]


@pytest.mark.kafka
def test_a_record_without_a_timestamp_has_none_through_a_broker_however_often_it_is_published(
    broker: Broker, topics: Names
) -> None:
    events, predictions, stamps = topics.create("events"), topics.create("predictions"), [-1, 1, 1_700_000_000_000]
    text = CONFIG.replace("localhost:1", broker.bootstrap).replace("topic: events", f"topic: {events}")
    config = loads(text.replace("group.id: group", f"group.id: {topics.name('group')}"), {})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for stamp in stamps:
        producer.produce(events, b"v", b"k", timestamp=stamp)
    producer.flush()
    source, records, deadline = KafkaInput(config), list[Record](), time.monotonic() + 30
    source.assign({0: 0})
    while len(records) < len(stamps):
        assert time.monotonic() < deadline
        records += source.consume(100, 0.1)[0].get(0, [])
    for _ in range(2):
        output = KafkaOutput(config, topics.name("transactional"))
        outgoing = [Outgoing(predictions, each.key, each.value, [], each.timestamp_ms) for each in records]
        output.publish(outgoing, {}, source.membership())
        output.close()
    source.close()
    assert [message.timestamp for message in read_all(broker.bootstrap, predictions, until=6)] == stamps * 2
