"""When to write a checkpoint."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """A checkpoint is due when the last one is an interval ago, or when replaying what came since costs too much."""

    interval_s: float
    recovery_budget_s: float

    def is_over(self, since_s: float) -> bool:
        """Whether the last checkpoint, so long ago, is an interval ago."""
        return since_s >= self.interval_s

    def spent(self, replay_s: float, writing_s: float) -> bool:
        """Whether `replay_s`, what a worker would have to replay of all its partitions, is at the recovery budget.

        More will have come by the time a checkpoint is written, at most as much as that takes: `writing_s`, the time
        that the last one took. Half of the budget is the most that is set aside for it, or a slow store would make
        every moment the right one.
        """
        return replay_s + min(writing_s, self.recovery_budget_s / 2) >= self.recovery_budget_s
