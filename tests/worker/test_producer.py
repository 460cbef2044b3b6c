"""The producer of outputs, without a broker."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from confluent_kafka import KafkaError

from tests.worker.support.fakes import config
from worker.adapters.kafka.producer import KafkaOutput, _allowed, transactional_id
from worker.base.records import Outgoing


def test_without_transactions_it_is_noted_what_is_not_delivered() -> None:
    output = KafkaOutput(config(delivery="at-least-once"), None)
    output._send([Outgoing("predictions", b"key", b"value", [("spec", b"1")], 1_000)])
    output._producer.purge()
    output._producer.flush(10)
    assert output._failed is not None
    assert output._failed.code() == KafkaError._PURGE_QUEUE
    output.close()


@pytest.mark.parametrize(
    ("name", "needed"),
    [("one", "group:one"), ("", "group: (a prefix: without kafka.group.instance.id each start has another)")],
)
def test_what_an_acl_must_name_stays_from_start_to_start(name: str, needed: str) -> None:
    settings = config()
    kafka = {**settings.kafka, "group.id": "group", "group.instance.id": name}
    settings = replace(settings, kafka=MappingProxyType({key: value for key, value in kafka.items() if value}))
    assert _allowed(settings, transactional_id(settings)) == needed
