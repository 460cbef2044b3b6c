"""Adapter to Kafka: the only folder that knows confluent_kafka. It translates records, topics and errors, and decides
nothing: what an error means is said by `errors.decision`, what follows from that is the runtime's.
"""

from worker.adapters.kafka.admin import KafkaAdmin, require_topics
from worker.adapters.kafka.consumer import KafkaInput
from worker.adapters.kafka.errors import decision
from worker.adapters.kafka.group import KafkaGroup
from worker.adapters.kafka.internal import make_internal_topic
from worker.adapters.kafka.mock import start_mock_cluster
from worker.adapters.kafka.offsets import Offsets
from worker.adapters.kafka.producer import KafkaOutput, transactional_id
from worker.adapters.kafka.properties import placing, require_properties
from worker.adapters.kafka.publisher import KafkaPublisher
from worker.adapters.kafka.topic import KafkaTopic

__all__ = [
    "KafkaAdmin",
    "KafkaGroup",
    "KafkaInput",
    "KafkaOutput",
    "KafkaPublisher",
    "KafkaTopic",
    "Offsets",
    "decision",
    "make_internal_topic",
    "placing",
    "require_properties",
    "require_topics",
    "start_mock_cluster",
    "transactional_id",
]
