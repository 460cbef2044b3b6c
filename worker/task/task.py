"""One partition of the input: its records, its models, its checkpoints, and the only way records change them.

                 opened             position reaches the committed offset
    (OPENING) ------------> (REPLAY) -------------------------------------> (LIVE)
        |                    |    ^                                         ^    |
        |                    v    |                                         |    v
        |                  (WAITING: the next records need something that is away)
        |                                     |
        +-------------------------------------+--> (STOPPED), also from REPLAY and LIVE:
                                                   a guarantee would break, under a name

REPLAY learns and publishes nothing: what these records predicted is already in the output topic. LIVE predicts and
learns. Both take the same records through the same rules, so the state at an offset does not show how it was reached.
A task does no I/O but through its checkpointer, and the thread of the loop alone changes it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import amf
from worker.base.errors import CorruptCheckpoint, PartitionStopped
from worker.base.lag import Lag
from worker.base.ports import SchemaRegistry
from worker.base.records import CommittedOffset, Event, Outgoing, Record, Reject
from worker.base.terms import State
from worker.checkpoint import SavedModel
from worker.codec.dead_letters import DECODERS
from worker.config import Config
from worker.state.answer_sizes import affordable
from worker.state.cache import Cache
from worker.state.entry import Fetch, Prefetch
from worker.state.model_store import ModelStore
from worker.task.allowance import Allowance
from worker.task.checkpointer import Checkpointer, Reach
from worker.task.processor import Arrivals, BatchResult, Processor, bytes_of
from worker.task.requirements import require_not_replaced

ANSWERS_BYTES = 32 * 2**20
"""Memory of answers of one partition that are not bytes yet, about."""

_NEXT = {
    State.OPENING: {State.REPLAY, State.STOPPED},
    State.REPLAY: {State.LIVE, State.WAITING, State.STOPPED},
    State.LIVE: {State.WAITING, State.STOPPED},
    State.WAITING: {State.REPLAY, State.LIVE, State.STOPPED},
    State.STOPPED: {State.STOPPED},
}


class Task:
    """The work on one partition.

    `position` is the offset of the next record to take; everything before it is in the models. `live_from` is the
    committed offset found at the start: records before it are replayed. `end` is the offset at which a run with an end
    takes no more of it.
    """

    def __init__(
        self,
        number: int,
        config: Config,
        max_message_bytes: int,
        cache: Cache | None = None,
        registry: SchemaRegistry | None = None,
        end: int | None = None,
    ) -> None:
        self.topic = config.input.topic
        self.number = number
        self.position = self.live_from = -1
        self._is_proven = False
        """Whether a record that comes proves that all that was predicted is there."""
        self._last_epoch: int | None = None
        self._leader_epoch: int | None = None
        self._covered = self._low = 0
        """Up to where no record lies behind the position, if that is further; where the partition begins, if known."""
        self.buffer: list[Record] = []
        """Records that were read and are not taken yet."""
        self.record_s: float | None = None
        """How long one of the records took that were taken last."""
        self.gone: str | PartitionStopped | None = None
        """What the broker says where the next record does not exist any more; or why it cannot be had."""
        self.trouble: str | None = None
        """What the next records need and was not there, until some of them could be taken."""
        self._lag = Lag()
        self.wait_until_s = 0.0
        """When a task that waits is to be read again, in the clock's monotonic seconds."""
        self._checkpointer: Checkpointer | None = None
        self._state, self._waiting_from = State.OPENING, State.REPLAY
        self._end, self._is_past_end = end, False
        self._cache = cache
        self._config = config
        self.models = self._model_store()
        self._processor = Processor(number, config, max_message_bytes, registry)

    # --- its life -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_at_work(self) -> bool:
        """Whether it takes records, or will once what they wait for is there."""
        return self._state not in (State.OPENING, State.STOPPED)

    def load(
        self,
        models: Iterable[tuple[str, SavedModel]],
        offset: int,
        fetch: Fetch | None = None,
        prefetch: Prefetch | None = None,
    ) -> ModelStore:
        """The models of a checkpoint at `offset`, which `open` takes; any thread may load them.

        `fetch` gives the bytes of one of them again, `prefetch` has those of some ready for it. Raises
        CorruptCheckpoint.
        """
        loaded = self._model_store(fetch, prefetch)
        try:
            for key, saved in models:
                try:
                    loaded.restore(key, saved)
                except amf.FormatError as error:
                    raise CorruptCheckpoint(f"model {key!r} at offset {offset}: {error}") from error
        except BaseException:
            loaded.close()
            raise
        return loaded

    def refused(self, models: ModelStore) -> list[str]:
        """Keys of the models of which all events will be dead letters."""
        return models.changed_specs() if self._config.models.on_spec_change == "fail" else []

    def open(
        self,
        models: ModelStore,
        position: int,
        live_from: int,
        checkpointer: Checkpointer | None = None,
        last_epoch: int | None = None,
        covered: int = 0,
        low: int = 0,
    ) -> None:
        """Go on from this state: replay the records in [position, live_from), those after them are live.

        last_epoch: the leader epoch of the last record before live_from, where it is known. covered: up to where no
        record lies behind the position. low: where the partition begins, which is no further.
        """
        self._become(State.REPLAY)
        self.models.close()
        self.models, self._checkpointer = models, checkpointer
        self.position, self.live_from, self._last_epoch = position, live_from, last_epoch
        self._leader_epoch = last_epoch if position == live_from else None
        self._covered, self._low = covered, low

    @property
    def commit_point(self) -> CommittedOffset:
        """Its position, with what is to be committed along with it from now on."""
        return CommittedOffset(self.position, self.checkpointer.metadata, self._leader_epoch)

    @property
    def place(self) -> CommittedOffset:
        """From where it is read: its position, or where the partition begins by now, if no record lies between."""
        is_gone = self.position < self._low <= self._covered
        return CommittedOffset(self._low) if is_gone else self.commit_point

    def is_covered(self, low: int) -> bool:
        """Whether it is known that there were no records before `low`, which is further than it was read from."""
        return max(self.position, self._low) < low <= self._covered

    def begin_at(self, low: int) -> None:
        """It is read on where the partition begins by now: what was deleted were no records."""
        self.gone, self._low = None, low

    @property
    def checkpointer(self) -> Checkpointer:
        """What saves it, of one that is open."""
        assert self._checkpointer is not None, f"partition {self.number} is not open"
        return self._checkpointer

    def go_by(self, lineage: str) -> None:
        """The history goes on under this lineage, which the outputs name: after a gap, not under the configured one."""
        self._processor.go_by(lineage)

    @property
    def is_left_out(self) -> bool:
        """Whether this run, which has ends, does not read it."""
        return self._end == 0

    @property
    def has_replayed(self) -> bool:
        """Whether it is to go live; a record at or after the committed offset shows that none is left before it."""
        come_to = self.buffer[0].offset if self.buffer else self.position
        return self._state is State.REPLAY and come_to >= self.live_from and not self.has_leapt

    @property
    def has_leapt(self) -> bool:
        """Whether there was no record up to the committed offset, though it may be that there should have been.

        What has such offsets may be markers of transactions, then and now; or the records that were predicted are lost,
        and markers have come in their place.
        """
        if self._state is not State.REPLAY or not self.buffer or self._last_epoch is None or self._is_proven:
            return False
        return self.position < self.live_from <= self.buffer[0].offset

    def prove(self) -> CommittedOffset:
        """From where it is read next, instead of the records that it has: they come if nothing is lost before them."""
        self._drop_records()
        self._is_proven = True
        return CommittedOffset(self.live_from, leader_epoch=self._last_epoch)

    def go_live(self) -> bool:
        """REPLAY is over. True where the state changed without a record and must be saved before anything commits.

        Raises StateLost.
        """
        self._become(State.LIVE)
        # Before the committed offset there may be none left to take: a group never goes back to where the last one was.
        if self.position < self.live_from:
            self.position, self._leader_epoch = self.live_from, self._last_epoch
        if self._config.models.on_spec_change == "fail":
            return False
        return self.models.drop_changed_specs()

    def wait(self, until_s: float, trouble: str | None = None) -> None:
        """The next records are dropped, and read again by then; `trouble` is what they need and is not there."""
        self.reach(None)
        self._waiting_from = self._state
        self._become(State.WAITING)
        self.trouble, self.wait_until_s = trouble, until_s
        self._drop_records()

    def resume(self) -> None:
        """It is read again, from its position."""
        self._become(self._waiting_from)

    def stop(self) -> None:
        """Take no more records."""
        self._become(State.STOPPED)
        self.trouble = None
        self._drop_records()

    def close(self) -> None:
        """Give up the memory of the models: the partition is somebody else's."""
        if self._checkpointer is not None:
            self._checkpointer.close()
        self.models.close()

    def _become(self, state: State) -> None:
        if state not in _NEXT[self._state]:
            raise AssertionError(f"partition {self.number}: from {self._state.value} to {state.value}")
        self._state = state

    # --- its records --------------------------------------------------------------------------------------------------

    def add(self, records: Sequence[Record]) -> bool:
        """Take in records that were read, up to its end; False where there were others, so that none is wanted more.

        A task that waits, or has stopped, takes none in. One that is being opened was assigned anew after they were
        read.
        """
        if not self._state.takes_records:
            return True
        wanted = list(records) if self._end is None else [each for each in records if each.offset < self._end]
        self._is_past_end |= len(wanted) < len(records)
        self.buffer += wanted
        return not self._is_past_end

    def has_ended(self, end_seen: int | None) -> bool:
        """Whether it has come to the end of the run.

        The last record's offset may be well below the end: what else has an offset, such as the markers of
        transactions, is never read. A record beyond the end shows it, and so does `Input.end_seen`. That all is
        committed is not enough: what is left to be replayed is to be in the checkpoint that the run leaves behind.
        """
        if self._end is None or self._is_past_end:
            return self._is_past_end
        return max(self.position, end_seen or 0) >= self._end

    def ends_in_replay(self, end_seen: int | None) -> bool:
        """Whether the partition seems to end before all is replayed: it has lost its end, or what leads it is behind.

        `end_seen` may be of before the last records that were taken.
        """
        if self._state is not State.REPLAY or self.buffer or end_seen is None:
            return False
        return self.position <= end_seen < self.live_from

    def lag(self, high: int, end_seen: int | None, now_ms: int) -> tuple[int, float | None]:
        """How many offsets below `high`, the end of the partition, are not taken yet; and since how many seconds.

        `end_seen` tells that what is left are no records but the markers of transactions, unless they are in the
        buffer, or are to be read again. Where nothing was ever taken the second number is not known.
        """
        at_end = self._state.takes_records and not self.buffer and (end_seen or 0) >= high
        n = 0 if at_end else max(0, high - max(self.position, 0))
        return n, self._lag.seconds(n, now_ms)

    def reach(self, end_seen: int | None) -> Reach:
        """How far its state goes, by the end that was seen; in a replay that may be the end of a log that lost some."""
        if self._state is State.LIVE and (self.buffer or not self._is_past_end):
            self._covered = max(self._covered, self.buffer[0].offset if self.buffer else end_seen or 0)
        return Reach(self.position, max(self.position, self._covered))

    def n_to_take(self, most: int, allowance: Allowance) -> int:
        """How many of the next `most` records to take, at least one: to be replayed or to be predicted, never both.

        What a checkpoint on its way is to have of a model is copied before the model learns on. A pause for all models
        at once would be a long one; for some of them in each batch, as many as the allowance says, it is not.
        """
        n = min(len(self.buffer), most)
        if self._state is State.REPLAY:
            n = bisect_left(self.buffer, self.live_from, hi=n, key=attrgetter("offset"))
        return allowance.affordable(self.buffer[:n], self._processor.model_key, self.models)

    def take(self, n: int, *, most_bytes: int | None = None) -> tuple[list[Record], BatchResult]:
        """Process the next n records, or as many as `most_bytes` allows; returns those that were taken.

        The others stay in the buffer, and so do all of them where this raises as `process` does.
        """
        result = self.process(self.buffer[:n], most_bytes=most_bytes)
        taken, self.buffer = self.buffer[: result.n_taken], self.buffer[result.n_taken :]
        return taken, result

    def process(self, records: Sequence[Record], *, publish: bool = True, most_bytes: int | None = None) -> BatchResult:
        """Put records through their models in their order: predicted and learned if it is live, else learned alone.

        With `publish` False the answers come as they are, in place of records to publish. Records behind `most_bytes`,
        and behind one that cannot be read yet, are left, as `n_taken` tells; raises Transient where that is the first,
        and PartitionStopped where they are not those that were predicted; nothing has happened then. Raises StateLost.
        """
        predict = self._state is State.LIVE
        if not predict:
            require_not_replaced(f"{self.topic}[{self.number}]", records, self.live_from, self._last_epoch)
        publish &= predict
        result, arrivals = BatchResult(), self._processor.read(records, publish=publish)
        self.models.fetch(arrivals.keys)
        for part in self._parts(arrivals):
            some, of_some = records[part], arrivals.part(part)
            outcomes, of_part = self._processor.process(some, of_some, self.models, predict=predict)
            if publish:
                of_part.outgoing = self._processor.publish(some, of_some.keys, outcomes)
                of_part.n_bytes = bytes_of(some) + bytes_of(of_part.outgoing)
            else:
                of_part.answers = outcomes.answers
            result.add(of_part)
            if most_bytes is not None and result.n_bytes >= most_bytes:
                break
        records = records[: result.n_taken]
        result.tally.join_depths()
        if records:
            self.position, self._leader_epoch = records[-1].offset + 1, records[-1].leader_epoch
            times = [record.timestamp_ms for record in records]
            self._lag.took(times)
            self.models.note_times(arrivals.keys[: result.n_taken], times)
        self.trouble = None
        return result

    def dead_letter_for(self, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        """What goes out in place of a record that the broker refuses; None where that is a dead letter already."""
        return self._processor.dead_letter_for(record, refused, why)

    def _drop_records(self) -> None:
        self.buffer, self.gone, self._is_past_end, self._is_proven = [], None, False, False

    def _parts(self, arrivals: Arrivals) -> Iterator[slice]:
        """Parts of a batch in each of which there is room for all models that it makes, or for none.

        Then the order within a part, which is not that of the records, does not matter, nor do batches. Nor do answers
        of a part take much more than ANSWERS_BYTES, until they are bytes to publish.
        """
        start, n = 0, len(arrivals.keys)
        while start < n:
            end = n if self.models.room >= n - start else self._end_of_part(arrivals, start)
            labels = [event.label if isinstance(event, Event) else None for event in arrivals.events[start:end]]
            end = start + affordable(self.models, arrivals.keys[start:end], labels, ANSWERS_BYTES)
            yield slice(start, end)
            start = end

    def _end_of_part(self, arrivals: Arrivals, start: int) -> int:
        room, new = self.models.room, set[str]()
        for i in range(start, len(arrivals.keys)):
            key, event = arrivals.keys[i], arrivals.events[i]
            if isinstance(key, Reject):
                continue
            if room <= 0 and event is None:
                return max(i, start + 1)  # A tombstone, alone: behind it there may be room, before it there is none.
            if room > 0 and isinstance(event, Event) and event.label is not None and key not in self.models:
                new.add(key)
                if len(new) > room:
                    return i
        return len(arrivals.keys)

    def _model_store(self, fetch: Fetch | None = None, prefetch: Prefetch | None = None) -> ModelStore:
        config, decoder = self._config.models, DECODERS[self._config.input.codec]
        return ModelStore(config.params_for, self._cache, config.max_models, fetch, decoder, prefetch, config.threads)
