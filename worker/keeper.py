"""The checkpoints of one partition in time: where to start from, when to save, and what is on its way to the store.

Snapshots are taken by the loop, between two batches, of state whose offset is committed; a thread of its own writes
them, one at a time for each partition. A checkpoint that could not be written is made up for by the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Literal, TypeVar

import amf
from worker.checkpoint import Checkpoints, Location, Manifest, Model, Policy
from worker.errors import CorruptCheckpoint, PartitionStopped, Transient, WorkerError
from worker.metrics import Metrics
from worker.partition import Partition
from worker.ports import Clock, Deadline, ObjectStore

_log = logging.getLogger(__name__)

T = TypeVar("T")
_RETRY_S = 0.5


def patiently(clock: Clock, deadline: Deadline, what: str, call: Callable[[], T]) -> T:
    """Call until it does not raise Transient; the last one passes through when the deadline does."""
    while True:
        try:
            return call()
        except Transient as error:
            if deadline.remaining() <= _RETRY_S:
                raise
            _log.warning("%s: %s; trying again", what, error)
            clock.sleep(_RETRY_S)


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
    ) -> None:
        self._checkpoints = Checkpoints(store, location)
        self._where = f"{location.topic}[{location.partition}]"
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._writer = writer
        self._partition = location.partition
        self._previous: Manifest | None = None
        self._start_offset = -1
        self._at_most: int | None = None
        self._last_s = clock.monotonic()
        self._writing: tuple[Future[Manifest], dict[str, Model], set[str]] | None = None

    @property
    def offset(self) -> int:
        """Offset of the checkpoint that the partition starts from."""
        assert self._previous is not None
        return self._previous.offset

    def begin(
        self, committed: int | None, bounds: tuple[int, int], start: Literal["earliest", "latest"]
    ) -> tuple[int, int]:
        """Choose where to start: (offset of the checkpoint, offset from which on records are predicted).

        The committed offset decides; where there is none, the newest checkpoint; where there is none either, `start`,
        and an empty checkpoint is written there, so that the prefix of every later one is defined. Raises
        PartitionStopped, Transient.
        """
        low, high = bounds
        try:
            manifest = self._checkpoints.newest(committed)
            if manifest is None and committed is None:
                manifest = self._found(low if start == "earliest" else high)
            if manifest is None:
                raise self._no_checkpoint(committed)
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        live_from = manifest.offset if committed is None else committed
        self._at_most = live_from
        self._require(manifest.offset, low, live_from)
        self._show(manifest)
        self._previous, self._start_offset = manifest, manifest.start_offset
        return manifest.offset, live_from

    def restore(self, partition: Partition, low: int) -> None:
        """Give the partition the newest checkpoint whose models are whole.

        Damaged ones are passed over, which may lead further back than `begin` said. Raises PartitionStopped, Transient.
        """
        try:
            for manifest, data in self._checkpoints.restorable(self._at_most):
                models = {key: (manifest.models[key].spec, model) for key, model in data.items()}
                try:
                    partition.restore(models, manifest.offset, partition.live_from)
                except CorruptCheckpoint as error:
                    self._checkpoints.skipped.append(str(error))
                    continue
                self._require(manifest.offset, low, partition.live_from)
                self._previous, self._start_offset = manifest, manifest.start_offset
                return
        except CorruptCheckpoint as error:
            raise PartitionStopped("corrupt-checkpoint", f"{self._where}: {error}") from error
        finally:
            for problem in self._checkpoints.skipped:
                _log.warning("%s: checkpoint passed over: %s", self._where, problem)
            self._metrics.checkpoints_skipped_total.add(len(self._checkpoints.skipped))
            self._checkpoints.skipped.clear()
        raise self._no_checkpoint(self._at_most)

    def save_if_due(self, partition: Partition) -> None:
        """Start a checkpoint of the partition as it is, if one is due and none is on its way."""
        self._finish(partition, wait_s=0.0)
        now = self._clock.monotonic()
        if self._writing is None and self._policy.due(now, self._last_s, partition.dirty):
            self._start(partition)

    def save(self, partition: Partition, deadline: Deadline) -> bool:
        """Checkpoint the partition as it is and wait for it; False if that did not happen before the deadline."""
        self._finish(partition, wait_s=deadline.remaining())
        if self._writing is not None:
            return False
        if not partition.dirty:
            return True
        self._start(partition)
        return self._finish(partition, wait_s=deadline.remaining())

    def _found(self, offset: int) -> Manifest:
        """The empty checkpoint with which a history begins."""
        _log.info("%s: a new history begins at offset %d", self._where, offset)
        return self._checkpoints.write(
            offset=offset,
            start_offset=offset,
            engine=amf.ENGINE,
            created_ms=self._clock.wall_ms(),
            dirty={},
        )

    def _start(self, partition: Partition) -> None:
        changed, removed = partition.snapshot()
        offset, previous, start_offset = partition.position, self._previous, self._start_offset
        created_ms = self._clock.wall_ms()

        def write() -> Manifest:
            started = time.perf_counter()
            manifest = self._checkpoints.write(
                offset=offset,
                start_offset=start_offset,
                engine=amf.ENGINE,
                created_ms=created_ms,
                dirty=changed,
                removed=removed,
                previous=previous,
            )
            self._metrics.checkpoint_duration_seconds.add(time.perf_counter() - started, 1)
            try:
                self._checkpoints.collect_garbage(created_ms, manifest)
            except WorkerError as error:
                _log.warning("%s: old checkpoints are still there: %s", self._where, error)
            return manifest

        self._last_s = self._clock.monotonic()
        self._writing = (self._writer.submit(write), changed, removed)

    def _finish(self, partition: Partition, wait_s: float) -> bool:
        """Look after the checkpoint on its way; False if it failed or is not done yet."""
        if self._writing is None:
            return True
        writing, changed, removed = self._writing
        try:
            manifest = writing.result(timeout=wait_s)
        except TimeoutError:
            return False
        except (WorkerError, OSError) as error:
            _log.warning("%s: checkpoint not written, the next one will hold its models: %s", self._where, error)
            self._metrics.checkpoint_failures_total.add(1)
            partition.snapshot_failed(changed, removed)
            if isinstance(error, CorruptCheckpoint):
                # What the last checkpoint points into is damaged; the models in memory are not.
                partition.mark_all_changed()
                self._previous = None
            self._writing = None
            return False
        self._previous = manifest
        self._writing = None
        self._metrics.checkpoints_total.add(1)
        self._show(manifest)
        return True

    def _show(self, manifest: Manifest) -> None:
        size = sum(entry.length for entry in manifest.models.values())
        self._metrics.checkpoint_last_timestamp_seconds.set(manifest.created_ms / 1000, partition=self._partition)
        self._metrics.checkpoint_last_size_bytes.set(size, partition=self._partition)

    def _require(self, offset: int, low: int, live_from: int) -> None:
        if low > offset:
            raise PartitionStopped(
                "retention-gap",
                f"{self._where}: the checkpoint is at offset {offset}, the group at {live_from}, but the topic begins "
                f"at {low}: {low - offset} records that the models need are gone. Start a new history with another "
                "checkpoint.lineage, and let retention.ms exceed checkpoint.interval by far",
            )

    def _no_checkpoint(self, committed: int | None) -> PartitionStopped:
        offsets = self._checkpoints.offsets()
        there = f"the oldest is at {offsets[0]}" if offsets else "there is none at all"
        return PartitionStopped(
            "no-checkpoint",
            f"{self._where}: the group is at offset {committed}, and no checkpoint is at or before it ({there}). Check "
            "checkpoint.url and checkpoint.lineage; to begin anew, take another lineage or reset the group's offsets",
        )
