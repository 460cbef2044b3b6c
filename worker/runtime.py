"""The loop, the rebalance, the commit: the only place that orders effects.

A turn of the loop: consume (partitions come and go in there, and only there) -> settle what an earlier commit left
open -> take the records through their partitions -> publish outputs and offsets as one transaction -> checkpoint. No
transaction is ever open while partitions change hands.

A failed transaction is not computed again: the models have learned its records. `transaction` keeps its outputs and
sends them again once it is known that they were not committed, less those of partitions that were taken away, whose
state is dropped with them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from worker import reports
from worker.backlog import Backlog
from worker.beginning import Beginning, Terms
from worker.cache import Cache
from worker.checkpoint import Location, Policy
from worker.config import Config
from worker.errors import PartitionStopped, StateLost, Transient, WorkerError
from worker.failpoints import failpoint
from worker.intake import BatchResult
from worker.keeper import Keeper
from worker.metrics import Metrics
from worker.opening import Opening
from worker.partition import Partition, State
from worker.patience import Patience, Stopped
from worker.pending import Pending
from worker.ports import Clock, Deadline, Input, ObjectStore, Output, SchemaRegistry, Spill
from worker.records import Outgoing, Record
from worker.refusals import output_refused, state_lost
from worker.reloads import MOST_RELOADS, Reloads
from worker.transaction import Transactions
from worker.until import Until
from worker.warm_start import WarmStart
from worker.watch import Watch

_log = logging.getLogger(__name__)

AGAIN_S = 0.05
"""Pause before a transaction that failed is tried again."""
START_S = 60.0
"""Longest time to get a producer at the start from a broker that answers."""
DECREE_S = 60.0
"""Longest time to save what changed by decree, before it can be committed; well below max.poll.interval.ms."""
REVOKE_S = 10.0
"""Longest time for the last checkpoints before partitions are given up."""
GAUGES_EVERY_S = 1.0
_RECORDS_A_CALL = 8
"""Records of one model in a batch, on average, from which on two partitions are taken at a time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What start-up found out about the topics."""

    topic_id: str
    partitions: int
    max_message_bytes: int
    warm_start: WarmStart | None = None
    registry: SchemaRegistry | None = None
    spill: Spill | None = None
    """Room for the models that models.cache_bytes has no room for."""


class Worker:
    """One member of the consumer group. `run` works until it is told to stop."""

    copied_bytes = 16 * 2**20
    """Most that a turn copies of models that wait to be saved, unless one is larger: 10 to 30 ms of work.

    With less the turns get so short that the transaction of each costs more than the copies.
    """

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
        askers: Executor,
        watch: Watch | None = None,
        until: Until | None = None,
        fetchers: Executor | None = None,
    ) -> None:
        self._config = config
        self._setting = setting
        self._input = source
        self._transactions = Transactions(source, open_output, config.delivery, metrics)
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._writer = writer
        self._appliers = appliers
        self._askers = askers
        self._fetchers = fetchers
        """Read models from the store that a batch needs; without them the loop reads and waits itself."""
        self._cache = Cache(config.models.cache_bytes, setting.spill)
        self._policy = Policy(config.checkpoint.interval_s, config.checkpoint.recovery_budget_s)
        self._partitions: dict[int, Partition] = {}
        self._keepers: dict[int, Keeper] = {}
        self._backlog = Backlog(source, clock, until)
        self._results: dict[int, BatchResult] = {}
        """Of the pending transaction, by partition."""
        self._terms = Terms.of(config, setting.partitions)
        self._opening = Opening(source, writer, askers, clock)
        self._reloads = Reloads()
        self._watch = watch
        self._until = until
        self._verdict: WorkerError | None = None
        """Why the worker ends, in order, with an error."""
        self._gauges_s = 0.0
        self._gathering_s = clock.monotonic()

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Join the group and work. Raises WorkerError when it cannot go on; nothing is lost then."""
        try:
            self.start(should_stop)
            while not (should_stop() or self._is_done()):
                self.turn()
        except Stopped:
            _log.info("told to stop before there was a producer")
        except BaseException:
            self.abandon()
            raise
        self.close()
        if self._verdict is not None:
            raise self._verdict

    def start(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Join the group; partitions come with the turns. Raises Stopped where it is told to stop before."""
        Patience(self._clock, should_stop, START_S).ask("producer", self._transactions.open)
        self._input.subscribe(self)

    def close(self) -> None:
        """Finish what is pending, save, and leave the group."""
        if self._transactions.pending is not None:
            self._settle()
        self._input.close()
        # What the consumer did not ask back, having lost it.
        self.lost(list(self._partitions))
        self._transactions.close()
        # Who still writes to a store that hangs is not waited for: half a checkpoint is none.
        for pool in (self._writer, self._askers, self._fetchers):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        self._appliers.shutdown(wait=True)
        reports.show(self._metrics, self._cache, self._partitions, self._input)

    def abandon(self) -> None:
        """Leave the group and save nothing more: what was under way may be half done."""
        self.lost(list(self._partitions))
        self._transactions.pending = None
        self.close()

    def turn(self) -> None:
        """One turn of the loop."""
        self._backlog.read_again(self._partitions)
        records, missing = self._consume()
        metadata = self._input.group_metadata()
        for number, some in records.items():
            # A partition may have been taken away, and have come back, after these records of it were read.
            if number in self._partitions and number not in self._opening:
                self._backlog.add(number, some)
        self._backlog.gone |= missing
        if self._transactions.pending is not None:
            self._transactions.pending.metadata = metadata
            self._settle()
        self._open_assigned()
        self._look_after_lost_records()
        if self._transactions.pending is None:
            self._work(metadata)
        # Not while a commit is open: only state whose offset is committed becomes a checkpoint.
        if self._transactions.pending is None:
            self._save_due()
            self._cache.shrink()
        now = self._clock.monotonic()
        self._metrics.loop_last_timestamp_seconds.set(self._clock.wall_ms() / 1000)
        if now - self._gauges_s >= GAUGES_EVERY_S:
            self._gauges_s = now
            reports.show(self._metrics, self._cache, self._partitions, self._input)
            self._watch_topic()
        self._require_work()

    def _consume(self) -> tuple[dict[int, list[Record]], dict[int, str]]:
        """The records of the next transaction, gathered since the last ones. In here partitions change hands."""
        terms, now = self._config.transaction, self._clock.monotonic()
        most, wait_s = terms.max_records, max(0.0, self._gathering_s + terms.interval_s - now)
        # Where there is work left the callbacks are wanted, and no more records than one transaction takes.
        if self._transactions.pending is not None:
            most, wait_s = 1, AGAIN_S
        elif self._backlog:
            most, wait_s = max(1, most - len(self._backlog)), 0.0
        elif self._opening:
            wait_s = min(wait_s, AGAIN_S)
        consumed = self._input.consume(most, wait_s)
        self._gathering_s = self._clock.monotonic()
        return consumed

    # --- partitions come and go (called from within consume and close) ------------------------------------------------

    def assigned(self, partitions: Sequence[int]) -> None:
        """Take partitions; nothing is read of them before it is known where they start and their models are here."""
        if partitions:
            self._open(partitions)

    def _open(self, partitions: Sequence[int], wait_s: float = 0.0) -> None:
        """Have partitions opened, after so many seconds."""
        failpoint("assigned")
        setting = self._setting
        for number in partitions:
            partition = Partition(number, self._config, setting.max_message_bytes, self._cache, setting.registry)
            self._partitions[number] = partition
            self._keepers[number] = self._keeper(number)
            self._opening.add(partition, self._keepers[number], wait_s)
        self._input.hold(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        """Save what is committed, then forget it all."""
        failpoint("revoked")
        deadline, pending = self._deadline(REVOKE_S), self._transactions.pending
        for number in partitions:
            partition = self._partitions.get(number)
            unsettled = pending is not None and number in pending.offsets
            if partition is not None and not unsettled and number in self._at_work():
                self._save(partition, deadline)
        self.lost(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions; nothing of them is written any more."""
        for number in partitions:
            self._reloads.forget(number)
        self._drop(partitions)

    def _drop(self, partitions: Sequence[int]) -> None:
        """Drop the state of partitions."""
        failpoint("lost")
        for number in partitions:
            self._opening.drop(number)
            if number in self._partitions:
                self._partitions[number].close()
            for part in (self._partitions, self._keepers, self._results):
                part.pop(number, None)
            self._backlog.wait_no_more(number)
            self._backlog.forget(number)
            self._metrics.forget_partition(number)
        self._transactions.drop(partitions)

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _work(self, metadata: Any) -> None:
        batches = list(self._next_batches())
        pending = Pending(metadata, dead_letter_for=self._dead_letter_for)
        for (partition, records), result in zip(batches, self._take(batches), strict=True):
            number = partition.number
            if isinstance(result, Transient):
                self._backlog.wait(partition, result)
            elif isinstance(result, StateLost):
                self._reload(number, result)
            elif partition.state is State.REPLAY:
                failpoint("replayed")
                self._metrics.replayed_records_total.add(len(records))
                if partition.position >= partition.live_from:
                    self._go_live(partition)
            else:
                self._results[number] = result
                pending.add(number, records, result.outgoing, partition.position)
        if pending.offsets:
            self._metrics.batch_records.observe([sum(map(len, pending.outgoing.values()))])
            self._transactions.pending = pending
            failpoint("learned")
            self._settle()

    def _next_batches(self) -> Iterator[tuple[Partition, list[Record]]]:
        """The records of each partition that are taken now: to be replayed, or to be predicted, never both."""
        copied_bytes = self.copied_bytes
        for number, records in self._backlog.take().items():
            partition = self._partitions.get(number)
            if partition is None or partition.state is State.STOPPED or not records:
                continue
            old = bisect_left(records, partition.live_from, key=attrgetter("offset"))
            # A record at or after the committed offset ends the replay: there may be none right before it.
            if partition.state is State.REPLAY and not old and not self._go_live(partition):
                continue
            wanted = records[:old] if partition.state is State.REPLAY else records
            n, copied_bytes = partition.affordable(wanted, copied_bytes)
            if n < len(records):
                self._backlog.put_back(number, records[n:])
            failpoint("consumed")
            yield partition, records[:n]

    def _take(self, batches: list[tuple[Partition, list[Record]]]) -> list[BatchResult | Transient | StateLost]:
        """Put records through their partitions, two partitions at a time; errors in place of results.

        Partitions share nothing and do no I/O here, so the order does not matter; the kernels run without the
        interpreter lock, so one partition decodes and encodes while another one's trees are walked.
        """
        attempts = self._appliers.map if len(batches) > 1 and _makes_long_calls(batches) else map
        return list(attempts(lambda batch: self._attempt(*batch), batches))

    def _attempt(self, partition: Partition, records: list[Record]) -> BatchResult | Transient | StateLost:
        started_s = self._clock.monotonic()
        # Returned, not raised: what the other partitions have learned meanwhile must be published.
        try:
            result = partition.replay(records) if partition.state is State.REPLAY else partition.apply(records)
        except (Transient, StateLost) as error:
            return error
        if self._backlog.wait_no_more(partition.number):
            _log.info("partition %d waits no more", partition.number)
        self._keepers[partition.number].took(self._clock.monotonic() - started_s)
        return result

    def _save_due(self) -> None:
        """Start the checkpoint that is due first, unless one is on its way to the store.

        Of one that had to wait for another, the loop would copy models that nobody takes yet. A restart replays all
        partitions, so the recovery budget is for the sum of them: where it is spent, the costliest is saved.
        """
        busy = self._at_work()
        for number, keeper in list(busy.items()):
            try:
                keeper.look_after(self._partitions[number])
            except PartitionStopped as error:
                del busy[number]
                self._stop(number, error)
            except StateLost as error:
                del busy[number]
                self._reload(number, error)
        if any(keeper.is_writing for keeper in busy.values()):
            return
        changed = [number for number, keeper in busy.items() if keeper.can_save(self._partitions[number])]
        spent = self._policy.spent(
            sum(keeper.replay_s for keeper in busy.values()),
            max((keeper.writing_s for keeper in busy.values()), default=0.0),
        )
        if overdue := [number for number in changed if busy[number].is_overdue]:
            first = min(overdue, key=lambda number: busy[number].last_s)
            busy[first].start(self._partitions[first])
        elif changed and spent:
            costliest = max(changed, key=lambda number: busy[number].replay_s)
            busy[costliest].start(self._partitions[costliest])

    def _save(self, partition: Partition, deadline: Deadline) -> None:
        """Write the last checkpoint of a partition, if there is time for it."""
        try:
            self._keepers[partition.number].save(partition, deadline)
        except PartitionStopped as error:
            self._stop(partition.number, error)
        except StateLost as error:
            _log.error("partition %d: not saved, who takes it over replays more: %s", partition.number, error)

    def _go_live(self, partition: Partition) -> bool:
        """Whether the partition is live now; else it has stopped."""
        must_save = partition.go_live()
        keeper = self._keepers[partition.number]
        try:
            if must_save and not keeper.save(partition, self._deadline(DECREE_S), by_decree=True):
                raise PartitionStopped(
                    "store-unavailable",
                    f"partition {partition.number}: models start anew (models.on_spec_change) but that cannot be saved",
                )
        except PartitionStopped as error:
            self._stop(partition.number, error)
            return False
        _log.info("partition %d is live at offset %d", partition.number, partition.live_from)
        return True

    def _open_assigned(self) -> None:
        """Have the partitions read whose start is known and whose models are here by now."""
        for partition, error in self._opening.step():
            if isinstance(error, PartitionStopped):
                # It stays assigned, so that nobody else takes it and stumbles likewise, but it is not read.
                self._stop(partition.number, error)
            elif error is not None:
                self._reload(partition.number, error)
            else:
                self._input.assign({partition.number: partition.position})
                if partition.position >= partition.live_from:
                    self._go_live(partition)

    def _at_work(self) -> dict[int, Keeper]:
        """Keepers of the partitions that take records."""
        working = (State.REPLAY, State.LIVE)
        opened = ((n, each) for n, each in self._partitions.items() if n not in self._opening)
        return {number: self._keepers[number] for number, partition in opened if partition.state in working}

    def _reload(self, number: int, error: StateLost) -> None:
        """Begin again with the checkpoint: what the partition learned since comes back by replay.

        Where that happens again and again it waits between two attempts, and stops in the end; the others go on.
        """
        wait_s = self._reloads.next_pause_s(number, self._keepers[number].saved_offset)
        if wait_s is None:
            self._stop(number, PartitionStopped("state-lost", state_lost(number, MOST_RELOADS, str(error))))
            return
        _log.error("partition %d is loaded again%s: %s", number, f" in {wait_s:g} s" if wait_s else "", error)
        self._drop([number])
        self._open([number], wait_s)

    def _settle(self) -> None:
        """Bring the pending transaction to an end, or leave it pending for the next turn."""
        pending = self._transactions.pending
        assert pending is not None
        settled = self._transactions.settle()
        for number, why in self._transactions.take_given_up().items():
            self._results.pop(number, None)
            self._stop(number, PartitionStopped("output-refused", output_refused(f"partition {number}", why)))
        if settled:
            results, self._results = self._results, {}
            for number, result in results.items():
                reports.count(self._metrics, result, pending.replaced.get(number, ()))
                if result.stop is not None:
                    self._stop(number, result.stop)

    def _dead_letter_for(self, number: int, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        return self._partitions[number].dead_letter_for(record, refused, why)

    def _stop(self, number: int, error: PartitionStopped) -> None:
        """Stop one partition under a name; the others go on."""
        _log.error("%s: %s", error.code, error)
        self._metrics.partition_stops_total.add(1, code=error.code)
        self._backlog.wait_no_more(number)
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

    # --- the topic changes, or an end is reached ----------------------------------------------------------------------

    def _look_after_lost_records(self) -> None:
        """Where the next record is gone a partition stops; or, if that is accepted, it starts anew behind the gap.

        Before that it takes, commits and saves what it has: no more is lost than is gone.
        """
        for number, why in list(self._backlog.gone.items()):
            partition = self._partitions.get(number)
            if partition is None or partition.state is State.STOPPED:
                del self._backlog.gone[number]
                continue
            if self._config.input.on_gap == "accept":
                if self._transactions.pending is not None or number in self._backlog:
                    continue
                try:
                    low, _ = self._input.bounds(number)
                except Transient as error:
                    _log.warning("partition %d: %s; trying again", number, error)
                    continue
                if low > partition.position:
                    self.revoked([number])
                    self.assigned([number])
                    continue
            del self._backlog.gone[number]
            self._stop(number, PartitionStopped("offset-out-of-range", f"partition {number}: {why}"))

    def _watch_topic(self) -> None:
        """A topic that is not what the models know ends the worker, in order: what it has is saved."""
        try:
            state = None if self._watch is None else self._watch.seen()
        except WorkerError as error:
            _log.error("%s", error)
            self._verdict = error
            return
        if state is None:
            return
        self._terms = replace(self._terms, partitions=max(state.partitions, self._terms.partitions))
        for number, keeper in self._keepers.items():
            keeper.repartitioned(self._terms.partitions)
            if number in state.begins and keeper.saved_offset is not None:
                margin = keeper.saved_offset - state.begins[number]
                self._metrics.retention_margin_records.set(margin, partition=number)

    def _is_done(self) -> bool:
        """Whether the topic has changed too much, or each partition has come to the end of this run."""
        if self._verdict is not None or self._until is None:
            return self._verdict is not None
        if not self._partitions or self._transactions.pending is not None:
            return False
        if self._backlog or self._backlog.any_waiting:
            return False
        stopped = [number for number, each in self._partitions.items() if each.state is State.STOPPED]
        for number in self._partitions.keys() - stopped:
            partition = self._partitions[number]
            come_to = max(partition.position, partition.live_from, self._input.end_seen(number) or 0)
            if partition.state is State.RESTORE or not self._until.is_reached(number, come_to):
                return False
        if stopped:
            self._verdict = WorkerError(f"partitions {stopped} have stopped before the end; the errors above say why")
        return True

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
            Beginning(self._store, location, self._terms, self._clock, self._setting.warm_start),
            self._fetchers,
        )

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline.after(self._clock, seconds)


def _makes_long_calls(batches: Sequence[tuple[Partition, list[Record]]]) -> bool:
    """Whether models get many records each. Threads that hand over the interpreter for a few are slower than one."""
    n_records = sum(len(records) for _, records in batches)
    n_calls = sum(len({record.key for record in records}) for _, records in batches)
    return n_records >= _RECORDS_A_CALL * n_calls
