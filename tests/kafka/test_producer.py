"""The producer of the outputs: how it ends, and what it makes of timestamps."""

from __future__ import annotations

import gc
import os
import time
import weakref
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import Sections, configuration, named
from tests.kafka.conftest import Names
from worker.adapters.kafka import KafkaInput, KafkaOutput, producer
from worker.adapters.kafka.mock import start_mock_cluster
from worker.base.errors import Unknown
from worker.base.records import CommittedOffset, Membership, Outgoing, Record
from worker.config import Config, loads


def config_on(bootstrap: str = "localhost:1", *changes: Sections) -> Config:
    return loads(configuration(bootstrap, Path("/nowhere"), *changes), {})


class Fenced:
    """A producer that says of its end again and again, and has records on their way."""

    left = 3
    ended_with: ClassVar[list[int]] = []

    def purge(self) -> None: ...

    def flush(self, timeout_s: float) -> NoReturn:
        type(self).left -= 1
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))

    def __len__(self) -> int:
        return self.left

    def __del__(self) -> None:
        self.ended_with.append(self.left)


def test_a_producer_that_was_fenced_ends_when_no_record_is_left_of_it() -> None:
    """It would free memory twice where a broker answers while it ends."""
    output = KafkaOutput(config_on(), None)
    output._producer = Fenced()
    output.close()
    assert Fenced.ended_with == [0]


def test_a_producer_that_keeps_its_records_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fenced, "left", 10**9)
    monkeypatch.setattr(producer, "DROP_S", 0.01)
    Fenced.ended_with.clear()
    output = KafkaOutput(config_on(), None)
    output._producer = Fenced()
    output.close()
    assert len(Fenced.ended_with) == 1


class Served:
    """A producer whose fatal illness comes to light while it waits for the broker, in one of two ways."""

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, *arguments: object) -> None: ...

    def produce(self, *arguments: object, **options: object) -> None: ...

    def poll(self, timeout_s: float) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError._FENCED, "late", fatal=True))

    def flush(self, timeout_s: float) -> NoReturn:
        self.poll(timeout_s)


@pytest.mark.parametrize("transactional", [True, False])
def test_a_fatal_error_that_shows_while_records_are_sent_is_an_unknown_outcome(transactional: bool) -> None:
    """Anything else would end the worker, for a twin of its name as for a fault of the network."""
    output = KafkaOutput(config_on(), None)
    output.close()
    output._producer, output._transactional = Served(), transactional
    with pytest.raises(Unknown, match=r"^produce: late"):
        output.publish([Outgoing("predictions", b"k", b"v", [], 1)], {}, Membership("m", object()))


class Full(Served):
    """A producer whose queue is full, and stays so while its connections say that they fail."""

    def produce(self, *arguments: object, **options: object) -> NoReturn:
        raise BufferError

    def poll(self, timeout_s: float) -> int:  # type: ignore[override]
        return 1

    def __len__(self) -> int:
        return 9


def test_a_queue_that_does_not_move_is_an_unknown_outcome_whatever_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer, "CALL_S", 0.05)
    output = KafkaOutput(config_on(), None)
    output.close()
    output._producer = Full()
    with pytest.raises(Unknown, match=r"^produce: the queue did not move in 0\.05 s"):
        output.publish([Outgoing("predictions", b"k", b"v", [], 1)], {}, Membership("m", object()))


@pytest.mark.kafka
def test_of_an_instance_that_is_dropped_nothing_lives_on(broker: Broker, topics: Names) -> None:
    """No thread, no connection and no output: how often garbage is collected does not matter."""
    predictions, name, group = topics.create("predictions"), topics.name("transactional"), topics.name("group")
    config = config_on(broker.bootstrap)
    asked = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    member = Membership("m", asked.consumer_group_metadata())
    asked.list_topics(timeout=10.0)  # a client that has had an answer has all its threads
    gc.collect()
    gc.disable()
    try:
        before = n_threads()
        fenced, then = KafkaOutput(config, name), KafkaOutput(config, name)
        outputs = Outputs([Outgoing(predictions, b"k", b"v", [], 1)])
        living = weakref.ref(outputs)
        try:
            fenced.publish(outputs, {0: CommittedOffset(1)}, member)
        except Unknown:
            del outputs
        fenced.close()
        then.close()
        assert living() is None
        deadline = time.monotonic() + 10.0
        while n_threads() > before and time.monotonic() < deadline:
            time.sleep(0.01)  # what waited for an answer beside it ends when it has its turn
        assert n_threads() <= before
    finally:
        gc.enable()
        asked.close()


class Outputs(list[Outgoing]):
    """A list that can be referred to weakly."""


def n_threads() -> int:
    """Those of clients included, which are none of the interpreter's."""
    return len(os.listdir("/proc/self/task"))


def test_a_timestamp_is_published_as_it_is_and_never_the_time_of_day() -> None:
    """What is published again must be equal; librdkafka has its own clock in place of a zero."""
    _cluster, bootstrap = start_mock_cluster(["predictions"])
    output = KafkaOutput(config_on(bootstrap), None)
    stamps = [-1, -7, 0, 1, 1_700_000_000_000]
    output.publish([Outgoing("predictions", b"k", b"v", [], stamp) for stamp in stamps], {}, Membership("", None))
    output.close()
    found = [message.timestamp for message in read_all(bootstrap, "predictions", until=5)]
    assert found == [-1, -7, 1, 1, 1_700_000_000_000]


@pytest.mark.kafka
def test_a_record_without_a_timestamp_has_none_through_a_broker_however_often_it_is_published(
    broker: Broker, topics: Names
) -> None:
    events, predictions, stamps = topics.create("events"), topics.create("predictions"), [-1, 1, 1_700_000_000_000]
    config = config_on(broker.bootstrap, named(topics))
    client = Producer({"bootstrap.servers": broker.bootstrap})
    for stamp in stamps:
        client.produce(events, b"v", b"k", timestamp=stamp)
    client.flush()
    source, records, deadline = KafkaInput(config), list[Record](), time.monotonic() + 30
    source.assign({0: 0})
    while len(records) < len(stamps):
        assert time.monotonic() < deadline
        records += source.consume(100, 0.1)[0].get(0, [])
    for _ in range(2):
        output = KafkaOutput(config, topics.name("transactional"))
        outgoing = [Outgoing(predictions, each.key, each.value, [], each.timestamp_ms) for each in records]
        output.publish(outgoing, {}, source.membership())
        output.close()
    source.close()
    assert [message.timestamp for message in read_all(broker.bootstrap, predictions, until=6)] == stamps * 2
