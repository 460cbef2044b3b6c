"""A store that refuses, for want of a right: who needs it waits, all others go on, and a start ends at once."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.worker.support.bench import Bench, learned, saved_bench
from tests.worker.support.fakes import FakeClock
from tests.worker.support.stores import DictStore
from worker.base.errors import Denied
from worker.base.retry import Retry


def refuse(*_: object) -> NoReturn:
    raise Denied("cannot read s3://bucket/x: the server answered 403 (ExpiredToken)")


def test_partitions_that_come_wait_and_those_at_work_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(2, interval_s=1.0)
    one, two = bench.worker("one").join_idle(), bench.worker("two").join_idle()
    bench.broker.group.rebalance({0: one.input, 1: two.input})
    for _ in range(10):
        one.turns(1)
        two.turns(1)
    with monkeypatch.context() as patched:
        for method in ("list", "read", "read_range", "create"):
            patched.setattr(bench.store, method, refuse)
        bench.broker.group.rebalance(dict.fromkeys((0, 1), two.input))
        one.turns(2)
        for number in (0, 1):
            bench.feed("a", partition=number)
        two.turns(10)
        assert [len(learned(bench, number)) for number in (0, 1)] == [0, 1]
    bench.clock.sleep(10.0)
    two.turns(10)
    assert [len(learned(bench, number)) for number in (0, 1)] == [1, 1]


def test_one_object_that_is_refused_holds_up_its_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = saved_bench(3)

    class Archived(DictStore):
        def read(self, name: str) -> bytes:
            return refuse() if "/1/" in name and name.endswith("segment") else super().read(name)

        def read_range(self, name: str, start: int, length: int) -> bytes:
            return refuse() if "/1/" in name and name.endswith("segment") else super().read_range(name, start, length)

    archived = Archived()
    archived.objects = bench.store.objects
    bench.store = archived
    for number in range(3):
        bench.feed("a", partition=number)
    worker = bench.worker("two").join()
    worker.turns(4)
    assert [len(learned(bench, number)) for number in range(3)] == [6, 5, 6]
    assert worker.stops() == {}


def test_a_start_that_is_refused_ends_at_once() -> None:
    clock = FakeClock()
    with pytest.raises(Denied):
        Retry(clock, lambda: False, 60.0).ask("store", refuse)
    assert clock.now_s == FakeClock().now_s


def test_old_checkpoints_that_cannot_be_removed_are_counted_and_nothing_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(1, interval_s=1.0)
    worker = bench.worker("one").join()
    monkeypatch.setattr(bench.store, "list", refuse)
    for number in range(30):
        bench.feed("ab"[number % 2])
        bench.clock.sleep(2.0)
        worker.turns(3)
    assert worker.metrics.checkpoint_cleanup_failures_total.series()[()] > 0
    assert worker.metrics.checkpoint_failures_total.series() == {(): 0}
    assert (len(learned(bench, 0)), worker.stops()) == (30, {})
