"""Adapter to Kafka: the only folder that knows confluent_kafka. It translates records, topics and errors, and decides
nothing: what an error means is said by `errors.decision`, what follows from that is the runtime's.
"""

from worker.kafka.admin import KafkaAdmin, require_topics
from worker.kafka.consumer import KafkaInput
from worker.kafka.errors import decision
from worker.kafka.internal import make_internal_topic
from worker.kafka.mock import start_mock_cluster
from worker.kafka.producer import KafkaOutput, transactional_id
from worker.kafka.publisher import KafkaPublisher
from worker.kafka.topic import KafkaTopic

__all__ = [
    "KafkaAdmin",
    "KafkaInput",
    "KafkaOutput",
    "KafkaPublisher",
    "KafkaTopic",
    "decision",
    "make_internal_topic",
    "require_topics",
    "start_mock_cluster",
    "transactional_id",
]
