"""What is to be committed: outputs with the offsets of their records, as a whole or a part after the other.

A part holds the first records of each partition, in their order, and the offset behind the last of them. So whatever
part is committed, outputs and offsets agree, and what is left is what a restart would make again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from worker.base.records import CommittedOffset, Membership, Outgoing, Record
from worker.base.retry import backoff_s

STEADY_PARTS = 8
"""Parts that are committed at a size before a larger one is tried, where it may have been too much at once."""
PATIENCE = 2
"""Attempts in a row that may fail before there is a pause: one turn of the loop may be all that was missing."""
PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""The first pause; each further one is twice as long, up to the longest."""

DeadLetterFor = Callable[[int, Record, Outgoing, str], Outgoing | None]
"""Partition, record, the output that is refused, why -> what goes out in its place; None where nothing can."""


@dataclass(slots=True)
class Share:
    """What is pending of one partition."""

    offset: CommittedOffset
    """Behind all of it."""
    records: list[Record]
    """What the outputs were made of, one by one."""
    outgoing: list[Outgoing]
    sending: int | None = None
    """How many of the outputs are in the part; None where the part has nothing of it, not even an offset."""

    @property
    def is_sent_whole(self) -> bool:
        """Whether the part has all that is left."""
        return self.sending == len(self.outgoing)

    def part_offset(self) -> CommittedOffset:
        """The offset behind what the part has of it."""
        if self.is_sent_whole:
            return self.offset
        assert self.sending, "without an output there is nothing to be cut"
        last = self.records[self.sending - 1]
        return CommittedOffset(last.offset + 1, self.offset.metadata, last.leader_epoch)


@dataclass(slots=True)
class Pending:
    """Outputs and offsets, by partition of the input, that are not known to be committed."""

    member: Membership
    """Who read the records, in the newest generation that is known."""
    dead_letter_for: DeadLetterFor
    shares: dict[int, Share] = field(default_factory=dict)
    replaced: dict[int, list[Record]] = field(default_factory=dict)
    """Records whose outputs are refused, in whose place dead letters go out; those that are committed, too."""
    unknown: bool = False
    """The part may have been committed: the committed offsets must be read before it is sent again."""
    most: int = sys.maxsize
    """How many outputs a part holds."""
    failures: int = 0
    """How often a part has failed since one was committed."""
    attempts: int = 0
    """How often in a row it was tried in vain to send a part, or to learn what became of it."""
    committed: int = 0
    """How many outputs are known to be committed."""
    steady: int = 0
    """How many parts are to be committed before one is larger than the one before."""

    def add(self, number: int, records: list[Record], outgoing: list[Outgoing], offset: CommittedOffset) -> None:
        """What came of more records of a partition, and the offset behind them with what is committed along with it."""
        share = self.shares.setdefault(number, Share(offset, [], []))
        share.records += records
        share.outgoing += outgoing
        share.offset = offset

    def renew(self, member: Membership) -> bool:
        """Commit in the member's present generation; False where it is not the one that has read these records.

        The group had given up a member that comes back under another id: its partitions may have been somebody else's
        in between, and the broker would believe what it says of them. Whoever has no id is no member at the moment.
        """
        if not member.id or member.id != self.member.id:
            return False
        self.member = member
        return True

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget what is left of partitions that this worker does not own any more, or has done with."""
        for number in partitions:
            self.shares.pop(number, None)
            self.replaced.pop(number, None)

    def cut(self) -> None:
        """Decide which part is sent next: the first `most` of what is left, partition after partition."""
        room = self.most
        for share in self.shares.values():
            left = len(share.outgoing)
            n = min(left, room)
            share.sending = n if n or not left else None
            room -= n

    def _part(self) -> dict[int, Share]:
        return {number: share for number, share in self.shares.items() if share.sending is not None}

    def size(self) -> int:
        """How many outputs the part has."""
        return sum(share.sending or 0 for share in self.shares.values())

    def outputs(self) -> list[Outgoing]:
        """Those of the part."""
        return [record for share in self._part().values() for record in share.outgoing[: share.sending]]

    def part_offsets(self) -> dict[int, CommittedOffset]:
        """The offsets behind the part."""
        return {number: share.part_offset() for number, share in self._part().items()}

    def leave_offsets(self) -> None:
        """Take out of the part what has no output in it: that goes into the next one."""
        for share in self.shares.values():
            share.sending = share.sending or None

    def advance(self) -> None:
        """The part is committed: go on behind it."""
        self.committed += self.size()
        for number, share in self._part().items():
            if share.is_sent_whole:
                del self.shares[number]
            else:
                del share.outgoing[: share.sending], share.records[: share.sending]
                share.sending = None
        if self.steady:
            self.steady -= 1
        else:
            self.most *= 2
        self.unknown, self.failures, self.attempts = False, 0, 0

    @property
    def pause_s(self) -> float:
        """How long to wait before the next attempt: a broker in trouble is not helped by hundreds of them a second."""
        return backoff_s(max(0, self.attempts - PATIENCE), PAUSE_S, LONGEST_PAUSE_S)

    def failed(self, *, sent: bool) -> None:
        """An attempt came to nothing. What was sent must be sent again.

        Most failures pass; if a third attempt to send fails, it may be too much at once.
        """
        self.attempts += 1
        if not sent:
            return
        self.failures += 1
        if self.failures > 2:
            self.halve()
            self.steady = STEADY_PARTS

    def halve(self) -> None:
        """Send half as much from now on."""
        self.most = max(1, self.size() // 2)

    def replace_refused(self, why: str) -> int | None:
        """Send a dead letter in place of the only output of the part. The partition, where that is not possible."""
        [(number, share)] = [(number, share) for number, share in self.shares.items() if share.sending]
        record = share.records[0]
        letter = self.dead_letter_for(number, record, share.outgoing[0], why)
        if letter is None:
            return number
        share.outgoing[0] = letter
        self.replaced.setdefault(number, []).append(record)
        return None
