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
class Pending:
    """Outputs and offsets, by partition of the input, that are not known to be committed."""

    member: Membership
    """Who read the records, in the newest generation that is known."""
    outgoing: dict[int, list[Outgoing]] = field(default_factory=dict)
    offsets: dict[int, CommittedOffset] = field(default_factory=dict)
    records: dict[int, list[Record]] = field(default_factory=dict)
    """What the outputs were made of, one by one."""
    dead_letter_for: DeadLetterFor | None = None
    unknown: bool = False
    """The part may have been committed: the committed offsets must be read before it is sent again."""
    part: dict[int, int] = field(default_factory=dict)
    """How many outputs of each partition are being sent."""
    most: int = sys.maxsize
    """How many outputs a part holds."""
    failures: int = 0
    """How often a part has failed since one was committed."""
    attempts: int = 0
    """How often in a row it was tried in vain to send a part, or to learn what became of it."""
    committed: int = 0
    """How many outputs are known to be committed."""
    replaced: dict[int, list[Record]] = field(default_factory=dict)
    """Records whose outputs are refused, in whose place dead letters go out."""
    steady: int = 0
    """How many parts are to be committed before one is larger than the one before."""

    def add(self, number: int, records: list[Record], outgoing: list[Outgoing], offset: CommittedOffset) -> None:
        """What came of more records of a partition, and the offset behind them with what is committed along with it."""
        self.records.setdefault(number, []).extend(records)
        self.outgoing.setdefault(number, []).extend(outgoing)
        self.offsets[number] = offset

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
            for of_partitions in (self.outgoing, self.offsets, self.records, self.part, self.replaced):
                of_partitions.pop(number, None)

    def cut(self) -> None:
        """Decide which part is sent next: the first `most` of what is left, partition after partition."""
        room, self.part = self.most, {}
        for number in self.offsets:
            left = len(self.outgoing.get(number, ()))
            n = min(left, room)
            if n or not left:
                self.part[number] = n
                room -= n

    def size(self) -> int:
        """How many outputs the part has."""
        return sum(self.part.values())

    def outputs(self) -> list[Outgoing]:
        """Those of the part."""
        return [record for number, n in self.part.items() if n for record in self.outgoing[number][:n]]

    def part_offsets(self) -> dict[int, CommittedOffset]:
        """The offsets behind the part."""
        return {number: self._offset_after(number, n) for number, n in self.part.items()}

    def _offset_after(self, number: int, n: int) -> CommittedOffset:
        whole = self.offsets[number]
        if n == len(self.outgoing.get(number, ())):
            return whole
        last = self.records[number][n - 1]
        return CommittedOffset(last.offset + 1, whole.metadata, last.leader_epoch)

    def advance(self) -> None:
        """The part is committed: go on behind it."""
        self.committed += self.size()
        for number, n in self.part.items():
            if n == len(self.outgoing.get(number, ())):
                for of_partitions in (self.outgoing, self.offsets, self.records):
                    of_partitions.pop(number, None)
            else:
                del self.outgoing[number][:n], self.records[number][:n]
        if self.steady:
            self.steady -= 1
        else:
            self.most = min(2 * self.most, sys.maxsize)
        self.unknown, self.part, self.failures, self.attempts = False, {}, 0, 0

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
        [number] = [number for number, n in self.part.items() if n]
        record = self.records[number][0]
        letter = self.dead_letter_for and self.dead_letter_for(number, record, self.outgoing[number][0], why)
        if letter is None:
            return number
        self.outgoing[number][0] = letter
        self.replaced.setdefault(number, []).append(record)
        return None
