"""Fixtures of the tests that need a real broker; each such test is marked `kafka`."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator, Mapping

import pytest

from tests.availability import Unavailable, give_up
from tests.kafka.broker import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"broker", "own_broker", "secured"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@contextlib.contextmanager
def running_broker(*, own: bool) -> Iterator[Broker]:
    try:
        with Broker(own=own) as broker:
            yield broker
    except Unavailable as reason:
        give_up(f"no Kafka broker to test against: {reason}")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for the whole run."""
    with running_broker(own=False) as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker of this test alone, to stop and to kill; it takes some seconds to come up."""
    with running_broker(own=True) as broker:
        yield broker


class Names:
    """Names that no other test has, for topics, groups and transactional ids."""

    def __init__(self, broker: Broker, test: str) -> None:
        self._broker = broker
        self._stem = f"{re.sub(r'[^a-zA-Z0-9]+', '-', test)[:60]}-{uuid.uuid4().hex[:8]}"

    def name(self, kind: str) -> str:
        """The name of this test's `kind`: the same each time it is asked for."""
        return f"{self._stem}-{kind}"

    def create(self, kind: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create the topic of that name and return it."""
        self._broker.create_topic(self.name(kind), partitions, config)
        return self.name(kind)


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> Names:
    return Names(broker, request.node.name)
