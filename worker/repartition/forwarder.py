"""Events into the internal topic that is keyed by model, exactly once: a loop beside the worker's, without state.

A turn: consume -> the model key of each record -> records under their model keys, dead letters and offsets as one
transaction. Value, timestamp and headers stay as they are; `origin-*` headers say where a record was. What becomes of a
failed transaction is decided by `commit`, as for the worker. A failure that it cannot decide ends the forwarder, and so
the process; the offsets say where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import amf
from worker.base.errors import Fatal, PartitionStopped
from worker.base.lag import Lag
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Deadline, Input, Output
from worker.base.records import Bounds, CommittedOffset, Headers, Membership, Outgoing, Record, Reject
from worker.base.rejects import Rejects, Streak
from worker.base.retry import Retry, Stopped, retry
from worker.base.standing import Standing
from worker.base.status import Board
from worker.codec import envelope
from worker.codec.dead_letters import UNPUBLISHABLE
from worker.commit.pending import Pending
from worker.commit.transactions import Transactions
from worker.config import Config
from worker.repartition.model_key import KeyOf
from worker.repartition.note import Note, beginning

_log = Log(__name__)

PATIENCE_S = 60.0
"""Longest time to open a producer at a broker that answers, or to find out where partitions start.

Well below max.poll.interval.ms.
"""


@dataclass(slots=True)
class _Partition:
    """One that is owned."""

    position: int
    """Offset of the next record to be read."""
    start: int | None = None
    """Where it began, as long as that was chosen here and is not committed."""
    epoch: int | None = None
    """Leader epoch of the record before the position, as far as it is known."""
    covered: int = 0
    """Up to where no record lies behind the position, as far as it was seen."""
    noted: int = 0
    """Up to where that is committed, or about to be."""
    waiting: list[Record] = field(default_factory=list)
    """Records that were read and are in no transaction yet."""
    gone: str | None = None
    """What the client says where the next record does not exist."""
    is_paused: bool = False
    """Whether it is not read on, since enough records wait behind the pending transaction."""
    lag: Lag = field(default_factory=Lag)
    rejects: Rejects = field(default_factory=Rejects)
    """Dead letters of the pending transaction."""
    streak: Streak = field(default_factory=Streak)


class Forwarder:
    """One member of the forwarders' group; `config` is `repartition.of_forwarder`'s."""

    def __init__(
        self,
        config: Config,
        key_of: KeyOf,
        max_message_bytes: int,
        partitions: int,
        source: Input,
        open_output: Callable[[], Output],
        metrics: Metrics,
        clock: Clock,
        board: Board,
    ) -> None:
        """partitions: of the input, as it is now."""
        self._config = config
        self._partitions = partitions
        self._began_with: int | None = None
        """Partitions of the input when the group began to forward, None as long as nobody has looked."""
        self._board = board
        self._rekey = _Rekeying(config, key_of, max_message_bytes)
        self._input = source
        self._transactions = Transactions(source, open_output, config.delivery, metrics, clock)
        self._metrics = metrics
        self._clock = clock
        self._standing = Standing(clock, "the forwarders' group")
        self._board.forwarder_trouble = self._standing.trouble()
        self._owned: dict[int, _Partition] = {}

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Join the group and forward. Raises WorkerError when it cannot go on; nothing is lost then."""
        try:
            self.start(should_stop)
            while not should_stop():
                self.turn()
        except Stopped:
            _log.info("stopped", "stopped before there was a producer")
        finally:
            self.close()

    def start(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Join the group; partitions come with the turns. Raises Stopped where it is to stop before that."""
        Retry(self._clock, should_stop, PATIENCE_S).ask("producer of the forwarder", self._transactions.open)
        self._input.subscribe(self)

    def close(self) -> None:
        """Leave the group. What is pending is not waited for: whoever is next will find it committed or forward it."""
        self._input.close()
        self._transactions.close()

    def turn(self) -> None:
        """One turn of the loop."""
        pending, limits = self._transactions.pending, self._config.transaction
        # While a transaction is open only the callbacks are wanted, not more records than must be held.
        records, missing = self._input.consume(1 if pending else limits.max_records, limits.interval_s)
        member = self._input.membership()
        self._standing.observe(member, self._input.trouble())
        self._board.forwarder_trouble = self._standing.trouble()
        for number, some in records.items():
            # A partition may have been taken away after these records of it were read.
            if (here := self._owned.get(number)) is not None:
                here.waiting += some
                here.position, here.epoch, here.gone = some[-1].offset + 1, some[-1].leader_epoch, None
        self._look_at_ends()
        for number, why in missing.items():
            if isinstance(why, PartitionStopped):
                raise Fatal(why.fact, why.hint)
            if number in self._owned:
                self._owned[number].gone = why
        for number, here in self._owned.items():
            # What lies before a gap is committed first: else it would pass for committed along with what lies behind.
            if here.gone is not None and not here.waiting and not here.is_paused:
                self._skip_gap(number, here.gone)
        if pending is not None:
            pending.renew(member)
            # The broker may refuse transactions for hours: no more than the next one takes is held meanwhile.
            if sum(len(each.waiting) for each in self._owned.values()) >= limits.max_records:
                self._read_no_more()
        else:
            self._read_on()
            self._begin(member)
        if self._transactions.pending is not None:
            self._settle(self._transactions.pending)
        self._show_lag()

    # --- partitions come and go (called from within consume and close) ------------------------------------------------

    def assigned(self, partitions: Sequence[int]) -> None:
        """Go on at the committed offsets; where there are none, at `input.start`.

        A partition that was added since the group began is read from its beginning: all its records came since then.
        """
        self._standing.has_joined = True
        deadline = self._deadline()
        asked = range(max([self._partitions, *(number + 1 for number in partitions)]))
        committed = retry(self._clock, deadline, "committed offsets", lambda: self._input.committed(asked))
        if self._began_with is None:
            self._began_with = beginning(committed.values(), self._partitions)
        for number in partitions:
            known = committed[number]
            if known is None:
                bounds, added = self._bounds(number, deadline), number >= self._began_with
                start = bounds.low if added or self._config.input.start == "earliest" else bounds.high
                self._owned[number] = _Partition(start, start)
                continue
            here = self._owned[number] = _Partition(known.offset)
            # Whoever sets offsets may leave the epoch of an earlier commit, but not the note.
            if (note := Note.read(known.metadata)) is not None:
                here.epoch = known.leader_epoch
                here.covered = here.noted = note.covered(known.offset)
            else:
                _log.warning(
                    "offset-set-by-others",
                    f"{self._config.input.topic}[{number}]: the offset {known.offset} of group "
                    f"{self._config.kafka['group.id']} was committed by no forwarder",
                    detail="records from there on that were forwarded before are forwarded and learned again; those "
                    "before it that were not are left out",
                    partition=number,
                    offset=known.offset,
                )
        self._read({number: self._owned[number] for number in partitions})

    def revoked(self, partitions: Sequence[int]) -> None:
        """There is nothing to save."""
        self.lost(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions."""
        self._transactions.drop(partitions)
        for number in partitions:
            self._owned.pop(number, None)
        for family in (self._metrics.forwarder_lag_records, self._metrics.forwarder_lag_seconds):
            family.forget("input_partition", set(partitions))

    def _read_no_more(self) -> None:
        for number, each in self._owned.items():
            if not each.is_paused:
                self._input.pause(number)
                each.is_paused = True

    def _read_on(self) -> None:
        paused = {number: each for number, each in self._owned.items() if each.is_paused}
        if paused:
            self._read(paused)
        for each in paused.values():
            each.is_paused, each.gone = False, None

    def _read(self, partitions: Mapping[int, _Partition]) -> None:
        """Have these read, each from its next record on."""
        self._input.assign(
            {number: each.position for number, each in partitions.items()},
            {number: each.epoch for number, each in partitions.items()},
        )

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _begin(self, member: Membership) -> None:
        """Make the next transaction of what has been read, if that is anything."""
        pending = Pending(member, self._rekey.dead_letter_for)
        # Not of what is read later: it waits behind a transaction that comes to no end.
        for each in self._owned.values():
            if each.waiting:
                each.lag.took([record.timestamp_ms for record in each.waiting])
        starts = {number: each.start for number, each in self._owned.items() if each.start is not None}
        if starts:
            # By themselves and before any record: who comes next goes on there, and can tell that it is not the first.
            # What was read behind them is not forwarded yet, so that nothing is known of where there are no records.
            metadata = self._note().metadata()
            for number, start in starts.items():
                pending.add(number, [], [], CommittedOffset(start, metadata))
                self._owned[number].start = None
            self._transactions.pending = pending
            return
        for number, each in self._owned.items():
            if each.waiting:
                records, each.waiting = each.waiting, []
                pending.add(number, records, self._rekeyed(number, records), self._reached(each))
            # Also by itself: what it covers may be deleted by the time that another record comes.
            elif each.covered > max(each.position, each.noted):
                pending.add(number, [], [], self._reached(each))
        if pending.shares:
            self._transactions.pending = pending

    def _rekeyed(self, number: int, records: Sequence[Record]) -> list[Outgoing]:
        outgoing, here = [], self._owned[number]
        here.streak.begin_batch()
        for record in records:
            refused, forwarded = self._rekey(number, record)
            outgoing.append(forwarded)
            here.streak.note(is_reject=refused is not None)
            if refused is not None:
                here.rejects.add(record, refused)
        return outgoing

    def _settle(self, pending: Pending) -> None:
        """Bring the pending transaction to an end, or leave it pending for a later turn."""
        settled = self._transactions.settle(at_once=False)
        for why in self._transactions.take_given_up().values():
            raise Fatal(f"{self._config.input.topic}, {why.fact}", why.hint)
        if not settled:
            return
        now_ms, topic = self._clock.wall_ms(), self._config.input.topic
        rejects: dict[int, Rejects] = {}
        for number, each in self._owned.items():
            for record in pending.replaced.get(number, ()):
                each.rejects.add(record, UNPUBLISHABLE)
            rejects[number], each.rejects = each.rejects, Rejects()
            rejects[number].report(self._metrics, f"{topic}[{number}]", number)
            self._board.dead_letters.extend(rejects[number].letters(now_ms, topic, number))
        n_rejects = sum(of_partition.counts.total() for of_partition in rejects.values())
        self._metrics.forwarded_records_total.add(pending.committed - n_rejects)
        self._metrics.forwarder_dead_letters_total.add(n_rejects)
        most = self._config.dead_letter.max_consecutive
        for number, each in self._owned.items():
            if each.streak.longest > most:
                raise Fatal(
                    f"{topic}[{number}]: {each.streak.longest} records in a row could not be forwarded "
                    f"({dict(rejects[number].counts)}), dead_letter.max_consecutive is {most}. They are all in "
                    f"{self._config.dead_letter.topic}; repair the producer or input.model_key, then start again"
                )

    def _skip_gap(self, number: int, why: str) -> None:
        """Go on behind records that retention has deleted before they were forwarded, where that is allowed."""
        here, (low, _, end) = self._owned[number], self._bounds(number, self._deadline())
        here.gone = None
        topic, position = self._config.input.topic, here.position
        where = f"{topic}[{number}]: the next record to forward is {position}, there are {low} to {end}"
        if position > low:
            raise Fatal(
                f"{where}: {why}. The broker has lost records that were forwarded, and others may take their place. "
                f"Where the records before {end} are what they were, set the group {self._config.kafka['group.id']} "
                "to that offset (kafka-consumer-groups --reset-offsets); else begin anew under another kafka.group.id"
            )
        if position < low <= here.covered:
            self._input.assign({number: low})  # What has been deleted were no records.
            return
        if self._config.input.on_gap == "fail":
            raise Fatal(f"{where}: {why}. Where it has been deleted, input.on_gap: accept goes on without it")
        _log.warning("gap-accepted", f"{where}: going on without those between (input.on_gap)", partition=number)
        here.position = here.start = low
        here.epoch = None
        self._input.assign({number: low})

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _look_at_ends(self) -> None:
        for number, each in self._owned.items():
            if (end := self._input.end_seen(number)) is not None:
                each.covered = max(end, each.covered)

    def _reached(self, here: _Partition) -> CommittedOffset:
        """What is to be committed once all is that was read of a partition."""
        here.noted = here.covered
        return CommittedOffset(here.position, self._note(here.position, here.covered).metadata(), here.epoch)

    def _note(self, bare_from: int = 0, bare_to: int = 0) -> Note:
        assert self._began_with is not None, "it is asked for as partitions come"
        return Note(self._began_with, bare_from, bare_to)

    def _bounds(self, number: int, deadline: Deadline) -> Bounds:
        return retry(self._clock, deadline, "offsets", lambda: self._input.bounds(number))

    def _deadline(self) -> Deadline:
        return Deadline.after(self._clock, PATIENCE_S)

    def _show_lag(self) -> None:
        """Records that were read wait as the others do: a broker that refuses transactions must not hide them."""
        pending, now_ms = self._transactions.pending, self._clock.wall_ms()
        for number, each in self._owned.items():
            high = self._input.high_watermark(number)
            if high is None:
                continue
            share = pending.shares.get(number) if pending else None
            held = (share and share.records) or each.waiting
            # At an end that was seen there are at most markers of transactions left.
            at_end = not held and (self._input.end_seen(number) or 0) >= high
            n = 0 if at_end else max(0, high - (held[0].offset if held else each.position))
            seconds = each.lag.seconds(n, now_ms)
            self._metrics.forwarder_lag_records.set(n, input_partition=number)
            if seconds is not None:
                self._metrics.forwarder_lag_seconds.set(seconds, input_partition=number)


class _Rekeying:
    """Makes of a record of the input the one to publish: under its model key, or a dead letter."""

    def __init__(self, config: Config, key_of: KeyOf, max_message_bytes: int) -> None:
        self._config = config
        self._key_of = key_of
        self._max_message_bytes = max_message_bytes
        self._topic = config.input.topic.encode()

    def __call__(self, number: int, record: Record) -> tuple[Reject | None, Outgoing]:
        """Why it is a dead letter, None where it is none, and the record to publish."""
        unreadable = record.headers_fault
        key = self._key_of(record) if unreadable is None else Reject("invalid-headers", unreadable)
        if not isinstance(key, Reject):
            headers = self._headers(number, record)
            size = envelope.record_bytes(key, record.value, headers)
            if size <= self._max_message_bytes:
                return None, Outgoing(self._config.output.topic, key, record.value, headers, record.timestamp_ms)
            key = Reject(
                "too-large", f"to be forwarded it needs {size} bytes, there is room for {self._max_message_bytes}"
            )
        return key, self._dead_letter(number, record, key)

    def dead_letter_for(self, number: int, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        """What goes out in place of a record that the broker refuses; None where that is a dead letter already."""
        if refused.topic == self._config.dead_letter.topic:
            return None
        return self._dead_letter(number, record, Reject("unpublishable", why))

    def _dead_letter(self, number: int, record: Record, why: Reject) -> Outgoing:
        config = self._config
        provenance = envelope.Provenance(config.input.topic, number, amf.ENGINE, config.checkpoint.lineage)
        ours = provenance.headers(record.offset, None)
        return envelope.dead_letter(config.dead_letter.topic, record, why, ours, self._max_message_bytes)

    def _headers(self, number: int, record: Record) -> Headers:
        return [
            *record.headers,
            ("origin-topic", self._topic),
            ("origin-partition", b"%d" % number),
            ("origin-offset", b"%d" % record.offset),
            ("origin-key", record.key),
        ]
