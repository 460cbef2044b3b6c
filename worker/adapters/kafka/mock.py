"""The embedded broker of the demo: librdkafka's mock cluster. Its transactions are not atomic, so it proves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer

from worker.adapters.kafka.errors import CALL_S, client

MOCK_CLUSTER = "mockCluster"
"""What the id of a mock cluster of librdkafka begins with. It has no controller, which admin requests wait for."""


def is_mock(cluster: Any) -> bool:
    return (cluster.cluster_id or "").startswith(MOCK_CLUSTER)


def start_mock_cluster(topics: Iterable[str]) -> tuple[object, str]:
    """A mock cluster with these topics, alive as long as the client that is returned with its bootstrap servers.

    It is librdkafka's own, for tests: one broker, 4 partitions a topic, of each the last 5 MB in memory; committed
    offsets are kept, transactions are accepted but not atomic.
    """
    broker: Producer = client(Producer, {"test.mock.num.brokers": "1"})
    for topic in topics:
        broker.list_topics(topic, timeout=CALL_S)  # to ask for a topic makes it
    [address] = broker.list_topics(timeout=CALL_S).brokers.values()
    return broker, f"{address.host}:{address.port}"
