"""The producer of records from outside of Kafka, with a client that does as it is told."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.worker.support.fakes import config
from worker.adapters.kafka import publisher as adapter
from worker.adapters.kafka.publisher import POLL_EVERY_RECORDS, KafkaPublisher
from worker.base.errors import Fatal


class Client:
    """A client whose queue has room for so many records, of which a poll delivers one."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.queue: list[tuple[Any, ...]] = []
        self.taken: list[tuple[Any, ...]] = []
        self.fault: KafkaError | None = None
        """What the next delivery fails of."""
        self.illness: KafkaException | None = None
        self.is_stuck = self.was_purged = False

    def produce(self, topic: str, value: Any, key: Any, *, on_delivery: Any, timestamp: int) -> None:
        if len(self.queue) == self.room:
            raise BufferError
        if value == b"refused":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
        self.queue.append((on_delivery, (topic, key, value, timestamp)))

    def poll(self, _: float) -> None:
        if self.illness is not None:
            raise self.illness
        if self.queue and not self.is_stuck:
            report, record = self.queue.pop(0)
            report(self.fault, None)
            self.taken += [record] if self.fault is None else []

    def purge(self) -> None:
        self.was_purged = True
        if self.illness is not None:
            raise self.illness

    def flush(self, _: float) -> None: ...


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(2)
    monkeypatch.setattr(adapter, "client", lambda *_: made)
    monkeypatch.setattr(adapter, "STALL_S", 0.2)
    monkeypatch.setattr(adapter, "_LOOK_EVERY_S", 0.0)
    return made


def test_all_records_come_once_and_in_order_however_small_the_queue_is(client: Client) -> None:
    publisher = KafkaPublisher(config(), "events")
    records = [(b"k", b"%d" % n, n) for n in range(9)]
    for key, value, time_ms in records:
        publisher.send(key, value, time_ms)
    publisher.send(None, None)
    publisher.finish()
    # A time of 0 is the time of sending.
    assert client.taken == [*(("events", *record) for record in records), ("events", None, None, 0)]
    assert publisher.delivered == len(client.taken)
    publisher.finish()


def test_deliveries_are_noted_now_and_then_while_the_queue_has_room(client: Client) -> None:
    client.room = 10_000
    publisher = KafkaPublisher(config(), "events")
    for _ in range(3 * POLL_EVERY_RECORDS):
        publisher.send(b"k", b"v")
    assert publisher.delivered == 3


def test_what_is_not_delivered_is_counted_and_dropped(client: Client) -> None:
    client.room = 3
    publisher = KafkaPublisher(config(), "events")
    for _ in range(3):
        publisher.send(b"k", b"v")
    client.fault = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized")
    why = "3 of 3 records for events were not delivered: produce: not authorized; .* WRITE on topic events"
    with pytest.raises(Fatal, match=why):
        publisher.finish()
    assert client.was_purged
    client.fault = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "a later one")
    with pytest.raises(Fatal, match="not authorized"):
        publisher.wait(0)


def test_a_record_that_the_client_does_not_take_is_named(client: Client) -> None:
    publisher = KafkaPublisher(config(), "events")
    with pytest.raises(Fatal, match="1 of 1 records for events were not delivered: produce: too large"):
        publisher.send(b"k", b"refused")


@pytest.mark.parametrize("room", [2, 10])
def test_a_broker_that_takes_nothing_is_not_waited_for_without_end(client: Client, room: int) -> None:
    client.is_stuck, client.room = True, room
    publisher = KafkaPublisher(config(), "events")

    def send() -> None:
        for _ in range(4):
            publisher.send(b"k", b"v")
        publisher.finish()

    with pytest.raises(Fatal, match=r"the broker took nothing for 0\.2 s"):
        send()


def test_a_client_that_is_fatally_ill_says_so(client: Client) -> None:
    publisher = KafkaPublisher(config(), "events")
    publisher.send(b"k", b"v")
    client.illness = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    with pytest.raises(Fatal, match="1 of 1 records for events were not delivered: produce: fenced"):
        publisher.finish()
