"""A broker, a store and a clock in memory, and workers that share them: what most tests of the loop run on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput
from tests.worker.support.fakes import FakeClock, FakePool, FakeStore, Faults, config
from tests.worker.support.stores import DictStore
from tests.worker.support.tasks import SETTING, restore
from worker.base.errors import Abort, WorkerError
from worker.base.metrics import Metrics
from worker.base.records import Label, Outgoing
from worker.base.status import Board
from worker.checkpoint import Checkpoints, Location, Manifest
from worker.config import Config
from worker.runtime.loop import Worker
from worker.runtime.tasks import Pools
from worker.runtime.topic_monitor import TopicMonitor
from worker.task.checkpointer import Checkpointer
from worker.task.task import Task

PIECES = 4
"""So many times a worker that gathers predicts in each interval of the transactions."""


class Bench:
    """A broker, a store, and workers that share them."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.config: Config = config(**settings)
        self.clock = FakeClock()
        self.broker = Broker(partitions, self.clock)
        self.store = DictStore()
        self.setting = replace(SETTING, partitions=partitions)
        self.monitor: TopicMonitor | None = None
        self.ends: dict[int, int] | None = None

    def worker(self, name: str = "one", **settings: Any) -> Bound:
        return Bound(self, name, config(**settings) if settings else self.config)

    def feed(self, *labels: Label | None, partition: int = 0, key: str = "k") -> None:
        """One event for each label; None is an event without one."""
        log = self.broker.logs[partition]
        for label in labels:
            log.append(key.encode(), msgspec.json.encode({"features": [float(log.high % 5)], "label": label}))

    def feed_bad(self, n: int, partition: int = 0) -> None:
        for _ in range(n):
            self.broker.logs[partition].append(b"k", b"{")

    def checkpoints(self, partition: int = 0) -> Checkpoints:
        return Checkpoints(self.store, Location("group", "main", "events", "topic-id", partition))

    def newest(self, partition: int = 0) -> Manifest:
        manifest = self.checkpoints(partition).newest()
        assert manifest is not None
        return manifest

    def damage(self, kind: str, newest: int = 1) -> None:
        """Damage the newest files of a kind, of the first partition."""
        prefix = self.checkpoints().location.prefix
        names = sorted(name for name in self.store.objects if name.startswith(prefix) and name.endswith(kind))
        for name in names[-newest:]:
            data = self.store.objects[name]
            self.store.objects[name] = data[:-1] + bytes([data[-1] ^ 1])

    def expected(self, partition: int = 0) -> list[Outgoing]:
        """Outputs that a partition without any fault gives."""
        reference = Task(partition, self.config, SETTING.max_message_bytes)
        restore(reference, (), 0, 0)
        reference.go_live()
        return reference.process(self.broker.logs[partition].records).outgoing

    def published(self, partition: int = 0) -> list[Outgoing]:
        return [each for each in self.broker.published if dict(each.headers)["source-partition"] == b"%d" % partition]


class Bound:
    """A worker with its own clients, store and metrics; `faults` meets all its calls."""

    def __init__(self, bench: Bench, name: str, settings: Config) -> None:
        self.bench = bench
        self.faults = Faults()
        self.metrics = Metrics()
        self.board = Board()
        self.pool = FakePool(bench.clock)
        self.cleaners = FakePool(bench.clock)
        self.askers = FakePool(bench.clock)
        self.fetchers = FakePool(bench.clock)
        self.input = FakeInput(bench.broker, self.faults)
        self.opened = 0
        self._identity = name if settings.delivery == "exactly-once" else None
        self._worker = Worker(
            settings,
            replace(bench.setting, ends=bench.ends),
            self.input,
            self._open_output,
            FakeStore(bench.store, self.faults),
            self.metrics,
            bench.clock,
            Pools(self.pool, self.cleaners, self.pool, self.askers, FakePool(bench.clock), lambda: self.fetchers),
            self.board,
            bench.monitor,
        )
        self._worker._pace.pieces, self._worker._pace.worth_s = 1, 0.0
        self.turn = self._worker.turn
        self.close = self._worker.close
        self.run = self._worker.run
        self.is_done = self._worker._is_done

    def join(self, *partitions: int) -> Bound:
        """Become a member and take partitions, all if none is named; a turn later they are open, if all goes well."""
        self._worker.start()
        self.take(*partitions)
        return self.turns(1)

    def join_idle(self) -> Bound:
        """Become a member without partitions."""
        self._worker.start()
        return self

    def cannot_commit(self) -> Bound:
        """None of its transactions takes effect: the group refuses the offsets."""
        self.faults.at("offsets", *[Abort("not now")] * 9)
        return self

    def kill(self) -> None:
        """It does nothing more, and the group has waited long enough."""
        self.input.expire()

    def take(self, *partitions: int) -> None:
        self.bench.broker.group.rebalance(dict.fromkeys(partitions or self.bench.broker.logs, self.input))

    def begin_to_save(self, keys: str) -> None:
        """A checkpoint of a model for each key begins, and is written while the loop goes on."""
        self.pool.is_done_within = lambda seconds: seconds > 0
        for key in keys:
            self.bench.feed("a", key=key)
        self.turns(2)
        self.bench.clock.now_s += 60
        self.turn()

    def waiting_bytes(self, key: str) -> int:
        """What a snapshot of the first partition waits for."""
        return self._worker._tasks[0].models.waiting_bytes(key)

    def waits(self, key: str) -> bool:
        """Whether a snapshot of the first partition is yet to have a model."""
        copy = self._worker._tasks[0].models._copies.get(key)
        return copy is not None and copy._entry is not None

    def checkpointer(self, partition: int) -> Checkpointer:
        return self._worker._tasks[partition].checkpointer

    def limit_copies(self, n_bytes: int) -> None:
        self._worker.copied_bytes = n_bytes

    def limit_memory(self, n_bytes: int) -> None:
        """Its models take no more, from now on."""
        cache = self._worker._tasks.cache
        cache._limit_bytes, cache.turn_bytes = n_bytes, n_bytes // 2

    def limit_models(self, n_bytes: float) -> None:
        """The models that a turn uses take no more memory."""
        self._worker._tasks.cache.turn_bytes = n_bytes

    def predict_often(self, pieces: int) -> None:
        """So many times in each interval of the transactions."""
        self._worker._pace.pieces = pieces

    def position(self, partition: int) -> int:
        """Where the next record is that its task takes."""
        return self._worker._tasks[partition].position

    def buffered(self) -> int:
        """Records that were read and are not taken yet."""
        return sum(len(task.buffer) for task in self._worker._tasks.values())

    def turns(self, n: int) -> Bound:
        for _ in range(n):
            self.turn()
        return self

    def stops(self) -> dict[str, float]:
        """How many partitions stopped, by code."""
        return {labels.code: n for labels, n in self.metrics.partition_stops_total.series().items() if n}

    def held(self) -> tuple[int, int, int]:
        """What its models take: memory, space on disk, and how many tables there are."""
        cache, spill = self._worker._tasks.cache, self.bench.setting.spill
        return cache.nbytes, 0 if spill is None else spill.used_bytes, len(cache._tables)

    def outcomes(self) -> dict[str, float]:
        """How many transactions ended, by outcome."""
        return {labels.outcome: n for labels, n in self.metrics.transactions_total.series().items() if n}

    def state(self, partition: int) -> str:
        """As the metrics show it, which they do anew once a second."""
        states = self.metrics.partition_state.series().items()
        return next(labels.state for labels, value in states if labels.partition == partition and value)

    def skipped(self) -> float:
        """How many damaged checkpoints it has passed over."""
        return next(iter(self.metrics.checkpoints_skipped_total.series().values()))

    def replayed(self) -> float:
        return next(iter(self.metrics.replayed_records_total.series().values()))

    def _open_output(self) -> FakeOutput:
        self.opened += 1
        self.output = FakeOutput(self.bench.broker, self._identity, self.faults)
        return self.output


def gathering(bench: Bench) -> Bound:
    """A worker that predicts often, and by its clock will not commit within the next few turns."""
    terms = replace(bench.config.transaction, interval_s=10.0)
    bench.config = replace(bench.config, transaction=terms)
    worker = bench.worker().join()
    worker.predict_often(PIECES)
    bench.clock.now_s += terms.interval_s
    return worker.turns(1)


def lose_and_come_back(one: Bound, two: Bound, callback: str) -> None:
    """The group gives one up, two works off its partition, one is back, and this callback is how it learns of it."""
    one.input.expire(callback)
    two.take(0)
    two.turns(2)
    one.input.notice(rejoin=True)


def of_input(config: Config, **changes: Any) -> Config:
    """A configuration with other values of `input`."""
    return replace(config, input=replace(config.input, **changes))


def saved_bench(partitions: int = 1, **settings: Any) -> Bench:
    """Five records of each partition were taken, and all is saved."""
    bench = Bench(partitions, interval_s=60.0, **settings)
    for number in range(partitions):
        bench.feed(*"ababa", partition=number)
    bench.worker().join().turns(2).close()
    return bench


def add_partitions(bench: Bench, count: int) -> None:
    for _ in range(len(bench.broker.logs), count):
        bench.broker.add_partition()
    bench.setting = replace(bench.setting, partitions=count)


def learned(bench: Bench, partition: int = 0) -> list[int]:
    """How many labels the model had learned before each prediction of a partition."""
    return [msgspec.json.decode(each.value or b"")["learned"] for each in bench.published(partition)]


def lineages(bench: Bench) -> list[str]:
    """The lineage of each output."""
    return [(dict(each.headers)["lineage"] or b"").decode() for each in bench.published()]


def after_gap(bench: Bench, offset: int) -> Checkpoints:
    """Those of the first partition since a gap that ended at this offset."""
    return Checkpoints(bench.store, Location("group", f"main~p0@{offset}", "events", "topic-id", 0))


def run_into_stop(worker: Bound, turns: int = 2) -> dict[str, float]:
    """It joins, its only partitions stop, and so does the worker; returns the codes."""
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.join().turns(turns)
    worker.kill()
    return worker.stops()
