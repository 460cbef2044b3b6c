"""The worker's consumer and producer, as clients of the broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.worker.fake_broker import Broker, Metadata
from tests.worker.fakes import Hook, no_fault
from worker.errors import Unknown, WorkerError
from worker.ports import Listener
from worker.records import Outgoing, Record

ALL = -1
"""Stands for all partitions that a member has by the time it is told."""


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

    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], dict[int, str]]:
        self.hook("consume")
        if self.replaced:
            raise WorkerError("the consumer cannot go on: fenced by a static member of the same name")
        records: dict[int, list[Record]] = {}
        missing: dict[int, str] = {}
        self._moved.clear()
        if self.reads_ahead():
            self._fetch(max_records, records, missing)
        self._serve()
        for number in self._moved:
            records.pop(number, None)
            missing.pop(number, None)
        self._fetch(max_records - sum(map(len, records.values())), records, missing)
        self.broker.clock.now_s += timeout_s / 4
        return records, missing

    def hold(self, partitions: Sequence[int]) -> None:
        self.assign({number: self.broker.logs[number].high for number in partitions})
        self.paused.update(partitions)

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.hook("assign")
        self.positions.update(offsets)
        self._moved |= offsets.keys()
        self.paused -= offsets.keys()

    def pause(self, partition: int) -> None:
        self.paused.add(partition)

    def committed(self, partitions: Sequence[int]) -> dict[int, int | None]:
        self.hook("committed")
        return self.broker.stable(partitions)

    def bounds(self, partition: int) -> tuple[int, int]:
        self.hook("bounds")
        return self.broker.bounds(partition)

    def high_watermark(self, partition: int) -> int | None:
        return self.broker.logs[partition].high

    def end_seen(self, partition: int) -> int | None:
        log = self.broker.logs[partition]
        return None if log.after(self.positions.get(partition, 0), 1) else log.high

    def group_metadata(self) -> Metadata:
        # Nothing is let in between `consume` and this: the loss of a membership takes round trips, this does not.
        metadata = self._current()
        self.hook("metadata:done")
        return metadata

    def commit(self, offsets: Mapping[int, int]) -> None:
        self.hook("commit offsets")
        self.broker.group.require(self._current())
        self.broker.commit(offsets)
        self.hook("commit offsets:done")

    def close(self) -> None:
        self.hook("close")
        if self.positions:
            self._give_up("revoked" if self.is_member else "lost", sorted(self.positions))
        self.broker.group.remove(self)

    # What happens to a member without its doing.

    @property
    def is_member(self) -> bool:
        return self in self.broker.group.members

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

    def _fetch(self, most: int, records: dict[int, list[Record]], missing: dict[int, str]) -> None:
        away = self.paused | self.broker.leaderless
        for number in sorted(self.positions.keys() - away - records.keys() - missing.keys()):
            log, position = self.broker.logs[number], self.positions[number]
            some = log.after(position, min(self.batch_records(), most))
            if position < log.low:
                missing[number] = "offset out of range"
            elif some:
                records[number] = some
                self.positions[number] = some[-1].offset + 1
                most -= len(some)

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


class FakeOutput:
    """A producer; transactional where it has an id."""

    def __init__(self, broker: Broker, identity: str | None, hook: Hook = no_fault) -> None:
        self.broker = broker
        self.identity = identity
        self.hook = hook
        self.epoch = -1
        self._spent = False
        if identity is not None:
            self.hook("init")
            self.epoch = broker.init(identity)

    def publish(self, outgoing: Sequence[Outgoing], offsets: Mapping[int, int], metadata: Metadata) -> None:
        assert not self._spent, "an output is used again after Unknown"
        try:
            if self.identity is None:
                self._send(outgoing)
            else:
                self._transact(self.identity, outgoing, offsets, metadata)
        except Unknown:
            self._spent = True
            raise

    def abort(self) -> None:
        self.hook("abort")
        if self.identity is not None:
            self.broker.end(self.identity, self.epoch, commit=False)
        self.hook("abort:done")

    def close(self) -> None:
        self._spent = True

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
        self, identity: str, outgoing: Sequence[Outgoing], offsets: Mapping[int, int], metadata: Metadata
    ) -> None:
        self.hook("begin")
        self.broker.begin(identity, self.epoch)
        self.hook("produce")
        self.broker.add(identity, self.epoch, outgoing)
        self.hook("offsets")
        self.broker.add_offsets(identity, self.epoch, offsets, metadata)
        self.hook("commit")
        self.broker.end(identity, self.epoch, commit=True)
        self.hook("commit:done")
