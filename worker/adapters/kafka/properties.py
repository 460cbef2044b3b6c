"""Whether librdkafka takes the properties of a configuration."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from worker.adapters.kafka.errors import client
from worker.config import Config


def require_properties(config: Config) -> None:
    """Raises ConfigError for a property that a client of this configuration refuses. No broker is asked."""
    for kind, properties in (
        (Consumer, config.consumer_properties()),
        (Producer, config.producer_properties("any")),
        (AdminClient, config.admin_properties()),
    ):
        made = client(kind, {name: value for name, value in properties.items() if name != "bootstrap.servers"})
        if isinstance(made, Consumer):
            made.close()
