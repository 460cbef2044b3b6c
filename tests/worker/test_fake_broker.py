"""The broker of the simulation does what a broker does."""

from __future__ import annotations

import pytest

from tests.worker.support.broker_contract import LARGEST_BYTES, BrokerContract
from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput
from tests.worker.support.fakes import FakeClock


class InMemory:
    """A cluster in memory. What takes time in a real one is done when it is polled."""

    output_topic = "predictions"

    def __init__(self) -> None:
        self.broker = Broker(2, FakeClock())
        self.broker.refuses = lambda outgoing: len(outgoing.value or b"") > LARGEST_BYTES
        self._generation = 0

    def consumer(self) -> FakeInput:
        return FakeInput(self.broker)

    def producer(self, identity: str) -> FakeOutput:
        return FakeOutput(self.broker, identity)

    def append(self, partition: int, n: int) -> None:
        for _ in range(n):
            self.broker.logs[partition].append(b"key", b"value")

    def delete_before(self, partition: int, offset: int) -> None:
        self.broker.logs[partition].low = offset

    def published(self, at_least: int) -> list[bytes | None]:
        assert len(self.broker.published) >= at_least
        return [outgoing.value for outgoing in self.broker.published]

    def settle(self) -> None:
        group = self.broker.group
        if group.members and group.generation != self._generation:
            group.rebalance({number: group.members[number % len(group.members)] for number in self.broker.logs})
            self._generation = group.generation


class TestInMemory(BrokerContract):
    @pytest.fixture
    def cluster(self) -> InMemory:
        return InMemory()
