"""A topic and a group that change under the checkpoints of workers, which run in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.kafka.broker import Broker, Message, read_all
from tests.kafka.configurations import Sections, configuration
from tests.kafka.conftest import Names
from tests.waiting import until
from worker import service
from worker.adapters.kafka import KafkaAdmin
from worker.adapters.store import open_store
from worker.base.metrics import Metrics
from worker.checkpoint import describe
from worker.config import Config, loads

WITHIN_S = 30.0


class Crash(Exception):
    """The worker drops everything."""


class Job:
    """Topics, a group and a folder of checkpoints."""

    def __init__(self, broker: Broker, topics: Names, folder: Path) -> None:
        self.broker = broker
        self.admin = broker.admin()
        self.events, self.predictions = topics.name("events"), topics.name("predictions")
        self.dead, self.group = topics.name("dead"), topics.name("group")
        self.folder = folder
        self.sent: dict[int, int] = {}
        for topic in (self.predictions, self.dead):
            broker.create_topic(topic)

    def create_input(self, partitions: int = 1, **config: str) -> None:
        self.broker.create_topic(self.events, partitions, {name.replace("_", "."): v for name, v in config.items()})

    def delete_input(self) -> None:
        self.admin.delete_topics([self.events])[self.events].result(WITHIN_S)
        until(lambda: self.events not in self.admin.list_topics(timeout=WITHIN_S).topics)

    def set_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)

    def feed(self, n: int, partition: int = 0, *, transactional: bool = False) -> None:
        """Events of one model for each partition; each is a batch of its own."""
        if transactional:
            with self.transaction(n, partition):
                return
        self._send(Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0}), n, partition)

    @contextmanager
    def transaction(self, n: int, partition: int = 0, *, abort: bool = False) -> Iterator[None]:
        """So many events in a transaction that is open for as long as this takes."""
        properties = {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0, "transactional.id": self.events}
        producer = Producer(properties)
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        self._send(producer, n, partition)
        yield
        (producer.abort_transaction if abort else producer.commit_transaction)(WITHIN_S)

    def abort(self, n: int) -> None:
        """Events that no reader sees."""
        with self.transaction(n, abort=True):
            return

    def _send(self, producer: Producer, n: int, partition: int) -> None:
        for _ in range(n):
            i = self.sent[partition] = self.sent.get(partition, 0) + 1
            event = {"id": str(i), "features": [i % 7, i % 3], "label": "ab"[i % 2]}
            producer.produce(self.events, json.dumps(event), f"model-{partition}", partition=partition)
            assert producer.flush(WITHIN_S) == 0

    def config(self, **changes: Sections) -> Config:
        return loads(self.text(**changes), {})

    def text(self, **changes: Sections) -> str:
        """The configuration as it is now, with changes by section. It is saved rarely, and sees other topics soon."""
        sections = {
            "input": {"topic": self.events},
            "output": {"topic": self.predictions},
            "dead_letter": {"topic": self.dead},
            "transaction": {"interval": "10ms"},
            "kafka": {"group.id": self.group, "topic.metadata.refresh.interval.ms": 200},
            "checkpoint": {"interval": "1h", "recovery_budget": "1h"},
        }
        return configuration(self.broker.bootstrap, self.folder, sections, changes)

    def run(
        self, should_stop: Callable[[], bool] | None = None, metrics: Metrics | None = None, **changes: Sections
    ) -> None:
        """A worker to the end of the topic as it is now, or until `should_stop` says so."""
        settings = self.config(**changes)
        deadline = time.monotonic() + WITHIN_S

        def gives_up() -> bool:
            assert time.monotonic() < deadline, "the worker did not come to the end of the topic"
            return False

        worker = service.build(
            settings, KafkaAdmin(settings), self.group, metrics or Metrics(), None if should_stop else "end"
        )
        worker.run(should_stop or gives_up)

    def crash_after(self, n: int) -> None:
        """A worker that publishes n records and saves nothing of them but the beginning."""
        metrics = Metrics()

        def crashes() -> bool:
            if sum(metrics.events_total.series().values()) >= n:
                raise Crash
            return False

        with pytest.raises(Crash):
            self.run(crashes, metrics)

    @contextmanager
    def running(self, **changes: Sections) -> Iterator[Callable[[], BaseException | None]]:
        """A worker at work; what is yielded waits until it ends by itself and says why."""
        stop, ended = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                self.run(stop.is_set, **changes)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work)

        def end() -> BaseException | None:
            thread.join(WITHIN_S)
            assert not thread.is_alive(), "the worker goes on"
            return ended[0] if ended else None

        thread.start()
        try:
            yield end
        finally:
            stop.set()
            thread.join(WITHIN_S)

    def delete_records(self, before: int) -> None:
        self.admin.list_topics(self.events, timeout=WITHIN_S)  # so that the client knows the leader: see `led`
        place = TopicPartition(self.events, 0, before)
        self.admin.delete_records([place])[place].result(WITHIN_S)

    def commit(self, offset: int) -> None:
        """Set the group to another offset. Raises KafkaException where the broker refuses it."""
        place = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.events, 0, offset)])
        until(lambda: self.admin.list_consumer_groups().result(WITHIN_S) is not None)
        [altered] = self.admin.alter_consumer_group_offsets([place])[self.group].result(WITHIN_S).topic_partitions
        if altered.error is not None:
            raise KafkaException(altered.error)

    def published(self, n: int = 0) -> list[Message]:
        return read_all(self.broker.bootstrap, self.predictions, until=n, timeout=WITHIN_S)

    def learned(self) -> list[tuple[int, int]]:
        """(offset, how many events the model had learned) of every prediction."""
        return [(offset_of(each), json.loads(each.value or b"")["learned"]) for each in self.published()]

    def covered(self) -> int:
        """Up to where the newest checkpoint covers the one partition there is."""
        [listing] = describe(open_store(f"file://{self.folder}/checkpoints"))
        assert listing.newest is not None
        return listing.newest.covered

    def checkpoints(self) -> dict[str, Any]:
        """Offset, state and number of partitions of the newest checkpoint in each folder, by lineage and partition."""
        found = {}
        for listing in describe(open_store(f"file://{self.folder}/checkpoints")):
            assert listing.newest is not None
            place = f"{listing.newest.location.lineage}/{listing.newest.location.partition}"
            found[place] = (listing.newest.offset, listing.newest.partitions)
        return found


def offset_of(message: Message) -> int:
    return int(dict(message.headers)["source-offset"] or b"")


def lineage_of(message: Message) -> str:
    return (dict(message.headers)["lineage"] or b"").decode()
