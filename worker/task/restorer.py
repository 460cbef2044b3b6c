"""Partitions that were assigned and are not at work yet: their start is found, their models are loaded.

That is done beside the loop, for each partition by itself and again and again until it succeeds: a store that does not
answer, or a partition that has no leader, holds up no rebalance, no prediction and no other partition. Nothing is read
of a partition meanwhile. First the broker is asked where the partition starts, then its models are loaded; the two have
threads of their own, since many partitions may wait for an answer, and few should be loaded at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

from worker.base.errors import PartitionStopped, StateLost, Transient
from worker.base.log import Log
from worker.base.ports import Clock, Input
from worker.base.records import Bounds, CommittedOffset
from worker.base.refusals import SPEC_CHANGED
from worker.base.retry import backoff_s
from worker.base.rewinds import Rewinds
from worker.task.recovery import Opened, Recovery
from worker.task.task import Task

_log = Log(__name__)

RETRY_S = 1.0
"""Between two attempts at a store that does not answer, and before the second one at a broker."""
LONGEST_RETRY_S = 4.0
"""Most that it becomes for a broker, doubled each time. Who takes over waits for it, so it is short."""


class _Offsets(NamedTuple):
    """What the broker says of a partition."""

    committed: CommittedOffset | None
    bounds: Bounds

    def are_as_in(self, later: _Offsets) -> bool:
        """Whether the group stands where it stood, in the same records but for new ones."""
        return (self.committed, self.bounds.low) == (later.committed, later.bounds.low)


@dataclass(slots=True)
class _Attempt:
    task: Task
    recovery: Recovery
    known: int
    """The group has been at this offset, and is never set back while the partition is here."""
    rewinds: Rewinds
    offsets: Future[_Offsets] | None = None
    job: Future[Opened] | None = None
    stop: tuple[_Offsets, PartitionStopped] | None = None
    """Why it cannot be opened, by what the broker said then."""
    not_before_s: float = 0.0
    """In the clock's monotonic seconds."""
    unanswered: int = 0
    """How often the broker did not answer, one time after the other."""
    logged: str = ""
    """The trouble that was logged last."""


class Restorer:
    """The partitions that are on their way. All calls come from the thread of the loop."""

    def __init__(self, source: Input, loaders: Executor, askers: Executor, clock: Clock) -> None:
        self._input = source
        self._loaders = loaders
        self._askers = askers
        self._clock = clock
        self._attempts: dict[int, _Attempt] = {}

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def add(self, task: Task, recovery: Recovery, wait_s: float = 0.0, known: int = 0) -> None:
        """Open the partition after so many seconds; the group is at the offset `known` at least."""
        not_before_s, rewinds = self._clock.monotonic() + wait_s, Rewinds(self._clock)
        self._attempts[task.number] = _Attempt(task, recovery, known, rewinds, not_before_s=not_before_s)

    def drop(self, number: int) -> None:
        """The partition is not wanted any more."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return
        if attempt.offsets is not None:
            attempt.offsets.cancel()
        if attempt.job is not None and not attempt.job.cancel():
            attempt.job.add_done_callback(_close)

    def step(self) -> Iterator[tuple[Task, Opened | PartitionStopped | StateLost]]:
        """Go on with all of them; gives each that has come to its end, with its state or why there never will be one.

        Raises WorkerError where that concerns the whole worker.
        """
        now = self._clock.monotonic()
        due = [each for each in self._attempts.values() if each.offsets is None and each.not_before_s <= now]
        for attempt in due:
            attempt.offsets = self._askers.submit(self._ask, attempt.task.number)
        for number, attempt in list(self._attempts.items()):
            ended: Opened | PartitionStopped | StateLost | None
            try:
                ended = self._opened(attempt)
            except (PartitionStopped, StateLost) as error:
                ended = error
            if ended is None:
                continue
            del self._attempts[number]
            if attempt.logged:
                _log.info(
                    "partition-waits-no-more", f"partition {number} waits no more for its start", partition=number
                )
            yield attempt.task, ended

    def _ask(self, number: int) -> _Offsets:
        [committed] = self._input.committed([number]).values()
        return _Offsets(committed, self._input.bounds(number))

    def _opened(self, attempt: _Attempt) -> Opened | None:
        """What an attempt has come to; None where it goes on. Raises PartitionStopped, StateLost."""
        if attempt.offsets is None:
            return None
        try:
            if attempt.job is None:
                offsets = attempt.offsets.result(timeout=0)
                attempt.unanswered = 0
                _require_known(attempt, offsets)
                if attempt.stop is not None and attempt.stop[0].are_as_in(offsets):
                    raise attempt.stop[1]
                attempt.job = self._loaders.submit(_open, attempt, offsets)
            return attempt.job.result(timeout=0)
        except PartitionStopped as error:
            if attempt.job is None:
                raise
            # The broker is asked once more: a partition that another member has taken over has moved on, and what this
            # stop advises would be wrong for it.
            attempt.stop = attempt.offsets.result(timeout=0), error
            attempt.offsets = attempt.job = None
            return None
        except TimeoutError:
            return None
        except Transient as error:
            self._try_again(attempt, error)
            return None

    def _try_again(self, attempt: _Attempt, error: Transient) -> None:
        # Once: it may be for hours, and the metrics show all the while that the partition is not at work.
        if attempt.logged != str(error):
            attempt.logged = str(error)
            number = attempt.task.number
            _log.warning(
                "partition-cannot-start",
                f"partition {number} cannot start yet, trying again",
                detail=error,
                partition=number,
            )
        wait_s = RETRY_S
        if attempt.job is None:
            attempt.unanswered += 1
            wait_s = backoff_s(attempt.unanswered, RETRY_S, LONGEST_RETRY_S)
        attempt.offsets = attempt.job = None
        attempt.not_before_s = self._clock.monotonic() + wait_s


def _require_known(attempt: _Attempt, offsets: _Offsets) -> None:
    """What was committed must not be predicted again by a broker that has forgotten it, for now or for good.

    Raises Transient, PartitionStopped.
    """
    number, found = attempt.task.number, 0 if offsets.committed is None else offsets.committed.offset
    for why in attempt.rewinds.look({number: found}, {number: attempt.known}).values():
        raise why
    if attempt.rewinds.partitions:
        raise Transient(f"the broker has the group at {found} in partition {number}, but has had it at {attempt.known}")


def _open(attempt: _Attempt, offsets: _Offsets) -> Opened:
    """The state of a partition; models that are refused are named: by dead letters alone it would be found out late."""
    task, opened = attempt.task, attempt.recovery.open(*offsets, attempt.task.load)
    if refused := task.refused(opened.models):
        _log.error(
            "spec-changed",
            f"partition {task.number}: {len(refused)} of {len(opened.models)} models, {min(refused)!r} among them, "
            "were made with other parameters than the configuration gives them: their events are refused",
            hint=SPEC_CHANGED,
            partition=task.number,
            count=len(refused),
        )
    return opened


def _close(job: Future[Opened]) -> None:
    """Give up the memory of models that nobody waits for any more."""
    if job.exception() is None:
        job.result().models.close()
