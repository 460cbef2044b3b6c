"""The checkpoints of one partition in time: what to restore, when to save, and what is on its way to the store.

Snapshots are taken by the loop, between two batches, of state whose offset is committed; a thread of its own turns
them into bytes and writes them, one at a time for each partition. A checkpoint that could not be written is made up
for by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import amf
from worker.beginning import Beginning, no_checkpoint
from worker.checkpoint import Checkpoints, Location, Manifest, Policy
from worker.errors import CorruptCheckpoint, NotFound, PartitionStopped, StateLost, Transient, WorkerError
from worker.failpoints import failpoint
from worker.metrics import Metrics
from worker.partition import Partition
from worker.ports import Clock, Deadline, ObjectStore

_log = logging.getLogger(__name__)

FETCH_S = 0.5
"""Longest time that the loop waits for models which only the store has. Their partition waits for more, no other."""
_AFTER_FAILURE_S = 5.0
"""A store that failed is left alone for so long, though the recovery budget is spent."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """A checkpoint on its way to the store."""

    manifest: Future[Manifest]
    removed: set[str]
    replay_s: float
    """Cost of replaying what it holds and the one before it does not."""
    started_s: float


class Keeper:
    """Checkpoints of one partition, for the thread of the loop."""

    def __init__(
        self,
        store: ObjectStore,
        location: Location,
        policy: Policy,
        clock: Clock,
        metrics: Metrics,
        writer: Executor,
        beginning: Beginning,
        fetchers: Executor | None = None,
    ) -> None:
        self._checkpoints = Checkpoints(store, location)
        self._beginning = beginning
        self._where = f"{location.topic}[{location.partition}]"
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._writer = writer
        self._partition = location.partition
        self._fetchers = fetchers
        self._fetching: tuple[Manifest | None, dict[str, Future[bytes]]] = None, {}
        """Models that are read from a checkpoint, or have been and were not taken yet."""
        self._previous: Manifest | None = None
        self._confirmed: Manifest | None = None
        """The last checkpoint that is known to be in the store, also where the next one is not to build on it."""
        self._start_offset = -1
        self._revision = 0
        self._origin: str | None = None
        self._at_most: int | None = None
        self._retry_s = clock.monotonic()
        self.last_s = self._retry_s
        """When the last checkpoint was started, or else the partition came."""
        self._writing: _Writing | None = None
        self.replay_s = 0.0
        """Cost of replaying what came since the last snapshot, at most: the time that it took when it came."""
        self.writing_s = 0.0
        """Time that the last checkpoint took to write."""

    @property
    def saved_offset(self) -> int | None:
        """Offset of the newest checkpoint; None where it is damaged and not made up for yet."""
        return None if self._previous is None else self._previous.offset

    def begin(self, committed: int | None, bounds: tuple[int, int]) -> int:
        """Choose where to start; returns the offset from which on records are predicted.

        See worker/beginning.py. Raises PartitionStopped, Transient.
        """
        start = self._beginning.choose(committed, *bounds)
        self._checkpoints = start.checkpoints
        self._at_most = start.live_from
        self._show(start.manifest)
        self._build_on(start.manifest)
        return start.live_from

    def restore(self, partition: Partition, low: int) -> None:
        """Give the partition the newest checkpoint whose models are whole.

        Damaged ones are passed over, which may lead further back than `begin` said. Raises PartitionStopped, Transient.
        """
        try:
            for manifest, models in self._checkpoints.restorable(self._at_most):
                failpoint("restoring")
                offset = self._beginning.reach(manifest, low, partition.live_from)
                try:
                    live_from = max(offset, partition.live_from)
                    partition.restore(models, offset, live_from, self._fetch, self._prefetch)
                except CorruptCheckpoint as error:
                    self._checkpoints.pass_over(str(error))
                    continue
                self._require_agreement(manifest.offset)
                if offset > manifest.offset:
                    self._checkpoints, manifest = self._beginning.after_gap(manifest, partition.sources(), offset)
                manifest = self._beginning.brought_up_to_date(self._checkpoints, manifest, partition.live_from)
                partition.go_by(manifest.location.lineage)
                self._build_on(manifest)
                return
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        finally:
            for problem in self._checkpoints.skipped:
                _log.warning("%s: checkpoint passed over: %s", self._where, problem)
            self._metrics.checkpoints_skipped_total.add(len(self._checkpoints.skipped))
            self._checkpoints.skipped.clear()
        raise no_checkpoint(self._where, self._checkpoints, self._at_most)

    def repartitioned(self, partitions: int) -> None:
        """The topic has so many partitions by now: what is saved from now on says so."""
        self._beginning.partitions = max(partitions, self._beginning.partitions)

    def took(self, seconds: float) -> None:
        """The partition took records, which took so long: no replay of them, which only learns, will take longer."""
        self.replay_s += seconds

    def look_after(self, partition: Partition) -> None:
        """See to the checkpoint on its way, if there is one. Raises PartitionStopped."""
        self._finish(partition, wait_s=0.0)
        on_its_way = 0.0 if self._writing is None else self._writing.replay_s
        self._metrics.checkpoint_replay_cost_seconds.set(on_its_way + self.replay_s, partition=self._partition)

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is on its way to the store."""
        return self._writing is not None

    @property
    def is_overdue(self) -> bool:
        """Whether the last checkpoint was started longer ago than an interval."""
        return self._policy.is_over(self._clock.monotonic() - self.last_s)

    def can_save(self, partition: Partition) -> bool:
        """Whether there is something to save, and the store did not fail a moment ago."""
        return partition.dirty and self._clock.monotonic() >= self._retry_s

    def save(self, partition: Partition, deadline: Deadline, *, by_decree: bool = False) -> bool:
        """Checkpoint the partition as it is and wait for it; False if that did not happen before the deadline.

        `by_decree` says that it was changed without a record. Raises PartitionStopped.
        """
        self._revision += by_decree
        self._finish(partition, wait_s=deadline.remaining())
        if self._writing is not None:
            return False
        if not partition.dirty:
            return True
        self.start(partition)
        return self._finish(partition, wait_s=deadline.remaining())

    def start(self, partition: Partition) -> None:
        """Start a checkpoint of the partition as it is; none may be on its way."""
        frozen, removed = partition.snapshot()
        offset, previous, start_offset = partition.position, self._previous, self._start_offset
        revision, origin = self._revision, self._origin
        partitions, intake = self._beginning.partitions, self._beginning.intake
        created_ms = self._clock.wall_ms()

        def write() -> Manifest:
            started_s = self._clock.monotonic()
            manifest = self._checkpoints.write(
                offset=offset,
                start_offset=start_offset,
                engine=amf.ENGINE,
                created_ms=created_ms,
                dirty={key: model.take for key, model in frozen.items()},
                removed=removed,
                previous=previous,
                revision=revision,
                origin=origin,
                partitions=partitions,
                intake=intake,
            )
            self._metrics.checkpoint_duration_seconds.add(self._clock.monotonic() - started_s, 1)
            self._clean_up(manifest)
            return manifest

        now = self._clock.monotonic()
        self._writing = _Writing(self._writer.submit(write), removed, self.replay_s, now)
        self.last_s, self.replay_s = now, 0.0

    def _clean_up(self, manifest: Manifest) -> None:
        """After a checkpoint: compare it with others of its offset, then remove what is not needed any more."""
        try:
            self._require_agreement(manifest.offset)
            self._checkpoints.collect_garbage(manifest.created_ms, manifest)
        except PartitionStopped:
            raise
        except WorkerError as error:
            _log.warning("%s: old checkpoints are still there: %s", self._where, error)

    def _finish(self, partition: Partition, wait_s: float) -> bool:
        """Look after the checkpoint on its way; False if it failed or is not done yet."""
        if self._writing is None:
            return True
        writing = self._writing
        try:
            manifest = writing.manifest.result(timeout=wait_s)
        except TimeoutError:
            return False
        except (PartitionStopped, StateLost):
            self._writing = None
            raise
        except (WorkerError, OSError) as error:
            _log.warning("%s: checkpoint not written, the next one will hold its models: %s", self._where, error)
            self._metrics.checkpoint_failures_total.add(1)
            partition.snapshot_failed(writing.removed)
            if isinstance(error, CorruptCheckpoint):
                # What the last checkpoint points into is damaged; the models in memory are not.
                partition.mark_all_changed()
                self._previous = None
            self.replay_s += writing.replay_s
            self._retry_s = self._clock.monotonic() + min(_AFTER_FAILURE_S, self._policy.interval_s)
            self._writing = None
            return False
        partition.snapshot_done()
        self._previous = self._confirmed = manifest
        self._writing = None
        self.writing_s = self._clock.monotonic() - writing.started_s
        self._metrics.checkpoints_total.add(1)
        self._show(manifest)
        return True

    def _show(self, manifest: Manifest) -> None:
        size = sum(entry.length for entry in manifest.models.values())
        self._metrics.checkpoint_last_timestamp_seconds.set(manifest.created_ms / 1000, partition=self._partition)
        self._metrics.checkpoint_last_size_bytes.set(size, partition=self._partition)

    def _prefetch(self, keys: Sequence[str]) -> None:
        """Have models read beside the loop, all at once, and wait for them for a moment only. Raises Transient.

        None is taken before all of them are there: what comes into memory one by one might have to leave again.
        """
        if self._fetchers is None:
            return
        manifest, reading = self._fetching
        if manifest is not self._confirmed:
            reading = {}
            self._fetching = self._confirmed, reading
        for key in keys:
            if key not in reading:
                reading[key] = self._fetchers.submit(self._load_one, key)
        until_s = self._clock.monotonic() + FETCH_S
        for key in keys:
            try:
                reading[key].exception(max(0.0, until_s - self._clock.monotonic()))
            except TimeoutError:
                raise Transient(f"{self._where}: model {key!r} has not come from the store in {FETCH_S:g} s") from None

    def _fetch(self, key: str) -> bytes:
        """A model that is as the last checkpoint has it. Raises Transient, StateLost."""
        manifest, reading = self._fetching
        found = reading.pop(key, None) if manifest is self._confirmed else None
        return self._load_one(key) if found is None else found.result()

    def _load_one(self, key: str) -> bytes:
        assert self._confirmed is not None
        try:
            return self._checkpoints.load_one(self._confirmed, key)
        except (CorruptCheckpoint, NotFound) as error:
            raise StateLost(f"{self._where}: {error}") from error

    def _build_on(self, manifest: Manifest) -> None:
        self._previous = self._confirmed = manifest
        self._start_offset, self._revision, self._origin = manifest.start_offset, manifest.revision, manifest.origin

    def _require_agreement(self, offset: int) -> None:
        """The models are a function of the input: there are no two states at one offset."""
        if keys := self._checkpoints.diverged(offset):
            raise PartitionStopped(
                "divergence",
                f"{self._where}: the checkpoints at offset {offset} do not agree on {len(keys)} models, {keys[0]!r} "
                "among them: a worker has learned something else from the same records. Stop all workers, find out "
                f"which (a faulty machine, another build), delete the checkpoints from offset {offset} on and start "
                "the good ones again: they learn from the checkpoint before it",
            )
