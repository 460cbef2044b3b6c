"""Partitions that were assigned and are not at work yet: their start is found, their models are loaded.

That is done beside the loop, for each partition by itself and again and again until it succeeds: a store that does not
answer, or a partition that has no leader, holds up no rebalance, no prediction and no other partition. Nothing is read
of a partition meanwhile. First the broker is asked where the partition starts, then its models are loaded; the two have
threads of their own, since many partitions may wait for an answer, and few should be loaded at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

from worker.errors import PartitionStopped, StateLost, Transient
from worker.keeper import Keeper
from worker.partition import Partition
from worker.patience import pause_s
from worker.ports import Clock, Input

_log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Between two attempts at a store that does not answer, and before the second one at a broker."""
LONGEST_RETRY_S = 4.0
"""Most that it becomes for a broker, doubled each time. Who takes over waits for it, so it is short."""


class _Place(NamedTuple):
    """What the broker says of a partition."""

    committed: int | None
    low: int
    high: int


@dataclass(slots=True)
class _Attempt:
    partition: Partition
    keeper: Keeper
    place: Future[_Place] | None = None
    job: Future[None] | None = None
    not_before_s: float = 0.0
    """In the clock's monotonic seconds."""
    unanswered: int = 0
    """How often the broker did not answer, one time after the other."""
    told: str = ""
    """The trouble that was logged last."""


class Opening:
    """The partitions that are on their way. All calls come from the thread of the loop."""

    def __init__(self, source: Input, loaders: Executor, askers: Executor, clock: Clock) -> None:
        self._input = source
        self._loaders = loaders
        self._askers = askers
        self._clock = clock
        self._attempts: dict[int, _Attempt] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._attempts

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def add(self, partition: Partition, keeper: Keeper, wait_s: float = 0.0) -> None:
        """Open the partition, which has just been assigned, after so many seconds."""
        not_before_s = self._clock.monotonic() + wait_s
        self._attempts[partition.number] = _Attempt(partition, keeper, not_before_s=not_before_s)

    def drop(self, number: int) -> None:
        """The partition is not wanted any more."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return
        if attempt.place is not None:
            attempt.place.cancel()
        if attempt.job is not None and not attempt.job.cancel():
            attempt.job.add_done_callback(lambda _: attempt.partition.close())

    def step(self) -> Iterator[tuple[Partition, PartitionStopped | StateLost | None]]:
        """Go on with all of them; gives each that has come to its end, open, or why it never will be.

        Raises WorkerError where that concerns the whole worker.
        """
        now = self._clock.monotonic()
        due = [each for each in self._attempts.values() if each.place is None and each.not_before_s <= now]
        for attempt in due:
            attempt.place = self._askers.submit(self._ask, attempt.partition.number)
        for number, attempt in list(self._attempts.items()):
            ended: PartitionStopped | StateLost | None = None
            try:
                if not self._went_on(attempt):
                    continue
            except (PartitionStopped, StateLost) as error:
                ended = error
            del self._attempts[number]
            if attempt.told:
                _log.info("partition %d waits no more for its start", number)
            yield attempt.partition, ended

    def _ask(self, number: int) -> _Place:
        [committed] = self._input.committed([number]).values()
        return _Place(committed, *self._input.bounds(number))

    def _went_on(self, attempt: _Attempt) -> bool:
        """Whether an attempt is at its end. Raises what it ends with, if not with the partition open."""
        if attempt.place is None:
            return False
        try:
            if attempt.job is None:
                place = attempt.place.result(timeout=0)
                attempt.unanswered = 0
                attempt.job = self._loaders.submit(_open, attempt.partition, attempt.keeper, place)
            attempt.job.result(timeout=0)
        except TimeoutError:
            return False
        except Transient as error:
            self._again(attempt, error)
            return False
        return True

    def _again(self, attempt: _Attempt, error: Transient) -> None:
        # Once: it may be for hours, and the metrics show all the while that the partition is not at work.
        if attempt.told != str(error):
            attempt.told = str(error)
            _log.warning("partition %d cannot start yet, trying again: %s", attempt.partition.number, error)
        wait_s = RETRY_S
        if attempt.job is None:
            attempt.unanswered += 1
            wait_s = pause_s(attempt.unanswered, RETRY_S, LONGEST_RETRY_S)
        attempt.place = attempt.job = None
        attempt.not_before_s = self._clock.monotonic() + wait_s


def _open(partition: Partition, keeper: Keeper, place: _Place) -> None:
    partition.live_from = keeper.begin(place.committed, (place.low, place.high))
    keeper.restore(partition, place.low)
