"""Whether a member is in its group, for those who ask whether it is ready."""

from __future__ import annotations

from worker.base.ports import Clock
from worker.base.records import Membership

OUTSIDE_S = 5.0
"""How long a member may be without an id before it is out of its group."""


class Standing:
    """One member of a group. All calls come from the thread of its loop."""

    def __init__(self, clock: Clock, group: str = "the group") -> None:
        self._clock = clock
        self._group = group
        self.has_joined = False
        """Whether the group has said which partitions are this member's, be it none."""
        self._member_s = clock.monotonic()
        """When the group last had it as a member."""
        self._seen_s = self._member_s
        """When it was last asked about: between two looks at it, as while a transaction waits, nothing is known."""
        self._connection: str | None = None
        """What a connection to a broker had failed of a moment before that."""

    def observe(self, member: Membership, trouble: str | None = None) -> None:
        """Who it is to its group now, and what its connections have failed of lately."""
        self._connection = trouble
        self._seen_s = self._clock.monotonic()
        if member.id:
            self._member_s = self._seen_s

    def trouble(self) -> str | None:
        """Why it gets no records, None where it does."""
        if not self.has_joined:
            why = "" if self._connection is None else f": {self._connection}"
            return f"{self._group} has not assigned partitions yet{why}"
        outside_s = self._seen_s - self._member_s
        if outside_s > OUTSIDE_S:
            return f"no member of {self._group} for {outside_s:.0f} s: {self._connection or 'does the broker answer?'}"
        return None
