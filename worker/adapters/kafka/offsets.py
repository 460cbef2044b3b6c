"""Offsets of the group and of the topic's partitions, asked for by clients of their own.

A consumer of confluent-kafka lets one call in at a time, without order: a question would wait for as long as `consume`
has nothing to return, and `consume`, with the callbacks of the group, for a broker that does not answer the question.
So committed offsets are asked for by consumers that are no members and have one question at a time. An admin client
does not do: librdkafka 2.16 crashes where it asks a broker that is not the group's coordinator any more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from worker.adapters.kafka.asker import AdminClient
from worker.adapters.kafka.errors import CALL_S, client, failure
from worker.adapters.kafka.topic import EARLIEST, LATEST, led
from worker.base.errors import Transient
from worker.base.records import Bounds, CommittedOffset
from worker.config import Config

AGAIN_S = 0.05
"""Between two looks at an offset that a transaction may still change."""
_GRACE_S = 1.0
"""The client keeps its own deadline; beyond that this one does."""


def needs_of_reader(config: Config) -> tuple[str, str]:
    """What the broker must allow who reads the input as a member of the group, or asks how far that is."""
    return f"READ on topic {config.input.topic}", f"READ on group {config.kafka['group.id']}"


class Offsets:
    """Questions that any thread may ask, each by itself. They raise Transient, or an error that names a permission."""

    def __init__(self, config: Config) -> None:
        self._topic = config.input.topic
        self._needs = needs_of_reader(config)
        self._properties = config.admin_properties()
        self._of_group = self._properties | {
            "group.id": config.kafka["group.id"], "isolation.level": "read_committed", "enable.auto.commit": "false"
        }  # fmt: skip
        self._admin: AdminClient | None = None
        self._idle: list[Consumer] = []
        """Consumers that have had their last question answered."""

    def committed(self, partitions: Sequence[int]) -> dict[int, CommittedOffset | None]:
        """Stable committed offsets of the group: those that an open transaction may still change are waited for."""
        deadline = time.monotonic() + CALL_S
        while True:
            found = self._committed(partitions)
            faults = {each.partition: each.error for each in found if each.error is not None}
            if not faults:
                return {each.partition: _committed_offset(each) for each in found}
            number, error = min(faults.items())
            if error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT or time.monotonic() > deadline:
                raise failure(error, Transient, f"committed offset of {self._topic}[{number}]", *self._needs)
            time.sleep(AGAIN_S)

    def _committed(self, partitions: Sequence[int]) -> list[TopicPartition]:
        places = [TopicPartition(self._topic, number) for number in partitions]
        try:
            consumer = self._idle.pop()
        except IndexError:
            consumer = client(Consumer, self._of_group)
        try:
            found: list[TopicPartition] = consumer.committed(places, timeout=CALL_S)
        except KafkaException as exception:
            # The next question goes to a new client, as in `_give_up`.
            raise failure(exception, Transient, f"committed offsets of {self._topic}", *self._needs) from exception
        self._idle.append(consumer)
        return found

    def bounds(self, partition: int) -> Bounds:
        """Where the records of a partition begin and end."""
        admin, asked = self._client(), TopicPartition(self._topic, partition)
        what = f"offsets of {self._topic}[{partition}]"
        leaderless = Transient(f"{what}: the broker names none: the partition may have no leader")
        try:
            has_leader = partition in led(admin, self._topic)
        except KafkaException as exception:
            self._give_up(admin)
            raise failure(exception, Transient, what, *self._needs) from exception
        if not has_leader:
            raise leaderless
        answers = [
            admin.list_offsets({asked: spec}, isolation_level=isolation, request_timeout=CALL_S)[asked]
            for spec, isolation in (
                (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
                (LATEST, IsolationLevel.READ_COMMITTED),
                (LATEST, IsolationLevel.READ_UNCOMMITTED),
            )
        ]
        found = Bounds(*(self._answer(admin, answer, what).offset for answer in answers))
        if min(found) < 0:
            # What librdkafka says of a partition without a leader at times, in place of an error.
            self._give_up(admin)
            raise leaderless
        return found

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = client(AdminClient, self._properties)
        return self._admin

    def _answer(self, admin: AdminClient, future: Future[Any], what: str) -> Any:
        try:
            return future.result(CALL_S + _GRACE_S)
        except TimeoutError:
            self._give_up(admin)
            raise Transient(f"{what}: no answer in {CALL_S:g} s") from None
        except KafkaException as exception:
            self._give_up(admin)
            raise failure(exception, Transient, what, *self._needs) from exception

    def _give_up(self, admin: AdminClient) -> None:
        """Ask the next question by a new client.

        One whose broker was killed has been seen to get no answer any more, or to name an old leader epoch for ever.
        """
        if self._admin is admin:
            self._admin = None


def _committed_offset(found: TopicPartition) -> CommittedOffset | None:
    return CommittedOffset(found.offset, found.metadata or "", found.leader_epoch) if found.offset >= 0 else None
