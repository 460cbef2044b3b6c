"""The tasks of a worker: made when partitions are assigned, opened, loaded anew where their state is lost, dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from worker.base.errors import PartitionStopped, StateLost
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Input, ObjectStore, SchemaRegistry, Spill
from worker.base.records import Bounds
from worker.base.refusals import state_lost
from worker.base.terms import State
from worker.checkpoint import Location, Policy
from worker.config import Config, history_of
from worker.runtime.reloads import MOST_RELOADS, Reloads
from worker.state.cache import Cache
from worker.task.checkpointer import Checkpointer, Reach
from worker.task.processor import bytes_of
from worker.task.recovery import Opened, Recovery, Terms
from worker.task.requirements import next_is_missing, require_not_beyond
from worker.task.restorer import Restorer
from worker.task.task import Task
from worker.task.warm_start import WarmStart

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Setting:
    """What start-up found out about the topics, and made for all partitions."""

    topic_id: str
    partitions: int
    max_message_bytes: int
    warm_start: WarmStart | None
    ends: Mapping[int, int] | None
    """Where a run that has an end takes no more of each partition; those that are not named are not read at all."""
    registry: SchemaRegistry | None
    spill: Spill | None
    """Room for the models that models.cache_bytes has no room for."""
    give_back: Callable[[], object]
    """Returns memory to the system that models have left."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads beside that of the loop, by what they do."""

    writers: Executor
    """Write checkpoints."""
    cleaners: Executor
    """Remove what no checkpoint needs any more."""
    loaders: Executor
    """Load the models of partitions that are opened: few at a time, since each takes memory."""
    askers: Executor
    """Ask the broker where partitions start, and what is left of their records: many at a time, since each waits for an
    answer."""
    appliers: Executor
    """Put the records of partitions through their models."""
    new_fetchers: Callable[[], Executor] | None
    """Makes those of one partition, which read models from the store that a batch needs; without them the loop reads
    and waits itself."""


class _Question(NamedTuple):
    """About the records of a partition, of which the one at this position seems to be gone."""

    position: int
    answer: Future[tuple[Bounds, int]]
    """See `Tasks._rest`."""


class Tasks(Mapping[int, Task]):
    """By partition. All calls come from the thread of the loop."""

    def __init__(
        self,
        config: Config,
        setting: Setting,
        source: Input,
        store: ObjectStore,
        metrics: Metrics,
        clock: Clock,
        pools: Pools,
        committed: Callable[[int], int],
    ) -> None:
        """committed: the offset of a partition that this worker has committed since it came, as far as it knows."""
        self._config = config
        self._setting = setting
        self._input = source
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._pools = pools
        self.cache = Cache(config.models.cache_bytes, setting.spill, setting.give_back)
        self.policy = Policy(config.checkpoint.interval_s, config.checkpoint.recovery_budget_s)
        self._terms = Terms.of(config, setting.partitions)
        metrics.topic_partitions.set(setting.partitions)
        self._restorer = Restorer(source, pools.loaders, pools.askers, clock)
        self._reloads = Reloads()
        self._committed = committed
        self._found: dict[int, int] = {}
        """The offset at which the group was when a partition was opened, since it came."""
        self._rests: dict[int, _Question] = {}
        """What was asked about partitions whose next record seems to be gone, until it is answered."""
        self._tasks: dict[int, Task] = {}

    def __getitem__(self, number: int) -> Task:
        return self._tasks[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def any_opening(self) -> bool:
        """Whether any is on its way."""
        return bool(self._restorer)

    def at_work(self) -> list[Task]:
        """Those that are open and have not stopped."""
        return [task for task in self._tasks.values() if task.is_at_work]

    def open(self, partitions: Iterable[int], wait_s: float = 0.0, known: int = 0) -> None:
        """Have partitions opened, after so many seconds; nothing is read of them before that.

        known: the offset at which the group is at least.
        """
        failpoint("assigned")
        setting, numbers = self._setting, list(partitions)
        for number in numbers:
            end = None if setting.ends is None else setting.ends.get(number, 0)
            task = Task(number, self._config, setting.max_message_bytes, self.cache, setting.registry, end)
            self._tasks[number] = task
            if setting.ends is not None and number >= setting.partitions:
                task.stop()  # It was added, and the models know nothing of it.
                continue
            self._restorer.add(task, self._recovery(number), wait_s, known)
            self._metrics.partition_events_total.add(0, partition=number)  # so that `rate()` sees its first events
        self._input.hold(numbers)

    def opened(self) -> Iterator[tuple[Task, PartitionStopped | StateLost | None]]:
        """Go on with those that are on their way; gives each that is open by now, or why it never will be."""
        for task, outcome in self._restorer.step():
            if not isinstance(outcome, Opened):
                yield task, outcome
                continue
            pools = self._pools.writers, self._pools.cleaners
            saving = Checkpointer(outcome, self.policy, self._clock, self._metrics, *pools)
            saving.repartitioned(self._terms.partitions)
            task.go_by(outcome.checkpoints.location.lineage)
            covered, low = outcome.manifest.covered, outcome.low
            task.open(outcome.models, outcome.position, outcome.live_from, saving, outcome.last_epoch, covered, low)
            self._found[task.number] = outcome.committed or 0
            self.read([task])
            yield task, None

    def reach(self, task: Task) -> Reach:
        """How far the state of one that is open goes."""
        return task.reach(self._input.end_seen(task.number))

    def buffered(self, most_records: int, most_bytes: int) -> tuple[int, float]:
        """How many records were read and are not taken yet, and how many transactions of these sizes they are."""
        records = [record for task in self.values() for record in task.buffer]
        return len(records), max(len(records) / most_records, bytes_of(records) / most_bytes)

    def read(self, tasks: Sequence[Task]) -> None:
        """Have partitions read, each from its next record on."""
        places = {task.number: task.place for task in tasks}
        self._input.assign(
            {number: place.offset for number, place in places.items()},
            {number: place.leader_epoch for number, place in places.items()},
        )

    def read_again(self) -> None:
        """Have those read on that have waited long enough."""
        now = self._clock.monotonic()
        waiting = [task for task in self._tasks.values() if task.state is State.WAITING]
        due = [task for task in waiting if task.wait_until_s <= now and not task.checkpointer.must_be_saved]
        for task in due:
            task.resume()
        if due:
            self.read(due)

    def prove(self, task: Task) -> None:
        """Have a partition read from where it goes live, if the last record before that is what was predicted."""
        place = task.prove()
        self._input.assign({task.number: place.offset}, {task.number: place.leader_epoch})

    def has_next_record(self, task: Task) -> bool:
        """Whether the next record exists, or will, or that is not known yet; else it starts anew behind a gap that is
        accepted, or is none.

        Raises PartitionStopped where the partition cannot go on; Transient.
        """
        where = f"{task.topic}[{task.number}]"
        if isinstance(task.gone, PartitionStopped):
            raise task.gone
        if task.gone is None and not task.ends_in_replay(self._input.end_seen(task.number)):
            return True
        if (rest := self._rest(task)) is None:
            return True
        (low, *_, end), covered = rest
        if task.gone is not None:
            if task.is_covered(low):
                task.begin_at(low)
                self.read([task])
                return True
            if self._config.input.on_gap == "accept" and low > task.position:
                return False
            if task.position < low <= covered:
                return False
            raise next_is_missing(where, task.gone)
        require_not_beyond(where, task.live_from, end, committed=self._found[task.number] > 0)
        return True

    def _rest(self, task: Task) -> tuple[Bounds, int] | None:
        """Which records there are of a partition, and up to where none was behind its position; None until the broker
        and the store have answered, for whom the others do not wait. Raises Transient."""
        asked = self._rests.pop(task.number, None)
        if asked is None or asked.position != task.position:
            asked = _Question(task.position, self._pools.askers.submit(self._ask_for_rest, task))
        try:
            return asked.answer.result(timeout=0)
        except TimeoutError:
            self._rests[task.number] = asked
            return None

    def _ask_for_rest(self, task: Task) -> tuple[Bounds, int]:
        bounds, covered = self._input.bounds(task.number), task.position
        # Who had it before may have saved since that what is gone were no records.
        if self._config.input.on_gap == "fail" and covered < bounds.low and not task.is_covered(bounds.low):
            covered = self._recovery(task.number).covered(covered)
        return bounds, covered

    def have_ended(self) -> bool:
        """Whether each partition has come to the end of a run that has ends, or has stopped."""
        return all(
            task.state is State.STOPPED
            or (task.state.takes_records and not task.buffer and task.has_ended(self._input.end_seen(task.number)))
            for task in self._tasks.values()
        )

    def reload(self, task: Task, error: StateLost) -> PartitionStopped | None:
        """Begin again with the checkpoint: what the partition learned since comes back by replay.

        Where that happens again and again it waits between two attempts; in the end this says why it has to stop.
        """
        number = task.number
        saved_offset = task.checkpointer.saved_offset if task.is_at_work else None
        wait_s = self._reloads.next_pause_s(number, saved_offset)
        if wait_s is None:
            return state_lost(number, MOST_RELOADS, str(error))
        when = f" in {wait_s:g} s" if wait_s else ""
        _log.error("state-lost", f"partition {number} is loaded again{when}", detail=error, partition=number)
        self.reopen(number, wait_s)
        return None

    def reopen(self, number: int, wait_s: float = 0.0) -> None:
        """Forget the state of a partition that stays, and open it once more.

        The group is not set back meanwhile: who answers that it was has forgotten commits. At least once it may be, by
        a member that was put out of the group.
        """
        is_once = self._config.delivery == "exactly-once"
        known = max(self._committed(number), self._found.get(number, 0)) if is_once else 0
        self.drop([number])
        self.open([number], wait_s, known)

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the state of partitions."""
        failpoint("lost")
        numbers = list(partitions)
        for number in numbers:
            self._restorer.drop(number)
            if (asked := self._rests.pop(number, None)) is not None:
                asked.answer.cancel()
            if number in self._tasks:
                self._tasks.pop(number).close()
        self._metrics.forget_partitions(numbers)

    def lose(self, partitions: Iterable[int]) -> None:
        """Forget partitions that are somebody else's."""
        numbers = list(partitions)
        for number in numbers:
            self._reloads.forget(number)
            self._found.pop(number, None)
        self.drop(numbers)

    def repartitioned(self, partitions: int, begins: Mapping[int, int]) -> None:
        """The topic has so many partitions by now, which begin at these offsets."""
        # A run with ends leaves alone what was added: what it saves is of the partitions with which it began.
        if self._setting.ends is None:
            self._terms = replace(self._terms, partitions=max(partitions, self._terms.partitions))
        self._metrics.topic_partitions.set(self._terms.partitions)
        # One that has stopped since it was opened is shown as well: it takes no records, and the topic forgets them.
        for task in (each for each in self._tasks.values() if each.position >= 0):
            task.checkpointer.repartitioned(self._terms.partitions)
            covered = task.checkpointer.covered
            if task.number in begins and covered is not None:
                margin = covered - begins[task.number]
                self._metrics.retention_margin_records.set(margin, partition=task.number)

    def _recovery(self, number: int) -> Recovery:
        config, setting = self._config, self._setting
        location = Location(*history_of(config), setting.topic_id, number)
        return Recovery(
            self._store, location, self._terms, self._clock, self._metrics, setting.warm_start, self._pools.new_fetchers
        )
