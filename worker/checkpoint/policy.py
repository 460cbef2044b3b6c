"""When to write a checkpoint, and of which partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

import msgspec

MOST_WRITES = 4
"""Checkpoints on their way at a time, while the recovery budget is spent; else one."""


class Saving(Protocol):
    """The checkpoints of one partition, as far as it matters for which is next."""

    replay_s: float
    """Time that it would take to replay what came since the last snapshot, at most."""
    writing_s: float
    """Time that the last checkpoint took to write."""
    last_s: float
    """When it was started, in the clock's monotonic seconds."""

    @property
    def on_its_way_s(self) -> float:
        """Time that it would take to replay what the checkpoint on its way holds; 0 where there is none."""
        ...

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is on its way."""
        ...

    @property
    def is_overdue(self) -> bool:
        """Whether the last one was started longer ago than an interval."""
        ...

    @property
    def must_be_saved(self) -> bool:
        """Whether the partition waits for its checkpoint."""
        ...


S = TypeVar("S", bound=Saving)


class Policy(msgspec.Struct, frozen=True):
    """A checkpoint is due when the last one is an interval ago, or when replaying what came since costs too much."""

    interval_s: float
    recovery_budget_s: float

    def is_over(self, since_s: float) -> bool:
        """Whether the last checkpoint, so long ago, is an interval ago."""
        return since_s >= self.interval_s

    def most_urgent(self, partitions: Collection[S], ready: Iterable[S]) -> S | None:
        """Of those that are `ready` to be saved the one to start now, None for none; `partitions` are all of a worker.

        One that waits for it goes first. A restart replays all of them, so the recovery budget is for the sum. It goes
        before the interval: where it is spent the costliest is saved, and others with it while what is not on its way
        is half of the budget, unless that would hardly lower the sum. One place is for what is overdue, which must not
        wait for ever. Otherwise one is on its way at a time: of one that had to wait for another, the loop would copy
        models that nobody takes yet. One that takes longer than an interval is not counted: a store that hangs with
        the one need not hang with the next.
        """
        ready = list(ready)
        n_writing = sum(each.is_writing for each in partitions)
        waiting = next((each for each in ready if each.must_be_saved), None)
        if waiting is not None and n_writing < MOST_WRITES:
            return waiting
        unsaved_s = sum(each.replay_s for each in partitions)
        rounds = max(1.0, len(ready) / (MOST_WRITES - 1))
        spent = self.spent(
            unsaved_s + sum(each.on_its_way_s for each in partitions),
            rounds * max((each.writing_s for each in partitions), default=0.0),
        )
        if spent and (not n_writing or (n_writing < MOST_WRITES - 1 and 2 * unsaved_s >= self.recovery_budget_s)):
            costliest = max(ready, key=lambda each: each.replay_s, default=None)
            if costliest is not None and 2 * len(partitions) * costliest.replay_s >= unsaved_s:
                return costliest
        in_time = any(each.is_writing and not each.is_overdue for each in partitions)
        if n_writing < MOST_WRITES and (spent or not in_time):
            return min((each for each in ready if each.is_overdue), key=lambda each: each.last_s, default=None)
        return None

    def spent(self, replay_s: float, writing_s: float) -> bool:
        """Whether `replay_s`, what a worker would have to replay of all its partitions, is at the recovery budget.

        More will have come by the time that checkpoints are written, at most as much as that takes: `writing_s`. Half
        of the budget is the most that is set aside for it, or a slow store would make every moment the right one.
        """
        return replay_s + min(writing_s, self.recovery_budget_s / 2) >= self.recovery_budget_s
