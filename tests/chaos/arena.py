"""One run: workers in a cluster and a stream of events, with what faults need to aim and the verdict at the end."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from confluent_kafka import KafkaException

from tests.chaos.cluster import EVENTS, Cluster
from tests.chaos.events import Generator
from tests.chaos.fleet import Fleet
from tests.chaos.oracle import Verdict, judge
from tests.kafka.broker import committed_offsets

T = TypeVar("T")

PROGRESS_WITHIN_S = 90.0
"""A healed system publishes again within this time: session, transaction and replay, one after the other, fit in."""
START_WITHIN_S = 300.0
"""The first worker on a machine compiles its kernels."""
POLL_S = 0.1
FIRST_PER_PARTITION = 50


class Arena:
    """A running system under a rate of events. `rng` is the source of all choices of the fault that is under way.

    `outage_s` is how long those faults last that are about a long time.
    """

    def __init__(
        self, cluster: Cluster, seed: int, *, workers: int = 3, rate: float = 300.0, outage_s: float = 30.0
    ) -> None:
        self.cluster = cluster
        self.fleet = Fleet(cluster)
        self.rng = random.Random(seed)
        self.outage_s = outage_s
        self.workers = [f"w{n}" for n in range(workers)]
        """Those of the first hour; when a fault is over they all run."""
        self._seed, self._rate = seed, rate
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.fleet)
            self.generator = Generator(self.cluster.bootstrap, self._seed, self._rate)
            # There is work before there are workers: whoever waits for progress waits for all partitions.
            self.generator.send(FIRST_PER_PARTITION * self.cluster.setup.partitions)
            self.generator.flush()
            for name in self.workers:
                self.fleet.start(name)
            self._generating = opened.enter_context(contextlib.ExitStack())
            self._generating.enter_context(self.generator)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def out_of_session_s(self) -> float:
        """After this much silence a worker has left the group for sure."""
        return self.cluster.setup.session_s + 4.0

    def victim(self) -> str:
        """One of the workers of the first hour."""
        return self.rng.choice(self.workers)

    def committed(self, *, settled: bool = True) -> dict[int, int]:
        """Offsets of the group; if `settled`, once no open transaction can change them."""
        bootstrap, group = self.cluster.bootstrap, self.cluster.setup.group
        return self._patiently(lambda: committed_offsets(bootstrap, group, EVENTS, settled=settled))

    def has_committed(self, known: Mapping[int, int]) -> bool:
        """Whether the broker knows that the group has come so far."""
        now = self.committed(settled=False)
        return all(now.get(number, 0) >= offset for number, offset in known.items())

    def await_progress(self, within_s: float = PROGRESS_WITHIN_S) -> None:
        """Wait until every partition has moved on, or has nothing left. Raises TimeoutError: something is stuck."""
        before, ends = self.committed(), self._patiently(lambda: self.cluster.ends(EVENTS))

        def moved() -> bool:
            self.fleet.supervise()
            now = self.committed()
            each = (now.get(n, 0) > before.get(n, 0) or now.get(n, 0) >= end for n, end in ends.items())
            return now != before and all(each)

        self.wait(moved, within_s, lambda: f"no progress: {before}, then {self.committed()}")

    def await_settled(self) -> None:
        """Wait until every partition is live and the workers share them evenly: nothing is about to change hands."""

        def settled() -> bool:
            self.fleet.supervise()
            try:
                states = self.fleet.metric("amf_partition_state")
            except OSError:
                return False  # one of them has only just come, or gone
            owners = Counter(labels["worker"] for labels, value in states if labels["state"] == "live" and value)
            shares = [owners[name] for name in self.fleet.names]
            return sum(shares) == self.cluster.setup.partitions and max(shares) - min(shares) <= 1

        self.wait(settled, START_WITHIN_S, lambda: f"partitions are not settled: {self.fleet.names}")

    def finish(self) -> Verdict:
        """End the stream, let everything be worked off, stop all workers in order, and judge."""
        self._generating.close()
        ends = self.cluster.ends(EVENTS)

        def done() -> bool:
            self.fleet.supervise()
            return self.committed() == {n: end for n, end in ends.items() if end}

        self.wait(done, 2 * PROGRESS_WITHIN_S, lambda: f"not worked off: {self.committed()} of {ends}")
        self.stop_workers()
        return judge(self.cluster)

    def stop_workers(self) -> list[str]:
        """Stop all that are there, in order; returns who they were."""
        names = self.fleet.names
        for name in names:
            self.fleet.terminate(name)
        return names

    @staticmethod
    def _patiently(ask: Callable[[], T]) -> T:
        """An answer from a broker that may have just come back, and looks for its coordinators and leaders first."""
        deadline = time.monotonic() + PROGRESS_WITHIN_S
        while True:
            try:
                return ask()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    @staticmethod
    def wait(condition: Callable[[], bool], timeout_s: float, problem: Callable[[], str]) -> None:
        """Wait for something. Raises TimeoutError that says what the problem is."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(problem())
            time.sleep(POLL_S)
