"""Partitions that start while others cannot: none waits for a partition about which no broker answers."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

from tests.worker.support.bench import Bench, Bound, run_into_stop, saved_bench
from worker.base.errors import Transient, WorkerError
from worker.task.restorer import LONGEST_RETRY_S, RETRY_S


def test_a_partition_without_a_leader_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(partitions=3)
    for number in range(3):
        bench.feed("a", "b", partition=number)
    bench.broker.leaderless = {1}
    worker = bench.worker().join().turns(2)
    assert bench.broker.committed == {0: 2, 2: 2}
    for _ in range(20):
        bench.clock.now_s += LONGEST_RETRY_S
        worker.turn()
    assert (worker.state(0), worker.state(1), worker.state(2)) == ("live", "opening", "live")
    told = [each.getMessage() for each in caplog.records if "cannot start" in each.getMessage()]
    assert told == ["partition 1 cannot start yet, trying again: partition 1 has no leader"]
    bench.broker.leaderless.clear()
    bench.clock.now_s += LONGEST_RETRY_S
    worker.turns(3)
    for number in range(3):
        assert bench.published(number) == bench.expected(number)
    ended = [each.getMessage() for each in caplog.records if "waits no more" in each.getMessage()]
    assert ended == ["partition 1 waits no more for its start"]


def test_the_loop_does_not_wait_for_an_answer() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", partition=1)
    worker = bench.worker().join(1).turns(2)
    worker.askers.is_done_within = lambda seconds: False
    worker.take(0, 1)
    asked = worker.faults.seen.count("bounds")
    for _ in range(5):
        bench.feed("b", partition=1)
        worker.turn()
    # The question was put once, aside from the loop.
    assert (len(worker.askers.jobs), worker.faults.seen.count("bounds")) == (1, asked)
    worker.turn()
    assert bench.published(1) == bench.expected(1)


def pauses(bench: Bench, worker: Bound) -> list[int]:
    """Seconds between the attempts at a partition that cannot start."""
    times: list[float] = []
    for _ in range(100):
        before = worker.faults.seen.count("bounds")
        bench.clock.now_s += RETRY_S / 4
        start = bench.clock.now_s
        worker.turn()
        times += [start] * (worker.faults.seen.count("bounds") - before)
    return [round(later - sooner) for sooner, later in pairwise(times)]


def test_who_does_not_answer_is_asked_less_and_less_often() -> None:
    bench = Bench()
    bench.broker.leaderless = {0}
    found = pauses(bench, bench.worker().join())
    assert found[:2] == [2, 4]
    assert set(found[2:]) == {LONGEST_RETRY_S}


def test_a_store_that_fails_is_tried_again_soon_and_each_trouble_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench()
    bench.broker.leaderless = {0}
    worker = bench.worker("two").join()
    bench.broker.leaderless.clear()
    worker.faults.at("store list", *[Transient("the store says 503")] * 99)
    found = pauses(bench, worker)
    assert (len(found) > 9, set(found)) == (True, {RETRY_S})
    told = [each.getMessage() for each in caplog.records if "cannot start" in each.getMessage()]
    assert [each.rpartition(": ")[2] for each in told] == ["partition 0 has no leader", "the store says 503"]


def test_what_the_broker_forbids_ends_the_worker() -> None:
    bench = Bench(partitions=2)
    worker = bench.worker()
    worker.faults.at("bounds", WorkerError("not authorized"))
    with pytest.raises(WorkerError, match="not authorized"):
        worker.join()


def test_a_partition_that_is_given_up_is_asked_about_no_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(partitions=2)
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.askers.is_done_within = lambda seconds: False
    one.join()
    assert len(one.askers.jobs) == 2
    two.take(0)
    one.turn()
    assert len(one.askers.jobs) == 1
    bench.feed("a")
    two.turns(3)
    assert bench.published() == bench.expected()


def loading(bench: Bench) -> tuple[Bound, Bound, Future[Any]]:
    """A worker that waits for the models of partition 0, another one that may take it, and the job that loads them."""
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.pool.is_done_within = lambda seconds: False
    one.join(0).turn()
    [job] = one.pool.jobs
    return one, two, job


def test_what_was_not_begun_to_load_of_a_partition_that_is_given_up_is_not_loaded() -> None:
    one, two, waiting = loading(saved_bench(partitions=2))
    two.take(0)
    one.turn()
    assert waiting.cancelled()


def test_who_is_opened_after_it_was_given_up_is_not_shown_and_takes_no_memory() -> None:
    """A thread that is at it goes on, but shows and keeps nothing of a partition that is another member's."""
    one, two, begun = loading(saved_bench(partitions=2))
    begun.set_running_or_notify_cancel()
    two.take(0)
    one.turn()
    begun.run()
    one.turn()
    assert (len(begun.result().manifest.models), one.held()) == (1, (0, 0, 0))
    labelled = [family.series() for family in one.metrics.families().values() if "partition" in family.labels]
    assert [series for series in labelled if series] == []


def test_a_stop_is_of_where_the_topic_begins_by_now(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench()
    bench.feed(*"ababa")
    bench.broker.logs[0].low = 7
    worker = bench.worker("two")

    def retention_goes_on() -> None:
        bench.broker.logs[0].low = 8

    worker.faults.at("bounds", None, retention_goes_on)
    assert run_into_stop(worker, turns=4) == {"retention-gap": 1}
    assert "the topic begins at 8: 3 records that the models need are gone" in caplog.text


def test_a_partition_that_cannot_go_on_stops_though_records_come_all_the_while() -> None:
    bench = saved_bench()
    bench.feed(*"ababa")
    bench.broker.logs[0].low = 7
    worker = bench.worker("two")
    worker.faults.at("bounds", *[lambda: bench.feed("a")] * 9)
    assert run_into_stop(worker, turns=4) == {"retention-gap": 1}


def test_a_group_that_has_moved_on_meanwhile_was_not_set_back() -> None:
    """A partition was taken away while it was opened, and its next owner has committed and saved more since."""
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab")
    bench.worker("one").join().turns(2).close()
    late = bench.worker("late")
    late.pool.is_done_within = lambda seconds: False
    late.join()
    late.kill()
    bench.feed(*"ba")
    bench.worker("two").join().turns(2).close()
    assert (bench.broker.committed[0], bench.newest().offset) == (4, 4)
    late.pool.is_done_within = lambda seconds: True
    late._worker._open_assigned()  # it does not know yet that it was put out of the group
    late._worker._open_assigned()
    assert late.stops() == {}
