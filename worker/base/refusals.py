"""What is said where a topic does not fit its checkpoints any more, or does not take what is to be published; and where
a partition cannot keep what it knows."""

from __future__ import annotations

from worker.base.errors import PartitionStopped

BACK_OR_RESTART = (
    "Set the parameters back, which loses nothing of these models (those that keys have begun since are refused then), "
    "or let these models start anew (models.on_spec_change: restart)"
)
SPEC_CHANGED = f"{BACK_OR_RESTART}; `amf-worker check CONFIG --connect` says what has changed"


def partitions_added(topic: str, known: int, found: int) -> str:
    return (
        f"topic {topic} has {found} partitions, its models were learned with {known}: their keys are in other "
        f"partitions now. Stop the producers, work off the {known} that the models know (`amf-worker run CONFIG "
        "--until end`), and take the models along with `amf-worker reshard CONFIG`; or let those of the keys that "
        "moved start anew (input.on_repartition: new-models)"
    )


def topic_recreated(topic: str, known_id: str, found_id: str) -> str:
    return (
        f"topic {topic} has the id {found_id}, its models were learned from one with the id {known_id}. If that one "
        "was deleted, begin anew as well: take another checkpoint.lineage, with checkpoint.warm_start if the models "
        "are to come along, or delete the checkpoints of the old topic. If it is a topic of another cluster that "
        "shares this checkpoint.url, such as production beside staging, delete nothing: give each cluster a URL of its "
        "own"
    )


def compacted_input(topic: str, policy: str) -> str | None:
    """For an input with this cleanup.policy; None where it is not compacted."""
    if "compact" not in policy.split(","):
        return None
    return (
        f"compacted-input: topic {topic} has cleanup.policy={policy}: records of a key vanish, so that a replay would "
        "learn something else than the first time. Give the events a topic with cleanup.policy=delete"
    )


def topic_deleted(topic: str, known_id: str) -> str:
    return f"topic {topic} with the id {known_id} does not exist any more. Its checkpoints are still there"


DAMAGED = (
    "are damaged",
    "If it was on the way from the broker a new start reads them well. Else the broker's log is damaged: have its "
    "leader be a replica that is whole, or set the group behind these records, which are lost then",
)
UNDECOMPRESSED = (
    "cannot be decompressed",
    "Decompressed, a batch may be larger than kafka.receive.message.max.bytes (100000000): raise that, up to "
    "2147483647. If that does not help set the group behind these records, and see who wrote them",
)


def unreadable_records(where: str, why: str, fault: tuple[str, str]) -> PartitionStopped:
    """For a partition of which the next records cannot be read. fault: what they are, and what to do."""
    what, hint = fault
    return PartitionStopped("unreadable-records", f"{where}: the next records {what}: {why}", hint)


def output_refused(partition: int, why: str) -> PartitionStopped:
    return PartitionStopped(
        "output-refused",
        f"partition {partition}: the broker refuses even the dead letter of the next record: {why}",
        "Have the topics of outputs and dead letters take it (max.message.bytes, message.timestamp.*, cleanup.policy), "
        "then start again",
    )


def commit_forgotten(partition: int, found: int, known: int) -> PartitionStopped:
    return PartitionStopped(
        "group-rewound",
        f"partition {partition}: the broker has the group at offset {found}, but this worker committed {known}: the "
        "broker lost commits, or somebody set the group back, and whether the last transaction took effect cannot be "
        "told",
        "Set the group behind the last record whose prediction or dead letter is there (header source-offset), to "
        f"{known} at least, then start again",
    )


def state_lost(partition: int, times: int, why: str) -> PartitionStopped:
    return PartitionStopped(
        "state-lost",
        f"partition {partition}: its models were lost again after {times} attempts to load them, none of which came to "
        f"a checkpoint: {why}",
        "See to the disk of models.spill and to the store, then start again: only time is lost",
    )
