"""Forwarders against a broker in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput
from tests.worker.support.fakes import FakeClock, Faults, Hook, config
from worker.base.metrics import Metrics
from worker.base.records import Outgoing
from worker.base.status import Board
from worker.config import repartition
from worker.repartition.forwarder import Forwarder
from worker.repartition.model_key import key_reader

INTERNAL = "group--events-repartition"
MAX_MESSAGE_BYTES = 10_000


class ForwarderBench:
    """A broker, and forwarders of the field `shop`."""

    def __init__(self, partitions: int = 1, *, max_consecutive: int = 1000, **settings: Any) -> None:
        given = config(max_consecutive=max_consecutive)
        of_input = replace(given.input, model_key="field:shop", repartition=True, **settings)
        self.config = repartition.of_forwarder(replace(given, input=of_input))
        self.clock = FakeClock()
        self.partitions = partitions
        self.broker = Broker(partitions, self.clock)

    def feed(self, *values: bytes | None, partition: int = 0) -> None:
        for value in values:
            self.broker.logs[partition].append(b"record key", value, [("trace", b"t")])

    def feed_shops(self, *shops: str, partition: int = 0) -> None:
        self.feed(*(b'{"shop": "%s"}' % shop.encode() for shop in shops), partition=partition)

    def forwarder(self, name: str = "one") -> BoundForwarder:
        return BoundForwarder(self, name)

    def forwarded(self) -> list[tuple[bytes | None, int, int]]:
        """Key, partition and offset of origin of what is in the internal topic."""
        return [(each.key, *origin(each)) for each in self.broker.published if each.topic == INTERNAL]


class BoundForwarder:
    """A forwarder with clients and metrics of its own; `faults` meets all its calls."""

    def __init__(
        self, bench: ForwarderBench, name: str, hook: Hook | None = None, metrics: Metrics | None = None
    ) -> None:
        self.faults = Faults()
        self.metrics = metrics or Metrics()
        self.board = Board()
        self.outputs: list[FakeOutput] = []
        self.input = FakeInput(bench.broker, hook or self.faults)
        self._bench = bench
        self.forwarder = Forwarder(
            bench.config,
            key_reader(bench.config),
            MAX_MESSAGE_BYTES,
            bench.partitions,
            self.input,
            lambda: self._opened(FakeOutput(bench.broker, name, hook or self.faults)),
            self.metrics,
            bench.clock,
            self.board,
        )
        self.start = self.forwarder.start
        self.assigned = self.forwarder.assigned
        self.turn = self.forwarder.turn
        self.close = self.forwarder.close
        self.run = self.forwarder.run

    def _opened(self, output: FakeOutput) -> FakeOutput:
        self.outputs.append(output)
        return output

    def join(self, *partitions: int) -> BoundForwarder:
        """Become a member and take partitions, all if none is named."""
        self.start()
        self._bench.broker.group.rebalance(dict.fromkeys(partitions or self._bench.broker.logs, self.input))
        return self

    def turns(self, n: int) -> BoundForwarder:
        for _ in range(n):
            self.turn()
        return self


def origin(outgoing: Outgoing) -> tuple[int, int]:
    headers = dict(outgoing.headers)
    return int(headers["origin-partition"] or b""), int(headers["origin-offset"] or b"")
