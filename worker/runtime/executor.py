"""Records through tasks, and what came of them into transactions: gather, commit, post.

A batch whose transaction fails is not computed again: the models have learned its records. Its outputs are kept and
sent again once it is known that they were not committed, less those of partitions that were taken away, whose state is
dropped with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor

from worker.base.errors import PartitionStopped, StateLost, Transient
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Deadline
from worker.base.records import Membership, Outgoing, Record
from worker.base.status import Board
from worker.base.terms import State
from worker.commit.pending import Pending
from worker.commit.transactions import Transactions
from worker.runtime import reports
from worker.runtime.tasks import Tasks
from worker.task.allowance import Allowance
from worker.task.processor import BatchResult
from worker.task.task import Task

_log = Log(__name__)

_RECORDS_A_CALL = 8
"""Records of one model in a batch, on average, from which on two partitions are taken at a time."""

GATHERED_BYTES = 32 * 2**20
"""Bytes of outputs with which a transaction is committed before it is due, and a batch ends before all is taken.

Of models with a thousand classes ten thousand records, as a transaction may have, would be gigabytes.
"""

TURN_S = 1.0
"""Time after which a turn takes no more records: other partitions wait for it, the group, and whoever is to stop it.

How long a record takes nobody knows before: that may be the model, or what its producer has thought of. In a megabyte
of numbers such as 1e308, which compressed is next to nothing, msgspec reads for more than a second.
"""
PIECE_BYTES = 2 * 2**20
"""Values of records after which it is looked how long they have taken."""
FIRST_PIECE = 64
"""Records of a partition that are taken at a time before it is known how long one takes."""

SHORT_TURN_S = 0.05
"""A turn that takes longer may copy as many times more of models that wait to be saved.

So copies are a third of a turn at most, and the records of a partition whose models are large do not wait for many.
"""

LAST_ATTEMPTS = 3
"""How often what is pending is tried before partitions go: one attempt may tell that the producer is to be replaced."""

Outcome = BatchResult | Transient | StateLost | PartitionStopped
Attempt = tuple[Task, list[Record], Outcome]


class TaskExecutor:
    """Works on the tasks of the worker for the thread of the loop."""

    def __init__(
        self,
        tasks: Tasks,
        transactions: Transactions,
        metrics: Metrics,
        clock: Clock,
        appliers: Executor,
        board: Board,
    ) -> None:
        self._tasks = tasks
        self._transactions = transactions
        self._metrics = metrics
        self._clock = clock
        self._appliers = appliers
        self._board = board
        self._gathered: Pending | None = None
        """What will be the next transaction: nothing of it was sent. Never beside one that is pending."""
        self._results: dict[int, BatchResult] = {}
        """Of each partition that of its records which were taken and are not known to be committed."""
        self._left: list[int] = []
        """Partitions to which the last turn did not come: they are the next one's first."""
        self.turn_s = 0.0
        """How long the last turn took for its records."""

    # --- process ------------------------------------------------------------------------------------------------------

    def process(self, most_records: int, copied_bytes: int) -> list[Attempt]:
        """Put the records that are there through their tasks: of each what it took, and an error in place of a result.

        Two partitions at a time, where that is faster: they share nothing and do no I/O here, and kernels run without
        the interpreter lock, so one partition decodes and encodes while another one's trees are walked. Those to which
        it does not come within TURN_S are not among them. most_records: of a transaction. copied_bytes: see Worker.
        """
        began_s = self._clock.monotonic()
        order = {number: place for place, number in enumerate(self._left)}
        busy = [task for task in self._tasks.values() if task.buffer]
        busy.sort(key=lambda task: order.get(task.number, len(order)))
        shares = _shares([len(task.buffer) for task in busy], most_records - self.n_gathered)
        come = busy[: len(shares)]
        copying = sum(task.models.in_copy_on_write for task in come)
        copied_bytes = int(copied_bytes * max(1.0, self.turn_s / SHORT_TURN_S))
        allowance = Allowance(len(come), copying, copied_bytes, self._tasks.cache.turn_bytes)
        batches = [(task, _n_to_take(task, most, allowance)) for task, most in zip(come, shares, strict=True)]
        self._tasks.cache.shrink(allowance.coming_bytes)
        turn = Deadline.after(self._clock, TURN_S)
        attempts = self._appliers.map if len(batches) > 1 and _makes_long_calls(batches) else map
        made = [*filter(None, attempts(lambda batch: self._attempt(batch[0], batch[1], turn), batches))]
        came = {task.number for task, *_ in made}
        self._left = [task.number for task in busy if task.number not in came]
        self.turn_s = self._clock.monotonic() - began_s
        return made

    def _attempt(self, task: Task, n: int, turn: Deadline) -> Attempt | None:
        """The next n records of a task, or as many as there is time for; None where there is none left."""
        if turn.passed():
            return None
        started_s, trouble = self._clock.monotonic(), task.trouble
        # Returned, not raised: what the other partitions have learned meanwhile must be published.
        try:
            taken, result = self._take(task, n, turn)
        except (Transient, StateLost, PartitionStopped) as error:
            return task, [], error
        if trouble is not None:
            _log.info("partition-waits-no-more", f"partition {task.number} waits no more", partition=task.number)
        task.checkpointer.add_replay_cost(self._clock.monotonic() - started_s)
        return task, taken, result

    def _take(self, task: Task, n: int, turn: Deadline) -> tuple[list[Record], BatchResult]:
        """Piece by piece, which changes nothing of what comes of them. Raises as `Task.process` does."""
        taken: list[Record] = []
        result = BatchResult()
        while True:
            began_s, piece = self._clock.monotonic(), self._piece(task, n - len(taken), turn)
            try:
                some, of_some = task.take(piece, most_bytes=GATHERED_BYTES - result.n_bytes)
            except (Transient, PartitionStopped):
                if not taken:
                    raise
                break  # Nothing has happened to these: next time they are the first.
            if some:
                task.record_s = (self._clock.monotonic() - began_s) / len(some)
            taken += some
            result.add(of_some)
            if len(taken) == n or len(some) < piece or result.n_bytes >= GATHERED_BYTES or turn.passed():
                break
        return taken, result

    def _piece(self, task: Task, n: int, turn: Deadline) -> int:
        """How many of the next n records to take at once, by what the last ones took."""
        if task.record_s is None:
            n = min(n, FIRST_PIECE)
        elif task.record_s > 0:
            n = min(n, max(1, int(turn.remaining() / task.record_s)))
        n_bytes = 0
        for i, record in enumerate(task.buffer[:n]):
            n_bytes += len(record.value or b"")
            if n_bytes > PIECE_BYTES:
                return max(1, i)
        return n

    # --- gather, commit, post -----------------------------------------------------------------------------------------

    @property
    def is_committing(self) -> bool:
        """Whether outputs and offsets may have been sent and are not known to be committed; nothing is taken before."""
        return self._transactions.pending is not None

    @property
    def is_clear(self) -> bool:
        """Whether all that was taken is committed; nothing is saved before it is."""
        return self._gathered is None and self._transactions.pending is None

    @property
    def n_gathered(self) -> int:
        """How many outputs wait for the next transaction."""
        return 0 if self._gathered is None else sum(len(share.outgoing) for share in self._gathered.shares.values())

    def has_enough(self, most_records: int) -> bool:
        """Whether the next transaction is to have no more outputs."""
        n_bytes = sum(result.n_bytes for result in self._results.values())
        return self.n_gathered >= most_records or n_bytes >= GATHERED_BYTES

    def gather(self, member: Membership, taken: Iterable[tuple[Task, list[Record], BatchResult]]) -> None:
        """Keep outputs and offsets of records that tasks have taken for the next transaction. member: who read them."""
        gathered = self._gathered or Pending(member, self._dead_letter_for)
        for task, records, result in taken:
            gathered.add(task.number, records, result.outgoing, task.commit_point)
            if task.number in self._results:
                self._results[task.number].add(result)
            else:
                self._results[task.number] = result
        for task in self._tasks.values():
            # Without a record of it nobody else would commit that its state was changed out of band.
            if task.state is State.LIVE and task.number not in self._results and task.checkpointer.must_be_committed:
                gathered.add(task.number, [], [], task.commit_point)
        self._gathered = gathered if gathered.shares else None

    def discard_gathered(self, partitions: Collection[int]) -> None:
        """Forget what is gathered of partitions, of which nothing was sent."""
        for number in partitions:
            self._results.pop(number, None)
        if self._gathered is not None:
            self._gathered.drop(partitions)
            if not self._gathered.shares:
                self._gathered = None

    def renew(self, member: Membership) -> bool:
        """Commit as this member; False where what is pending was read by another one."""
        if self._gathered is not None and not self._gathered.renew(member):
            self._close()
        pending = self._transactions.pending
        return pending is None or pending.renew(member)

    def commit_gathered(self) -> dict[int, PartitionStopped]:
        """Publish what is gathered and commit its offsets, or what is pending, see `commit`."""
        self._close()
        return self.commit(at_once=True)

    def _close(self) -> None:
        """What is gathered becomes the pending transaction."""
        if self._gathered is not None:
            self._metrics.batch_records.observe([self.n_gathered])
            self._transactions.pending, self._gathered = self._gathered, None
            failpoint("learned")

    def commit(self, *, at_once: bool) -> dict[int, PartitionStopped]:
        """Publish outputs and commit their offsets, as far as that works by now; there may be none.

        Returns the partitions that have to stop, and why. at_once: without a pause, however often others failed.
        """
        pending = self._transactions.pending
        if pending is None:
            return {}
        committing = dict(pending.shares)
        settled = self._transactions.settle(at_once=at_once)
        stops = self._transactions.take_given_up()
        for number in stops:
            self._results.pop(number, None)
        for number in committing.keys() - pending.shares.keys() - stops.keys():
            self._tasks[number].checkpointer.was_committed(committing[number].offset.metadata)
        return stops | self._post(pending) if settled else stops

    def commit_before_leaving(
        self, partitions: Sequence[int], ask: Callable[[], Membership], deadline: Deadline
    ) -> dict[int, PartitionStopped]:
        """Try what is pending of partitions once more, or it cannot be saved and the next owner has records to replay.

        A group that rebalances in the middle of a transaction refuses it, for it is of the generation before. The
        partitions are this member's until it has given them up, if it still is the one that has read their records.
        ask: for the present membership. Returns the partitions that have to stop, and why.
        """
        stops: dict[int, PartitionStopped] = {}
        if any(map(self.has_pending, partitions)):
            self._close()
        for _ in range(LAST_ATTEMPTS):
            if deadline.passed() or not any(map(self.has_pending, partitions)) or not self.renew(ask()):
                break
            stops |= self.commit(at_once=True)
        return stops

    def _post(self, pending: Pending) -> dict[int, PartitionStopped]:
        """All of it is committed: count it, and see which partitions come to a stop with it."""
        stops: dict[int, PartitionStopped] = {}
        now_ms = self._clock.wall_ms()
        results, self._results = self._results, {}
        for number, result in results.items():
            reports.count(self._metrics, number, result, now_ms, pending.replaced.get(number, ()))
            self._board.dead_letters.extend(result.rejects.letters(now_ms, self._tasks[number].topic, number))
            if result.stop is not None:
                stops[number] = result.stop
        return stops

    def has_pending(self, number: int) -> bool:
        """Whether outputs of a partition are not known to be committed."""
        return any(each is not None and number in each.shares for each in (self._gathered, self._transactions.pending))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget outputs of partitions that are somebody else's."""
        self.discard_gathered(partitions)
        self._transactions.drop(partitions)

    def abandon(self) -> None:
        """Forget all outputs that are not known to be committed."""
        self._gathered = self._transactions.pending = None

    def _dead_letter_for(self, number: int, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        return self._tasks[number].dead_letter_for(record, refused, why)


def _shares(waiting: Sequence[int], most: int) -> list[int]:
    """How many of the records that wait in each partition come next, for as many partitions as there is room.

    Of none more than half of the most, as long as others fill the rest: two are taken at a time, and should end
    together. Brokers send thousands of records of one partition before the first one of the next.
    """
    shares, room = list[int](), most
    for n in waiting:
        if room > 0:
            shares.append(min(n, max(1, most // 2), room))
            room -= shares[-1]
    for i, share in enumerate(shares):
        more = min(waiting[i] - share, room)
        shares[i], room = share + more, room - more
    return shares


def _n_to_take(task: Task, most: int, allowance: Allowance) -> int:
    n = task.n_to_take(most, allowance)
    failpoint("consumed")
    return n


def _makes_long_calls(batches: Sequence[tuple[Task, int]]) -> bool:
    """Whether models get many records each. Threads that hand over the interpreter for a few are slower than one."""
    n_records = sum(n for _, n in batches)
    n_calls = sum(len({record.key for record in task.buffer[:n]}) for task, n in batches)
    return n_records >= _RECORDS_A_CALL * n_calls
