"""Questions about topics, and making them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from worker.adapters.kafka.asker import AdminClient
from worker.adapters.kafka.errors import CALL_S, Admission, client, error_of, failure, forbidden, shut_out
from worker.adapters.kafka.mock import is_mock
from worker.adapters.kafka.topic import file_id
from worker.base.errors import ConfigError, Fatal, Unanswered
from worker.base.log import Log
from worker.base.ports import TopicState
from worker.config import Config

_log = Log(__name__)

DEFAULT_MESSAGE_BYTES = 1_000_000
FIRST_CALL_S = 2.0
"""Wait for an answer before it is asked whether we are shut out, which further waiting does not change."""


class KafkaAdmin:
    """Questions about topics, and making them. All raise WorkerError: Unanswered where no broker answers."""

    def __init__(self, config: Config) -> None:
        self._admission = Admission()
        self._admin: AdminClient = client(AdminClient, config.admin_properties(), self._admission)
        self._servers = config.kafka["bootstrap.servers"]
        self._message_bytes = int(config.kafka.get("message.max.bytes", DEFAULT_MESSAGE_BYTES))

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that do not exist. Raises WorkerError where no broker answers, or does not tell."""
        absent = []
        for topic in topics:
            # Asked by name, the broker tells a topic that is not there from one that it does not show to us.
            found = self._cluster(topic).topics[topic]
            if found.error is not None and forbidden(found.error):
                raise failure(found.error, Fatal, f"topic {topic}", f"DESCRIBE on topic {topic}")
            if not found.partitions:
                absent.append(topic)
        return absent

    def facts(self, topic: str) -> TopicState:
        """Identity and size of an existing topic, its beginnings aside.

        One of a mock cluster lives and dies with it and goes by its id.
        """
        cluster = self._cluster()
        if is_mock(cluster):
            return TopicState(cluster.cluster_id, len(cluster.topics[topic].partitions), {})
        described = self._describe([topic])[topic]
        return TopicState(file_id(described.topic_id), len(described.partitions), {})

    def lacking(self, needs: Mapping[str, str]) -> list[str]:
        """Those of the operations by topic that the broker says it will refuse. Raises WorkerError."""
        if is_mock(self._cluster()):
            return []
        allowed = {topic: each.authorized_operations for topic, each in self._describe(needs).items()}
        # A broker that keeps no such account names no operation at all.
        return [
            f"{need} on topic {t}" for t, need in needs.items() if allowed[t] and AclOperation[need] not in allowed[t]
        ]

    def max_message_bytes(self, topics: Iterable[str]) -> int:
        """Largest record that the producer and all these topics take. Raises Unanswered."""
        if is_mock(self._cluster()):
            return self._message_bytes
        limits = [self._message_bytes]
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        for resource, future in self._admin.describe_configs(resources, request_timeout=CALL_S).items():
            try:
                limits.append(int(future.result()["max.message.bytes"].value))
            except KafkaException as exception:
                what, need = f"max.message.bytes of {resource.name}", f"DESCRIBE_CONFIGS on topic {resource.name}"
                error = failure(exception, Fatal, what, need)
                if isinstance(error, Unanswered):
                    raise error from exception
                _log.warning("broker-defaults", f"{what}: taking {self._message_bytes}", detail=error)
            except (KeyError, TypeError):  # it may name the setting and not its value
                _log.warning(
                    "broker-defaults",
                    f"topic {resource.name} has no max.message.bytes, as far as the broker tells; taking "
                    f"{self._message_bytes}",
                )
        return min(limits)

    def create(self, topics: Iterable[str], partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make topics with the broker's default replication, and wait until it shows them. Raises WorkerError.

        One that somebody else makes at the same moment is as good.
        """
        new = [NewTopic(topic, num_partitions=partitions, config=dict(settings or {})) for topic in topics]
        for topic, future in self._admin.create_topics(new, request_timeout=CALL_S).items() if new else ():
            try:
                future.result()
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    what, need = f"topic {topic} cannot be made", f"CREATE on topic {topic}"
                    raise failure(exception, Fatal, what, need) from exception
        self._await([each.topic for each in new])

    def _await(self, topics: list[str]) -> None:
        """The controller has made them; the broker that is asked next may not have heard of it yet."""
        deadline = time.monotonic() + CALL_S
        while self.missing(topics):
            if time.monotonic() >= deadline:
                raise Fatal(f"topics {', '.join(topics)} were made, but the broker does not show them")
            time.sleep(0.05)

    def _describe(self, topics: Iterable[str]) -> dict[str, Any]:
        """Existing topics as the broker describes them to this user. Raises WorkerError."""
        asked = TopicCollection(list(topics))
        found = self._admin.describe_topics(asked, include_authorized_operations=True, request_timeout=CALL_S)
        described = {}
        for topic, future in found.items():
            try:
                described[topic] = future.result()
            except KafkaException as exception:
                what, need = f"topic {topic} cannot be described", f"DESCRIBE on topic {topic}"
                raise failure(exception, Fatal, what, need) from exception
        return described

    def _cluster(self, topic: str | None = None, patience_s: float = FIRST_CALL_S) -> Any:
        """The cluster's id, brokers and topics, or just this one. Raises WorkerError where no broker answers."""
        try:
            return self._admin.list_topics(topic, timeout=patience_s)
        except KafkaException as exception:
            self._admin.poll(0)  # the connections report here, and nowhere else
            reason = self._admission.trouble or error_of(exception)
            if patience_s < CALL_S and not shut_out(reason):
                return self._cluster(topic, CALL_S)
            what = f"no broker answers at kafka.bootstrap.servers={self._servers}"
            raise failure(reason, Fatal, what) from exception


def require_topics(admin: KafkaAdmin, config: Config, path: str) -> None:
    """Raises ConfigError that names the command which makes the missing topics; warns of what will not be allowed."""
    topics = {config.input.topic: "READ", config.output.topic: "WRITE", config.dead_letter.topic: "WRITE"}
    absent = admin.missing(topics)
    if absent:
        raise ConfigError(f"missing topics: {', '.join(absent)}. `amf-worker check {path} --create-topics` makes them")
    for need in admin.lacking(topics):
        _log.warning(
            "acl-missing", f"the worker will end as soon as it does what needs an ACL that its user lacks: {need}"
        )
