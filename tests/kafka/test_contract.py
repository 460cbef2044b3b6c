"""Kafka does what the worker rests on, through the worker's own adapters, with either protocol of groups."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.worker.support.broker_contract import LARGEST_BYTES, WITHIN_S, BrokerContract, joined, poll_until
from worker.adapters.kafka import KafkaInput, KafkaOutput
from worker.config import loads

PROTOCOLS = {
    "classic": {"group.protocol": "classic", "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}
"""Members hear of a change at their next heartbeat, which the broker decides about in the second one."""


class Kafka:
    """Topics, a group and transactional ids of one test on a real broker."""

    def __init__(self, broker: Broker, topics: Names, protocol: str) -> None:
        self.input_topic = topics.create("events", 2)
        self.output_topic = topics.create("predictions", config={"max.message.bytes": str(LARGEST_BYTES)})
        self._broker = broker
        self._topics = topics
        text = configuration(broker.bootstrap, Path("/nowhere"), named(topics), {"kafka": PROTOCOLS[protocol]})
        self._config = loads(text, {})
        self._clients: list[KafkaInput | KafkaOutput] = []

    def consumer(self) -> KafkaInput:
        self._clients.append(made := KafkaInput(self._config))
        return made

    def producer(self, identity: str) -> KafkaOutput:
        self._clients.append(made := KafkaOutput(self._config, self._topics.name(identity)))
        return made

    def transactional(self) -> Producer:
        """A producer of the input that writes transactions."""
        identity = self._topics.name("upstream")
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "transactional.id": identity})
        producer.init_transactions(WITHIN_S)
        return producer

    def append(self, partition: int, n: int) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for _ in range(n):
            producer.produce(self.input_topic, b"value", b"key", partition)
        assert producer.flush(WITHIN_S) == 0

    def delete_before(self, partition: int, offset: int) -> None:
        admin, before = self._broker.admin(), TopicPartition(self.input_topic, partition, offset)
        for deleted in admin.delete_records([before]).values():
            deleted.result(WITHIN_S)

    def published(self, at_least: int) -> list[bytes | None]:
        return [message.value for message in read_all(self._broker.bootstrap, self.output_topic, until=at_least)]

    def settle(self) -> None:
        """The members do so when they poll."""

    def close(self) -> None:
        for client in self._clients:
            client.close()


class TestKafka(BrokerContract):
    @pytest.fixture(params=PROTOCOLS)
    def cluster(self, request: pytest.FixtureRequest, broker: Broker, topics: Names) -> Iterator[Kafka]:
        made = Kafka(broker, topics, request.param)
        yield made
        made.close()

    def test_a_consumer_that_is_past_being_asked_is_closed_all_the_same(self, cluster: Kafka) -> None:
        member = joined(cluster)
        member.input.assign({0: 0, 1: 0})
        consumer: Any = member.input
        consumer._consumer = PastBeingAsked(consumer._consumer)
        member.input.close()
        assert member.owned == set()

    def test_what_an_open_transaction_has_written_is_there_and_cannot_be_read(self, cluster: Kafka) -> None:
        cluster.append(0, 3)
        member = joined(cluster)
        producer = cluster.transactional()
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(cluster.input_topic, b"value", partition=0)
        producer.flush(WITHIN_S)
        assert member.input.bounds(0) == (0, 3, 5)
        producer.commit_transaction(WITHIN_S)
        poll_until(lambda: member.input.bounds(0).high > 3, member)
        assert member.input.bounds(0) == (0, 6, 6)  # a marker ends the transaction

    def test_a_question_and_a_consumer_that_waits_for_records_do_not_wait_for_each_other(self, cluster: Kafka) -> None:
        cluster.append(0, 3)
        member = joined(cluster)
        member.input.assign({0: 3, 1: 0})
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(member.input.consume, 1000, WITHIN_S)
            for _ in range(20):
                assert member.input.bounds(0) == (0, 3, 3)
                assert member.input.committed([0, 1]) == {0: None, 1: None}
            assert not waiting.done()
            # The ends of both partitions are the first that it hears of; then there is a record to end the wait.
            cluster.append(1, 1000)
            waiting.result(2 * WITHIN_S)


class PastBeingAsked:
    """A consumer in whose close a callback comes after the last moment at which it answers."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assignment(self) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError._DESTROY))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)
