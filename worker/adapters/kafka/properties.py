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
from worker.config.kafka import ALIASES
from worker.config.text import MASK

_OF_FILES = (".location", ".file")
"""How the properties end that name a file."""


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
        raise ConfigError(f"{config.kafka_origins[name].place}: {_about_file(config, name, error)}") from error


def _about_file(config: Config, name: str, error: PropertyRefused) -> str:
    """What is wrong with a property; of one that names a file, with that, of which OpenSSL says "BIO lib" at most."""
    if not name.endswith(_OF_FILES):
        return str(error)
    path = config.kafka[name]
    try:
        with open(path, "rb"):
            fault = f"is it PEM, of what is asked for, and its password the right one? {error}"
    except (OSError, ValueError) as unreadable:
        fault = (isinstance(unreadable, OSError) and unreadable.strerror) or "this is no path"
    shown = MASK if config.kafka_origins[name].is_reference else path
    return f"kafka.{name}: the file {shown} cannot be used: {fault}"


def _meant(said: str, names: Iterable[str]) -> str | None:
    """The property that librdkafka speaks of: the longest that it names, by either name, be it with blanks for dots."""
    words = re.sub(r"\W+", " ", f" {said} ".lower())
    spoken = {name: re.sub(r"\W+", " ", f" {ALIASES.get(name, name)} ") for name in names}
    return max((name for name in spoken if spoken[name] in words), key=lambda name: len(spoken[name]), default=None)
