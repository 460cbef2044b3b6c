"""A worker process of the simulation: a worker, its adapters, and an end by exit or by SIGKILL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tests.worker.fake_broker import Broker
from tests.worker.fake_clients import FakeInput, FakeOutput
from tests.worker.fakes import Crash, FakeClock, FakePool, FakeSpill, FakeStore, Hook
from tests.worker.plan import Plan
from worker.errors import WorkerError
from worker.metrics import Metrics
from worker.ports import ObjectStore
from worker.runtime import Setting, Worker

METRICS = Metrics()
"""One for all: nobody looks at the numbers, and to make it takes longer than to run a process."""
SETTING = Setting(topic_id="topic-id", partitions=1, max_message_bytes=1_000_000)


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

    def __init__(self, world: World, plan: Plan, name: str, identity: str | None, slot: int) -> None:
        self.world = world
        self.name = name
        self.identity = identity
        self.slot = slot
        self.alive = True
        self.held = False
        """Whether it is stopped in the middle of a call."""
        self.input = FakeInput(world.broker, self.hook)
        self.output: FakeOutput | None = None
        self.pool = FakePool(world.clock)
        self.askers = FakePool(world.clock)
        self.spill = FakeSpill(plan.spill_room, self.hook)
        self._worker = world.worker(
            plan.config,
            replace(SETTING, partitions=plan.partitions, spill=self.spill),
            self.input,
            self._open_output,
            FakeStore(world.store, self.hook),
            METRICS,
            ProcessClock(world.clock, self.hook, plan.look_s),
            self.pool,
            FakePool(world.clock),
            self.askers,
        )
        self._worker.copied_bytes = plan.copied_bytes

    @property
    def awake(self) -> bool:
        return self.alive and not self.held

    def start(self) -> None:
        self._run(self._worker.start)

    def turn(self) -> None:
        self._run(self._worker.turn)

    def write_checkpoint(self) -> None:
        """One of its threads that write checkpoints gets done."""
        if self.pool.jobs:
            self._run(self.pool.jobs[0].run)

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
        self.output = FakeOutput(self.world.broker, self.identity, self.hook)
        return self.output

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
