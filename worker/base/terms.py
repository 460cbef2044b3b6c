"""Words that the core, the logs and the metrics share: each of them is written once, and spelled nowhere else."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Change = Literal["assigned", "revoked", "lost"]
"""What becomes of a partition in a rebalance."""
KindChange = Literal["number-to-text", "text-to-number"]
"""How a feature or a label differs in its kind from what it was before."""


class State(StrEnum):
    """Where the task of a partition is in its life (task/task.py)."""

    OPENING = "opening"
    REPLAY = "replay"
    LIVE = "live"
    WAITING = "waiting"
    STOPPED = "stopped"

    @property
    def takes_records(self) -> bool:
        """Whether the task takes the next records now, be it to learn them once more or to predict them."""
        return self in (State.REPLAY, State.LIVE)


def some(n: int, thing: str) -> str:
    """So many of a thing, whose plural ends in s: 1 model, 2,000 models."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"
