"""The consumer of the group."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.adapters.kafka.errors import Admission, client, error_of, explained, failure, forbidden
from worker.adapters.kafka.messages import Pieces, record_of
from worker.adapters.kafka.offsets import Offsets, needs_of_reader
from worker.base.errors import Abort, Fatal, PartitionStopped, Transient
from worker.base.log import Log
from worker.base.ports import Gone, Listener
from worker.base.records import Bounds, CommittedOffset, Membership, Record
from worker.base.refusals import DAMAGED, UNDECOMPRESSED, unreadable_records
from worker.base.watchdog import within
from worker.config import Config

_log = Log(__name__)

RELEASE_S = 60.0
"""How long a member waits for its own name, longer than a session of the broker's default (45 s)."""
RELEASE_EVERY_S = 1.0
REJOIN_S, MOST_REJOINS = 60.0, 3
"""A member that is fenced more often than that in so much time has a twin, and gives way to it."""

OUTSIDE_S = 60.0
"""How much longer than the longest rebalance a client may be no member of the group before there is a new one."""
LOOK_EVERY_S = 1.0
CLOSE_S = 45.0
"""How long a client may take to close, longer than partitions that are revoked take to be committed and saved."""
_MAX_POLL_MS = 300_000  # the client's default

_UNRELEASED = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET}
_UNREADABLE = {
    KafkaError._BAD_MSG: DAMAGED,
    KafkaError._NOT_IMPLEMENTED: DAMAGED,
    KafkaError._BAD_COMPRESSION: UNDECOMPRESSED,
}
"""What is said of a batch that fails its checksum, is of no known format, or cannot be decompressed."""
_NOT_YET = {KafkaError._STATE, KafkaError._UNKNOWN_PARTITION}
"""What is said of a seek while the partition is not being read yet."""
_NO_EPOCH = -1


class KafkaInput:
    """The consumer of the group: see `Input` for what each method does and raises."""

    def __init__(self, config: Config) -> None:
        self._topic = config.input.topic
        self._properties = config.consumer_properties() | {"enable.partition.eof": "true"}
        self._ends: dict[int, int] = {}
        """Ends of partitions behind what `consume` has returned of them since they were assigned."""
        self._needs = needs_of_reader(config)
        self._admission = Admission()
        self._consumer: Consumer = client(Consumer, self._properties, self._admission)
        self._is_open = True
        self._offsets = Offsets(config)
        self._rejoined_s: list[float] = []
        self._released_s = time.monotonic()
        """When the name of this member was last its own, or when it began to ask for it."""
        self._member_s = self._looked_s = time.monotonic()
        """When the group last had this client as a member, and when that was last looked at."""
        self._outside_s = int(config.kafka.get("max.poll.interval.ms", _MAX_POLL_MS)) / 1000 + OUTSIDE_S
        self._owned: dict[int, str] = {}
        """The id under which the group gave each partition."""
        self._unproven: dict[int, TopicPartition] = {}
        """Partitions whose leader is yet to be asked whether it has the record before the position, with the latter."""
        self._unreadable: dict[int, PartitionStopped] = {}
        """Partitions whose next records cannot be taken apart, until they are read anew. Behind a batch that fails its
        checksum librdkafka 2.16 takes the middle of another one for the next, and believes the offsets there."""
        self._moved: set[int] = set()
        """Partitions that were taken, taken from another offset, or given up."""
        self._pieces = Pieces()
        self._listener: Listener

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener

        def on_assign(numbers: list[int]) -> None:
            self._owned |= dict.fromkeys(numbers, self._member_id())
            self._released_s = time.monotonic()
            listener.assigned(numbers)

        def on_revoke(numbers: list[int]) -> None:
            strange = self._of_another_id().intersection(numbers)
            if strange:
                listener.lost(sorted(strange))
            listener.revoked([number for number in numbers if number not in strange])
            self._give_up(numbers)

        def on_lost(numbers: list[int]) -> None:
            listener.lost(numbers)
            self._give_up(numbers)

        self._consumer.subscribe(
            [self._topic], on_assign=_callback(on_assign), on_revoke=_callback(on_revoke), on_lost=_callback(on_lost)
        )

    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]:
        self._look_after_membership()
        self._prove()
        records: dict[int, list[Record]] = defaultdict(list)
        missing: Gone = {}
        ends: dict[int, int] = {}
        self._moved.clear()
        for message in self._pieces.of(self._consumer.consume, max_records, timeout_s):
            if self._moved:
                self._drop_moved(records, missing, ends)
            error = message.error()
            if message.partition() in self._unreadable:
                pass
            elif error is None:
                records[message.partition()].append(record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[message.partition()] = message.offset()
            elif error.code() in _OUT_OF_RANGE and message.partition() is not None:
                missing[message.partition()] = error.str()
                self._unproven.pop(message.partition(), None)
            elif error.code() in _UNREADABLE and message.partition() is not None:
                fault, where = _UNREADABLE[error.code()], f"{self._topic}[{message.partition()}]"
                why = unreadable_records(where, error.str(), fault)
                self._unreadable[message.partition()] = why
                self.pause(message.partition())  # else it is fetched at full speed
            elif error.code() == KafkaError._FATAL:
                self._rejoin(error.str())
                break
            elif forbidden(error):
                raise failure(error, Fatal, "consumer", *self._needs)
            else:
                _log.warning("consumer-error", explained(error, "consumer", *self._needs))
        missing |= self._unreadable
        if strange := self._of_another_id():
            self._take_anew(strange)
        self._drop_moved(records, missing, ends)
        for number in self._unproven:
            records.pop(number, None)  # They are read again.
            ends.pop(number, None)
        # Not earlier: who is asked in a callback to save a partition does not have these records yet.
        self._ends |= ends
        return records, missing

    def _drop_moved(self, *found: dict[int, Any]) -> None:
        """Drop what came of partitions before a callback moved them; of each piece the client has done so itself."""
        for number in self._moved:
            for by_partition in found:
                by_partition.pop(number, None)
        self._moved.clear()

    def _look_after_membership(self) -> None:
        """A client whose session has ended may come back to its group late or never, and says nothing about it.

        librdkafka's issue 3437. The group's rebalances end within max.poll.interval.ms, and what takes longer, be it
        that the broker is away, is not made worse by a new client. Where the broker does not know us any more, as after
        a change of the password, none helps: the worker ends, as it does at a start, and the next one reads the secret
        anew. Raises WorkerError.
        """
        now = time.monotonic()
        if now - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now
        if self._is_member():
            self._member_s = now
        elif now - self._member_s > self._outside_s:
            reason = f"no member of its group for {now - self._member_s:.0f} s"
            self._admission.require(reason)
            self._rejoin(reason)

    def _is_member(self) -> bool:
        return bool(self._member_id())

    def _member_id(self) -> str:
        return self._consumer.memberid() or ""

    def _of_another_id(self) -> set[int]:
        """Partitions that came under an id that is not this client's any more: the group has given that member up.

        Where the group gives a static member up while it is joining, the client joins anew, keeps its partitions for
        as long as nothing else is said, and calls none of them lost (librdkafka, `rd_kafka_cgrp_handle_JoinGroup`).
        Somebody else may have had them in between.
        """
        now = self._member_id()
        return {number for number, then in self._owned.items() if then != now} if now else set()

    def _take_anew(self, partitions: Collection[int]) -> None:
        """Lose partitions and take them again, from what is committed by now."""
        numbers = sorted(partitions)
        _log.warning("back-in-the-group", f"in the group under another id: partitions {numbers} are opened anew")
        self._moved.update(numbers)
        self._listener.lost(numbers)
        self._owned |= dict.fromkeys(numbers, self._member_id())
        self._listener.assigned(numbers)

    def _rejoin(self, reason: str) -> None:
        """Go on as a new member in place of a consumer that is fatally ill. Raises WorkerError where it does not help.

        A static member whose session ends while the broker is away may be fenced by its own return. It looks the same
        as a second worker with the same group.instance.id, which will be fenced in its turn and fence this one again.
        """
        now = time.monotonic()
        self._rejoined_s = [then for then in self._rejoined_s if now - then < REJOIN_S]
        if _UNRELEASED in reason and now - self._released_s < RELEASE_S:
            # With group.protocol: consumer it is the newcomer that is refused, until the session of the dead has ended.
            _log.warning(
                "name-not-released", "the group has not noticed yet that the member of this name is gone", detail=reason
            )
            time.sleep(RELEASE_EVERY_S)
        elif len(self._rejoined_s) == MOST_REJOINS:
            raise Fatal(f"the consumer cannot go on, is there another with its group.instance.id? {reason}")
        else:
            self._rejoined_s.append(now)
            _log.warning("joining-anew", "the consumer cannot go on, joining anew", detail=reason)
        self._member_s = now
        self._listener.lost(sorted(self._owned))
        self._owned.clear()
        self._unproven.clear()
        self._unreadable.clear()
        self.close()
        self._consumer, self._is_open = client(Consumer, self._properties, self._admission), True
        self.subscribe(self._listener)

    def hold(self, partitions: Sequence[int]) -> None:
        read = self._read() & set(partitions)
        self._moved.update(partitions)
        for number in partitions:
            self._unproven.pop(number, None)
            self._ends.pop(number, None)
        if read:
            self._consumer.incremental_unassign([TopicPartition(self._topic, number) for number in read])
        # An answer to the group that takes nothing yet. A place that is not meant, be the partition paused, may win
        # over the one that `assign` gives later.
        self._consumer.incremental_assign([])

    def assign(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int | None] | None = None) -> None:
        epochs = leader_epochs or {}
        places = {
            number: TopicPartition(self._topic, number, offset, leader_epoch=_number_of(epochs.get(number)))
            for number, offset in offsets.items()
        }
        again = self._read() & offsets.keys()
        self._moved |= offsets.keys()
        for number in offsets:
            self._ends.pop(number, None)
            self._unreadable.pop(number, None)
        if again:
            self._consumer.incremental_unassign([TopicPartition(self._topic, number) for number in again])
        self._consumer.incremental_assign(list(places.values()))
        # A pause outlives the assignment, even one to somebody else in between.
        self._consumer.resume([TopicPartition(self._topic, number) for number in offsets])
        for number, place in places.items():
            self._unproven.pop(number, None)
            if place.leader_epoch is not None:
                self._unproven[number] = place
        self._prove()

    def _prove(self) -> None:
        """Have leaders asked whether they have the records before positions, as soon as partitions are being read.

        An assignment asks that only where the client has not heard of the partition before, a seek always does.
        """
        for number, place in list(self._unproven.items()):
            try:
                self._consumer.seek(place)
            except KafkaException as exception:
                if error_of(exception).code() not in _NOT_YET:
                    raise
            else:
                del self._unproven[number]

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def committed(self, partitions: Sequence[int]) -> dict[int, CommittedOffset | None]:
        return self._offsets.committed(partitions)

    def bounds(self, partition: int) -> Bounds:
        return self._offsets.bounds(partition)

    def high_watermark(self, partition: int) -> int | None:
        _, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
        return high if high >= 0 else None

    def end_seen(self, partition: int) -> int | None:
        return self._ends.get(partition)

    def membership(self) -> Membership:
        before = self._member_id()
        try:
            metadata = self._consumer.consumer_group_metadata()
        except RuntimeError:
            # A client that is being closed may be past being asked when its partitions are revoked.
            return Membership("", None)
        # The client's own thread may change both at any time: only what is between two equal ids is of that id.
        return Membership(before if before == self._member_id() else "", metadata)

    def trouble(self) -> str | None:
        return self._admission.recent()

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        try:
            self._consumer.commit(offsets=positions(self._topic, offsets), asynchronous=False)
        except KafkaException as exception:
            error = error_of(exception)
            kind = Transient if error.retriable() or error.code() == KafkaError._TIMED_OUT else Abort
            raise failure(error, kind, "commit of offsets", *self._needs) from exception

    def close(self) -> None:
        """A client that does not come to an end takes the process along.

        A member that is closed while its group rebalances may hang for ever in a callback that is due, and keep the
        interpreter: of a static one nobody is left then who answers what is asked there (librdkafka's issues 4041 and
        4884). So what is due is called before.
        """
        with within(CLOSE_S):
            for _ in range(2 if self._is_open else 0):
                self._consumer.consume(1, 0)
            self._is_open = False
            self._consumer.close()

    def _give_up(self, partitions: Sequence[int]) -> None:
        self._moved.update(partitions)
        for number in partitions:
            self._owned.pop(number, None)
            self._unproven.pop(number, None)
            self._unreadable.pop(number, None)
        try:
            read = self._read()
            self._consumer.incremental_unassign([TopicPartition(self._topic, n) for n in partitions if n in read])
        except KafkaException as exception:
            # A consumer that is being closed may be past being asked: it reads nothing any more.
            if error_of(exception).code() != KafkaError._DESTROY:
                raise

    def _read(self) -> set[int]:
        """Partitions that are read, or paused."""
        return {each.partition for each in self._consumer.assignment() if each.topic == self._topic}


def _callback(then: Callable[[list[int]], None]) -> Callable[[Consumer, list[TopicPartition]], None]:
    """A callback of the client, with the numbers of the partitions in order.

    What it raises arrives as it was raised. Of an exception the client keeps the value alone (confluent-kafka 2.16),
    and before Python 3.12 that is a mere text where C has raised it and no Python has caught it yet.
    """

    def call(_: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            then(sorted(partition.partition for partition in partitions))
        except BaseException:  # to catch it is what makes an exception of it
            raise

    return call


def positions(topic: str, offsets: Mapping[int, CommittedOffset]) -> list[TopicPartition]:
    """Offsets to commit, as the client takes them."""
    return [
        TopicPartition(topic, number, each.offset, metadata=each.metadata, leader_epoch=_number_of(each.leader_epoch))
        for number, each in offsets.items()
    ]


def _number_of(leader_epoch: int | None) -> int:
    return _NO_EPOCH if leader_epoch is None else leader_epoch
