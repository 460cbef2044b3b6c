"""Partitions that were assigned and are not at work yet: their start is found, their models are loaded.

That is done by threads of their own, again and again until it succeeds, while the loop goes on with the others: a store
that does not answer holds up no rebalance and no prediction. Nothing is read of a partition meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from worker.errors import PartitionStopped, StateLost, Transient
from worker.keeper import Keeper
from worker.partition import Partition
from worker.ports import Clock, Input

_log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Between two attempts at what something does not answer to."""


@dataclass(slots=True)
class _Attempt:
    partition: Partition
    keeper: Keeper
    job: Future[None] | None = None
    not_before_s: float = 0.0
    """In the clock's monotonic seconds."""


class Opening:
    """The partitions that are on their way. All calls come from the thread of the loop."""

    def __init__(self, source: Input, executor: Executor, clock: Clock) -> None:
        self._input = source
        self._executor = executor
        self._clock = clock
        self._attempts: dict[int, _Attempt] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._attempts

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def add(self, partition: Partition, keeper: Keeper) -> None:
        """Open the partition, which has just been assigned."""
        self._attempts[partition.number] = _Attempt(partition, keeper, None, self._clock.monotonic())

    def drop(self, number: int) -> None:
        """The partition is not wanted any more."""
        attempt = self._attempts.pop(number, None)
        if attempt is not None and attempt.job is not None and not attempt.job.cancel():
            attempt.job.add_done_callback(lambda _: attempt.partition.close())

    def step(self) -> Iterator[tuple[Partition, PartitionStopped | StateLost | None]]:
        """Go on with all of them; gives each that has come to its end, open, or why it never will be.

        Raises WorkerError where that concerns the whole worker.
        """
        self._start()
        for number, attempt in list(self._attempts.items()):
            ended: PartitionStopped | StateLost | None = None
            try:
                if attempt.job is None:
                    continue
                attempt.job.result(timeout=0)
            except TimeoutError:
                continue
            except Transient as error:
                self._again(attempt, error)
                continue
            except (PartitionStopped, StateLost) as error:
                ended = error
            del self._attempts[number]
            yield attempt.partition, ended

    def _start(self) -> None:
        now = self._clock.monotonic()
        due = {n: each for n, each in self._attempts.items() if each.job is None and each.not_before_s <= now}
        if not due:
            return
        try:
            # Asked of the broker by the loop itself, since nobody may do so while the consumer is being closed.
            committed = self._input.committed(list(due))
            bounds = {number: self._input.bounds(number) for number in due}
        except Transient as error:
            for attempt in due.values():
                self._again(attempt, error)
            return
        for number, attempt in due.items():
            attempt.job = self._executor.submit(
                _open, attempt.partition, attempt.keeper, committed[number], *bounds[number]
            )

    def _again(self, attempt: _Attempt, error: Transient) -> None:
        _log.warning("partition %d cannot start yet, trying again: %s", attempt.partition.number, error)
        attempt.job, attempt.not_before_s = None, self._clock.monotonic() + RETRY_S


def _open(partition: Partition, keeper: Keeper, committed: int | None, low: int, high: int) -> None:
    partition.live_from = keeper.begin(committed, (low, high))
    keeper.restore(partition, low)
