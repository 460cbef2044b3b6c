"""Whether models can move to other partitions: nobody works on the topic, and every record of it is in the checkpoints.

Asked of the broker, before `reshard` writes anything. What is missing is refused with the steps in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from worker.adapters.kafka import KafkaAdmin, KafkaGroup, KafkaInput
from worker.adapters.store import open_store
from worker.base.errors import Fatal
from worker.base.ports import Clock, Deadline, Input, ObjectStore
from worker.checkpoint import History, Manifest, history
from worker.cli.reshard import reshard
from worker.cli.terminal import progress, status
from worker.config import Config, history_of, repartition
from worker.service import SystemClock

READ_S = 30.0
"""Longest time to find out whether there is a record between two offsets."""

STEPS = """The steps, in their order:
  1. stop the producers
  2. amf-worker run CONFIG --until end: reads to the end what is there, also where partitions have been added already
  3. stop all workers in order (SIGTERM)
  4. add the partitions (kafka-topics --alter --topic TOPIC --partitions N)
  5. amf-worker reshard CONFIG
  6. set checkpoint.lineage to the name that it prints
  7. amf-worker check CONFIG --connect, then start the workers, then the producers"""


def ask_and_reshard(
    config: Config, target: ObjectStore, new_topic: str | None, into: str | None, *, drop_astray: bool
) -> list[Manifest]:
    """Reshard the models of a configuration for the partitions that its topic has, or a new one. Raises WorkerError."""
    if config.input.repartition:
        config = repartition.of_worker(config)
    store = open_store(config.checkpoint.url)
    with status("asking the broker whether every record is in the checkpoints"):
        old, partitions, topic = _asked(config, store, new_topic)
    with progress("resharding", of="models") as advance:
        return reshard(old, store, target, partitions, topic=topic, into=into, drop_astray=drop_astray, advance=advance)


def _asked(
    config: Config, store: ObjectStore, new_topic: str | None
) -> tuple[list[Manifest], int, tuple[str, str] | None]:
    """The history that can move, to how many partitions, and name and id of the topic if that is a new one."""
    admin = KafkaAdmin(config)
    facts = admin.facts(config.input.topic)  # First of all: where no broker answers it says at which address.
    require_nobody_at_work(KafkaGroup(config))
    old = history(store, History(*history_of(config), facts.topic_id).topic_prefix)
    if new_topic is None:
        require_added(config.input.topic, len(old), facts.partitions)
    elif facts.partitions > len(old):
        raise Fatal(
            f"topic {config.input.topic} has {facts.partitions} partitions, and the models know {len(old)}: move them "
            "there first, without --topic"
        )
    source = KafkaInput(config)
    try:
        require_drained(old, facts.partitions, source, SystemClock())
    finally:
        source.close()
    if new_topic is None:
        return old, facts.partitions, None
    of_new = admin.facts(new_topic)
    return old, of_new.partitions, (new_topic, of_new.topic_id)


class Group(Protocol):
    """The group of the workers."""

    name: str

    def has_members(self) -> bool:
        """Whether anybody is in it."""
        ...


def require_nobody_at_work(group: Group) -> None:
    """Raises Fatal."""
    if group.has_members():
        raise missing(
            3,
            f"group {group.name} has live members. Stop them; one with a group.instance.id is gone once its session "
            "has ended (session.timeout.ms)",
        )


def require_added(topic: str, known: int, found: int) -> None:
    """The topic must have more partitions than the models know. Raises Fatal."""
    if found <= known:
        raise missing(4, f"topic {topic} has {found} partitions, and the models were learned with {known}")


def require_drained(old: Sequence[Manifest], partitions: int, source: Input, clock: Clock) -> None:
    """The group must stand at the checkpoints, with no record behind them. Raises Fatal."""
    committed = source.committed(range(partitions))
    topic, n = old[0].location.topic, len(old)
    for number in range(n, partitions):
        at = committed[number]
        if at is not None and at.offset > 0:
            raise Fatal(
                f"{topic}[{number}]: the group is at offset {at.offset} of a partition of which the models know "
                f"nothing: workers of another lineage have been at work on it. Go back to that lineage; or delete the "
                f"group's offset there (kafka-consumer-groups --delete-offsets), which has its records predicted again"
            )
    for manifest in old:
        number, at = manifest.location.partition, committed[manifest.location.partition]
        if at is not None and at.offset != manifest.offset:
            raise missing(
                2, f"{topic}[{number}]: the newest checkpoint is at offset {manifest.offset}, the group at {at.offset}"
            )
    if unread := dict(_unread(old, source, clock)):
        shown = ", ".join(f"{topic}[{number}] from offset {offset} on" for number, offset in unread.items())
        raise missing(2, f"there are records that no model has learned: {shown}")


def missing(step: int, fact: str) -> Fatal:
    """What is said where a step has not been done."""
    return Fatal(f"step {step} is not done: {fact}. Nothing was written", STEPS)


def _unread(old: Sequence[Manifest], source: Input, clock: Clock) -> Iterator[tuple[int, int]]:
    """Partitions with records behind these checkpoints, and the first of them.

    The end alone does not tell: behind the last record there may be markers of transactions, some of them deleted.
    """
    behind = dict[int, int]()
    for manifest in old:
        (low, high, _), number = source.bounds(manifest.location.partition), manifest.location.partition
        if high > manifest.offset:
            behind[number] = low if manifest.offset < low <= manifest.covered else manifest.offset
    if not behind:
        return
    source.assign(behind)
    deadline, open_ = Deadline.after(clock, READ_S), set(behind)
    while open_:
        if deadline.passed():
            raise Fatal(f"partitions {sorted(open_)} could not be read to their ends within {READ_S:g} s; try again")
        records, gone = source.consume(100, 0.1)
        for number in sorted(open_):
            if found := records.get(number):
                yield number, found[0].offset
                open_.discard(number)
            elif number in gone:
                raise Fatal(f"partition {number} cannot be read from offset {behind[number]}: {gone[number]}")
            elif source.end_seen(number) is not None:
                open_.discard(number)
