"""Whether librdkafka takes the properties of a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from worker.adapters.kafka.errors import PropertyRefused, client
from worker.base.errors import ConfigError
from worker.config import Config


def require_properties(config: Config) -> None:
    """Raises ConfigError for a property that a client of this configuration refuses. No broker is asked."""
    for kind, properties in (
        (Consumer, config.consumer_properties()),
        (Producer, config.producer_properties("any")),
        (AdminClient, config.admin_properties()),
    ):
        with placing(config):
            made = client(kind, {name: value for name, value in properties.items() if name != "bootstrap.servers"})
        if isinstance(made, Consumer):
            made.close()


@contextmanager
def placing(config: Config) -> Iterator[None]:
    """A property that a client of this configuration refuses has its place in the error."""
    try:
        yield
    except PropertyRefused as error:
        name = _meant(str(error), config.kafka_origins)
        if name is None:
            raise
        raise ConfigError(f"{config.kafka_origins[name].place}: {error}") from error


def _meant(said: str, names: Iterable[str]) -> str | None:
    """The property that librdkafka speaks of: the longest that it names, be it with blanks in place of dots."""
    words = re.sub(r"\W+", " ", f" {said} ".lower())
    return max((name for name in names if re.sub(r"\W+", " ", f" {name} ") in words), key=len, default=None)
