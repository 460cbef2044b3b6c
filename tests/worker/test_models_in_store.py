"""Models that only the store has: their partition waits for them, and no other one."""

from __future__ import annotations

from tests.worker.support.tight import Tight, saved, shown
from worker.base.errors import Transient
from worker.runtime.loop import WAIT_S
from worker.task.model_reader import FETCH_S


def test_a_partition_whose_models_only_the_store_has_waits_for_it_and_the_others_do_not() -> None:
    bench = Tight(partitions=2, room=0)
    bench.feed("x", "y", key="a")
    worker = saved(bench)
    assert (bench.newest().offset, shown(worker, "models_away")) == (2, 1)
    worker.faults.at("store read_range", *[Transient("down")] * 2)
    bench.feed("x", key="new")
    bench.feed("y", key="a")
    bench.feed("x", partition=1)
    worker.turns(3)
    assert (bench.published(0), bench.published(1)) == (bench.expected(0)[:2], bench.expected(1))
    for _ in range(3):
        bench.wait(WAIT_S)
        worker.turns(3)
    assert bench.published(0) == bench.expected(0)
    assert (worker.stops(), worker.replayed()) == ({}, 0)


def test_a_store_that_is_silent_about_one_model_holds_up_no_other_partition() -> None:
    bench = Tight(partitions=2, room=0)
    bench.feed("x", "y", key="a")
    bench.feed("x", "y", key="b")
    worker = saved(bench)
    assert shown(worker, "models_away") == 2

    def hangs() -> None:
        bench.wait(60)

    worker.faults.at("store read_range", *[hangs] * 20)
    worker.fetchers.is_done_within = lambda seconds: False
    bench.feed("x", key="a")
    bench.feed("x", key="b")
    for n in range(1, 20):
        bench.feed("y", partition=1)
        began_s = bench.clock.now_s
        worker.turn()
        assert bench.clock.now_s - began_s <= FETCH_S + 0.2
        assert len(bench.published(1)) == n
        bench.wait(WAIT_S / 2)
    # Each of them is asked for once, both at the same time.
    assert len(worker.fetchers.jobs) == 2
    worker.faults.forget("store read_range")
    worker.fetchers.jobs[0].run()
    bench.wait(WAIT_S)
    worker.turns(3)
    assert (len(bench.published(0)), shown(worker, "models_away")) == (4, 2)
    worker.fetchers.jobs[0].run()
    bench.wait(WAIT_S)
    worker.turns(3)
    assert (bench.published(0), bench.published(1)) == (bench.expected(0), bench.expected(1))
    assert (worker.fetchers.jobs, worker.stops(), worker.replayed()) == ([], {}, 0)


def test_after_an_outage_all_models_that_did_not_come_are_asked_for_at_once() -> None:
    bench, keys = Tight(room=0), [f"k{i}" for i in range(12)]
    for key in keys:
        bench.feed("x", "y", key=key)
    worker = saved(bench)
    assert shown(worker, "models_away") == len(keys)
    worker.faults.at("store read_range", *[Transient("down")] * len(keys))
    for key in keys:
        bench.feed("x", key=key)
    worker.turn()
    assert bench.broker.committed == {0: 24}
    bench.wait(WAIT_S)
    worker.turns(2)
    assert (bench.broker.committed, bench.published()) == ({0: 36}, bench.expected())


def test_a_silent_store_holds_up_the_loop_once_however_many_partitions_wait_for_it() -> None:
    bench = Tight(partitions=6, room=0)
    silent = range(1, 6)
    for partition in silent:
        bench.feed("x", "y", partition=partition)
    worker = saved(bench)
    assert shown(worker, "models_away") == len(silent)
    worker.fetchers.is_done_within = lambda seconds: False
    for partition in silent:
        bench.feed("x", partition=partition)
    worker.turns(3)  # as many of them in each as it has time for
    for _ in range(5):
        bench.wait(WAIT_S)
        bench.feed("y")
        began_s = bench.clock.now_s
        worker.turn()
        assert bench.clock.now_s - began_s < FETCH_S
    assert (len(bench.published(0)), len(worker.fetchers.jobs)) == (5, len(silent))


def test_a_model_that_was_asked_for_before_a_checkpoint_is_not_taken_after_it() -> None:
    bench = Tight(room=0)
    bench.feed("x", "y", key="a")
    worker = saved(bench)
    worker.fetchers.is_done_within = lambda seconds: False
    bench.feed("x", key="a")
    worker.turns(2)
    [asked] = worker.fetchers.jobs
    asked.set_running_or_notify_cancel()
    worker.checkpointer(0)._reader.follow(bench.checkpoints(), bench.newest())
    asked.run()
    bench.wait(WAIT_S)
    worker.turns(3)
    assert len(worker.fetchers.jobs) == 1
    worker.fetchers.is_done_within = lambda seconds: True
    bench.wait(WAIT_S)
    worker.turns(3)
    assert (bench.published(), worker.fetchers.jobs) == (bench.expected(), [])
