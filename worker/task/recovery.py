"""Where a partition starts: the checkpoint, the offset from which records are taken, and that from which they count.

The committed offset decides; where there is none, the newest checkpoint; where there is none either, `input.start`, and
an empty checkpoint is written there, so that the prefix of every later one is defined. What cannot be exact is refused
under a name: a topic that is another one, or has other partitions, than the checkpoints know; a group that is before
what was saved, and so committed; records that are gone; a replay that would take other records than the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

import amf
from worker.base.errors import CorruptCheckpoint, PartitionStopped
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, ObjectStore
from worker.base.records import Bounds, CommittedOffset
from worker.checkpoint import About, Checkpoints, Location, Manifest, Pointer, SavedModel, Source
from worker.checkpoint.gaps import after_gap, gaps_of, record_gap
from worker.checkpoint.siblings import of_any_partition
from worker.config import Config, intake_of
from worker.state.entry import Fetch, Prefetch
from worker.state.model_store import ModelStore
from worker.task.model_reader import ModelReader
from worker.task.requirements import (
    no_checkpoint,
    require_agreement,
    require_complete,
    require_drained,
    require_engine,
    require_intake,
    require_not_beyond,
    require_not_rewound,
    require_partitions,
    require_same_topic,
    retention_gap,
)
from worker.task.warm_start import WarmStart

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the configuration and the topic say of every partition's start."""

    start: Literal["earliest", "latest"]
    on_gap: Literal["fail", "accept"]
    on_rewind: Literal["fail", "accept", "ignore"]
    on_repartition: Literal["fail", "new-models"]
    partitions: int
    """How many the topic has."""
    intake: dict[str, str]

    @classmethod
    def of(cls, config: Config, partitions: int) -> Terms:
        given = config.input
        # At least once, a worker that was put out of the group may still set it back: what is repeated is no news then.
        on_rewind = given.on_rewind if config.delivery == "exactly-once" else "ignore"
        return cls(given.start, given.on_gap, on_rewind, given.on_repartition, partitions, intake_of(config))


Load = Callable[[Iterable[tuple[str, SavedModel]], int, Fetch, Prefetch], ModelStore]
"""Makes models of those of a checkpoint at an offset. Raises CorruptCheckpoint."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where one partition starts."""

    checkpoints: Checkpoints
    """Of the lineage that goes on, which has one to start from."""
    pointer: Pointer | None
    """What was committed along with the committed offset."""
    live_from: int
    """Records from here on are predicted; those before it only replayed."""
    last_epoch: int | None
    """Leader epoch of the last record before those, None where it is not known."""
    committed: int | None
    """The offset of the group."""


@dataclass(frozen=True, slots=True)
class Opened(Start):
    """The state with which a partition goes on."""

    restored: Manifest
    """The checkpoint that the models are from."""
    manifest: Manifest
    """The newest checkpoint, on which the next one builds: that, or one of these models that was written since."""
    low: int
    """First offset that the partition had; before it there was no record of those to take."""
    models: ModelStore
    reader: ModelReader
    """Gives the models that only that checkpoint has."""
    position: int
    """First record to take."""
    about: About
    """What is known of the states to come, but how far they go."""


class _Lineage(NamedTuple):
    """A history that a partition may have."""

    checkpoints: Checkpoints
    gap: int | None
    """The offset behind the lost records, where it begins; None for the lineage that the configuration names."""

    def committed(self, known: int) -> int:
        """The last offset that was committed, as far as checkpoints prove it; `known` is one that was."""
        beyond = self.checkpoints.committed_beyond(known)
        return next((offset for offset in beyond if offset != self.gap), known)


class Recovery:
    """Finds the start of one partition. Store errors (Transient, WorkerError) pass through."""

    def __init__(
        self,
        store: ObjectStore,
        location: Location,
        terms: Terms,
        clock: Clock,
        metrics: Metrics,
        warm_start: WarmStart | None = None,
        new_fetchers: Callable[[], Executor] | None = None,
    ) -> None:
        self._store = store
        self._location = location
        self._where = location.title
        self._terms = terms
        self._clock = clock
        self._metrics = metrics
        self._warm_start = warm_start
        self._new_fetchers = new_fetchers
        self._partitions = max(terms.partitions, location.partition + 1)
        """How many the topic has: of one that was added the consumer knows before anybody has counted anew."""
        self._intake = terms.intake

    def open(self, committed: CommittedOffset | None, bounds: Bounds, load: Load) -> Opened:
        """The state for a committed offset in a partition with these records, by the newest whole checkpoint.

        Damaged ones are passed over, which may lead further back than the newest one. Raises PartitionStopped.
        """
        start = self._choose(committed, bounds)
        try:
            for manifest, saved in start.checkpoints.restorable(start.live_from, start.pointer):
                failpoint("restoring")
                offset = self._reach(manifest, bounds.low, start.live_from)
                # Of many models some are away again by the time that all are here, and a gap has all of them saved.
                reader = ModelReader(start.checkpoints, manifest, self._clock, self._new_fetchers)
                try:
                    models = load(saved, manifest.offset, reader.fetch, reader.prefetch)
                except CorruptCheckpoint as error:
                    # Several checkpoints may need what is damaged.
                    start.checkpoints.pass_over(f"the checkpoint at offset {manifest.offset}: {error}")
                    continue
                try:
                    return self._opened(start, manifest, models, reader, offset, bounds.low)
                except BaseException:
                    models.close()
                    raise
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        finally:
            self._metrics.checkpoints_skipped_total.add(len(start.checkpoints.skipped))
            start.checkpoints.skipped.clear()
        raise no_checkpoint(self._where, start.checkpoints, start.live_from)

    def covered(self, offset: int) -> int:
        """Up to where no record lies behind an offset, as far as anybody has saved that; the offset, where nobody has.

        It is a fact of the topic, whatever became of the history that says so.
        """
        found = [offset]
        for checkpoints, _ in self._lineages():
            with suppress(CorruptCheckpoint):
                manifest = checkpoints.newest(offset)
                found.append(offset if manifest is None else manifest.covered)
        return max(found)

    def _opened(
        self, start: Start, manifest: Manifest, models: ModelStore, reader: ModelReader, offset: int, low: int
    ) -> Opened:
        restored, checkpoints, live_from = manifest, start.checkpoints, max(offset, start.live_from)
        require_agreement(checkpoints, manifest.offset)
        if offset > manifest.offset:
            checkpoints, manifest = self._after_gap(manifest, models.sources(), offset)
        manifest = self._brought_up_to_date(checkpoints, manifest, live_from)
        reader.follow(checkpoints, manifest)
        begun = checkpoints, start.pointer, live_from, start.last_epoch, start.committed
        return Opened(*begun, restored, manifest, low, models, reader, offset, self._from_now_on(manifest))

    def _choose(self, at: CommittedOffset | None, bounds: Bounds) -> Start:
        """The start for a committed offset in a partition with these records. Raises PartitionStopped."""
        committed, pointer = (None, None) if at is None else (at.offset, Pointer.read(at.metadata))
        try:
            lineages = self._lineages()
            if committed is not None and self._terms.on_rewind != "ignore":
                newest = max(lineage.committed(committed) for lineage in lineages)
                require_not_rewound(self._location, committed, newest, self._terms.on_rewind)
            checkpoints, manifest = _newest(_committed(lineages, pointer), committed, pointer)
            if manifest is None:
                manifest = self._begin_history(checkpoints, committed, bounds)
            if not manifest.adopted:
                require_drained(manifest, committed)
                require_complete(self._store, manifest)
            require_partitions(manifest, self._partitions, self._terms.on_repartition)
            if not manifest.adopted:
                manifest = self._out_of_band(checkpoints, manifest)
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        live_from = manifest.offset if committed is None else committed
        require_not_beyond(self._where, live_from, bounds.end, committed=committed is not None)
        if committed is None:
            self._warn_of_no_offset(manifest)
        live_from = max(live_from, self._reach(manifest, bounds.low, live_from))
        # Behind a gap the record before is one that nobody has read. Whoever sets offsets leaves no pointer, and maybe
        # the epoch of an earlier commit, which is not that of the record before the offset.
        is_ours = at is not None and pointer is not None and at.offset == live_from
        last_epoch = at.leader_epoch if at is not None and is_ours else None
        return Start(checkpoints, pointer, live_from, last_epoch, committed)

    def _warn_of_no_offset(self, manifest: Manifest) -> None:
        """Only committed state is saved: a group that has no offset beside it had one, which expired or was deleted."""
        if manifest.offset > manifest.start_offset:
            _log.warning(
                "group-without-offset",
                f"{self._where}: the group has no offset, going on from the newest checkpoint, at {manifest.offset}",
                detail="what was predicted after that is predicted a second time: nothing, if it stopped in order",
                hint="A broker forgets the offsets of a group without members after offsets.retention.minutes",
                partition=self._location.partition,
                offset=manifest.offset,
            )

    def _reach(self, manifest: Manifest, low: int, live_from: int) -> int:
        """First record to take after a checkpoint in a topic that begins at `low`. Raises PartitionStopped.

        That is the checkpoint's offset, or `low` where the records before it are lost and the configuration accepts it.
        What the checkpoint covers were no records, and is no loss.
        """
        is_gap = low > manifest.covered
        if is_gap and self._terms.on_gap == "fail":
            raise retention_gap(manifest, low, live_from)
        offset = low if is_gap else manifest.offset
        if offset < live_from:
            require_engine(manifest, live_from)
            require_intake(manifest, self._intake, live_from)
        return offset

    def _after_gap(self, manifest: Manifest, models: Mapping[str, Source], offset: int) -> tuple[Checkpoints, Manifest]:
        """Go on at `offset` with the models of an earlier checkpoint: the first checkpoint of a lineage of its own."""
        checkpoints = Checkpoints(self._store, after_gap(self._location, offset))
        _log.warning(
            "gap-accepted",
            f"{self._where}: the records from {manifest.offset} to {offset} are lost, going on without them as lineage "
            f"{checkpoints.location.lineage}",
            partition=self._location.partition,
            offset=offset,
        )
        # Somebody may have come this far before, from another checkpoint: what is written last has to count.
        revision = checkpoints.revision_of_beginning(offset, manifest.state_hash)
        origin = f"gap after offset {manifest.offset} of lineage {manifest.location.lineage} ({manifest.state_hash})"
        written = self._write_first(checkpoints, offset, models, origin, revision)
        record_gap(self._store, self._location, offset)
        return checkpoints, written

    def _lineages(self) -> list[_Lineage]:
        """Those that began after a gap, the last one first, and the one that the configuration names."""
        gaps = gaps_of(self._store, self._location)
        after = [_Lineage(Checkpoints(self._store, after_gap(self._location, gap)), gap) for gap in gaps]
        return [*after, _Lineage(Checkpoints(self._store, self._location), None)]

    def _begin_history(self, checkpoints: Checkpoints, committed: int | None, bounds: Bounds) -> Manifest:
        """The checkpoint with which a history begins: empty, or with the models of a warm start."""
        require_same_topic(self._store, self._location)
        if committed is not None:
            raise no_checkpoint(self._where, checkpoints, committed)
        # Of another one, since this one has none.
        sibling = of_any_partition(self._store, self._location)
        if sibling is not None:
            require_partitions(sibling, self._partitions, self._terms.on_repartition)
            if not sibling.adopted:
                require_complete(self._store, sibling)
        # A partition that was added to a history has no records from before it, and no models. The newest checkpoint of
        # another one may know of it by now, which the oldest does not.
        oldest = of_any_partition(self._store, self._location, oldest=True)
        added = oldest is not None and self._location.partition >= (oldest.partitions or self._partitions)
        offset = bounds.low if self._terms.start == "earliest" or added else bounds.high
        origin: str | None = None
        models: Mapping[str, Source] = {}
        if self._warm_start is not None and not added:
            origin, models = self._warm_start.models_of(self._location.partition)
        _log.info(
            "history-begins",
            f"{self._where}: a new history begins at offset {offset} with {len(models)} models",
            partition=self._location.partition,
            offset=offset,
        )
        return self._write_first(checkpoints, offset, models, origin)

    def _write_first(
        self,
        checkpoints: Checkpoints,
        offset: int,
        models: Mapping[str, Source],
        origin: str | None,
        revision: int = 0,
    ) -> Manifest:
        """Write the checkpoint with which a lineage begins: these models at this offset."""
        about = About(
            engine=amf.ENGINE,
            location=checkpoints.location,
            start_offset=offset,
            offset=offset,
            covered=offset,
            revision=revision,
            created_ms=self._clock.wall_ms(),
            origin=origin,
            partitions=self._partitions,
            intake=self._intake,
        )
        return checkpoints.write(about, models)

    def _brought_up_to_date(self, checkpoints: Checkpoints, manifest: Manifest, live_from: int) -> Manifest:
        """A checkpoint that knows how many partitions there are now, what is taken from now on, and who learns of it.

        Whoever replays records must know that of them. While some are to be replayed it stays as it is: the next one
        will know.
        """
        known = (manifest.partitions or self._partitions, manifest.intake or self._intake, manifest.engine)
        if manifest.offset < live_from or known == (self._partitions, self._intake, amf.ENGINE):
            return manifest
        return self._out_of_band(checkpoints, manifest)

    def _out_of_band(self, checkpoints: Checkpoints, manifest: Manifest) -> Manifest:
        """Write a checkpoint with the models and the offset of this one, under what holds from now on."""
        revision = checkpoints.unused_revision(manifest.offset, manifest.revision)
        about = replace(self._from_now_on(manifest), created_ms=self._clock.wall_ms(), revision=revision)
        return checkpoints.write(about, {}, previous=manifest)

    def _from_now_on(self, manifest: Manifest) -> About:
        """What is known of a state that follows from this one: who learns, and what is taken of which partitions."""
        now = {"engine": amf.ENGINE, "partitions": self._partitions, "intake": self._intake, "adopted": True}
        return replace(manifest.about, **now)


def _committed(lineages: Sequence[_Lineage], pointer: Pointer | None) -> Sequence[_Lineage]:
    """Less those that began after a gap which nobody has committed, where it is known what was.

    Who goes on after a gap commits that at once: so whoever found the later one was put out of the group before.
    """
    names = [lineage.checkpoints.location.lineage for lineage in lineages]
    return lineages if pointer is None or pointer.lineage not in names else lineages[names.index(pointer.lineage) :]


def _newest(
    lineages: Sequence[_Lineage], committed: int | None, pointer: Pointer | None
) -> tuple[Checkpoints, Manifest | None]:
    """The newest checkpoint at or before the committed offset, after the last gap that lies before it.

    A gap behind which nothing is saved may be one that nobody has committed, unless the pointer names it: then what was
    saved as far, and so committed, without that gap counts for more.
    """
    for i, (checkpoints, gap) in enumerate(lineages):
        if (manifest := checkpoints.newest(committed, pointer)) is None:
            continue
        if manifest.offset == gap and (pointer is None or pointer.lineage != manifest.location.lineage):
            with suppress(CorruptCheckpoint):
                before, further = _newest(lineages[i + 1 :], committed, pointer)
                if further is not None and further.offset >= gap:
                    return before, further
        return checkpoints, manifest
    return lineages[-1].checkpoints, None
