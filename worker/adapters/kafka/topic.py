"""One topic, asked about: how it is now, and the settings that it and its brokers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from copy import copy
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, libversion, version
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from worker.adapters.kafka.asker import AdminClient
from worker.adapters.kafka.errors import CALL_S, client, error_of, failure
from worker.adapters.kafka.mock import is_mock
from worker.base.aside import Aside
from worker.base.errors import Transient, WorkerError
from worker.base.ports import TopicState
from worker.config import Config

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
CLIENT_VERSION = f"confluent-kafka {version()} with librdkafka {libversion()[0]}"


class KafkaTopic:
    """Questions about a topic, for any thread. All raise WorkerError: Transient, or one that names a permission."""

    def __init__(self, config: Config, topic: str) -> None:
        self.name = topic
        self._admin: AdminClient = client(AdminClient, config.admin_properties())
        self._is_mock: bool | None = None

    def beside(self, topic: str) -> KafkaTopic:
        """Another topic of the same cluster, asked about over the same connections."""
        other = copy(self)
        other.name = topic
        return other

    @property
    def is_mock(self) -> bool:
        """Whether it is in a mock cluster of librdkafka, which answers no question of an administrator."""
        if self._is_mock is None:
            self._is_mock = is_mock(self._cluster())
        return self._is_mock

    def ask(self, partitions: int) -> Aside[TopicState | None]:
        """Begin to ask for its `state`."""
        return Aside("topic", lambda: self.state(partitions))

    def state(self, partitions: int) -> TopicState | None:
        """How the topic is now; None where there is none of that name.

        With the beginnings of so many partitions; of none it is not asked either what becomes of its records.
        """
        try:
            described = self._admin.describe_topics(TopicCollection([self.name]), request_timeout=CALL_S)[self.name]
            topic = described.result()
            asked = led(self._admin, self.name).intersection(range(partitions)) if partitions else ()
        except KafkaException as exception:
            if error_of(exception).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            what, need = f"topic {self.name} cannot be described", f"DESCRIBE on topic {self.name}"
            raise failure(exception, Transient, what, need) from exception
        begins = {
            number: found.result().offset
            for number, found in self._offsets(asked, EARLIEST).items()
            if found.exception() is None and found.result().offset >= 0  # as in `Offsets.bounds`
        }
        return TopicState(
            file_id(topic.topic_id), len(topic.partitions), begins, self._cleanup_policy() if partitions else ""
        )

    def _cleanup_policy(self) -> str:
        """Empty where the broker does not tell: all else that is known of the topic is worth no less for it."""
        try:
            return self.settings().get("cleanup.policy", "")
        except WorkerError:
            return ""

    def ends(self) -> dict[int, int]:
        """The high watermark of each partition."""
        try:
            partitions = self._partitions()
            leaderless, ends = partitions.keys() - _led(partitions), dict[int, int]()
            if not leaderless:
                ends = {number: found.result().offset for number, found in self._offsets(partitions, LATEST).items()}
                leaderless = {number for number, end in ends.items() if end < 0}  # as in `Offsets.bounds`
        except KafkaException as exception:
            what, need = f"offsets of topic {self.name}", f"DESCRIBE on topic {self.name}"
            raise failure(exception, Transient, what, need) from exception
        if leaderless:
            raise Transient(f"topic {self.name}: partition {min(leaderless)} has no leader")
        return ends

    def settings(self) -> Mapping[str, str]:
        """The topic's configuration as the broker applies it."""
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        return self._settings(resource, f"topic {self.name}", f"DESCRIBE_CONFIGS on topic {self.name}")

    def broker_settings(self) -> Mapping[str, str]:
        """The configuration of one of the brokers."""
        broker = min(self._cluster().brokers)
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        return self._settings(resource, f"broker {broker}", "DESCRIBE_CONFIGS on cluster")

    def replicas(self) -> int:
        """How many the partition with the fewest of them has."""
        return min(len(partition.replicas) for partition in self._partitions().values())

    def _partitions(self) -> Mapping[int, Any]:
        partitions: Mapping[int, Any] = self._cluster(self.name).topics[self.name].partitions
        if not partitions:
            raise Transient(f"topic {self.name}: the broker does not show it")
        return partitions

    def _cluster(self, topic: str | None = None) -> Any:
        try:
            return self._admin.list_topics(topic, timeout=CALL_S)
        except KafkaException as exception:
            raise failure(exception, Transient, "the cluster", "DESCRIBE on cluster") from exception

    def _settings(self, resource: Any, what: str, need: str) -> Mapping[str, str]:
        try:
            [future] = self._admin.describe_configs([resource], request_timeout=CALL_S).values()
            # A broker may name a setting and not its value: then it does not tell.
            return {name: entry.value for name, entry in future.result().items() if entry.value is not None}
        except KafkaException as exception:
            raise failure(exception, Transient, f"settings of {what}", need) from exception

    def _offsets(self, partitions: Iterable[int], spec: Any) -> dict[int, Future[Any]]:
        asked = {TopicPartition(self.name, number): spec for number in partitions}
        found = self._admin.list_offsets(asked, request_timeout=CALL_S) if asked else {}
        return {each.partition: future for each, future in found.items()}


def led(admin: AdminClient, topic: str) -> set[int]:
    """The partitions of a topic that have a leader. Raises KafkaException.

    To be called before offsets are asked for: then the client knows the leaders. Where librdkafka 2.16 has to find them
    out, one of its threads may free the request while another works on it, and the process crashes
    (`rd_kafka_topic_partition_list_query_leaders_async`).
    """
    found = admin.list_topics(topic, timeout=CALL_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return _led(found.partitions)


def _led(partitions: Mapping[int, Any]) -> set[int]:
    return {number for number, partition in partitions.items() if partition.leader >= 0}


def file_id(topic_id: object) -> str:
    """A topic's id as Kafka's own tools print it: base64 with the characters that are safe in names of files."""
    return str(topic_id).replace("+", "-").replace("/", "_")
