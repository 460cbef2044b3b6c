"""What the core needs from the outside world, as protocols. Adapters implement them; the core imports nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.base.errors import PartitionStopped
from worker.base.records import Bounds, CommittedOffset, Membership, Outgoing, Record, Reject


class Clock(Protocol):
    """Time. Decisions are made from `monotonic` alone; the wall clock only stamps what people read."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""
        ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """One point in time that all steps of a task share, so that their waits cannot add up."""

    clock: Clock
    at_s: float
    """In the clock's monotonic seconds."""

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, 0 once the time is up."""
        return max(0.0, self.at_s - self.clock.monotonic())

    def passed(self) -> bool:
        return self.clock.monotonic() >= self.at_s


class ObjectStore(Protocol):
    """Immutable objects by name. Every method blocks until it is done or has given up, and may be called by any thread.

    A name is a path of segments joined by `/`; a segment is not empty, does not begin with a dot and holds no control
    character. All methods raise `Transient` where the same call may succeed later, `Denied` where it is refused, and
    another `WorkerError` where it never will.
    After `Transient` from `create` or `delete` the outcome is unknown; both may simply be called again.
    """

    def create(self, name: str, data: bytes) -> None:
        """Store an object durably, whole or not at all. Repeating a create with the same content succeeds.

        Raises `AlreadyExists` if an object of that name has other content; it stays as it is.
        """
        ...

    def read(self, name: str) -> bytes:
        """The whole object. Raises `NotFound`."""
        ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """`length` (> 0) bytes from `start`; fewer, or none, where the object ends before. Raises `NotFound`."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Sorted names of all objects below the folder `prefix` ("" for all); none if there is no such folder."""
        ...

    def delete(self, *names: str) -> None:
        """Remove objects, in any order and in few requests; it is no error if there are none of these names."""
        ...


class Place(Protocol):
    """Where bytes are that left memory."""

    @property
    def length(self) -> int:
        """How many bytes they are; 0 where that is not known before they are read."""
        ...

    def read(self) -> bytes:
        """The bytes. Raises `StateLost` where they do not come back as they were."""
        ...

    def free(self) -> None:
        """They are not needed any more."""
        ...


class Spill(Protocol):
    """Room for bytes outside of memory, for as long as the process lives. Any thread may call."""

    @property
    def used_bytes(self) -> int:
        """How much of it is in use."""
        ...

    def put(self, data: bytes) -> Place | None:
        """Keep the bytes; None where there is no room for them."""
        ...


class SchemaRegistry(Protocol):
    """Schemas of values. All methods may be called by any thread, and block until they are done or have given up.

    They raise `Transient` where the registry cannot be asked. It is asked once for each schema: what a value is depends
    on its bytes and its schema, which never changes. The first `n` bytes of a value are the framing, which names it.
    """

    def read_avro(self, value: bytes, n: int) -> object:
        """What Python has for the Avro datum in the value; a `Reject` where there is none."""
        ...

    def check_json(self, value: bytes, n: int) -> Reject | None:
        """Why the JSON in the value, which is well-formed, is not what its schema demands; None where it is."""
        ...

    def avro_writer(self, topic: str, schema: str, example: object) -> Callable[[object], bytes]:
        """What frames data of the schema for a topic; from now on it asks nobody. Raises `WorkerError` if refused."""
        ...

    def json_writer(self, topic: str, schema: str) -> Callable[[object], bytes]:
        """What frames JSON text for a topic; from now on it asks nobody. Raises `WorkerError` if refused."""
        ...


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as of now."""

    topic_id: str
    partitions: int
    begins: Mapping[int, int]
    """First offset that exists, by partition; none where that is not known."""
    cleanup_policy: str = ""
    """What becomes of its old records, empty where that is not known."""


class Listener(Protocol):
    """Told of partitions that come and go, from within `Input.consume` and `Input.close`."""

    def assigned(self, partitions: Sequence[int]) -> None:
        """New partitions: `Input.hold` or `Input.assign` them before returning."""
        ...

    def revoked(self, partitions: Sequence[int]) -> None:
        """Partitions to be given up in order; they are still owned until this returns."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Partitions that somebody else owns already: drop them, write nothing."""
        ...


Gone = dict[int, str | PartitionStopped]
"""Partitions of which the next record is not there, and what the client says; or why it will never be had."""


class Input(Protocol):
    """The consumer of the group, one topic. The listener is called from within `consume` and `close`.

    Any thread may call `committed` and `bounds`, which block until there is an answer or none is to be had. All other
    calls come from one thread, of which `consume`, `commit` and `close` wait for the broker.
    """

    def subscribe(self, listener: Listener) -> None:
        """Join the group."""
        ...

    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]:
        """Records by partition, each in the order of offsets; and partitions whose next offset does not exist, why.

        Waits for records for so long. Raises WorkerError where the broker does not allow to read or to be in the group.
        """
        ...

    def hold(self, partitions: Sequence[int]) -> None:
        """Take partitions and read nothing of them before `assign` says from where on."""
        ...

    def assign(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int | None] | None = None) -> None:
        """Take partitions, each from its offset on; one that is taken already, paused or not, is moved there.

        leader_epochs: of the records before these offsets, where they are known. The leader is asked then whether that
        record is still there; where it was lost, be there others in its place by now, the offset does not exist.
        """
        ...

    def pause(self, partition: int) -> None:
        """Fetch no more records of a partition while it stays assigned."""
        ...

    def committed(self, partitions: Sequence[int]) -> dict[int, CommittedOffset | None]:
        """Stable committed offsets of the group: none that an open transaction may still change. Raises Transient."""
        ...

    def bounds(self, partition: int) -> Bounds:
        """Where the records of a partition begin and end. Raises Transient."""
        ...

    def high_watermark(self, partition: int) -> int | None:
        """Offset after the last record as of the last fetch, without asking the broker; None before the first."""
        ...

    def end_seen(self, partition: int) -> int | None:
        """Offset before which there is no record that `consume` has not returned since `assign`; None if none was seen.

        Markers of transactions have offsets too, and so has what was aborted: it may be past the last record's. What a
        transaction has written that is still open lies behind it.
        """
        ...

    def membership(self) -> Membership:
        """Who this member is now; to be taken with the records and handed back with their offsets."""
        ...

    def trouble(self) -> str | None:
        """What a connection to a broker has failed of a moment ago; None where none has."""
        ...

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        """Commit offsets outside of a transaction (at-least-once).

        Raises Abort where the group refuses them, and Transient where it does not answer.
        """
        ...

    def close(self) -> None:
        """Give up all partitions and leave the group."""
        ...


class Output(Protocol):
    """The producer. After `Unknown` an instance is spent; a new one settles what it left open. All methods block."""

    def publish(self, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Membership) -> None:
        """One transaction: all records and the offsets, or nothing. Raises Abort, Refused, Transient, Unknown;
        WorkerError where the broker does not allow it.

        Without transactions: the records alone; the offsets are the consumer's to commit afterwards.
        """
        ...

    def abort(self) -> None:
        """Give up the open transaction. Raises Unknown."""
        ...

    def close(self) -> None:
        """Drop what was not sent, and end the client."""
        ...
