"""The loop, the rebalance, the commit: the only place that orders effects.

A turn of the loop: consume (partitions come and go in there, and only there) -> settle what an earlier commit left
open -> take the records through their partitions -> publish outputs and offsets as one transaction -> checkpoint. No
transaction is ever open while partitions change hands.

A failed transaction is not computed again: the models have learned its records. Its outputs stay in `_pending` and are
sent again once it is known that they were not committed, less those of partitions that were taken away, whose state is
dropped with them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from worker.checkpoint import Location, Policy
from worker.config import Config
from worker.errors import Abort, PartitionStopped, Transient, Unknown, WorkerError
from worker.failpoints import failpoint
from worker.intake import BatchResult
from worker.keeper import Keeper, patiently
from worker.metrics import Metrics
from worker.partition import Partition, State
from worker.ports import Clock, Deadline, Input, ObjectStore, Output
from worker.records import Outgoing, Record
from worker.warm_start import WarmStart

_log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BATCH_RECORDS = 10_000
"""More records of one model in a row find its trees in the cache; a full batch is some 300 ms of work."""
BATCH_WAIT_S = 0.05
ASSIGN_S = 60.0
"""Longest time to find out where new partitions start; well below max.poll.interval.ms."""
REVOKE_S = 10.0
"""Longest time for the last checkpoints before partitions are given up."""
SETTLE_S = 10.0
GAUGES_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What start-up found out about the topics."""

    topic_id: str
    max_message_bytes: int
    warm_start: WarmStart | None = None


@dataclass(slots=True)
class Pending:
    """Outputs and offsets of a transaction until it is known to be committed."""

    metadata: Any = None
    outgoing: dict[int, list[Outgoing]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    results: dict[int, BatchResult] = field(default_factory=dict)
    unknown: bool = False
    """It may have been committed: the committed offsets must be read before it is sent again."""

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the part of partitions that this worker does not own any more."""
        for number in partitions:
            for part in (self.outgoing, self.offsets, self.results):
                part.pop(number, None)


class Worker:
    """One member of the consumer group. `run` works until it is told to stop."""

    copied_bytes = 8 * 2**20
    """Most that a turn copies of models that wait to be saved, unless one is larger: 5 to 30 ms of work."""

    def __init__(
        self,
        config: Config,
        setting: Setting,
        source: Input,
        open_output: Callable[[], Output],
        store: ObjectStore,
        metrics: Metrics,
        clock: Clock,
        writer: Executor,
        appliers: Executor,
    ) -> None:
        self._config = config
        self._setting = setting
        self._input = source
        self._open_output = open_output
        self._output: Output | None = None
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._writer = writer
        self._appliers = appliers
        self._policy = Policy(config.checkpoint.interval_s, config.checkpoint.recovery_budget_s)
        self._partitions: dict[int, Partition] = {}
        self._keepers: dict[int, Keeper] = {}
        self._backlog: dict[int, list[Record]] = defaultdict(list)
        self._pending: Pending | None = None
        self._gauges_s = 0.0

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Join the group and work. Raises WorkerError when it cannot go on; nothing is lost then."""
        try:
            self.start()
            while not should_stop():
                self.turn()
        except BaseException:
            self.abandon()
            raise
        self.close()

    def start(self) -> None:
        """Join the group; partitions come with the turns."""
        self._output = patiently(self._clock, self._deadline(ASSIGN_S), "producer", self._open_settled)
        self._input.subscribe(self)

    def close(self) -> None:
        """Finish what is pending, save, and leave the group."""
        if self._pending is not None:
            self._settle()
        self._input.close()
        if self._output is not None:
            self._output.close()
        self._writer.shutdown(wait=True)
        self._appliers.shutdown(wait=True)
        self._show_gauges()

    def abandon(self) -> None:
        """Leave the group and save nothing more: what was under way may be half done."""
        self.lost(list(self._partitions))
        self._pending = None
        self.close()

    def turn(self) -> None:
        """One turn of the loop."""
        unsettled, held_back = self._pending is not None, any(self._backlog.values())
        # Where there is work left only the callbacks are wanted, not more records than the backlog must hold.
        records, missing = self._input.consume(
            1 if unsettled or held_back else MAX_BATCH_RECORDS, BATCH_WAIT_S if unsettled or not held_back else 0.0
        )
        metadata = self._input.group_metadata()
        for number, some in records.items():
            # A partition may have been taken away after these records of it were read.
            if number in self._partitions:
                self._backlog[number] += some
        for number, why in missing.items():
            self._stop(number, PartitionStopped("offset-out-of-range", f"partition {number}: {why}"))
        if self._pending is not None:
            self._pending.metadata = metadata
            self._settle()
        self._restore_assigned()
        if self._pending is None:
            self._work(metadata)
        # Not while a commit is open: only state whose offset is committed becomes a checkpoint.
        if self._pending is None:
            self._save_due()
        now = self._clock.monotonic()
        self._metrics.loop_last_timestamp_seconds.set(self._clock.wall_ms() / 1000)
        if now - self._gauges_s >= GAUGES_EVERY_S:
            self._gauges_s = now
            self._show_gauges()
        self._require_work()

    # --- partitions come and go (called from within consume and close) ------------------------------------------------

    def assigned(self, partitions: Sequence[int]) -> None:
        """Choose where each partition starts; its models are loaded when its first records are taken."""
        if not partitions:
            return
        failpoint("assigned")
        deadline = self._deadline(ASSIGN_S)
        committed = patiently(self._clock, deadline, "committed offsets", lambda: self._input.committed(partitions))
        offsets, stopped = {}, {}
        for number in partitions:
            partition = Partition(number, self._config, self._setting.max_message_bytes)
            self._partitions[number] = partition
            self._keepers[number] = keeper = self._keeper(number)
            try:
                offsets[number], partition.live_from = patiently(
                    self._clock,
                    deadline,
                    f"start of partition {number}",
                    lambda n=number, k=keeper: k.begin(  # type: ignore[misc]
                        committed[n], self._input.bounds(n), self._config.input.start
                    ),
                )
            except PartitionStopped as error:
                # It stays assigned, so that nobody else takes it and stumbles likewise, but it is not read.
                offsets[number] = committed[number] or 0
                stopped[number] = error
        self._input.assign(offsets)
        for number, reason in stopped.items():
            self._stop(number, reason)

    def revoked(self, partitions: Sequence[int]) -> None:
        """Save what is committed, then forget it all."""
        failpoint("revoked")
        deadline = self._deadline(REVOKE_S)
        for number in partitions:
            partition = self._partitions.get(number)
            unsettled = self._pending is not None and number in self._pending.offsets
            if partition is not None and not unsettled and partition.state in (State.REPLAY, State.LIVE):
                self._save(partition, deadline)
        self.lost(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions; nothing of them is written any more."""
        failpoint("lost")
        for number in partitions:
            for part in (self._partitions, self._keepers, self._backlog):
                part.pop(number, None)
            self._metrics.forget_partition(number)
        if self._pending is not None:
            self._pending.drop(partitions)

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _work(self, metadata: Any) -> None:
        backlog, self._backlog = self._backlog, defaultdict(list)
        batches: list[tuple[Partition, list[Record]]] = []
        copied_bytes = self.copied_bytes // max(len(backlog), 1)
        for number, records in backlog.items():
            partition = self._partitions.get(number)
            if partition is None or partition.state is State.STOPPED or not records:
                continue
            n = partition.affordable(records, copied_bytes)
            if n < len(records):
                self._backlog[number] = records[n:]
                records = records[:n]
            failpoint("consumed")
            try:
                live = self._catch_up(partition, records)
            except PartitionStopped as error:
                self._stop(number, error)
                continue
            if live:
                batches.append((partition, live))
        if batches:
            pending = Pending(metadata)
            for (partition, _), result in zip(batches, self._apply(batches), strict=True):
                pending.results[partition.number] = result
                pending.outgoing[partition.number] = result.outgoing
                pending.offsets[partition.number] = partition.position
            self._metrics.batch_records.observe([sum(map(len, pending.outgoing.values()))])
            self._pending = pending
            failpoint("learned")
            self._settle()

    def _catch_up(self, partition: Partition, records: list[Record]) -> list[Record]:
        """Replay up to the committed offset; returns the records after that, which are to be predicted."""
        if partition.state is State.REPLAY:
            old = [record for record in records if record.offset < partition.live_from]
            if old:
                self._timed(partition, partition.replay, old)
                failpoint("replayed")
                self._metrics.replayed_records_total.add(len(old))
            records = records[len(old) :]
            # A record at or after the committed offset ends the replay: there may be none right before it.
            if records or partition.position >= partition.live_from:
                self._go_live(partition)
        return records

    def _apply(self, batches: list[tuple[Partition, list[Record]]]) -> list[BatchResult]:
        """Predict and learn, two partitions at a time.

        Partitions share nothing and do no I/O here, so the order does not matter; the kernels run without the
        interpreter lock, so one partition decodes and encodes while another one's trees are walked.
        """
        if len(batches) == 1:
            return [self._timed(partition, partition.apply, records) for partition, records in batches]
        return list(self._appliers.map(lambda batch: self._timed(batch[0], batch[0].apply, batch[1]), batches))

    def _timed(self, partition: Partition, take: Callable[[Sequence[Record]], T], records: Sequence[Record]) -> T:
        """Have the partition take the records, and its keeper know how long that took."""
        started_s = self._clock.monotonic()
        result = take(records)
        self._keepers[partition.number].took(self._clock.monotonic() - started_s)
        return result

    def _save_due(self) -> None:
        """Start the checkpoints that are due.

        A restart replays all partitions, so the recovery budget is for the sum of them; the costliest is saved first.
        """
        busy = {n: self._keepers[n] for n, each in self._partitions.items() if each.state in (State.LIVE, State.REPLAY)}
        for number, keeper in list(busy.items()):
            try:
                keeper.look_after(self._partitions[number])
            except PartitionStopped as error:
                del busy[number]
                self._stop(number, error)
        spent = self._policy.spent(
            sum(keeper.replay_s for keeper in busy.values()),
            max((keeper.writing_s for keeper in busy.values()), default=0.0),
        )
        free = [number for number, keeper in busy.items() if keeper.is_free]
        costliest = max(free, key=lambda number: busy[number].replay_s, default=None)
        for number in free:
            busy[number].save_if_due(self._partitions[number], budget_spent=spent and number == costliest)

    def _save(self, partition: Partition, deadline: Deadline) -> None:
        """Write the last checkpoint of a partition, if there is time for it."""
        try:
            self._keepers[partition.number].save(partition, deadline)
        except PartitionStopped as error:
            self._stop(partition.number, error)

    def _go_live(self, partition: Partition) -> None:
        must_save = partition.go_live()
        keeper = self._keepers[partition.number]
        if must_save and not keeper.save(partition, self._deadline(ASSIGN_S), by_decree=True):
            raise PartitionStopped(
                "store-unavailable",
                f"partition {partition.number}: models start anew (models.on_spec_change) but that cannot be saved",
            )
        _log.info("partition %d is live at offset %d", partition.number, partition.live_from)

    def _restore_assigned(self) -> None:
        """Load the models of partitions that were assigned in this turn."""
        for number, partition in self._partitions.items():
            if partition.state is State.RESTORE:
                try:
                    self._restore(partition)
                except PartitionStopped as error:
                    self._stop(number, error)

    def _restore(self, partition: Partition) -> None:
        keeper, number = self._keepers[partition.number], partition.number
        deadline, chosen = self._deadline(ASSIGN_S), keeper.offset
        low, _ = patiently(self._clock, deadline, "offsets", lambda: self._input.bounds(number))
        patiently(self._clock, deadline, f"models of partition {number}", lambda: keeper.restore(partition, low))
        if partition.position != chosen:
            _log.warning(
                "partition %d falls back to the checkpoint at offset %d instead of %d",
                number, partition.position, chosen,
            )  # fmt: skip
            self._backlog.pop(number, None)
            self._input.assign({number: partition.position})
        if partition.position >= partition.live_from:
            self._go_live(partition)

    def _settle(self) -> None:
        """Bring the pending transaction to an end, or leave it pending for the next turn."""
        pending = self._pending
        assert pending is not None
        started = time.perf_counter()
        try:
            if self._output is None:
                self._output = self._open_settled()
                failpoint("reopened")
            if pending.unknown and self._was_committed(pending):
                self._committed(pending)
                return
            if not pending.offsets:
                # All of its partitions were taken away.
                self._pending = None
                return
            outgoing = [record for some in pending.outgoing.values() for record in some]
            self._output.publish(outgoing, pending.offsets, pending.metadata)
            if self._config.delivery == "at-least-once":
                self._input.commit(pending.offsets)
        except Abort as error:
            self._metrics.transactions_total.add(1, outcome="aborted")
            _log.warning("transaction aborted, its outputs will be sent again: %s", error)
            self._abort()
            return
        except (Unknown, Transient) as error:
            self._metrics.transactions_total.add(1, outcome="unknown")
            _log.warning("outcome of a transaction unknown, asking the broker: %s", error)
            self._replace_output(pending)
            return
        self._metrics.transactions_total.add(1, outcome="committed")
        self._metrics.transaction_duration_seconds.observe([time.perf_counter() - started])
        self._committed(pending)
        failpoint("settled")

    def _abort(self) -> None:
        assert self._output is not None
        assert self._pending is not None
        try:
            self._output.abort()
        except Unknown as error:
            _log.warning("abort failed: %s", error)
            self._replace_output(self._pending)

    def _replace_output(self, pending: Pending) -> None:
        """Drop the producer. The next one, opened under the same id, ends what this one left open."""
        pending.unknown = self._config.delivery == "exactly-once"
        if self._output is not None:
            self._output.close()
        self._output = None

    def _open_settled(self) -> Output:
        try:
            return self._open_output()
        except (Abort, Unknown) as error:
            raise Transient(str(error)) from error

    def _was_committed(self, pending: Pending) -> bool:
        """Ask whether the transaction took effect; its offsets were committed all or none."""
        if not pending.offsets:
            return True
        committed = self._input.committed(list(pending.offsets))
        pending.unknown = False
        return all((committed[number] or 0) >= offset for number, offset in pending.offsets.items())

    def _committed(self, pending: Pending) -> None:
        self._pending = None
        for number, result in pending.results.items():
            self._count(result)
            if result.stop is not None:
                self._stop(number, result.stop)

    def _stop(self, number: int, error: PartitionStopped) -> None:
        """Stop one partition under a name; the others go on."""
        _log.error("%s: %s", error.code, error)
        self._metrics.partition_stops_total.add(1, code=error.code)
        if number in self._partitions:
            partition = self._partitions[number]
            if partition.state is State.LIVE and error.code == "too-many-dead-letters":
                self._save(partition, self._deadline(REVOKE_S))
            partition.stop()
            self._input.pause(number)

    def _require_work(self) -> None:
        states = {partition.state for partition in self._partitions.values()}
        if states == {State.STOPPED}:
            raise WorkerError("every partition of this worker has stopped; the errors above say why")

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _keeper(self, number: int) -> Keeper:
        config = self._config
        location = Location(
            config.kafka["group.id"],
            config.checkpoint.lineage,
            config.input.topic,
            self._setting.topic_id,
            number,
        )
        return Keeper(
            self._store,
            location,
            self._policy,
            self._clock,
            self._metrics,
            self._writer,
            self._setting.warm_start,
        )

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline.after(self._clock, seconds)

    def _count(self, result: BatchResult) -> None:
        metrics = self._metrics
        metrics.events_total.add(result.events)
        metrics.predictions_total.add(result.predictions)
        for code, n in result.rejects.items():
            metrics.dead_letters_total.add(n, code=code)
        metrics.learned_samples_total.add(result.learned)
        classes, numbers = result.class_scores, result.number_scores
        metrics.log_loss.add(classes.log_loss, classes.count)
        metrics.correct_predictions_total.add(classes.correct)
        metrics.squared_error.add(numbers.squared_error, numbers.count)
        metrics.absolute_error.add(numbers.absolute_error, numbers.count)
        metrics.covered_predictions_total.add(numbers.covered)
        metrics.weighted_depth.add(result.weighted_depth, sum(map(len, result.depths)))
        for depths in result.depths:
            metrics.tree_depth.observe(depths)

    def _show_gauges(self) -> None:
        """Figures of the models and partitions as of now, for the next scrapes."""
        metrics = self._metrics
        models = {model.key: model for partition in self._partitions.values() for model in partition.models}
        metrics.models.set(len(models))
        metrics.nodes.set(sum(model.forest.n_nodes for model in models.values()))
        metrics.model_bytes.set(sum(model.forest.nbytes for model in models.values()))
        metrics.set_models(
            ((key, model.forest.n_samples) for key, model in models.items()), lambda key: models[key].figures()
        )
        metrics.set_partition_states({n: partition.state.value for n, partition in self._partitions.items()})
        for number, partition in self._partitions.items():
            high = self._input.high_watermark(number)
            if high is not None:
                metrics.consumer_lag_records.set(max(0, high - max(partition.position, 0)), partition=number)
