"""The yardstick of the end-to-end benchmark: a transactional pass-through loop with nothing in it but the pass-through.

It consumes, decodes, encodes the same payload and headers as the worker (with constant figures), produces, and commits
offsets and outputs in one transaction. It does not learn and handles no rebalance and no error: what it reaches is the
most that a single-threaded loop in Python gets out of this client and this broker.

    python -m tests.benchmarks.worker.pass_through [EVENTS]

With the arguments BOOTSTRAP SOURCE SINK BATCH_S it goes on until it is killed, and starts at the end of the source.
"""

from __future__ import annotations

import sys
import time
import uuid

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.benchmarks.peers.process import Peer
from tests.benchmarks.worker.workload import load
from tests.kafka.broker import Broker

EVENTS = 300_000
PARTITIONS = 4
BATCH_RECORDS = 10_000
BATCH_S = 0.1
"""A batch is one transaction. At full speed 10,000 records are about 100 ms of work."""
WARM_UP = 0.2
"""Share of the events before the clock starts: joining the group and filling the queues are not throughput."""

PROBABILITIES = {"0": 0.43021587301587305, "1": 0.569784126984127}
LOSS = 0.5624977366432917
MODEL_HEADERS = [("spec", b"0123456789abcdef" * 4), ("engine", b"amf-1"), ("lineage", b"main")]


class Event(msgspec.Struct, gc=False):
    features: dict[str, float | None] | list[float | None]
    label: str | int | bool | None = None
    id: str | None = None


class Prediction(msgspec.Struct, gc=False):
    id: str | None
    model: str
    prediction: str | int | bool | None
    probabilities: dict[str, float]
    label: str | int | bool | None
    loss: float
    learned: int


decode = msgspec.json.Decoder(Event).decode
encode = msgspec.json.Encoder().encode


def pass_through(bootstrap: str, source: str, sink: str, n: int) -> float:
    """Pass `n` records of `source` on to `sink`, exactly once; returns events/s once warmed up."""
    consumer, producer = _clients(bootstrap, "earliest")
    consumer.subscribe([source])
    try:
        passed, started_at, started = 0, 0, 0.0
        while passed < n:
            passed += _batch(consumer, producer, sink, BATCH_S)
            if not started and passed >= WARM_UP * n:
                started_at, started = passed, time.perf_counter()
        return (passed - started_at) / (time.perf_counter() - started)
    finally:
        consumer.close()


class Endless(Peer):
    """The loop in a process of its own, with a batch every so many seconds, until the context ends."""

    def __init__(self, bootstrap: str, source: str, sink: str, batch_s: float) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.worker.pass_through", bootstrap, source, sink, str(batch_s)]
        super().__init__("the bare loop", command)


def _pass_for_ever(bootstrap: str, source: str, sink: str, batch_s: float) -> None:
    consumer, producer = _clients(bootstrap, "latest")
    consumer.subscribe([source], on_assign=lambda *_: print("{}", flush=True))
    while True:
        _batch(consumer, producer, sink, batch_s)


def _clients(bootstrap: str, start: str) -> tuple[Consumer, Producer]:
    name = f"passthrough-{uuid.uuid4().hex[:8]}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": start,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "cooperative-sticky",
            "check.crcs": True,
            "fetch.queue.backoff.ms": 100,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "log_level": 3,  # a fresh broker makes librdkafka retry its first request, and warn of it
        }
    )
    producer.init_transactions(30)
    return consumer, producer


def _batch(consumer: Consumer, producer: Producer, sink: str, batch_s: float) -> int:
    """How many records there were to pass on."""
    records = consumer.consume(BATCH_RECORDS, batch_s)
    if records:
        _transact(consumer, producer, sink, records)
    return len(records)


def _transact(consumer: Consumer, producer: Producer, sink: str, records: list[Message]) -> None:
    """Publish the outputs of one batch and commit its offsets, both or neither."""
    producer.begin_transaction()
    following: dict[tuple[str, int], int] = {}
    for record in records:
        if error := record.error():
            raise KafkaException(error)
        key, offset = record.key(), record.offset()
        source = record.topic(), record.partition()
        event = decode(record.value())
        output = Prediction(event.id, key.decode(), event.label, PROBABILITIES, event.label, LOSS, offset)
        headers = [
            *(record.headers() or ()),
            ("source-topic", source[0].encode()),
            ("source-partition", b"%d" % source[1]),
            ("source-offset", b"%d" % offset),
            *MODEL_HEADERS,
        ]
        producer.produce(sink, encode(output), key, headers=headers, timestamp=record.timestamp()[1])
        following[source] = offset + 1
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in following.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
    producer.commit_transaction(10)


def main() -> None:
    if len(sys.argv) > 2:
        bootstrap, source, sink, batch_s = sys.argv[1:]
        _pass_for_ever(bootstrap, source, sink, float(batch_s))
    n = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with Broker() as broker:
        source, sink = (f"passthrough-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("in", "out"))
        broker.create_topic(source, PARTITIONS)
        broker.create_topic(sink, PARTITIONS)
        load(broker.bootstrap, source, n)
        print(f"bare transactional pass-through: {pass_through(broker.bootstrap, source, sink, n):,.0f} events/s")


if __name__ == "__main__":
    main()
