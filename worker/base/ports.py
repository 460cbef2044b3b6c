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
    """The consumer of the group, one topic. See worker/adapters/kafka/consumer.py for what each method raises.

    Any thread may call `committed` and `bounds`, all other calls come from one.
    """

    def subscribe(self, listener: Listener) -> None: ...
    def consume(self, max_records: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]: ...
    def hold(self, partitions: Sequence[int]) -> None: ...
    def assign(self, offsets: Mapping[int, int], leader_epochs: Mapping[int, int | None] | None = None) -> None: ...
    def pause(self, partition: int) -> None: ...
    def committed(self, partitions: Sequence[int]) -> dict[int, CommittedOffset | None]: ...
    def bounds(self, partition: int) -> Bounds: ...
    def high_watermark(self, partition: int) -> int | None: ...
    def end_seen(self, partition: int) -> int | None: ...
    def membership(self) -> Membership: ...
    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None: ...
    def close(self) -> None: ...


class Output(Protocol):
    """The producer. After `Unknown` an instance is spent; a new one settles what it left open."""

    def publish(
        self, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Membership
    ) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
