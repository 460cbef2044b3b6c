"""One run: workers in a cluster and a stream of events, with what faults need to aim and the verdict at the end."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from tests.chaos.cluster import EVENTS, Cluster
from tests.chaos.events import Generator
from tests.chaos.fleet import Fleet
from tests.chaos.oracle import Verdict, judge
from tests.kafka.broker import committed_offsets

PROGRESS_WITHIN_S = 90.0
"""A healed system publishes again within this time: session, transaction and replay, one after the other, fit in."""
START_WITHIN_S = 300.0
"""The first worker on a machine compiles its kernels."""
POLL_S = 0.1


class Arena:
    """A running system under a rate of events. `rng` is the source of all choices of the fault that is under way."""

    def __init__(self, cluster: Cluster, seed: int, *, workers: int = 3, rate: float = 300.0) -> None:
        self.cluster = cluster
        self.fleet = Fleet(cluster)
        self.rng = random.Random(seed)
        self._seed, self._rate = seed, rate
        self._workers = [f"w{n}" for n in range(workers)]
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.fleet)
            for name in self._workers:
                self.fleet.start(name)
            self.generator = Generator(self.cluster.bootstrap, self._seed, self._rate)
            self._generating = opened.enter_context(contextlib.ExitStack())
            self._generating.enter_context(self.generator)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def victim(self) -> str:
        """One of the workers of the first hour."""
        return self.rng.choice(self._workers)

    def committed(self) -> dict[int, int]:
        """Offsets of the group, once no open transaction can change them."""
        deadline = time.monotonic() + PROGRESS_WITHIN_S
        while True:
            try:
                return committed_offsets(self.cluster.bootstrap, self.cluster.setup.group, EVENTS)
            except KafkaException:
                # A broker that has just come back looks for its coordinators first.
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def await_progress(self, within_s: float = PROGRESS_WITHIN_S) -> None:
        """Wait until every partition has moved on. Raises TimeoutError: something is stuck."""
        before = self.committed()
        numbers = range(self.cluster.setup.partitions)

        def moved() -> bool:
            self.fleet.supervise()
            now = self.committed()
            return all(now.get(n, 0) > before.get(n, 0) for n in numbers)

        self._await(moved, within_s, lambda: f"no progress: {before}, then {self.committed()}")

    def finish(self) -> Verdict:
        """End the stream, let everything be worked off, stop all workers in order, and judge."""
        self._generating.close()
        ends = self.cluster.ends(EVENTS)

        def done() -> bool:
            self.fleet.supervise()
            return self.committed() == {n: end for n, end in ends.items() if end}

        self._await(done, 2 * PROGRESS_WITHIN_S, lambda: f"not worked off: {self.committed()} of {ends}")
        for name in self.fleet.names:
            self.fleet.terminate(name)
        return judge(self.cluster)

    @staticmethod
    def _await(condition: Callable[[], bool], timeout_s: float, problem: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(problem())
            time.sleep(POLL_S)
