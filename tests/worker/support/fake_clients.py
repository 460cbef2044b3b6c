"""The worker's consumer and producer, as clients of the broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.worker.support.fake_broker import Broker, Log, Metadata
from tests.worker.support.fakes import Hook, no_fault
from worker.base.errors import Transient, Unknown, WorkerError
from worker.base.ports import Gone, Listener
from worker.base.records import Bounds, CommittedOffset, Membership, Outgoing, Record

ALL = -1
"""Stands for all partitions that a member has by the time of the callback."""


@dataclass
class Doubts:
    """What a worker knows of its transactions: shared by its consumer and its producers."""

    open: bool = False
    """Whether the outcome of one is unknown."""
    confirmed: dict[int, int] = field(default_factory=dict)
    """The offsets that were committed, as far as it knows, by partition."""


class FakeInput:
    """A consumer. Its membership has a life of its own, as librdkafka's thread; the worker hears of it in `consume`."""

    def __init__(self, broker: Broker, hook: Hook = no_fault) -> None:
        self.broker = broker
        self.hook = hook
        self.name = ""
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        self.batch_records: Callable[[], int] = lambda: 1_000_000
        """How many records of a partition a `consume` returns at most."""
        self.reads_ahead: Callable[[], bool] = lambda: False
        """Whether a `consume` takes records before its callbacks: they may then be of partitions that are given up."""
        self.replaced = False
        """Whether another member has taken this one's static name."""
        self.connection: str | None = None
        """What a connection has failed of a moment ago."""
        self.doubts: Doubts | None = None
        """What became of its transactions, where the test looks whether the worker asks without need."""
        self.forgetful = False
        """Whether the next question for committed offsets gets an old answer, where the worker can tell."""
        self._held: set[int] = set()
        self._epochs: dict[int, int | None] = {}
        """Leader epochs of the records before the positions, where they are known."""
        self._ends: dict[int, int] = {}
        self._listener: Listener | None = None
        self._metadata = Metadata("", -1)
        self._told: list[tuple[str, int]] = []
        self._loss = ""
        self._moved: set[int] = set()

    # What the worker calls.

    def subscribe(self, listener: Listener) -> None:
        self.hook("subscribe")
        self._listener = listener
        self.name = self.broker.group.join(self)

    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]:
        self.hook("consume")
        if self.replaced:
            raise WorkerError("the consumer cannot go on: fenced by a static member of the same name")
        records: dict[int, list[Record]] = {}
        missing: Gone = {}
        ends: dict[int, int] = {}
        self._moved.clear()
        if self.reads_ahead():
            self._fetch(max_records, records, missing, ends)
        self._serve()
        for number in self._moved:
            for found in (records, missing, ends):
                found.pop(number, None)
        self._fetch(max_records - sum(map(len, records.values())), records, missing, ends)
        self._ends |= ends
        self.broker.clock.now_s += timeout_s / 4
        return records, missing

    def hold(self, partitions: Sequence[int]) -> None:
        self.assign({number: self.broker.logs[number].high for number in partitions})
        self.paused.update(partitions)
        self._held.update(partitions)

    def assign(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int | None] | None = None) -> None:
        self.hook("assign")
        self.positions.update(offsets)
        self._moved |= offsets.keys()
        self.paused -= offsets.keys()
        self._held -= offsets.keys()
        for number in offsets:
            self._epochs[number] = (leader_epochs or {}).get(number)
            self._ends.pop(number, None)
        self._forget(offsets)

    def pause(self, partition: int) -> None:
        self.paused.add(partition)

    def committed(self, partitions: Sequence[int]) -> dict[int, CommittedOffset | None]:
        self.hook("committed")
        found = self.broker.stable(partitions)
        if self.doubts is None or self._held.issuperset(partitions):
            return found
        assert self.doubts.open, "the broker is asked what became of a transaction though that is known"
        confirmed = self.doubts.confirmed
        if self.forgetful and not confirmed.keys().isdisjoint(partitions):
            self.forgetful = False
            return {n: self.broker.forgotten(n, confirmed[n]) if n in confirmed else found[n] for n in partitions}
        self.doubts.open = False
        return found

    def bounds(self, partition: int) -> Bounds:
        self.hook("bounds")
        return self.broker.bounds(partition)

    def high_watermark(self, partition: int) -> int | None:
        return self.broker.logs[partition].high

    def end_seen(self, partition: int) -> int | None:
        return self._ends.get(partition)

    def membership(self) -> Membership:
        # Nothing is let in between `consume` and this: the loss of a membership takes round trips, this does not.
        metadata = self._current()
        self.hook("metadata:done")
        return Membership(metadata.member, metadata)

    def trouble(self) -> str | None:
        return self.connection

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        self.hook("commit offsets")
        self.broker.group.require(self._current())
        self.broker.commit(offsets)
        self.hook("commit offsets:done")

    def close(self) -> None:
        self.hook("close")
        if self.positions:
            self._give_up("revoked" if self.is_member else "lost", sorted(self.positions))
        self.broker.group.remove(self)

    def reads(self, partition: int) -> bool:
        """Whether records of the partition are asked for."""
        return partition in self.positions and partition not in self._held

    # What happens to a member without its doing.

    @property
    def is_member(self) -> bool:
        return self in self.broker.group.members

    @property
    def is_informed(self) -> bool:
        """Whether it is a member, and the worker knows of all that it has gained and lost."""
        return self.is_member and not self._told

    def tell(self, callback: str, partition: int) -> None:
        self._told.append((callback, partition))

    def expire(self, callback: str = "lost") -> None:
        """The group has not heard of this member for too long and goes on without it. The member does not know yet."""
        self._metadata = self._current()
        self._loss = callback
        self.broker.group.remove(self)

    def notice(self, *, rejoin: bool = False) -> None:
        """The thread of an expired member hears of it: the metadata say so at once, the callback comes later.

        What librdkafka 2.16 says then is a member without a name, which Kafka 4.1 refuses. `rejoin` is what it should
        not do, but has done: join anew before the worker was told what it lost.
        """
        if self._loss:
            self._metadata = Metadata("", self._metadata.generation)
            self._told = [(self._loss, ALL)]
            self._loss = ""
            if rejoin:
                self.name = self.broker.group.join(self)
            else:
                self._told.append(("rejoin", ALL))

    def _current(self) -> Metadata:
        return Metadata(self.name, self.broker.group.generation) if self.is_member else self._metadata

    def _fetch(self, most: int, records: dict[int, list[Record]], missing: Gone, ends: dict[int, int]) -> None:
        away = self.paused | self.broker.leaderless
        for number in sorted(self.positions.keys() - away - records.keys() - missing.keys()):
            log, position = self.broker.logs[number], self.positions[number]
            some = log.after(position, min(self.batch_records(), most))
            if position < log.low or self._is_beyond_end(log, number):
                missing[number] = "offset out of range"
            elif some:
                records[number] = some
                self.positions[number], self._epochs[number] = some[-1].offset + 1, some[-1].leader_epoch
                most -= len(some)
            if number not in missing and not log.after(self.positions[number], 1):
                ends[number] = log.stable
                if log.stable > self.positions[number]:  # The client goes on behind markers, which it does not show.
                    self.positions[number], self._epochs[number] = log.stable, log.epochs[-1][0]

    def _is_beyond_end(self, log: Log, number: int) -> bool:
        """Whether the log ends before the position, or has lost the record before it, which its epoch tells."""
        epoch = self._epochs[number]
        return self.positions[number] > (log.high if epoch is None else log.end_of(epoch))

    def _serve(self) -> None:
        """The callbacks that are due; what follows one another of one kind comes as one."""
        assert self._listener is not None
        while self._told:
            callback = self._told[0][0]
            numbers = []
            while self._told and self._told[0][0] == callback:
                numbers.append(self._told.pop(0)[1])
            if callback == "rejoin":
                self.name = self.broker.group.join(self)
            elif callback == "assigned":
                self._listener.assigned(numbers)
            elif numbers == [ALL]:
                self._give_up(callback, sorted(self.positions))
            else:
                self._give_up(callback, numbers)
                for number in numbers:
                    self.broker.group.released(self, number)

    def _give_up(self, callback: str, numbers: list[int]) -> None:
        getattr(self._listener, callback)(numbers)
        for number in numbers:
            self.positions.pop(number, None)
            self.paused.discard(number)
            self._held.discard(number)
        self._forget(numbers)

    def _forget(self, numbers: Iterable[int]) -> None:
        """What was committed of partitions before they came is not known any more."""
        if self.doubts is not None:
            for number in numbers:
                self.doubts.confirmed.pop(number, None)


class FakeOutput:
    """A producer; transactional where it has an id."""

    def __init__(
        self, broker: Broker, identity: str | None, hook: Hook = no_fault, doubts: Doubts | None = None
    ) -> None:
        self.broker = broker
        self.identity = identity
        self.hook = hook
        self.doubts = doubts or Doubts()
        self.epoch = -1
        self.is_closed = False
        self._spent = False
        if identity is not None:
            self.hook("init")
            self.epoch = broker.init(identity)

    def publish(self, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Membership) -> None:
        assert not self._spent, "an output is used again after Unknown"
        try:
            if self.identity is None:
                self._send(outgoing)
            else:
                self._transact(self.identity, outgoing, offsets, member.metadata)
        except (Unknown, Transient):
            self._spent = self.doubts.open = True
            raise
        self.doubts.confirmed |= {number: each.offset for number, each in offsets.items()}

    def abort(self) -> None:
        try:
            self.hook("abort")
            if self.identity is not None:
                self.broker.end(self.identity, self.epoch, commit=False)
            self.hook("abort:done")
        except Unknown:
            self.doubts.open = True
            raise

    def close(self) -> None:
        self._spent = self.is_closed = True

    def commit_late(self) -> None:
        """For hooks at `commit`: the request is sent and arrives some time."""
        assert self.identity is not None
        self.broker.commit_late(self.identity, self.epoch)

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        self.hook("produce")
        self.broker.published += [record for record in outgoing if not self.broker.refuses(record)]
        self.broker.check(outgoing)
        self.hook("produce:done")

    def _transact(
        self, identity: str, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Metadata
    ) -> None:
        self.hook("begin")
        self.broker.begin(identity, self.epoch)
        self.hook("produce")
        self.broker.add(identity, self.epoch, outgoing)
        self.hook("offsets")
        self.broker.add_offsets(identity, self.epoch, offsets, member)
        self.hook("commit")
        self.broker.end(identity, self.epoch, commit=True)
        self.hook("commit:done")


class NoListener:
    """A listener that does nothing when partitions come and go."""

    def assigned(self, partitions: object) -> None: ...
    def revoked(self, partitions: object) -> None: ...
    def lost(self, partitions: object) -> None: ...
