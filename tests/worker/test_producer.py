"""The producer of outputs, without a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError

from tests.worker.support.fakes import config
from worker.adapters.kafka.producer import KafkaOutput
from worker.base.records import Outgoing


def test_without_transactions_it_is_noted_what_is_not_delivered() -> None:
    output = KafkaOutput(config(delivery="at-least-once"), None)
    output._send([Outgoing("predictions", b"key", b"value", [("spec", b"1")], 1_000)])
    output._producer.purge()
    output._producer.flush(10)
    assert output._failed is not None
    assert output._failed.code() == KafkaError._PURGE_QUEUE
    output.close()
