"""A real Kafka broker for tests and benchmarks, and a way to read a topic to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import NewTopic

from tests.kafka.servers import Server, open_server
from worker.adapters.kafka.asker import AdminClient

READY_WITHIN_S = 60.0
TOPIC_WITHIN_S = 30.0
ANSWER_WITHIN_S = 30.0

MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,
}
"""What comes back about a group while a broker is taking it over, as each does for its first group."""


class Broker:
    """A broker that answers, from KAFKA_BOOTSTRAP, Docker or Kafka's jars, in this order; removed on exit.

        with Broker() as broker:
            broker.create_topic("events", partitions=4)

    `own` passes over KAFKA_BOOTSTRAP: a broker that will be stopped, or that needs `properties` of its own. Entering
    raises `Unavailable` where there is no broker to be had, RuntimeError with its log where one does not come up.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, *, own: bool = False) -> None:
        self._properties = dict(properties or {})
        self._own = own or bool(properties)
        self._server: Server

    def __enter__(self) -> Self:
        self._server = self._open()
        try:
            self._await_ready()
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    @property
    def bootstrap(self) -> str:
        """Value for `bootstrap.servers`; the same for the broker's whole life."""
        return self._server.bootstrap

    def admin(self) -> AdminClient:
        # While the broker is away librdkafka would report every attempt to reach it on standard error.
        return AdminClient({"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 100, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until every partition has a leader. Raises KafkaException where it exists already."""
        admin = self.admin()
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[name].result(TOPIC_WITHIN_S)
        deadline = time.monotonic() + TOPIC_WITHIN_S
        while time.monotonic() < deadline:
            found = admin.list_topics(name, timeout=TOPIC_WITHIN_S).topics[name].partitions.values()
            if len(found) == partitions and all(partition.leader >= 0 for partition in found):
                return
        raise TimeoutError(f"topic {name} has no leaders after {TOPIC_WITHIN_S:g} s")

    def stop(self) -> None:
        """Shut the broker down in order; its data stay for `restart`."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL the broker; its data stay for `restart`."""
        self._server.kill()

    def restart(self) -> None:
        """Bring the broker back at the same address with its data, stopping it first where it runs."""
        if self._server.is_running():
            self._server.stop()
        self._server.start()
        self._await_ready()

    def _open(self) -> Server:
        """The server behind it, started. Raises Unavailable."""
        return open_server(self._properties, own=self._own)

    def _await_ready(self) -> None:
        admin = self.admin()
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if not self._server.is_running():
                raise RuntimeError(f"the broker exited while it started:\n{self._server.log()}")
            try:
                if admin.list_topics(timeout=0.2).brokers:
                    return
            except KafkaException:
                continue  # not up yet; the call itself waited
        raise RuntimeError(f"no broker at {self.bootstrap} after {READY_WITHIN_S:g} s:\n{self._server.log()}")


class Message(NamedTuple):
    """One record as a reader sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    """ms since the epoch"""


def read_all(
    bootstrap: str,
    topic: str,
    *,
    isolation: str = "read_committed",
    until: int = 0,
    timeout: float = 60.0,
) -> list[Message]:
    """Every record of a topic, ordered by partition and offset, as a reader of this isolation level sees them now.

    With `until` it first waits for that many records and then reads on to the end, so that one too many is seen too.
    Raises TimeoutError, with the number it has read, after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",  # required by the client; nothing is committed
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        partitions = _partitions(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        messages: list[Message] = []
        at_end: set[int] = set()
        while len(messages) < until or len(at_end) < len(partitions):
            if time.monotonic() > deadline:
                expected = f"{until} of {topic}" if len(messages) < until else f"the end of {topic}"
                raise TimeoutError(f"read {len(messages)} records in {timeout:g} s, waited for {expected}")
            for record in consumer.consume(10_000, timeout=0.1):
                error = record.error()
                if error is None:
                    messages.append(_message(record))
                    at_end.discard(record.partition())
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(record.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def committed_offsets(bootstrap: str, group: str, topic: str, *, settled: bool = True) -> dict[int, int]:
    """Committed offset of each partition that has one; if `settled`, once no open transaction can change it."""
    isolation = "read_committed" if settled else "read_uncommitted"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": isolation})
    try:
        asked = [TopicPartition(topic, partition) for partition in _partitions(consumer, topic)]
        found = _committed(consumer, asked, time.monotonic() + ANSWER_WITHIN_S)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def _committed(consumer: Consumer, asked: list[TopicPartition], deadline: float) -> list[TopicPartition]:
    while True:
        try:
            return consumer.committed(asked, timeout=ANSWER_WITHIN_S)
        except KafkaException as exception:
            if exception.args[0].code() not in MOVING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return list(found.partitions)


def _message(record: Record) -> Message:
    _, timestamp = record.timestamp()
    headers = [(name, value) for name, value in record.headers() or []]
    return Message(record.partition(), record.offset(), record.key(), record.value(), headers, timestamp)
