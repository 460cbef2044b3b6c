"""What must hold of a partition for it to go on exactly; where it does not, the partition stops under a name.

What a function raises, or returns, is a PartitionStopped with the numbers and the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

import amf
from worker.base.errors import PartitionStopped, WorkerError
from worker.base.log import Log
from worker.base.ports import ObjectStore
from worker.base.records import Record
from worker.base.refusals import partitions_added, topic_recreated
from worker.checkpoint import Checkpoints, Location, Manifest
from worker.checkpoint.siblings import of_another_topic, partitions_there

_log = Log(__name__)

_BEGIN_ANEW = (
    "begin anew: take another checkpoint.lineage, and delete the group's offsets of the topic while no worker runs "
    "(kafka-consumer-groups --delete-offsets), so that it starts at input.start"
)

_AFTER_LOSS = (
    "Find where the log was cut off: the broker's end offset, if it is named above; else where the first epoch begins "
    "after that of the last record predicted, in leader-epoch-checkpoint in the partition's folder on its leader. "
    "Delete the checkpoints beyond that offset and set the group to it, which has what came since predicted; "
    f"or {_BEGIN_ANEW}"
)


def require_same_topic(store: ObjectStore, location: Location) -> None:
    """A topic without any checkpoint must not be one that was deleted and made anew: its models are elsewhere."""
    former = of_another_topic(store, location)
    if former is not None:
        raise PartitionStopped(
            "topic-recreated", topic_recreated(location.topic, former.location.topic_id, location.topic_id)
        )


def require_partitions(manifest: Manifest, found: int, on_repartition: Literal["fail", "new-models"]) -> None:
    """Keys are in other partitions where their number has changed."""
    known, location = manifest.partitions, manifest.location
    if known is None or known == found:
        return
    if on_repartition == "fail":
        raise PartitionStopped("partitions-added", partitions_added(location.topic, known, found))
    _log.warning(
        "partitions-added",
        f"{location.title}: {found} partitions instead of {known}, models of keys that moved start anew",
        partition=location.partition,
    )


def require_drained(manifest: Manifest, committed: int | None) -> None:
    """A checkpoint that was made offline is of use where the group stands where it was taken."""
    if committed not in (None, manifest.offset):
        raise PartitionStopped(
            "not-drained",
            f"{manifest.location.title}: the models were put there by {manifest.origin} for offset {manifest.offset}, "
            f"but the group is at {committed}: records in between belong to models that are elsewhere now",
            "Go back to the lineage before, with the producers stopped: `amf-worker run CONFIG --until end`, then "
            "`amf-worker reshard CONFIG --into` another name",
        )


def require_complete(store: ObjectStore, manifest: Manifest) -> None:
    """A history that was made offline has a checkpoint of each partition: without one its models would start anew.

    Asked by all partitions, so none of them goes on before it can be made complete no more.
    """
    missing = set(range(manifest.partitions or 0)) - partitions_there(store, manifest.location)
    if missing:
        raise PartitionStopped(
            "no-checkpoint",
            f"{manifest.location.title}: the models were put there by {manifest.origin}, which did not end: "
            f"{len(missing)} of {manifest.partitions} partitions have none, {min(missing)} among them",
            "Run `amf-worker reshard` once more with the same options, which writes what is missing",
        )


def require_not_rewound(location: Location, committed: int, newest: int, on_rewind: Literal["fail", "accept"]) -> None:
    """Only state whose offset is committed is saved: a group before that has lost commits, or was set back.

    What its offset says may then have been published already. newest: offset of the newest checkpoint.
    """
    if committed < newest:
        fact = f"{location.title}: the group is at offset {committed}, but has been at {newest}"
        if on_rewind == "fail":
            raise PartitionStopped(
                "group-rewound",
                f"{fact}, of which there is a checkpoint: somebody set it back, or the broker lost commits",
                f"Set it to {newest} or later, where the last prediction ends; or have {newest - committed} records "
                "and more predicted a second time (input.on_rewind: accept)",
            )
        _log.warning(
            "rewind-accepted",
            f"{fact}: the records in between, and those after them that were predicted, are predicted a second time",
            partition=location.partition,
            offset=committed,
        )


def require_not_beyond(where: str, live_from: int, end: int, *, committed: bool) -> None:
    """Records that come below the offset from which they are predicted would be learned and never predicted.

    committed: whether that offset is the group's; it is that of the newest checkpoint where the group has none.
    """
    if live_from > end:
        what = "the group is" if committed else "the group has no offset, the newest checkpoint is"
        raise PartitionStopped(
            "offset-out-of-range",
            f"{where}: {what} at offset {live_from}, but the topic ends at {end}: the broker has lost "
            f"records that were predicted, and others may take their place",
            f"Where the records before {end} are what they were, delete the checkpoints beyond it and set the group "
            f"to it; else {_BEGIN_ANEW}",
        )


def require_not_replaced(where: str, records: Sequence[Record], live_from: int, last_epoch: int | None) -> None:
    """Records below the offset from which they are predicted must be those that were predicted.

    A leader that is elected has a greater epoch than those before it. last_epoch: that of the last record which was
    predicted. Where it is not known, or that of a record is not, the one may have come in the place of the other
    unnoticed.
    """
    if last_epoch is None:
        return
    for record in records:
        if record.leader_epoch is not None and record.leader_epoch > last_epoch:
            raise PartitionStopped(
                "offset-out-of-range",
                f"{where}: the record at offset {record.offset} was written in leader epoch {record.leader_epoch}, but "
                f"what was predicted, up to the group's offset {live_from}, ends with epoch {last_epoch}: the broker "
                f"has lost records that were predicted, and others have come in their place",
                _AFTER_LOSS,
            )


def require_engine(manifest: Manifest, live_from: int) -> None:
    """Another version of the learner would make other models of the records that were learned once."""
    if manifest.engine != amf.ENGINE:
        raise PartitionStopped(
            "engine-changed",
            f"{manifest.location.title}: {live_from - manifest.offset} records up to offset {live_from} must be "
            f"replayed as they were learned, by {manifest.engine}, and this is {amf.ENGINE}",
            f"Start the version with {manifest.engine} once more and stop it in order (SIGTERM), which leaves nothing "
            "to be replayed; then change over",
        )


def require_intake(manifest: Manifest, now: Mapping[str, str], live_from: int) -> None:
    """Records that were learned must be taken, or not, as they were the first time. now: what the keys say by now."""
    then = manifest.intake or {}
    differing = [key for key in sorted(then.keys() & now.keys()) if then[key] != now[key]]
    if differing:
        changes = ", ".join(f"{key} was {then[key]} and is {now[key]}" for key in differing)
        raise PartitionStopped(
            "intake-changed",
            f"{manifest.location.title}: {live_from - manifest.offset} records up to offset {live_from} must be "
            f"replayed as they were taken, but the configuration has changed: {changes}",
            "Start once more with the former values and stop in order (SIGTERM), which leaves nothing to be replayed; "
            "then change them",
        )


def require_agreement(checkpoints: Checkpoints, offset: int) -> None:
    """The models are a function of the input: there are no two states at one offset."""
    if keys := checkpoints.diverged(offset):
        raise divergence(checkpoints.location, offset, keys)


def divergence(location: Location, offset: int, keys: Sequence[str]) -> PartitionStopped:
    """For checkpoints of one offset that do not agree on these models."""
    return PartitionStopped(
        "divergence",
        f"{location.title}: the checkpoints at offset {offset} do not agree on {len(keys)} models, {keys[0]!r} among "
        "them: a worker has learned something else from the same records",
        "Stop all workers, find out which (a faulty machine, another build), delete the checkpoints from offset "
        f"{offset} on and start the good ones again: they learn from the checkpoint before it",
    )


def retention_gap(manifest: Manifest, low: int, live_from: int) -> PartitionStopped:
    """For a topic that begins after the checkpoint."""
    offset = manifest.offset
    return PartitionStopped(
        "retention-gap",
        f"{manifest.location.title}: the checkpoint is at offset {offset}, the group at {live_from}, but the topic "
        f"begins at {low}: {low - manifest.covered} records that the models need are gone",
        "Go on without them under a lineage of its own (input.on_gap: accept), and let retention.ms exceed "
        f"checkpoint.interval by far; or {_BEGIN_ANEW}",
    )


def next_is_missing(where: str, why: str) -> PartitionStopped:
    """For a partition whose next record does not exist, or does not follow the last one. why: what the client says."""
    return PartitionStopped(
        "offset-out-of-range",
        f"{where}: {why}",
        f"Where retention has deleted records, input.on_gap: accept goes on without them. Where the broker has lost "
        f"them: {_AFTER_LOSS[0].lower()}{_AFTER_LOSS[1:]}",
    )


def no_checkpoint(where: str, checkpoints: Checkpoints, committed: int | None) -> PartitionStopped:
    """For a group that stands where no checkpoint leads to."""
    offsets = checkpoints.offsets()
    there = f"the oldest is at {offsets[0]}" if offsets else "there is none at all"
    others: list[str] = []
    with suppress(WorkerError):  # it is said without them as well
        others = checkpoints.other_lineages()
    of_others = f" (the store has checkpoints of {', '.join(others)})" if others else ""
    return PartitionStopped(
        "no-checkpoint",
        f"{where}: the group is at offset {committed}, and no checkpoint of what it has committed is at or before it "
        f"({there})",
        f"Check checkpoint.url and checkpoint.lineage{of_others}; or {_BEGIN_ANEW}",
    )
