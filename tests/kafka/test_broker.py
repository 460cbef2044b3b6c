"""The broker of the tests is a real one: its transactions are atomic and its data outlive it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.availability import Unavailable
from tests.kafka.broker import Broker, committed_offsets, read_all
from tests.kafka.conftest import JoinedBroker, Names, shared_broker
from tests.kafka.jars import kafka_libs
from tests.kafka.servers import open_server


def transactional_producer(broker: Broker, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    return producer


def values(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    return [message.value for message in read_all(broker.bootstrap, topic, isolation=isolation)]


def test_an_aborted_transaction_leaves_neither_records_nor_offsets(broker: Broker, topics: Names) -> None:
    source, sink, group = topics.create("source"), topics.create("sink"), topics.name("group")
    producer = transactional_producer(broker, topics.name("producer"))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})

    def transact(value: bytes, offset: int) -> None:
        producer.begin_transaction()
        producer.produce(sink, value)
        producer.flush(30)  # the record is on the broker before the outcome is decided
        producer.send_offsets_to_transaction(
            [TopicPartition(source, 0, offset)], consumer.consumer_group_metadata(), 30
        )

    transact(b"kept", 1)
    producer.commit_transaction(30)
    transact(b"dropped", 2)
    producer.abort_transaction(30)

    assert values(broker, sink, "read_uncommitted") == [b"kept", b"dropped"]
    assert values(broker, sink) == [b"kept"]
    assert committed_offsets(broker.bootstrap, group, source) == {0: 1}
    consumer.close()


def test_an_open_transaction_ends_what_read_committed_sees(broker: Broker, topics: Names) -> None:
    topic = topics.create("topic")
    producer = transactional_producer(broker, topics.name("producer"))
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(30)
    assert values(broker, topic) == []
    with pytest.raises(TimeoutError, match=r"read 0 records .* waited for 1 of"):
        read_all(broker.bootstrap, topic, until=1, timeout=0.5)
    producer.commit_transaction(30)
    assert values(broker, topic) == [b"pending"]


def test_read_all_gives_whole_records_of_all_partitions_in_order(broker: Broker, topics: Names) -> None:
    topic = topics.create("topic", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(30):
        headers = [("n", b"%d" % i), ("none", None)]
        producer.produce(
            topic, None if i == 7 else b"v%d" % i, b"k%d" % i, partition=i % 3, headers=headers, timestamp=1 + i
        )
    producer.flush(30)
    messages = read_all(broker.bootstrap, topic, until=30)
    assert [(m.partition, m.offset) for m in messages] == [(p, o) for p in range(3) for o in range(10)]
    first, odd = messages[0], messages[12]
    assert first == (0, 0, b"k0", b"v0", [("n", b"0"), ("none", None)], 1)
    assert odd == (1, 2, b"k7", None, [("n", b"7"), ("none", None)], 8)


def test_a_record_of_ten_megabytes_fits(broker: Broker, topics: Names) -> None:
    topic = topics.create("topic")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 12_000_000})
    producer.produce(topic, os.urandom(10_000_000))
    assert producer.flush(30) == 0
    [message] = read_all(broker.bootstrap, topic)
    assert message.value is not None
    assert len(message.value) == 10_000_000


def test_topics_are_not_made_by_asking_for_them(broker: Broker, topics: Names) -> None:
    missing = topics.name("missing")
    curious = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": missing, "allow.auto.create.topics": True})
    curious.list_topics(missing, timeout=30)
    curious.close()
    with pytest.raises(KafkaException) as error:
        read_all(broker.bootstrap, missing)
    assert error.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.full
def test_a_broker_comes_back_with_its_address_and_its_data(own_broker: Broker) -> None:
    own_broker.create_topic("topic")
    address = own_broker.bootstrap
    for value, end in ((b"before a kill", own_broker.kill), (b"before a stop", own_broker.stop)):
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        producer.produce("topic", value)
        assert producer.flush(30) == 0
        end()
        with pytest.raises(KafkaException):
            own_broker.admin().list_topics(timeout=0.5)
        own_broker.restart()
    assert own_broker.bootstrap == address
    assert values(own_broker, "topic") == [b"before a kill", b"before a stop"]


def test_a_broker_is_shared_and_goes_with_the_last_who_uses_it(tmp_path: Path) -> None:
    life: list[str] = []

    @contextmanager
    def bring_up() -> Iterator[Broker]:
        life.append("up")
        yield JoinedBroker("broker.example:9092")
        life.append("down")

    came, leaves = threading.Event(), threading.Event()

    def come_first() -> None:
        with shared_broker(tmp_path, bring_up):
            came.set()
            assert leaves.wait(30)

    first = threading.Thread(target=come_first)
    first.start()
    assert came.wait(30)
    with shared_broker(tmp_path, bring_up) as joined:
        assert joined.bootstrap == "broker.example:9092"
        leaves.set()
        first.join(0.3)
        assert (first.is_alive(), life) == (True, ["up"])
    first.join(30)
    assert life == ["up", "down"]
    with shared_broker(tmp_path, bring_up):
        assert life == ["up", "down", "up"]


def test_the_environment_comes_first_unless_the_broker_must_be_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "broker.example:9092")
    assert open_server({}, own=False).bootstrap == "broker.example:9092"
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="Docker"):
        open_server({}, own=True)


def test_without_any_broker_every_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        Unavailable, match="KAFKA_BOOTSTRAP is not set; no Docker engine answers; Java is not installed"
    ):
        open_server({}, own=False)


def test_an_interrupted_download_leaves_no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\nmkdir libs\necho half > libs/kafka.jar\necho no network\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Unavailable, match="no network"):
        kafka_libs(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    maven.write_text("#!/bin/sh\nmkdir libs\necho whole > libs/kafka.jar\n")
    assert (kafka_libs(tmp_path / "cache") / "kafka.jar").read_text() == "whole\n"
