"""A broker in memory, with the semantics that the worker's guarantees rest on.

What is modelled: logs with gaps, a low watermark and leader epochs, whose end may be lost, or not be readable yet since
others have transactions open; transactions that show outputs and offsets together or not at all, and end when they take
too long; epochs of producers; requests to commit that arrive late; stable committed offsets; a group that decides at
once while its members are told in `consume`; and the fence of offset commits, which looks at member and generation, not
at who owns the partition. broker_contract.py holds it to Kafka.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Protocol

from tests.worker.support.fakes import FakeClock
from worker.base.errors import Abort, Refused, Transient, Unknown
from worker.base.records import Bounds, CommittedOffset, Headers, Outgoing, Record

TRANSACTION_TIMEOUT_S = 10.0
UNSTABLE_WAIT_S = 2.5
FIRST_TIMESTAMP_MS = 1_600_000_000_000
LIFE_MS = 1_000_000


class Log:
    """One partition of the input."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.low = 0
        self.high = 0
        self.former: list[list[Record]] = []
        """The records as they were before each time that the end of the log was lost."""
        self.open_from: int | None = None
        """Where a transaction begins that somebody has open: whoever reads what is committed comes to here."""
        self.epochs = [(0, 0)]
        """Of those who led it and wrote to it: their leader epochs, and the offset at which each began."""

    def append(self, key: bytes | None, value: bytes | None, headers: Headers | None = None, *, gap: int = 0) -> int:
        """Returns the offset; `gap` offsets before it are left out, as transaction markers leave them."""
        offset = self.high + gap
        # Whatever has the offset of a record that was lost is told apart from it by its timestamp.
        timestamp_ms = FIRST_TIMESTAMP_MS + offset + len(self.former) * LIFE_MS
        self.records.append(Record(offset, timestamp_ms, key, value, headers or [], leader_epoch=self.epochs[-1][0]))
        self.high = offset + 1
        return offset

    def retire_all(self) -> None:
        """Retention deletes all that there is."""
        self.low = self.high

    def mark(self, n: int) -> None:
        """Leave out so many offsets at the end, as markers of transactions do, and what was aborted."""
        self.high += n

    @property
    def stable(self) -> int:
        """Offset before which everything is committed, or aborted."""
        return self.high if self.open_from is None else self.open_from

    def begin(self) -> None:
        """A producer begins a transaction with what comes next."""
        self.open_from = self.high

    def settle(self, aborted: Collection[int]) -> None:
        """The transaction ends; these offsets of it, or of others that were begun since, will never be read."""
        self.open_from = None
        self.records = [record for record in self.records if record.offset not in aborted]
        self.mark(1)

    def truncate(self, offset: int) -> None:
        """Lose what lies from this offset on, as where a replica takes over that did not have it yet."""
        self.open_from = None
        self.former.append(self.records)
        self.records = [record for record in self.records if record.offset < offset]
        self.high = offset
        self.elect()

    def elect(self) -> None:
        """Another replica leads it from now on."""
        epoch = self.epochs[-1][0] + 1
        self.epochs = [*(each for each in self.epochs if each[1] < self.high), (epoch, self.high)]

    def end_of(self, leader_epoch: int) -> int:
        """Offset behind what was written until the end of an epoch; -1 where there was none as late."""
        if leader_epoch > self.epochs[-1][0]:
            return -1
        return next((start for epoch, start in self.epochs if epoch > leader_epoch), self.high)

    def after(self, offset: int, most: int) -> list[Record]:
        """At most so many records that still exist and can be read, from an offset on."""
        first, stable = max(offset, self.low), self.stable
        return [record for record in self.records if first <= record.offset < stable][:most]

    @property
    def end(self) -> int:
        """What is committed once every record is worked off."""
        return self.records[-1].offset + 1 if self.records else 0


class Metadata(NamedTuple):
    """Who commits offsets: the name that the group gave a member, and its generation."""

    member: str
    generation: int


class Member(Protocol):
    """What the group knows of a consumer."""

    name: str

    def tell(self, callback: str, partition: int) -> None:
        """A callback that is due in the member's next `consume`."""


@dataclass(slots=True)
class Transaction:
    """An open one: nothing of it is visible."""

    epoch: int
    begun_s: float
    outgoing: list[Outgoing] = field(default_factory=list)
    offsets: dict[int, CommittedOffset] = field(default_factory=dict)


class Broker:
    """One input topic, one group, and whatever is published."""

    def __init__(self, partitions: int, clock: FakeClock) -> None:
        self.clock = clock
        self.logs = {number: Log() for number in range(partitions)}
        self.committed: dict[int, int] = {}
        self.metadata: dict[int, str] = {}
        self.leader_epochs: dict[int, int | None] = {}
        """What was committed along with these offsets."""
        self.set_by_hand: set[int] = set()
        """Partitions whose offsets were not committed but set, which carry no leader epoch."""
        self.furthest = dict.fromkeys(self.logs, -1)
        """Highest offset ever committed: without transactions a member may move the group's offsets back."""
        self.published: list[Outgoing] = []
        """What a read_committed reader sees."""
        self.open: dict[str, Transaction] = {}
        self.refuses: Callable[[Outgoing], bool] = lambda _: False
        """Records that the topics will not take, by their size, say. A transaction with one of them must be aborted."""
        self.seconds_per_record = 0.0
        """Time that it takes to send a record of a transaction."""
        self.leaderless: set[int] = set()
        """Partitions of the input about which no broker answers, and of which nothing is read."""
        self.group = Group()
        self._epochs: Counter[str] = Counter()
        self._late: list[tuple[str, int]] = []
        self._history: defaultdict[int, list[CommittedOffset]] = defaultdict(list)

    def add_partition(self) -> None:
        """As `kafka-topics --alter --partitions` does it: no member of the group knows of it yet."""
        number = len(self.logs)
        self.logs[number], self.furthest[number] = Log(), -1

    # Transactions. Calls of a producer that is not the newest of its id raise Unknown, as any fatal error does.

    def init(self, identity: str) -> int:
        """A new producer of this id: fences the old one and aborts what it left open. Returns its epoch."""
        self.open.pop(identity, None)
        self._epochs[identity] += 1
        return self._epochs[identity]

    def begin(self, identity: str, epoch: int) -> None:
        self._require(identity, epoch)
        assert identity not in self.open, "a transaction is begun while another one is open"
        self.open[identity] = Transaction(epoch, self.clock.now_s)

    def add(self, identity: str, epoch: int, outgoing: Sequence[Outgoing]) -> None:
        self._opened(identity, epoch).outgoing += outgoing
        self.clock.now_s += self.seconds_per_record * len(outgoing)
        self.check(outgoing)

    def check(self, outgoing: Sequence[Outgoing]) -> None:
        """Raises Refused where a record is none that the topics take; which one it is, it does not say."""
        if any(map(self.refuses, outgoing)):
            raise Refused("message size too large")

    def add_offsets(self, identity: str, epoch: int, offsets: Mapping[int, CommittedOffset], member: Metadata) -> None:
        """Raises Abort where the group does not know the member, or only of old."""
        transaction = self._opened(identity, epoch)
        self.group.require(member)
        transaction.offsets.update(offsets)

    def end(self, identity: str, epoch: int, *, commit: bool) -> None:
        transaction = self._opened(identity, epoch)
        del self.open[identity]
        if commit:
            self.published += transaction.outgoing
            self.commit(transaction.offsets)

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        for number, each in offsets.items():
            self.committed[number], self.metadata[number], self.leader_epochs[number] = each
            self._history[number].append(each)
            self.set_by_hand.discard(number)
            self.furthest[number] = max(each.offset, self.furthest[number])

    def set_offsets(self, offsets: Mapping[int, int]) -> None:
        """What an operator does while the group is empty: nothing is committed along with it."""
        self.committed |= offsets
        for number in offsets:
            self.metadata.pop(number, None)
            self.leader_epochs.pop(number, None)
            self.set_by_hand.add(number)

    def expire_offsets(self) -> None:
        """What becomes of a group that has been empty for long."""
        self.committed.clear()
        self.metadata.clear()
        self.leader_epochs.clear()
        self.set_by_hand.update(self.logs)

    def commit_late(self, identity: str, epoch: int) -> None:
        """A request to commit is on its way; who sent it has given up waiting for the answer."""
        self._late.append((identity, epoch))

    def deliver_late(self) -> None:
        """The late requests arrive. What they commit is whatever the same producer has open by now."""
        self.end_overdue()
        late, self._late = self._late, []
        for identity, epoch in late:
            if identity in self.open and epoch == self._epochs[identity]:
                self.end(identity, epoch, commit=True)

    def end_overdue(self) -> None:
        """Abort what has been open for too long, and fence who opened it."""
        for identity, transaction in list(self.open.items()):
            if self.clock.now_s - transaction.begun_s > TRANSACTION_TIMEOUT_S:
                self.init(identity)

    def stable(self, partitions: Iterable[int]) -> dict[int, CommittedOffset | None]:
        """Committed offsets. Raises Transient while an open transaction may still move them."""
        self.end_overdue()
        asked = list(partitions)
        if any(number in transaction.offsets for transaction in self.open.values() for number in asked):
            self.clock.now_s += UNSTABLE_WAIT_S
            raise Transient("unstable offset commit")
        return {number: self._committed_of(number) for number in asked}

    def _committed_of(self, number: int) -> CommittedOffset | None:
        offset = self.committed.get(number)
        if offset is None:
            return None
        return CommittedOffset(offset, self.metadata.get(number, ""), self.leader_epochs.get(number))

    def forgotten(self, number: int, known: int) -> CommittedOffset | None:
        """What a coordinator says that has not read all of its log yet: a commit before one that is known."""
        earlier = (each for each in self._history[number] if each.offset < known)
        return max(earlier, key=attrgetter("offset"), default=None)

    def bounds(self, number: int) -> Bounds:
        """Where the records begin and end. Raises Transient where no broker answers."""
        if number in self.leaderless:
            raise Transient(f"partition {number} has no leader")
        log = self.logs[number]
        return Bounds(log.low, log.stable, log.high)

    def _require(self, identity: str, epoch: int) -> None:
        self.end_overdue()
        if self._epochs[identity] != epoch:
            raise Unknown("this producer was fenced by a newer one")

    def _opened(self, identity: str, epoch: int) -> Transaction:
        self._require(identity, epoch)
        return self.open[identity]


class Group:
    """The coordinator: who owns which partition, and whose offset commits are taken."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: list[Member] = []
        self.owners: dict[int, Member] = {}
        self._next: dict[int, Member] = {}
        self._joined = 0

    def join(self, member: Member) -> str:
        """Returns the member's name."""
        self.members.append(member)
        self.generation += 1
        self._joined += 1
        return f"member-{self._joined}"

    def rebalance(self, targets: Mapping[int, Member]) -> None:
        """Move partitions, cooperatively: an owner gives up first, then the next one hears of it."""
        self.generation += 1
        for number, target in targets.items():
            owner = self.owners.get(number)
            if owner is None:
                self._give(number, target)
            elif number in self._next:
                self._next[number] = target
            elif owner is not target:
                self._next[number] = target
                owner.tell("revoked", number)

    def released(self, member: Member, number: int) -> None:
        """The member has given up a partition."""
        if self.owners.get(number) is member:
            del self.owners[number]
            target = self._next.pop(number, None)
            if target in self.members:
                self._give(number, target)

    def remove(self, member: Member) -> None:
        """The member left, or was not heard of for too long; its partitions are free at once."""
        if member in self.members:
            self.members.remove(member)
            self.generation += 1
            for number in [number for number, owner in self.owners.items() if owner is member]:
                self.released(member, number)

    def require(self, metadata: Metadata) -> None:
        """Raises Abort for anybody but a member of today."""
        names = {member.name for member in self.members}
        if metadata.member not in names or metadata.generation != self.generation:
            raise Abort("unknown member or illegal generation")

    def _give(self, number: int, target: Member) -> None:
        self.owners[number] = target
        target.tell("assigned", number)
