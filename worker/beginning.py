"""Where a partition starts: the checkpoint, the offset from which records are taken, and that from which they count.

The committed offset decides; where there is none, the newest checkpoint; where there is none either, `input.start`, and
an empty checkpoint is written there, so that the prefix of every later one is defined. What cannot be exact is refused
under a name: a topic that is another one, or has other partitions, than the checkpoints know; a group that is before
what was saved, and so committed; records that are gone; a replay that would take other records than the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import amf
from worker.checkpoint import Checkpoints, Location, Manifest, Source
from worker.checkpoint.gaps import after_gap, gaps_of, record_gap
from worker.checkpoint.siblings import of_another_partition, of_another_topic
from worker.config import Config
from worker.errors import CorruptCheckpoint, PartitionStopped
from worker.ports import Clock, ObjectStore
from worker.refusals import partitions_added, topic_recreated
from worker.warm_start import WarmStart

_log = logging.getLogger(__name__)


def intake_of(config: Config) -> dict[str, str]:
    """The keys that decide which records are learned, beside those that are in the specs of the models."""
    return {
        "input.codec": config.input.codec,
        "input.max_bytes": str(config.input.max_bytes),
        "input.model_key": config.input.model_key,
        "input.tombstones": config.input.tombstones,
        "models.max_models": str(config.models.max_models),
        "models.null_key": "null" if config.models.null_key is None else repr(config.models.null_key),
    }


@dataclass(frozen=True, slots=True)
class Terms:
    """What the configuration and the topic say of every partition's start."""

    start: Literal["earliest", "latest"]
    on_gap: Literal["fail", "accept"]
    on_rewind: Literal["fail", "accept"]
    on_repartition: Literal["fail", "new-models"]
    partitions: int
    """How many the topic has."""
    intake: dict[str, str]

    @classmethod
    def of(cls, config: Config, partitions: int) -> Terms:
        given = config.input
        # At least once, a worker that was put out of the group may still set it back: what is repeated is no news then.
        on_rewind = given.on_rewind if config.delivery == "exactly-once" else "accept"
        return cls(given.start, given.on_gap, on_rewind, given.on_repartition, partitions, intake_of(config))


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition starts."""

    checkpoints: Checkpoints
    manifest: Manifest
    offset: int
    """First record to take: that after the checkpoint, or the first one that is left where some are lost."""
    live_from: int
    """Records from here on are predicted; those before it only replayed."""


class _Lineage(NamedTuple):
    """A history that a partition may have."""

    checkpoints: Checkpoints
    gap: int | None
    """The offset behind the lost records, where it begins; None for the lineage that the configuration names."""

    def committed(self) -> int:
        """The last offset that was committed, as far as checkpoints prove it; that after a gap proves nothing yet."""
        return max((offset for offset in self.checkpoints.offsets() if offset != self.gap), default=0)


class Beginning:
    """Finds the start of one partition. Store errors (Transient, WorkerError) pass through."""

    def __init__(
        self, store: ObjectStore, location: Location, terms: Terms, clock: Clock, warm_start: WarmStart | None
    ) -> None:
        self._store = store
        self._location = location
        self._where = f"{location.topic}[{location.partition}]"
        self._terms = terms
        self._clock = clock
        self._warm_start = warm_start
        self.partitions = max(terms.partitions, location.partition + 1)
        """How many the topic has: of one that was added the consumer knows before anybody has counted anew."""
        self.intake = terms.intake

    def choose(self, committed: int | None, low: int, high: int) -> Start:
        """The start for a committed offset in a topic with the records [low, high). Raises PartitionStopped."""
        try:
            lineages = self._lineages()
            if committed is not None and self._terms.on_rewind == "fail":
                self._require_not_rewound(lineages, committed)
            checkpoints, manifest = _newest(lineages, committed)
            if manifest is None:
                manifest = self._found(checkpoints, committed, low, high)
            if not manifest.adopted:
                manifest = self._adopted(checkpoints, manifest, committed)
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        self._require_partitions(manifest)
        live_from = manifest.offset if committed is None else committed
        self._require_not_beyond(live_from, high)
        offset = self.reach(manifest, low, live_from)
        return Start(checkpoints, manifest, offset, max(live_from, offset))

    def reach(self, manifest: Manifest, low: int, live_from: int) -> int:
        """First record to take after a checkpoint in a topic that begins at `low`. Raises PartitionStopped.

        That is the checkpoint's offset, or `low` where the records before it are lost and the configuration accepts it.
        """
        offset = manifest.offset
        if low > offset and self._terms.on_gap == "fail":
            raise PartitionStopped(
                "retention-gap",
                f"{self._where}: the checkpoint is at offset {offset}, the group at {live_from}, but the topic begins "
                f"at {low}: {low - offset} records that the models need are gone. Start a new history with another "
                "checkpoint.lineage, or go on without them (input.on_gap: accept), and let retention.ms exceed "
                "checkpoint.interval by far",
            )
        if max(offset, low) < live_from:
            self._require_engine(manifest, live_from)
            self._require_intake(manifest, live_from)
        return max(offset, low)

    def after_gap(self, manifest: Manifest, models: Mapping[str, Source], offset: int) -> tuple[Checkpoints, Manifest]:
        """Go on at `offset` with the models of an earlier checkpoint: the first checkpoint of a lineage of its own."""
        checkpoints = Checkpoints(self._store, after_gap(self._location, offset))
        _log.warning(
            "%s: the records from %d to %d are lost, going on without them as lineage %s",
            self._where, manifest.offset, offset, checkpoints.location.lineage,
        )  # fmt: skip
        # Somebody may have come this far before, from another checkpoint: what is written last has to count.
        before = checkpoints.newest(offset)
        written = checkpoints.write(
            offset=offset,
            start_offset=offset,
            engine=amf.ENGINE,
            created_ms=self._clock.wall_ms(),
            dirty=models,
            revision=0 if before is None or before.state_hash == manifest.state_hash else before.revision + 1,
            origin=f"gap after offset {manifest.offset} of lineage {manifest.location.lineage} ({manifest.state_hash})",
            partitions=self.partitions,
            intake=self.intake,
        )
        record_gap(self._store, self._location, offset)
        return checkpoints, written

    def _lineages(self) -> list[_Lineage]:
        """Those that began after a gap, the last one first, and the one that the configuration names."""
        gaps = gaps_of(self._store, self._location)
        after = [_Lineage(Checkpoints(self._store, after_gap(self._location, gap)), gap) for gap in gaps]
        return [*after, _Lineage(Checkpoints(self._store, self._location), None)]

    def _found(self, checkpoints: Checkpoints, committed: int | None, low: int, high: int) -> Manifest:
        """The checkpoint with which a history begins: empty, or with the models of a warm start."""
        self._require_same_topic()
        if committed is not None:
            raise no_checkpoint(self._where, checkpoints, committed)
        sibling = of_another_partition(self._store, self._location)
        if sibling is not None:
            self._require_partitions(sibling)
        # A partition that was added to a history has no records from before it, and no models. The newest checkpoint of
        # another one may know of it by now, which the oldest does not.
        oldest = of_another_partition(self._store, self._location, oldest=True)
        added = oldest is not None and self._location.partition >= (oldest.partitions or self.partitions)
        offset = low if self._terms.start == "earliest" or added else high
        origin: str | None = None
        models: Mapping[str, Source] = {}
        if self._warm_start is not None and not added:
            origin, models = self._warm_start.models_of(self._location.partition)
        _log.info("%s: a new history begins at offset %d with %d models", self._where, offset, len(models))
        return checkpoints.write(
            offset=offset,
            start_offset=offset,
            engine=amf.ENGINE,
            created_ms=self._clock.wall_ms(),
            dirty=models,
            origin=origin,
            partitions=self.partitions,
            intake=self.intake,
        )

    def _adopted(self, checkpoints: Checkpoints, manifest: Manifest, committed: int | None) -> Manifest:
        """A checkpoint that was made offline, once it is sure that the group stands where it was taken."""
        if committed not in (None, manifest.offset):
            raise PartitionStopped(
                "not-drained",
                f"{self._where}: the models were put there by {manifest.origin} for offset {manifest.offset}, but the "
                f"group is at {committed}: records in between belong to models that are elsewhere now. Go back to the "
                "lineage before, work off the input with its producers stopped, stop the workers, and do it again",
            )
        self._require_partitions(manifest)
        return self._by_decree(checkpoints, manifest)

    def brought_up_to_date(self, checkpoints: Checkpoints, manifest: Manifest, live_from: int) -> Manifest:
        """A checkpoint that knows how many partitions there are now, and what is taken from now on.

        While records are to be replayed it stays as it is: the next one will know.
        """
        known = (manifest.partitions or self.partitions, manifest.intake or self.intake)
        if manifest.offset < live_from or known == (self.partitions, self.intake):
            return manifest
        return self._by_decree(checkpoints, manifest)

    def _by_decree(self, checkpoints: Checkpoints, manifest: Manifest) -> Manifest:
        """The same models at the same offset, under what holds from now on."""
        return checkpoints.write(
            offset=manifest.offset,
            start_offset=manifest.start_offset,
            engine=manifest.engine,
            created_ms=self._clock.wall_ms(),
            dirty={},
            previous=manifest,
            revision=manifest.revision + 1,
            origin=manifest.origin,
            partitions=self.partitions,
            intake=self.intake,
        )

    def _require_partitions(self, manifest: Manifest) -> None:
        known, found = manifest.partitions, self.partitions
        if known is None or known == found:
            return
        if self._terms.on_repartition == "fail":
            raise PartitionStopped("partitions-added", partitions_added(self._location.topic, known, found))
        _log.warning("%s: %d partitions instead of %d, models of keys that moved start anew", self._where, found, known)

    def _require_not_rewound(self, lineages: Sequence[_Lineage], committed: int) -> None:
        """Only state whose offset is committed is saved: a group that is before that has lost commits, or was set back.

        What its offset says may then have been published already.
        """
        newest = max(lineage.committed() for lineage in lineages)
        if committed < newest:
            raise PartitionStopped(
                "group-rewound",
                f"{self._where}: the group is at offset {committed}, but has been at {newest}, of which there is a "
                f"checkpoint: somebody set it back, or the broker lost commits. Set it to {newest} or later, where the "
                f"last prediction ends; or have {newest - committed} records and more predicted a second time "
                "(input.on_rewind: accept)",
            )

    def _require_not_beyond(self, live_from: int, high: int) -> None:
        """Records that come below the offset from which they are predicted would be learned and never predicted."""
        if live_from > high:
            raise PartitionStopped(
                "offset-out-of-range",
                f"{self._where}: the group is at offset {live_from}, but the topic ends at {high}: the broker has lost "
                f"records that were predicted, and others may take their place. Set the group to {high}, with "
                "input.on_rewind: accept, where the records before it are what they were; else begin anew under "
                "another checkpoint.lineage",
            )

    def _require_same_topic(self) -> None:
        """A topic without any checkpoint must not be one that was deleted and made anew: its models are elsewhere."""
        former = of_another_topic(self._store, self._location)
        if former is not None:
            raise PartitionStopped(
                "topic-recreated",
                topic_recreated(self._location.topic, former.location.topic_id, self._location.topic_id),
            )

    def _require_engine(self, manifest: Manifest, live_from: int) -> None:
        """Another version of the learner would make other models of the records that were learned once."""
        if manifest.engine != amf.ENGINE:
            raise PartitionStopped(
                "engine-changed",
                f"{self._where}: {live_from - manifest.offset} records up to offset {live_from} must be replayed as "
                f"they were learned, by {manifest.engine}, and this is {amf.ENGINE}. Start the former version once "
                "more and stop it in order (SIGTERM), which leaves nothing to be replayed; then upgrade",
            )

    def _require_intake(self, manifest: Manifest, live_from: int) -> None:
        """Records that were learned must be taken, or not, as they were the first time."""
        then, now = manifest.intake or {}, self.intake
        differing = [key for key in sorted(then.keys() & now.keys()) if then[key] != now[key]]
        if differing:
            changes = ", ".join(f"{key} was {then[key]} and is {now[key]}" for key in differing)
            raise PartitionStopped(
                "intake-changed",
                f"{self._where}: {live_from - manifest.offset} records up to offset {live_from} must be replayed as "
                f"they were taken, but the configuration has changed: {changes}. Start once more with the former "
                "values and stop in order (SIGTERM), which leaves nothing to be replayed; then change them",
            )


def _newest(lineages: Sequence[_Lineage], committed: int | None) -> tuple[Checkpoints, Manifest | None]:
    """The newest checkpoint at or before the committed offset, after the last gap that lies before it."""
    for checkpoints, _ in lineages:
        manifest = checkpoints.newest(committed)
        if manifest is not None:
            break
    return checkpoints, manifest


def no_checkpoint(where: str, checkpoints: Checkpoints, committed: int | None) -> PartitionStopped:
    """For a group that stands where no checkpoint leads to."""
    offsets = checkpoints.offsets()
    there = f"the oldest is at {offsets[0]}" if offsets else "there is none at all"
    return PartitionStopped(
        "no-checkpoint",
        f"{where}: the group is at offset {committed}, and no checkpoint is at or before it ({there}). Check "
        "checkpoint.url and checkpoint.lineage; to begin anew, take another lineage or reset the group's offsets",
    )
