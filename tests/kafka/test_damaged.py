"""A bit of a partition's log that has turned: a batch fails its checksum, and the client loses its way behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker, committed_offsets, read_all
from tests.kafka.configurations import configuration
from tests.kafka.forgetful import ForgetfulBroker, forgetful_broker
from tests.kafka.workers import WorkerProcess, source_of, within

pytestmark = pytest.mark.kafka

WITHIN_S = 60.0
EVENTS, DAMAGED, BESIDE = 500, 100, 20


@pytest.fixture
def broker() -> Iterator[ForgetfulBroker]:
    with forgetful_broker(partitions=2) as broker:
        yield broker


def feed(broker: Broker, partition: int, n: int, padding: int) -> None:
    """Batches of one event each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for i in range(n):
        event = {"label": "ab"[i % 2], "n": f"event-{i:03d}", "features": [0.0] * 40, "id": f"{i:03d}" + "." * padding}
        producer.produce("events", msgspec.msgpack.encode(event), b"key", partition)
    assert producer.flush(WITHIN_S) == 0


@pytest.mark.parametrize("padding", [1, 64, 200])
def test_a_batch_that_fails_its_checksum_stops_its_partition_and_no_other(
    broker: ForgetfulBroker, padding: int, tmp_path: Path
) -> None:
    """What the client says after that error is other batches' content: offsets that are anything, or nothing at all."""
    config = tmp_path / "worker.yaml"
    config.write_text(configuration(broker.bootstrap, tmp_path, {"input": {"codec": "msgpack"}}))
    feed(broker, 0, EVENTS, padding)
    feed(broker, 1, BESIDE, padding)
    broker.damage(b"event-%03d" % DAMAGED)
    with WorkerProcess(config, tmp_path / "one.log") as worker:
        within(WITHIN_S, worker, lambda: "events[0]: the next records are damaged" in worker.log())
        feed(broker, 1, BESIDE, padding)
        read_all(broker.bootstrap, "predictions", until=DAMAGED + 2 * BESIDE)  # the other partition goes on
        worker.terminate()
        assert worker.log().count("events[0]") < 20
    assert committed_offsets(broker.bootstrap, "group", "events") == {0: DAMAGED, 1: 2 * BESIDE}
    sources = sorted(source_of(message) for message in read_all(broker.bootstrap, "predictions"))
    assert sources == [(0, i) for i in range(DAMAGED)] + [(1, i) for i in range(2 * BESIDE)]
    assert read_all(broker.bootstrap, "dead") == []
