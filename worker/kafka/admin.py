"""Questions about topics, and making them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from worker.config import Config
from worker.errors import ConfigError, WorkerError
from worker.kafka.errors import CALL_S, client, error_of
from worker.kafka.mock import is_mock

_log = logging.getLogger(__name__)

DEFAULT_MESSAGE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What start-up has to know of a topic."""

    topic_id: str
    partitions: int


class KafkaAdmin:
    """Questions about topics, and making them."""

    def __init__(self, config: Config) -> None:
        self._admin: AdminClient = client(AdminClient, config.admin_properties())
        self._servers = config.kafka["bootstrap.servers"]
        self._message_bytes = int(config.kafka.get("message.max.bytes", DEFAULT_MESSAGE_BYTES))

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that do not exist. Raises WorkerError where no broker answers."""
        known = self._cluster().topics
        return [topic for topic in topics if topic not in known or not known[topic].partitions]

    def facts(self, topic: str) -> TopicFacts:
        """Identity and size of an existing topic; one of a mock cluster lives and dies with it and goes by its id."""
        cluster = self._cluster()
        if is_mock(cluster):
            return TopicFacts(cluster.cluster_id, len(cluster.topics[topic].partitions))
        try:
            described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=CALL_S)[topic].result()
        except KafkaException as exception:
            raise WorkerError(f"topic {topic} cannot be described: {error_of(exception).str()}") from exception
        # As Kafka's own tools print it: base64 with the characters that are safe in names of files and objects.
        topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
        return TopicFacts(topic_id, len(described.partitions))

    def max_message_bytes(self, topics: Iterable[str]) -> int:
        """Largest record that the producer and all these topics take."""
        if is_mock(self._cluster()):
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
                raise WorkerError(f"topic {topic} cannot be made: {error_of(exception).str()}") from exception

    def _cluster(self) -> Any:
        """The cluster's id, brokers and topics. Raises WorkerError where no broker answers."""
        try:
            return self._admin.list_topics(timeout=CALL_S)
        except KafkaException as exception:
            raise WorkerError(
                f"no broker answers at kafka.bootstrap.servers={self._servers}: {error_of(exception).str()}"
            ) from exception


def require_topics(admin: KafkaAdmin, config: Config, path: str) -> None:
    """Raises ConfigError that names the command which makes the missing topics."""
    absent = admin.missing([config.input.topic, config.output.topic, config.dead_letter.topic])
    if absent:
        raise ConfigError(f"missing topics: {', '.join(absent)}. `amf-worker check {path} --create-topics` makes them")
