"""Adapter to Kafka: the only file that knows confluent_kafka. It translates records, topics and errors, and decides
nothing: what an error means is said by `decision`, what follows from that is the runtime's.
"""

from __future__ import annotations

import logging
import math
import queue
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from worker.config import Config
from worker.errors import Abort, ConfigError, Transient, Unknown, WorkerError
from worker.failpoints import failpoint
from worker.ports import Listener
from worker.records import Outgoing, Record

_log = logging.getLogger(__name__)

CALL_S = 10.0
"""Longest wait for one answer of the broker."""
SEND_OFFSETS_S = 5.0
"""Longest wait for the group to take the offsets of a transaction: milliseconds, unless the client is stuck."""
REJOIN_EVERY_S = 60.0
"""A member that is fenced again before this much time has passed has a twin, and gives way to it."""
STALL_S = 30.0
"""Longest wait for the next acknowledgement while a publisher has records to deliver."""
POLL_EVERY_RECORDS = 256
DEFAULT_MESSAGE_BYTES = 1_000_000
MOCK_CLUSTER = "mockCluster"
"""What the id of a mock cluster of librdkafka begins with. It has no controller, which admin requests wait for."""

_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET}


def decision(error: KafkaError) -> type[WorkerError]:
    """What a failed call of the transactional producer means for the open transaction.

    A timeout comes first: librdkafka calls it retriable, but the request may be on its way and, without KIP-890, may
    hit the next transaction; only a new producer epoch rules that out. A fatal error kills the instance and says
    nothing of the transaction, so its outcome is as unknown; so is that of any error not foreseen here.
    """
    if error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT) or error.fatal():
        return Unknown
    if error.txn_requires_abort():
        return Abort
    if error.retriable():
        return Transient
    return Unknown


def _error(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def _client(kind: Any, properties: Mapping[str, str]) -> Any:
    """A client of librdkafka. Raises ConfigError for a property that it does not take, without naming values."""
    try:
        return kind(dict(properties), logger=_log)
    except KafkaException as exception:
        raise ConfigError(f"kafka: librdkafka refuses the properties: {_error(exception).str()}") from exception


class KafkaInput:
    """The consumer of the group. All calls come from one thread; the listener is called from `consume` and `close`."""

    def __init__(self, config: Config) -> None:
        self._topic = config.input.topic
        self._properties = config.consumer_properties()
        self._consumer: Consumer = _client(Consumer, self._properties)
        self._joined_s = -math.inf
        self._listener: Listener

    def subscribe(self, listener: Listener) -> None:
        """Join the group."""
        self._listener = listener

        def numbers(partitions: Iterable[TopicPartition]) -> list[int]:
            return sorted(partition.partition for partition in partitions)

        def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
            listener.assigned(numbers(partitions))

        def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
            listener.revoked(numbers(partitions))
            self._consumer.incremental_unassign(partitions)

        def on_lost(_: Consumer, partitions: list[TopicPartition]) -> None:
            listener.lost(numbers(partitions))
            self._consumer.incremental_unassign(partitions)

        self._consumer.subscribe([self._topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], dict[int, str]]:
        """Records by partition, each in the order of offsets; and partitions whose next offset does not exist, why."""
        records: dict[int, list[Record]] = defaultdict(list)
        missing: dict[int, str] = {}
        message: Any
        for message in self._consumer.consume(max_records, timeout_s):
            error = message.error()
            if error is None:
                records[message.partition()].append(
                    Record(
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        message.headers() or [],
                    )
                )
            elif error.code() in _OUT_OF_RANGE and message.partition() is not None:
                missing[message.partition()] = error.str()
            elif error.code() == KafkaError._FATAL:
                self._rejoin(error.str())
                break
            else:
                _log.warning("consumer: %s", error.str())
        return records, missing

    def _rejoin(self, reason: str) -> None:
        """Go on as a new member in place of a consumer that is fatally ill. Raises WorkerError at the second time.

        A static member whose session ends while the broker is away may be fenced by its own return. It looks the same
        as a second worker with the same group.instance.id, which will be fenced in its turn and fence this one again.
        """
        now = time.monotonic()
        if now - self._joined_s < REJOIN_EVERY_S:
            raise WorkerError(f"the consumer cannot go on, is there another with its group.instance.id? {reason}")
        self._joined_s = now
        _log.warning("the consumer cannot go on, joining anew: %s", reason)
        self._listener.lost([each.partition for each in self._consumer.assignment()])
        self._consumer.close()
        self._consumer = _client(Consumer, self._properties)
        self.subscribe(self._listener)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Take partitions, each from its offset on; a partition that is taken already is moved there."""
        held = {each.partition for each in self._consumer.assignment() if each.topic == self._topic}
        again = held & offsets.keys()
        if again:
            self._consumer.incremental_unassign([TopicPartition(self._topic, number) for number in again])
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
        )

    def pause(self, partition: int) -> None:
        """Fetch no more records of a partition while it stays assigned."""
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def committed(self, partitions: Sequence[int]) -> dict[int, int | None]:
        """Stable committed offsets of the group (an open transaction is waited for). Raises Transient."""
        asked = [TopicPartition(self._topic, number) for number in partitions]
        try:
            found = self._consumer.committed(asked, timeout=CALL_S)
        except KafkaException as exception:
            raise Transient(f"committed offsets of {self._topic}: {_error(exception).str()}") from exception
        for each in found:
            if each.error is not None:
                raise Transient(f"committed offset of {self._topic}[{each.partition}]: {each.error.str()}")
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}

    def bounds(self, partition: int) -> tuple[int, int]:
        """First offset that exists and the one after the last. Raises Transient."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=CALL_S)
        except KafkaException as exception:
            raise Transient(f"offsets of {self._topic}[{partition}]: {_error(exception).str()}") from exception
        return low, high

    def high_watermark(self, partition: int) -> int | None:
        """Offset after the last record as of the last fetch, without asking the broker; None before the first."""
        _, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return high if high >= 0 else None

    def group_metadata(self) -> Any:
        """Who this member is now; to be taken with the records and handed back with their offsets."""
        return self._consumer.consumer_group_metadata()

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets outside of a transaction (at-least-once). Raises Abort where the group refuses them."""
        try:
            self._consumer.commit(offsets=self._positions(offsets), asynchronous=False)
        except KafkaException as exception:
            error = _error(exception)
            kind = Transient if error.retriable() or error.code() == KafkaError._TIMED_OUT else Abort
            raise kind(f"commit of offsets: {error.str()}") from exception

    def close(self) -> None:
        """Give up all partitions and leave the group."""
        self._consumer.close()

    def _positions(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]


class KafkaOutput:
    """A producer: transactional where the delivery is exactly-once, else idempotent.

    An instance that raised Unknown must not be used again.
    """

    def __init__(self, config: Config, transactional_id: str | None) -> None:
        self._topic = config.input.topic
        self._transactional = transactional_id is not None
        self._failed: KafkaError | None = None
        self._producer: Producer = _client(Producer, config.producer_properties(transactional_id))
        if self._transactional:
            self._call("init_transactions", CALL_S)

    def publish(self, outgoing: Sequence[Outgoing], offsets: Mapping[int, int], metadata: Any) -> None:
        """One transaction: all records and the offsets, or nothing. Raises Abort, Transient, Unknown.

        Without transactions: the records alone; the offsets are the consumer's to commit afterwards.
        """
        if self._transactional:
            self._call("begin_transaction")
        self._send(outgoing)
        if self._transactional:
            positions = [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]
            self._send_offsets(positions, metadata)
            failpoint("offsets-sent")
            self._call("commit_transaction", CALL_S)
            failpoint("committed")
        else:
            left = self._producer.flush(CALL_S)
            if left or self._failed:
                self._producer.purge()
                reason = self._failed.str() if self._failed else f"{left} records not acknowledged in {CALL_S:g} s"
                raise Unknown(f"produce: {reason}")

    def abort(self) -> None:
        """Give up the open transaction. Raises Unknown."""
        if self._transactional:
            try:
                self._call("abort_transaction", CALL_S)
            except (Abort, Transient) as error:
                raise Unknown(str(error)) from error

    def close(self) -> None:
        """Drop what was not sent."""
        self._producer.purge()
        self._producer.flush(0)

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        produce: Any = self._producer.produce
        poll = self._producer.poll
        # In a transaction a failed delivery fails the commit; only without one have reports to be looked at.
        report = None if self._transactional else self._on_delivery
        for record in outgoing:
            failpoint("producing")
            while True:
                try:
                    produce(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        timestamp=max(record.timestamp_ms, 0),
                        on_delivery=report,
                    )
                    break
                except BufferError:
                    if poll(CALL_S) == 0:
                        raise Unknown(f"produce: the queue did not move in {CALL_S:g} s") from None
                except KafkaException as exception:
                    raise decision(_error(exception))(f"produce: {_error(exception).str()}") from exception
        poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failed = error

    def _send_offsets(self, positions: list[TopicPartition], metadata: Any) -> None:
        """Offsets into the transaction, or Unknown where the client does not return in time.

        Once librdkafka has lost a connection to the group's coordinator, this call may wait for ever, whatever timeout
        it is given (its issues 5456, 5511). Then the thread that waits is left behind with its producer; should it go
        on one day, the epoch of the next producer has fenced it.
        """
        outcome = queue.SimpleQueue[BaseException | None]()

        def call() -> None:
            try:
                self._call("send_offsets_to_transaction", positions, metadata, SEND_OFFSETS_S)
                outcome.put(None)
            except BaseException as error:
                outcome.put(error)

        threading.Thread(target=call, name="send-offsets", daemon=True).start()
        try:
            error = outcome.get(timeout=SEND_OFFSETS_S)
        except queue.Empty:
            raise Unknown(f"send_offsets_to_transaction did not return in {SEND_OFFSETS_S:g} s") from None
        if error is not None:
            raise error

    def _call(self, method: str, *arguments: Any) -> None:
        """One call of the transactional API; retriable errors are tried again a few times."""
        for attempt in range(3):
            try:
                getattr(self._producer, method)(*arguments)
                return
            except KafkaException as exception:
                error = _error(exception)
                kind = decision(error)
                if kind is Transient and attempt < 2:
                    continue
                if kind is Transient:
                    kind = Unknown
                raise kind(f"{method}: {error.str()}") from exception


class KafkaPublisher:
    """An idempotent producer of records from outside of Kafka. An instance that raised must not be used again."""

    def __init__(self, config: Config, topic: str) -> None:
        self.delivered = 0
        """Records that the broker has acknowledged."""
        self._topic = topic
        self._sent = 0
        self._failed: KafkaError | None = None
        self._producer: Producer = _client(Producer, config.producer_properties())

    def send(self, key: bytes, value: bytes) -> None:
        """Queue a record; waits while the queue is full. Raises WorkerError."""
        self._sent += 1
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery)
                break
            except BufferError:
                self._await_delivery()
            except KafkaException as exception:
                raise self._undelivered(_error(exception).str()) from exception
        if self._sent % POLL_EVERY_RECORDS == 0:
            self.wait(0)

    def wait(self, seconds: float) -> None:
        """Take note of deliveries for so long. Raises WorkerError."""
        until = time.monotonic() + seconds
        while True:
            self._producer.poll(max(0.0, until - time.monotonic()))
            if self._failed is not None:
                raise self._undelivered(self._failed.str())
            if time.monotonic() >= until:
                return

    def finish(self) -> None:
        """Wait until every record is delivered. Raises WorkerError."""
        while self.delivered < self._sent:
            self._await_delivery()

    def _await_delivery(self) -> None:
        before, deadline = self.delivered, time.monotonic() + STALL_S
        while self.delivered == before:
            if time.monotonic() >= deadline:
                raise self._undelivered(f"the broker took nothing for {STALL_S:g} s")
            self.wait(0.05)

    def _undelivered(self, reason: str) -> WorkerError:
        self._producer.purge()
        self._producer.flush(0)
        return WorkerError(
            f"{self._sent - self.delivered} of {self._sent} records for {self._topic} were not delivered: {reason}"
        )

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.delivered += 1
        elif self._failed is None:
            self._failed = error


def transactional_id(config: Config) -> str:
    """Stable over restarts where the worker has a name, so that a restart settles what the dead one left open."""
    group = config.kafka["group.id"]
    instance = config.kafka.get("group.instance.id")
    return f"{group}.{instance}" if instance else f"{group}.{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What start-up has to know of a topic."""

    topic_id: str
    partitions: int


class KafkaAdmin:
    """Questions about topics, and making them."""

    def __init__(self, config: Config) -> None:
        self._admin: AdminClient = _client(AdminClient, config.admin_properties())
        self._servers = config.kafka["bootstrap.servers"]
        self._message_bytes = int(config.kafka.get("message.max.bytes", DEFAULT_MESSAGE_BYTES))

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that do not exist. Raises WorkerError where no broker answers."""
        known = self._cluster().topics
        return [topic for topic in topics if topic not in known or not known[topic].partitions]

    def facts(self, topic: str) -> TopicFacts:
        """Identity and size of an existing topic; one of a mock cluster lives and dies with it and goes by its id."""
        cluster = self._cluster()
        if _is_mock(cluster):
            return TopicFacts(cluster.cluster_id, len(cluster.topics[topic].partitions))
        try:
            described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=CALL_S)[topic].result()
        except KafkaException as exception:
            raise WorkerError(f"topic {topic} cannot be described: {_error(exception).str()}") from exception
        # As Kafka's own tools print it: base64 with the characters that are safe in names of files and objects.
        topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
        return TopicFacts(topic_id, len(described.partitions))

    def max_message_bytes(self, topics: Iterable[str]) -> int:
        """Largest record that the producer and all these topics take."""
        if _is_mock(self._cluster()):
            return self._message_bytes
        limits = [self._message_bytes]
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        for resource, future in self._admin.describe_configs(resources, request_timeout=CALL_S).items():
            try:
                limits.append(int(future.result()["max.message.bytes"].value))
            except (KafkaException, KeyError) as error:
                _log.warning(
                    "max.message.bytes of %s is unknown (needs DESCRIBE_CONFIGS): %s; taking %d",
                    resource.name, error, self._message_bytes,
                )  # fmt: skip
        return min(limits)

    def create(self, topics: Iterable[str], partitions: int) -> None:
        """Make topics with the broker's default replication. Raises WorkerError."""
        new = [NewTopic(topic, num_partitions=partitions) for topic in topics]
        for topic, future in self._admin.create_topics(new, request_timeout=CALL_S).items() if new else ():
            try:
                future.result()
            except KafkaException as exception:
                raise WorkerError(f"topic {topic} cannot be made: {_error(exception).str()}") from exception

    def _cluster(self) -> Any:
        """The cluster's id, brokers and topics. Raises WorkerError where no broker answers."""
        try:
            return self._admin.list_topics(timeout=CALL_S)
        except KafkaException as exception:
            raise WorkerError(
                f"no broker answers at kafka.bootstrap.servers={self._servers}: {_error(exception).str()}"
            ) from exception


def _is_mock(cluster: Any) -> bool:
    return (cluster.cluster_id or "").startswith(MOCK_CLUSTER)


def start_mock_cluster(topics: Iterable[str]) -> tuple[object, str]:
    """A mock cluster with these topics, alive as long as the client that is returned with its bootstrap servers.

    It is librdkafka's own, for tests: one broker, 4 partitions a topic, of each the last 5 MB in memory; committed
    offsets are kept, transactions are accepted but not atomic.
    """
    client: Producer = _client(Producer, {"test.mock.num.brokers": "1"})
    for topic in topics:
        client.list_topics(topic, timeout=CALL_S)  # to ask for a topic makes it
    [broker] = client.list_topics(timeout=CALL_S).brokers.values()
    return client, f"{broker.host}:{broker.port}"


def require_topics(admin: KafkaAdmin, config: Config, path: str) -> None:
    """Raises ConfigError that names the command which makes the missing topics."""
    absent = admin.missing([config.input.topic, config.output.topic, config.dead_letter.topic])
    if absent:
        raise ConfigError(f"missing topics: {', '.join(absent)}. `amf-worker check {path} --create-topics` makes them")
