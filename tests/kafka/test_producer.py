"""The producer of the outputs, where no broker is needed to see what it does."""

from __future__ import annotations

from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException

from tests.kafka.broker import read_all
from worker.config import loads
from worker.kafka import KafkaOutput
from worker.kafka.mock import start_mock_cluster
from worker.records import Outgoing

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
    output.publish([Outgoing("predictions", b"k", b"v", [], stamp) for stamp in stamps], {}, None)
    output.close()
    found = [message.timestamp for message in read_all(bootstrap, "predictions", until=5)]
    assert found == [-1, -7, 1, 1, 1_700_000_000_000]
