"""The checkpoints of one partition in time: when there is something to save, and what is on its way to the store.

Snapshots are taken by the loop, between two batches, of state whose offset is committed; a thread of its own turns
them into bytes and writes them, one at a time for each partition. A checkpoint that could not be written is made up
for by the next one. What nobody needs any more is removed after one that is written, by another thread: a store that
is slow with that holds up no checkpoint of other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from worker.base.errors import CorruptCheckpoint, NoRoom, PartitionStopped, StateLost, WorkerError
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Deadline
from worker.checkpoint import Manifest, Pointer, Policy
from worker.state.copy_on_write import CopyOnWrite
from worker.task.recovery import Opened
from worker.task.requirements import divergence

_log = Log(__name__)

_AFTER_FAILURE_S = 5.0
"""A store that failed is left alone for so long, though the recovery budget is spent."""


class Reach(NamedTuple):
    """How far a state goes."""

    offset: int
    """That of the next record, as far as it is committed."""
    covered: int
    """Up to where it is known that no record lies behind `offset`."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A checkpoint that is in the store."""

    manifest: Manifest
    cleaning: Future[None] | None
    """The clean-up that it has brought about."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """A checkpoint on its way to the store."""

    job: Future[_Written]
    removed: set[str]
    replay_s: float
    """Cost of replaying what it holds and the one before it does not."""
    started_s: float
    out_of_band: bool
    """Whether it holds a change that no record has made."""


class Checkpointer:
    """Checkpoints of one partition that has been opened, for the thread of the loop."""

    def __init__(
        self, opened: Opened, policy: Policy, clock: Clock, metrics: Metrics, writers: Executor, cleaners: Executor
    ) -> None:
        self._checkpoints = opened.checkpoints
        self._models = opened.models
        self._reader = opened.reader
        self._location = opened.checkpoints.location
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._writers = writers
        self._cleaners = cleaners
        self._about = opened.about
        """What is known of each state that is saved, but how far it goes."""
        self._previous: Manifest | None = opened.manifest
        """What the next checkpoint builds on; None where it is damaged, so that the next one has to hold everything."""
        self._snapshot_at: Reach | None = Reach(opened.position, opened.manifest.covered)
        """Of the last snapshot; None where that was in vain."""
        self._pointer = self._opened = Pointer.to(opened.manifest)
        self.must_be_saved = False
        """Whether the state was changed without a record, and the newest checkpoint is of before that."""
        self._committed = opened.pointer
        """What is committed along with the committed offset, as far as it is known."""
        self._retry_s = clock.monotonic()
        self.last_s = self._retry_s
        """When the last checkpoint was started, or else the partition was opened."""
        self._writing: _Writing | None = None
        self._cleaning: Future[None] | None = None
        """The clean-up after the last checkpoint, as long as it is not known to be over."""
        self.replay_s = 0.0
        """Cost of replaying what came since the last snapshot, at most: the time that it took when it came."""
        self.writing_s = 0.0
        """Time that the last checkpoint took to write."""
        self._show(opened.manifest)

    @property
    def saved_offset(self) -> int | None:
        """Offset of the newest checkpoint; None where it is damaged and not made up for yet."""
        return None if self._previous is None else self._previous.offset

    @property
    def covered(self) -> int | None:
        """Up to where retention may delete without harm to the newest checkpoint; None where that is damaged."""
        return None if self._previous is None else self._previous.covered

    @property
    def metadata(self) -> str:
        """What is to be committed along with an offset of the partition from now on."""
        return self._pointer.metadata()

    def was_committed(self, metadata: str) -> None:
        """This was committed along with an offset."""
        self._committed = Pointer.read(metadata)

    @property
    def must_be_committed(self) -> bool:
        """Whether a change out of band is saved, but not committed: nobody takes it into account before that."""
        known = (self._committed.lineage, self._committed.revision) if self._committed is not None else None
        if known is None:
            return self._pointer.revision > 0
        return known != (self._pointer.lineage, self._pointer.revision)

    def repartitioned(self, partitions: int) -> None:
        """The topic has so many partitions by now: what is saved from now on says so."""
        self._about = replace(self._about, partitions=max(partitions, self._about.partitions or 0))

    def add_replay_cost(self, seconds: float) -> None:
        """The partition took records, which took so long: no replay of them, which only learns, will take longer."""
        self.replay_s += seconds

    def poll(self) -> None:
        """See to the checkpoint on its way, and to the clean-up after it. Raises PartitionStopped, StateLost."""
        self._finish(wait_s=0.0)
        self._finish_cleaning(wait_s=0.0)
        self._show_cost()

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is on its way to the store."""
        return self._writing is not None

    @property
    def on_its_way_s(self) -> float:
        """Cost of replaying what the checkpoint on its way holds and the one before it does not."""
        return 0.0 if self._writing is None else self._writing.replay_s

    @property
    def is_overdue(self) -> bool:
        """Whether the last checkpoint was started longer ago than an interval."""
        return self._policy.is_over(self._clock.monotonic() - self.last_s)

    def can_start(self, reach: Reach) -> bool:
        """Whether there is something to save of this state, and the store can take it: it did not fail just now."""
        is_cleaning = self._cleaning is not None and self._cleaning.running()
        if self._writing is not None or is_cleaning or self._clock.monotonic() < self._retry_s:
            return False
        return self._is_dirty(reach)

    def change_out_of_band(self) -> None:
        """The state was changed without a record: nothing may be committed before that is saved."""
        self.must_be_saved = True

    def save(self, reach: Reach, deadline: Deadline) -> None:
        """Checkpoint the state that goes so far and wait for it until the deadline. Raises PartitionStopped, StateLost.

        A clean-up has what is left of the time: who ends now may never come to it again.
        """
        self._finish(wait_s=deadline.remaining())
        if self._writing is None and self._is_dirty(reach):
            self.start(reach)
            self._finish(wait_s=deadline.remaining())
        self._show_cost()
        self._finish_cleaning(wait_s=deadline.remaining())

    def start(self, reach: Reach) -> None:
        """Start a checkpoint of the state that goes so far; none may be on its way."""
        copies, removed = self._models.snapshot()
        self._snapshot_at, position = reach, reach.offset
        previous, out_of_band = self._previous, self.must_be_saved
        pointer, committed = self._pointer, self._committed or self._opened
        about = replace(self._about, offset=position, covered=reach.covered, created_ms=self._clock.wall_ms())
        cleaning, self._cleaning = self._cleaning, None

        def write() -> _Written:
            # One thread at a time is at the checkpoints. A clean-up that waits for its turn is left to a later one.
            if cleaning is not None and not cleaning.cancel():
                cleaning.result()
            started_s = self._clock.monotonic()
            revision, known = pointer.revision, committed.revision_in(self._location.lineage)
            if out_of_band:
                revision = self._checkpoints.unused_revision(pointer.offset, revision)
            dirty = {key: copy.take for key, copy in sorted(copies.items())}
            try:
                manifest = self._checkpoints.write(replace(about, revision=revision), dirty, removed, previous)
            except NoRoom:
                # There may never be any, unless what nobody needs any more goes first.
                if previous is not None:
                    self._clean_up(previous, known)
                raise
            self._metrics.checkpoint_duration_seconds.add(self._clock.monotonic() - started_s, 1)
            if previous is None or previous.offset != position or copies or removed:  # else it is that of the last one
                self._compare(lambda: {position: self._checkpoints.diverged(position)})
            is_untidy = self._checkpoints.is_untidy(manifest)
            return _Written(manifest, self._cleaners.submit(self._clean_up, manifest, known) if is_untidy else None)

        now = self._clock.monotonic()
        job = self._writers.submit(write)
        job.add_done_callback(lambda _: _drop(copies.values()))
        self._writing = _Writing(job, removed, self.replay_s, now, out_of_band)
        self.last_s, self.replay_s = now, 0.0

    def close(self) -> None:
        """Write nothing more, but for what a thread is writing already, and read no model."""
        self._reader.close()
        if self._writing is not None:
            self._writing.job.cancel()
        if self._cleaning is not None:
            self._cleaning.cancel()

    def _is_dirty(self, reach: Reach) -> bool:
        """Whether the last snapshot is not of this state, or not of this offset, from which replay would start.

        Nor is it where more is covered by now: retention may delete that, and nobody could tell it from lost records.
        """
        last = self._snapshot_at
        return last is None or reach.offset != last.offset or reach.covered > last.covered or self._models.dirty

    def _clean_up(self, manifest: Manifest, committed: int | None) -> None:
        """Now and then after a checkpoint: remove what nobody needs any more.

        What others have written in the meantime is seen only then: to list the files each time would cost more than
        the checkpoint. committed: the revision that is committed. Raises PartitionStopped.
        """
        self._compare(partial(self._checkpoints.tidy, manifest, committed))

    def _compare(self, look: Callable[[], dict[int, list[str]]]) -> None:
        """Raises PartitionStopped where checkpoints of one offset do not agree; the checkpoint is good all the same."""
        try:
            differing = {offset: keys for offset, keys in look().items() if keys}
        except WorkerError as error:
            self._metrics.checkpoint_cleanup_failures_total.add(1)
            _log.warning(
                "old-checkpoints-kept",
                f"{self._location.title}: old checkpoints are still there",
                detail=error,
                partition=self._location.partition,
            )
            return
        if differing:
            raise divergence(self._location, *min(differing.items()))

    def _finish_cleaning(self, wait_s: float) -> None:
        """Look after the clean-up. Raises PartitionStopped for what it has found."""
        if self._cleaning is None:
            return
        try:
            error = self._cleaning.exception(timeout=wait_s)
        except TimeoutError:
            return
        self._cleaning = None
        if error is not None:
            raise error

    def _finish(self, wait_s: float) -> None:
        """Look after the checkpoint on its way. Raises PartitionStopped, StateLost."""
        if self._writing is None:
            return
        writing = self._writing
        try:
            written = writing.job.result(timeout=wait_s)
        except TimeoutError:
            return
        except (PartitionStopped, StateLost):
            self._writing = None
            raise
        except WorkerError as error:
            self._failed(writing, error)
            return
        manifest, self._cleaning = written.manifest, written.cleaning
        self._models.snapshot_done()
        self._reader.follow(self._checkpoints, manifest)
        self._previous, self._writing, self._pointer = manifest, None, Pointer.to(manifest)
        self.must_be_saved = self.must_be_saved and not writing.out_of_band
        self.writing_s = self._clock.monotonic() - writing.started_s
        self._metrics.checkpoints_total.add(1)
        self._show(manifest)

    def _failed(self, writing: _Writing, error: Exception) -> None:
        """What the next checkpoint has to make up for."""
        _log.warning(
            "checkpoint-failed",
            f"{self._location.title}: checkpoint not written, the next one will hold its models",
            detail=error,
            partition=self._location.partition,
        )
        self._metrics.checkpoint_failures_total.add(1)
        self._models.snapshot_failed(writing.removed)
        self._snapshot_at = None
        if isinstance(error, CorruptCheckpoint):
            # What the last checkpoint points into is damaged; the models in memory are not.
            self._models.mark_all_changed()
            self._previous = None
        self.replay_s += writing.replay_s
        self._retry_s = self._clock.monotonic() + min(_AFTER_FAILURE_S, self._policy.interval_s)
        self._writing = None

    def _show(self, manifest: Manifest) -> None:
        size, partition = manifest.models.alive_bytes, self._location.partition
        self._metrics.checkpoint_last_timestamp_seconds.set(manifest.created_ms / 1000, partition=partition)
        self._metrics.checkpoint_last_size_bytes.set(size, partition=partition)

    def _show_cost(self) -> None:
        cost_s, partition = self.replay_s + self.on_its_way_s, self._location.partition
        self._metrics.checkpoint_replay_cost_seconds.set(cost_s, partition=partition)


def _drop(copies: Iterable[CopyOnWrite]) -> None:
    """These models are written, or will not be."""
    for copy in copies:
        copy.drop()
