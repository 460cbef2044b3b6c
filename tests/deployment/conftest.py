"""A broker of its own, as in the tests of the worker with Kafka."""

from tests.kafka.conftest import own_broker

__all__ = ["own_broker"]
