"""A batch that is larger than the client takes when it is decompressed: a few kilobytes that no client gets past."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.kafka.workers import WorkerProcess

WITHIN_S = 60.0
EVENT = b'{"features": [1.5], "label": "a"}'


def test_records_that_cannot_be_decompressed_stop_the_partition_by_name_until_there_is_room(
    broker: Broker, topics: Names, tmp_path: Path
) -> None:
    events, predictions, *_ = (topics.create(kind) for kind in ("events", "predictions", "dead"))
    properties = {
        "compression.type": "zstd",
        "linger.ms": 500,
        "message.max.bytes": 10_000_000,
        "batch.size": 10_000_000,
    }
    producer = Producer({"bootstrap.servers": broker.bootstrap, **properties})
    producer.produce(events, EVENT, b"key")
    assert producer.flush(WITHIN_S) == 0
    for _ in range(4):
        producer.produce(events, EVENT + b" " * 900_000, b"key")
    assert producer.flush(WITHIN_S) == 0
    config = tmp_path / "worker.yaml"

    def configure(most_bytes: int) -> None:
        properties = {"fetch.max.bytes": 1_000_000, "receive.message.max.bytes": most_bytes}
        config.write_text(configuration(broker.bootstrap, tmp_path, named(topics), {"kafka": properties}))

    configure(2_000_000)
    with WorkerProcess(config, tmp_path / "one.log") as worker:
        assert worker.process.wait(WITHIN_S) == 1
        assert "unreadable-records: " in worker.log()
        assert "kafka.receive.message.max.bytes" in worker.log()
    assert len(read_all(broker.bootstrap, predictions, until=1)) == 1
    configure(20_000_000)
    with WorkerProcess(config, tmp_path / "two.log"):
        assert len(read_all(broker.bootstrap, predictions, until=5)) == 5
