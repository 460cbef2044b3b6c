"""The loop and the rebalance: the only place that orders effects.

A turn of the loop: consume (partitions come and go in there, and only there) -> commit what an earlier turn left open
-> look at the topic, open what was assigned -> put records through their tasks -> commit, where it is time ->
checkpoint.
Where there are many, records are predicted a few times before each commit, as they come, so that little is left to do
when it is due. No transaction is ever open while partitions change hands: what is gathered is committed before they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from worker.base.errors import Fatal, PartitionStopped, StateLost, Transient, WorkerError
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Deadline, Input, ObjectStore, Output
from worker.base.records import Membership, Record
from worker.base.retry import START_S, Retry, Stopped
from worker.base.status import Board
from worker.base.terms import Change, State
from worker.commit.transactions import Transactions
from worker.config import Config
from worker.runtime import reports
from worker.runtime.executor import GATHERED_BYTES, TaskExecutor
from worker.runtime.pace import Pace
from worker.runtime.status import Reporter
from worker.runtime.tasks import Pools, Setting, Tasks
from worker.runtime.topic_monitor import TopicMonitor, TopicRecreated
from worker.task.processor import BatchResult
from worker.task.task import Task

_log = Log(__name__)

LOOK_EVERY_S = 0.05
"""Longest wait for records while something else is waited for: a transaction, or partitions that are opening."""
READ_AHEAD = 2
"""Transactions' records that may wait to be taken: with those of one alone, most turns would have one partition."""
WAIT_S = 1.0
"""Between two attempts at records that need something that is away."""
REVOKE_S = 10.0
"""Longest time for the last transaction, and for the last checkpoints, before partitions are given up."""
GAUGES_EVERY_S = 1.0
_LEAVES_GOOD_STATE = {"too-many-dead-letters", "offset-out-of-range", "unreadable-records"}
"""Stops that come when all that was taken is committed, and that say nothing against the models."""


class Worker:
    """One member of the consumer group. `run` works until it is to stop."""

    copied_bytes = 16 * 2**20
    """Most that a short turn copies of models that wait to be saved, unless one is larger: 10 to 30 ms of work.

    With less the turns get so short that what each of them costs by itself is more than the copies.
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
        pools: Pools,
        board: Board,
        monitor: TopicMonitor | None,
    ) -> None:
        self._config = config
        self._input = source
        self._metrics = metrics
        self._clock = clock
        self._pools = pools
        self._monitor = monitor
        self._has_ends = setting.ends is not None
        reports.expect(metrics)
        self._transactions = Transactions(source, open_output, config.delivery, metrics, clock)
        self._tasks = Tasks(config, setting, source, store, metrics, clock, pools, self._transactions.committed)
        self._executor = TaskExecutor(self._tasks, self._transactions, metrics, clock, pools.appliers, board)
        self._reporter = Reporter(board, metrics, clock)
        self._verdict: WorkerError | None = None  # why the worker ends, in order, with an error
        self._gauges_s = 0.0
        self._pace = Pace(config.transaction.interval_s, clock)

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Join the group and work. Raises WorkerError when it cannot go on; nothing is lost then."""
        try:
            self._work(should_stop)
            if isinstance(self._verdict, TopicRecreated):
                raise self._verdict
            self.close()
        except BaseException:
            self.abandon()  # after a close that failed, too: others wait for its partitions
            raise
        if self._verdict is not None:
            raise self._verdict

    def _work(self, should_stop: Callable[[], bool]) -> None:
        try:
            self.start(should_stop)
        except Stopped:
            _log.info("stopped", "stopped before there was a producer")
            return
        while not (should_stop() or self._is_done()):
            self.turn()

    def start(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Join the group; partitions come with the turns. Raises Stopped where it is to stop before that."""
        Retry(self._clock, should_stop, START_S).ask("producer", self._transactions.open)
        self._input.subscribe(self)

    def close(self) -> None:
        """Finish what is pending, save, and leave the group."""
        self._stop(self._executor.commit_gathered())
        self._input.close()
        # What the consumer did not ask back, having lost it.
        self._forget(list(self._tasks))
        self._transactions.close()
        # Who still writes to a store that hangs is not waited for: half a checkpoint is none.
        for pool in (self._pools.writers, self._pools.cleaners, self._pools.loaders, self._pools.askers):
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.appliers.shutdown(wait=True)
        self._show()

    def abandon(self) -> None:
        """Leave the group and save nothing more: what was under way may be half done."""
        self._forget(list(self._tasks))
        self._executor.abandon()
        self.close()

    def turn(self) -> None:
        """One turn of the loop."""
        self._tasks.read_again()
        self._consume()
        member = self._input.membership()
        self._reporter.standing.observe(member, self._input.trouble())
        self._executor.renew(member)
        self._stop(self._executor.commit(at_once=False))
        self._look_at_topic()
        self._open_assigned()
        self._look_after_lost_records()
        if not self._executor.is_committing:
            self._process(member)
        # Not before all is committed: only state whose offset is committed becomes a checkpoint.
        if self._pace.is_due and self._executor.is_clear:
            self._save_due()
        if not self._executor.is_committing:  # also between two commits: each turn of a replay may bring as many models
            self._tasks.cache.shrink()
        now = self._clock.monotonic()
        self._metrics.loop_last_timestamp_seconds.set(self._clock.wall_ms() / 1000)
        if now - self._gauges_s >= GAUGES_EVERY_S:
            self._gauges_s = now
            self._show()
        self._reporter.answer(self._tasks)
        wanted = [task for task in self._tasks.values() if not task.is_left_out]
        if wanted and all(task.state is State.STOPPED for task in wanted):
            raise Fatal("every partition of this worker has stopped; the errors above say why")

    def _show(self) -> None:
        leaders = reports.show(self._metrics, self._tasks.cache, self._tasks, self._input, self._clock)
        self._reporter.refresh(self._tasks, leaders)

    # --- partitions come and go (called from within consume and close) ------------------------------------------------

    def assigned(self, partitions: Sequence[int]) -> None:
        """Take partitions; nothing is read of them before it is known where they start and their models are here."""
        self._rebalanced("assigned", partitions)
        self._reporter.standing.has_joined = True
        if partitions:
            self._tasks.open(partitions)
            if self._monitor is not None:
                self._monitor.look_anew()

    def revoked(self, partitions: Sequence[int]) -> None:
        """Commit what is pending, save what is committed, then forget it all."""
        failpoint("revoked")
        self._rebalanced("revoked", partitions)
        deadline = Deadline.after(self._clock, REVOKE_S)
        self._stop(self._executor.commit_before_leaving(partitions, self._input.membership, deadline))
        owned = [self._tasks[number] for number in partitions if number in self._tasks]
        self._save([task for task in owned if task.is_at_work and not self._executor.has_pending(task.number)])
        self._forget(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions; nothing of them is written any more."""
        self._rebalanced("lost", partitions)
        self._forget(partitions)

    def _rebalanced(self, change: Change, partitions: Sequence[int]) -> None:
        numbers = list(partitions)
        _log.info("rebalance", f"partitions {change}: {numbers or 'none'}", change=change, partitions=numbers)
        self._metrics.rebalanced_partitions_total.add(len(partitions), change=change)

    def _forget(self, partitions: Sequence[int]) -> None:
        self._tasks.lose(partitions)
        self._executor.drop(partitions)

    # --- records ------------------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        """Read records for the next transaction."""
        records, gone = self._input.consume(*self._appetite())
        self._pace.has_read(sum(map(len, records.values())), self._executor.turn_s)
        for number, some in records.items():
            # A partition may have been taken away after these records of it were read.
            if number in self._tasks and not self._tasks[number].add(some):
                self._input.pause(number)
        for number, why in gone.items():
            if number in self._tasks and self._tasks[number].state.takes_records:
                self._tasks[number].gone = why

    def _appetite(self) -> tuple[int, float]:
        """How many records are wanted now, and how long to wait for them. Who has too many behind a commit waits."""
        limit, wait_s = self._config.transaction.max_records, self._pace.next_piece_s()
        n_buffered, transactions = self._tasks.buffered(limit, GATHERED_BYTES)
        if self._executor.is_committing:
            # Here the callbacks of the group are wanted, and no records.
            self._pace.is_due = True
            for task in [each for each in self._tasks.values() if each.buffer and transactions >= READ_AHEAD]:
                self._wait(task, "outputs are not committed, and the records of two transactions wait behind them")
            return 1, LOOK_EVERY_S
        if self._tasks.any_opening:
            wait_s = min(wait_s, LOOK_EVERY_S)
        most = max(1, READ_AHEAD * limit - self._executor.n_gathered - n_buffered) if transactions < READ_AHEAD else 1
        return self._pace.most_records(most), 0.0 if n_buffered else wait_s

    def _process(self, member: Membership) -> None:
        """Take the records that are there: those of live tasks are published and committed."""
        for task in self._tasks.at_work():
            if task.has_leapt:
                self._tasks.prove(task)
            elif task.has_replayed:
                self._go_live(task)
        live: list[tuple[Task, list[Record], BatchResult]] = []
        for task, records, outcome in self._executor.process(self._config.transaction.max_records, self.copied_bytes):
            if isinstance(outcome, Transient):
                self._wait(task, str(outcome))
            elif isinstance(outcome, StateLost):
                self._reload(task, outcome)
            elif isinstance(outcome, PartitionStopped):
                self._stop({task.number: outcome})
            elif task.state is State.LIVE:
                live.append((task, records, outcome))
                self._pace.is_due |= outcome.stop is not None
            else:
                failpoint("replayed")
                self._metrics.replayed_records_total.add(len(records))
                if task.has_replayed:
                    self._go_live(task)
        self._executor.gather(member, live)
        self._pace.is_due |= self._executor.has_enough(self._config.transaction.max_records)
        if self._pace.is_due:
            self._stop(self._executor.commit_gathered())

    def _wait(self, task: Task, trouble: str) -> None:
        """The next records cannot be taken yet: they are read again later, for as long as it takes."""
        if task.trouble is None:
            fact = f"partition {task.number} waits at offset {task.position}"
            _log.warning("partition-waits", fact, detail=trouble, partition=task.number, offset=task.position)
        self._input.pause(task.number)
        task.wait(self._clock.monotonic() + WAIT_S, trouble)

    # --- the life of a task -------------------------------------------------------------------------------------------

    def _open_assigned(self) -> None:
        """Have the partitions read whose start is known and whose models are here by now.

        Not before the topic was looked at since they were assigned. While a member was out of the group, partitions may
        have been added and its models moved to another lineage: what it published under the former one would be lost.
        """
        if self._verdict is not None or (self._monitor is not None and self._monitor.is_awaited):
            return
        for task, error in self._tasks.opened():
            if isinstance(error, PartitionStopped):
                # It stays assigned, so that nobody else takes it and stumbles likewise, but it is not read.
                self._stop({task.number: error})
            elif error is not None:
                self._reload(task, error)
            elif task.has_replayed:
                self._go_live(task)

    def _go_live(self, task: Task) -> None:
        """The replay is over; where models start anew, that is saved before anything more is taken."""
        try:
            must_save = task.go_live()
        except StateLost as error:
            self._reload(task, error)
            return
        number, offset = task.number, task.live_from
        _log.info("partition-live", f"partition {number} is live at offset {offset}", partition=number, offset=offset)
        if must_save:
            fact = f"partition {number}: models start anew (models.on_spec_change), which is saved first"
            _log.warning("models-start-anew", fact, partition=number)
            task.checkpointer.change_out_of_band()
            self._input.pause(task.number)
            task.wait(until_s=self._clock.monotonic())

    def _reload(self, task: Task, error: StateLost) -> None:
        """Have the state of a partition loaded anew, if that is not in vain; the others go on."""
        # From the committed offset on all is predicted once more.
        self._executor.discard_gathered([task.number])
        stop = self._tasks.reload(task, error)
        if stop is not None:
            self._stop({task.number: stop})

    def _stop(self, stops: Mapping[int, PartitionStopped]) -> None:
        """Stop partitions under a name; the others go on."""
        for number, error in stops.items():
            fact = f"{error.code}: {error.fact}"
            _log.error("partition-stopped", fact, hint=error.hint, partition=number, code=error.code)
            self._metrics.partition_stops_total.add(1, code=error.code)
        good = [self._tasks[number] for number, error in stops.items() if error.code in _LEAVES_GOOD_STATE]
        self._save([task for task in good if task.is_at_work])
        for number in stops:
            self._tasks[number].stop()
            self._input.pause(number)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _save_due(self) -> None:
        """See to the checkpoints on their way, and start those that are due."""
        for task in self._tasks.at_work():
            try:
                task.checkpointer.poll()
            except PartitionStopped as error:
                self._stop({task.number: error})
            except StateLost as error:
                self._reload(task, error)
        by_checkpointer = {task.checkpointer: task for task in self._tasks.at_work()}
        ready = [saving for saving, task in by_checkpointer.items() if saving.can_start(self._tasks.reach(task))]
        while (first := self._tasks.policy.most_urgent(by_checkpointer, ready)) is not None:
            first.start(self._tasks.reach(by_checkpointer[first]))
            ready.remove(first)

    def _save(self, tasks: Iterable[Task]) -> None:
        """Write the last checkpoints of partitions, as far as there is time for all of them together."""
        deadline = Deadline.after(self._clock, REVOKE_S)
        saved = sorted(tasks, key=lambda task: -task.checkpointer.replay_s)
        # Several are written at a time; of those that do not come to it the next owner replays more.
        for task in saved:
            if task.checkpointer.can_start(reach := self._tasks.reach(task)):
                task.checkpointer.start(reach)
        for task in saved:
            try:
                task.checkpointer.save(self._tasks.reach(task), deadline)
            except PartitionStopped as error:
                self._stop({task.number: error})
            except StateLost as error:
                fact = f"partition {task.number}: not saved, who takes it over replays more"
                _log.error("checkpoint-failed", fact, detail=error, partition=task.number)

    # --- the topic changes, or an end is reached ----------------------------------------------------------------------

    def _look_after_lost_records(self) -> None:
        """Where the next record is gone a partition stops; or, if that is accepted, it starts anew behind the gap.

        Before that it takes, commits and saves what it has: no more is lost than is gone.
        """
        stops: dict[int, PartitionStopped] = {}
        behind_gaps: list[Task] = []
        for task in self._tasks.at_work() if self._pace.is_due else ():
            if self._executor.has_pending(task.number) or task.buffer:
                continue
            try:
                if not self._tasks.has_next_record(task):
                    behind_gaps.append(task)
            except Transient as error:
                fact = f"partition {task.number}: trying again"
                _log.warning("trying-again", fact, detail=error, partition=task.number)
            except PartitionStopped as error:
                stops[task.number] = error
        self._stop(stops)
        self._save(behind_gaps)
        for task in behind_gaps:
            self._tasks.reopen(task.number)

    def _look_at_topic(self) -> None:
        """A topic that is not what the models know ends the worker; what it has is saved, if it is of this topic."""
        try:
            state = None if self._monitor is None else self._monitor.seen()
        except WorkerError as error:
            _log.error("topic-changed", error.fact, hint=error.hint)
            self._verdict = error
            return
        if state is not None:
            self._tasks.repartitioned(state.partitions, state.begins)

    def _is_done(self) -> bool:
        """Whether the topic has changed too much, or each partition has come to the end of this run."""
        if self._verdict is not None:
            return True
        if not (self._has_ends and self._tasks and self._executor.is_clear and self._tasks.have_ended()):
            return False
        stopped = [each.number for each in self._tasks.values() if each.state is State.STOPPED and not each.is_left_out]
        if stopped:
            self._verdict = Fatal(f"partitions {stopped} have stopped before the end; the errors above say why")
        return True
