"""The benchmarks' reader and producer, on a real broker."""

from __future__ import annotations

from itertools import pairwise

from confluent_kafka import Message, Producer

from tests.benchmarks.worker.output_reader import Tail, ends, read
from tests.benchmarks.worker.paced_producer import Pacer
from tests.benchmarks.worker.testbed import wait_for

WITHIN_S = 60.0


def publish(producer: Producer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(WITHIN_S)
    if commit:
        producer.commit_transaction(WITHIN_S)
    else:
        producer.abort_transaction(WITHIN_S)


def test_a_reader_sees_committed_records_alone_and_from_the_end_only_new_ones(broker, topics):
    topic = topics.create("predictions", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topics.name("writer")})
    producer.init_transactions(WITHIN_S)
    publish(producer, topic, [b"old"] * 20, commit=True)
    publish(producer, topic, [b"aborted"] * 20, commit=False)
    everything: list[bytes | None] = []
    fresh: list[bytes | None] = []

    def into(values: list[bytes | None]):
        return lambda now, records: values.extend(record.value() for record in records)

    with (
        Tail(broker.bootstrap, topic, into(everything)),
        Tail(broker.bootstrap, topic, into(fresh), from_end=True),
    ):
        publish(producer, topic, [b"new"] * 20, commit=True)
        wait_for("all records", lambda: len(everything) >= 40 and len(fresh) >= 20, WITHIN_S)
    assert sorted(everything, key=bytes) == [b"new"] * 20 + [b"old"] * 20
    assert fresh == [b"new"] * 20
    again = [record.value() for records in read(broker.bootstrap, topic) for record in records]
    assert sorted(again) == sorted(everything, key=bytes)


def test_events_are_stamped_with_the_moment_at_which_they_are_due(broker, topics):
    topic = topics.create("events", partitions=2)
    with Pacer(broker.bootstrap, topic, rate=500, seconds=1) as pacer:
        result = pacer.result()
    assert result["sent"] == 500 == sum(ends(broker.bootstrap, topic))
    records: list[Message] = [record for some in read(broker.bootstrap, topic) for record in some]
    stamps = sorted(record.timestamp()[1] for record in records)
    assert stamps[-1] - stamps[0] in (997, 998, 999)
    steps = {later - earlier for earlier, later in pairwise(stamps)}
    assert steps <= {1, 2, 3}
