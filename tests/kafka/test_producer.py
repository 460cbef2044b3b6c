"""The producer of the outputs, where no broker is needed to see what it does."""

from __future__ import annotations

from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException

from worker.config import loads
from worker.kafka import KafkaOutput

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
