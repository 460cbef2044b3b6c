"""A worker process of the simulation: a worker, its adapters, and an end by exit or by SIGKILL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Literal, Protocol

from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import Doubts, FakeInput, FakeOutput
from tests.worker.support.fakes import Crash, FakeClock, FakePool, FakeSpill, FakeStore, Hook
from tests.worker.support.plan import Plan
from tests.worker.support.tasks import SETTING
from worker.base.errors import WorkerError
from worker.base.metrics import Metrics
from worker.base.ports import ObjectStore
from worker.base.status import Board
from worker.config import Config
from worker.runtime.loop import Worker
from worker.runtime.tasks import Pools

METRICS = Metrics()
"""One for all processes, which do not look at the numbers: to make it takes longer than to run one."""
SHOWN_EVERY = 4
"""Of so many times that a process would show its figures it does so once: nobody looks, and it took a seventh of the
time of all schedules. It reads and changes nothing."""


class World(Protocol):
    """What a process lives in."""

    clock: FakeClock
    broker: Broker
    store: ObjectStore
    worker: type[Worker]

    def at(self, process: Process, point: str) -> None:
        """The process is at this point of its program: anything may happen here."""

    def say(self, process: Process, what: str) -> None: ...


class Process:
    """One `amf-worker run`. Each method takes it one step further, whatever becomes of it."""

    def __init__(self, world: World, plan: Plan, config: Config, name: str, identity: str | None, entry: int) -> None:
        self.world = world
        self.name = name
        self.identity = identity
        self.entry = entry
        self.alive = True
        self.held = False
        """Whether it is stopped in the middle of a call."""
        self.stops: list[str] = []
        """The names under which its partitions have stopped, as far as they have not been seen to.

        Of one that does not know what it has lost nobody asks why it has stopped.
        """
        self.has_stopped_unasked = False
        """Whether one of them has stopped that nobody asked about."""
        self.input = FakeInput(world.broker, self.hook)
        self.input.doubts = Doubts()
        self.output: FakeOutput | None = None
        self.pool = FakePool(world.clock)
        self.askers = FakePool(world.clock)
        self.spill = FakeSpill(plan.spill_room, self.hook)
        self.store = FakeStore(world.store, self.hook)
        self.thread: Literal["idle", "at work", "waiting"] = "idle"
        """What the thread does that writes checkpoints, beside the loop: whether it waits for a call to return."""
        self._worker = world.worker(
            config,
            replace(SETTING, partitions=len(world.broker.logs), spill=self.spill),
            self.input,
            self._open_output,
            self.store,
            self._metrics(),
            ProcessClock(world.clock, self.hook, plan.look_s),
            Pools(self.pool, self.pool, self.pool, self.askers, FakePool(world.clock), None),
            Board(),
            None,
        )
        self._show_rarely()
        self._worker.copied_bytes = plan.copied_bytes
        self._worker._pace.pieces, self._worker._pace.worth_s = plan.pieces, 0.0
        if plan.turn_bytes is not None:
            self._worker._tasks.cache.turn_bytes = plan.turn_bytes

    @property
    def awake(self) -> bool:
        return self.alive and not self.held

    def start(self) -> None:
        self._run(self._worker.start)

    def turn(self) -> None:
        self._run(self._worker.turn)

    def write_checkpoint(self) -> None:
        """One of its threads that write checkpoints gets done."""
        if self.pool.jobs and self.thread == "idle":
            self.thread = "at work"
            self._run(self.pool.jobs[0].run)
            self.thread = "idle"

    def stop(self) -> None:
        """In order, as after SIGTERM."""
        if self.alive:
            self._run(self._worker.close)
        self.alive = False

    def kill(self) -> None:
        self.alive = False

    def hook(self, point: str) -> None:
        if self.alive:
            self.world.at(self, point)
        if not self.alive:
            raise Crash

    def _open_output(self) -> FakeOutput:
        self.output = FakeOutput(self.world.broker, self.identity, self.hook, self.input.doubts)
        return self.output

    def _metrics(self) -> Metrics:
        metrics: Any = copy(METRICS)
        metrics.partition_stops_total = Stops(self._note_stop)
        return metrics

    def _note_stop(self, code: str) -> None:
        if self.input.is_informed:
            self.stops.append(code)
        else:
            self.has_stopped_unasked = True

    def _show_rarely(self) -> None:
        show, times = self._worker._show, count(1)

        def rarely() -> None:
            if next(times) % SHOWN_EVERY == 0:
                show()

        self._worker._show = rarely  # type: ignore[method-assign]

    def _run(self, step: Callable[[], None]) -> None:
        """A step of `Worker.run`, and what `run` does when the step raises."""
        try:
            step()
        except WorkerError as error:
            self.world.say(self, f"exits: {error}")
            with suppress(Crash, WorkerError):
                self._worker.abandon()
            self.alive = False
        except Crash:
            self.alive = False


class Stops:
    """The metric that counts partitions which have stopped, by name."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note

    def add(self, _: float, *, code: str) -> None:
        self._note(code)

    def forget(self, label: str, value: object) -> None:
        """Codes are no label that is forgotten."""


class ProcessClock:
    """The one clock there is, behind the hook of a process; to look at it takes time."""

    def __init__(self, clock: FakeClock, hook: Hook, look_s: float) -> None:
        self._clock = clock
        self._hook = hook
        self._look_s = look_s
        self.wall_ms = clock.wall_ms

    def monotonic(self) -> float:
        self._clock.now_s += self._look_s
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self._hook("sleep")
