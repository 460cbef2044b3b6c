"""A clock, a store, a pool of threads and a configuration for tests: nothing here waits, and nothing is random.

Every call that the worker makes passes a hook, by the name of the call before it takes effect and by that name with
`:done` after. What a hook raises, the worker meets there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tests.worker.support.stores import PassingStore
from worker.base.errors import StateLost, Transient
from worker.base.ports import ObjectStore
from worker.config import Config, Override, loads

Hook = Callable[[str], None]


class Crash(BaseException):
    """The process is gone, as by SIGKILL: nothing may catch this."""


def no_fault(_: str) -> None:
    """The hook of a world without faults."""


class Faults:
    """A hook that does what was written down for a point, each thing once and in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._written: dict[str, list[BaseException | Callable[[], None] | None]] = {}

    def at(self, point: str, *faults: BaseException | Callable[[], None] | None) -> None:
        """At the next calls that pass this point raise an exception, call a function, or (None) do nothing."""
        self._written.setdefault(point, []).extend(faults)

    def forget(self, point: str) -> None:
        """Do nothing more there of what was written down."""
        self._written.pop(point, None)

    def __call__(self, point: str) -> None:
        self.seen.append(point)
        fault = self._written[point].pop(0) if self._written.get(point) else None
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            fault()


class FakeClock:
    """Time that passes when the worker sleeps, or the test sets it."""

    def __init__(self, hook: Hook = no_fault) -> None:
        self.now_s = 1000.0
        self.wall_offset_ms = 1_700_000_000_000
        self.hook = hook

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.hook("sleep")


class FakeStore(PassingStore):
    """A store behind a hook, which may have the next call take effect late, or by halves."""

    def __init__(self, inner: ObjectStore, hook: Hook) -> None:
        super().__init__(inner)
        self.hook = hook
        self.delay: Callable[[Callable[[], Any]], object] | None = None
        """Takes the next object that is created: who sent it has given up waiting by the time that it arrives."""
        self.is_torn = False
        """Whether the next listing is of two moments, as those of many pages are."""

    def list(self, prefix: str) -> list[str]:
        names = super().list(prefix)
        if self.is_torn and names:
            self.is_torn = False
            last = names[(len(names) - 1) // 2]
            self.hook("store list:page")
            names = [name for name in names if name <= last] + [name for name in super().list(prefix) if name > last]
        return names

    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any:
        self.hook(f"store {method.__name__}")
        if self.delay is not None and method.__name__ == "create":
            self.delay(partial(method, name, *arguments))
            self.delay = None
            raise Transient("injected: the request is late")
        answer = method(name, *arguments)
        self.hook(f"store {method.__name__}:done")
        return answer


class FakeSpill:
    """A spill in memory, with room for so many models; `hook` may raise or damage whenever one is read or put."""

    def __init__(self, room: int = 1_000_000, hook: Hook = no_fault) -> None:
        self.room = room
        self.hook = hook
        self.places: list[FakePlace] = []

    @property
    def used_bytes(self) -> int:
        return sum(place.length for place in self.places)

    def put(self, data: bytes) -> FakePlace | None:
        self.hook("spill put")
        if len(self.places) >= self.room:
            return None
        self.places.append(FakePlace(self, data))
        return self.places[-1]


class FakePlace:
    """Bytes in a FakeSpill."""

    def __init__(self, spill: FakeSpill, data: bytes) -> None:
        self.length = len(data)
        self.damaged = False
        self._data = data
        self._spill = spill

    def read(self) -> bytes:
        self._spill.hook("spill read")
        if self.damaged or self not in self._spill.places:
            raise StateLost("the bytes are gone")
        return self._data

    def free(self) -> None:
        if self in self._spill.places:
            self._spill.places.remove(self)


class FakePool(Executor):
    """An executor without threads: a job is done when somebody waits for it, or asks and `is_done_within` says so."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.is_done_within: Callable[[float], bool] = lambda _: True
        self.jobs: list[Job] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Job:
        self.jobs.append(Job(self, lambda: call(*arguments, **named)))
        return self.jobs[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while self.jobs:
            self.jobs[0].run()


class Job(Future[Any]):
    """What a FakePool gives as a future.

    One that has begun is at a call that others overtake: who waits for it does so in vain, or would for ever.
    """

    def __init__(self, pool: FakePool, call: Callable[[], Any]) -> None:
        super().__init__()
        self._pool = pool
        self._call = call
        self._has_begun = False

    def run(self) -> None:
        self._pool.jobs.remove(self)
        self._has_begun = True
        if not self.running():
            self.set_running_or_notify_cancel()
        try:
            self.set_result(self._call())
        except Exception as error:
            self.set_exception(error)

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self._pool.jobs.remove(self)
        return cancelled

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            if timeout is None and self._has_begun:
                raise Crash
            if timeout is not None and (self._has_begun or not self._pool.is_done_within(timeout)):
                self._pool.clock.now_s += timeout
                raise TimeoutError
            self.run()
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        with suppress(Exception):
            self.result(timeout)
        if not self.done():
            raise TimeoutError
        return super().exception()


_CONFIG = loads(
    """
    input: {topic: events}
    output: {topic: predictions}
    dead_letter: {topic: dead-letters}
    kafka: {bootstrap.servers: "nowhere:9092", group.id: group}
    models: {default: {n_estimators: 2}}
    checkpoint: {url: "memory://tests"}
    """,
    {},
)


def config(
    *,
    start: str = "earliest",
    tombstones: str = "dead-letter",
    max_consecutive: int = 1000,
    delivery: str = "exactly-once",
    null_key: str | None = None,
    on_spec_change: str = "fail",
    on_gap: str = "fail",
    on_rewind: str = "fail",
    interval_s: float = 1.0,
    recovery_budget_s: float = 10.0,
    overrides: Sequence[dict[str, Any]] = (),
    cache_bytes: int | None = None,
    max_models: int = 1_000_000,
    threads: int = 1,
    **params: Any,
) -> Config:
    """A configuration of the worker; `params` are those of the default model, each of `overrides` has a `match`."""
    return replace(
        _CONFIG,
        input=replace(_CONFIG.input, start=start, tombstones=tombstones, on_gap=on_gap, on_rewind=on_rewind),
        dead_letter=replace(_CONFIG.dead_letter, max_consecutive=max_consecutive),
        delivery=delivery,
        models=replace(
            _CONFIG.models,
            default=replace(_CONFIG.models.default, **params),
            overrides=tuple(Override(given.pop("match"), given) for given in map(dict, overrides)),
            null_key=null_key,
            on_spec_change=on_spec_change,
            cache_bytes=cache_bytes,
            max_models=max_models,
            threads=threads,
        ),
        checkpoint=replace(_CONFIG.checkpoint, interval_s=interval_s, recovery_budget_s=recovery_budget_s),
    )


def with_transactions(given: Config, **settings: Any) -> Config:
    """The configuration with other keys under `transaction`."""
    return replace(given, transaction=replace(given.transaction, **settings))
