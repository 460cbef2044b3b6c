"""Runs that have an end: up to it everything is published and saved, and behind it nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.worker.support.bench import Bench, Bound, saved_bench
from tests.worker.support.fakes import with_transactions
from worker.base.errors import Abort, WorkerError


def until(ends: dict[int, int], partitions: int = 2) -> Bench:
    bench = Bench(partitions, interval_s=1e6)
    bench.ends = ends
    return bench


def run_to_the_end(worker: Bound, *then: Callable[[], None] | None, partitions: Sequence[int] = ()) -> None:
    """Take these partitions in the first turn, all if none is named, and do something in the next ones.

    Raises where it does not end.
    """
    worker.faults.at("consume", lambda: worker.take(*partitions), *then)

    def gives_up() -> bool:
        if worker.faults.seen.count("consume") > 50:
            raise TimeoutError("it does not end")
        return False

    worker.run(gives_up)


@pytest.mark.parametrize("batch_records", [1, 3, 1000])
def test_a_run_with_an_end_publishes_and_saves_what_a_live_one_does(batch_records: int) -> None:
    live, backfill = Bench(2, interval_s=1e6), until({0: 5, 1: 2})
    for bench in (live, backfill):
        bench.feed(*"ababa")
        bench.feed("b", "a", partition=1)
    live.worker().join().turns(3).close()
    backfill.feed(*"bbbb")
    backfill.feed("b", partition=1)
    worker = backfill.worker()
    worker.input.batch_records = lambda: batch_records
    run_to_the_end(worker)
    assert backfill.broker.committed == {0: 5, 1: 2}
    for number in (0, 1):
        assert backfill.published(number) == live.published(number)
        assert backfill.newest(number).offset == live.newest(number).offset
        assert backfill.newest(number).state_hash == live.newest(number).state_hash


def test_an_empty_topic_ends_at_once() -> None:
    bench = until({0: 0, 1: 0})
    worker = bench.worker()
    run_to_the_end(worker)
    assert worker.faults.seen.count("consume") == 1


def test_the_last_record_may_be_well_before_the_end() -> None:
    bench = until({0: 9, 1: 4})
    bench.feed("a")
    for number in (0, 1):
        bench.broker.logs[number].high = 9
    run_to_the_end(bench.worker())
    assert bench.published() == bench.expected()


def test_what_lies_behind_the_end_is_read_no_further() -> None:
    bench = until({0: 1}, partitions=1)
    bench.feed("a", "b")
    worker = bench.worker().join().turns(2)
    assert worker.input.paused == {0}


def test_records_that_are_still_to_come_are_waited_for() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a")
    run_to_the_end(bench.worker(), None, None, lambda: bench.feed("b", "a"))
    assert bench.broker.committed == {0: 2}


def test_partitions_that_are_not_named_are_left_as_they_are() -> None:
    bench = until({1: 1})
    bench.feed("a", "b")
    bench.feed("a", "b", partition=1)
    run_to_the_end(bench.worker())
    assert bench.broker.committed == {1: 1}


def test_a_partition_that_is_not_named_and_stops_is_no_failure() -> None:
    bench = saved_bench(partitions=2)
    bench.damage("manifest", newest=9)
    bench.feed("a", partition=1)
    bench.ends = {1: 6}
    worker = bench.worker()
    run_to_the_end(worker)
    assert worker.stops() == {"corrupt-checkpoint": 1}
    assert bench.newest(1).offset == 6
    without_others = bench.worker("two")
    run_to_the_end(without_others, partitions=[0])
    assert without_others.stops() == {"corrupt-checkpoint": 1}


def test_a_run_has_not_come_to_its_end_while_a_partition_opens() -> None:
    bench = until({0: 1}, partitions=1)
    bench.feed("a")
    worker = bench.worker()
    worker.askers.is_done_within = lambda seconds: False
    worker.join().turns(3)
    assert not worker.is_done()
    worker.askers.is_done_within = lambda seconds: True
    worker.turns(3)
    assert worker.is_done()
    assert bench.published() == bench.expected()


def test_a_run_has_not_come_to_its_end_before_it_has_taken_what_it_has_read() -> None:
    """That there are records behind the end is known while some before it wait for the next turn."""
    bench = until({0: 3}, partitions=1)
    bench.config = with_transactions(bench.config, max_records=2)
    bench.feed(*"abab")
    run_to_the_end(bench.worker())
    assert bench.broker.committed == {0: 3}


def test_where_the_group_is_past_the_end_nothing_is_done() -> None:
    bench = until({0: 1}, partitions=1)
    bench.feed("a", "b", "a")
    bench.ends, end = None, bench.ends
    bench.worker("before").join().turns(2).kill()
    bench.ends = end
    run_to_the_end(bench.worker())
    assert bench.broker.committed == {0: 3}


def test_an_end_does_not_come_before_the_commit() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a", "b", "a")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * 4)
    run_to_the_end(worker)
    assert bench.broker.committed == {0: 2}
    assert bench.newest().offset == 2


def test_records_that_were_read_before_a_partition_was_taken_away_are_read_again() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a", "b", "a")
    worker = bench.worker()

    def lose() -> None:
        worker.input.expire()
        worker.input.notice()
        raise Abort("x")

    def take_without_records() -> None:
        worker.input.batch_records = lambda: 0
        worker.take()

    def read_on() -> None:
        worker.input.batch_records = lambda: 10

    worker.faults.at("commit", lose)
    run_to_the_end(worker, None, None, take_without_records, None, read_on)
    assert bench.broker.committed == {0: 2}
    assert len(bench.published()) == 2


def test_a_partition_that_stopped_is_an_end_in_failure() -> None:
    bench = until({0: 2, 1: 4})
    bench.config = replace(bench.config, dead_letter=replace(bench.config.dead_letter, max_consecutive=2))
    bench.feed("a", "b")
    bench.feed_bad(3, partition=1)
    with pytest.raises(WorkerError, match=r"partitions \[1\] have stopped before the end"):
        run_to_the_end(bench.worker())
    assert bench.broker.committed == {0: 2, 1: 3}


def test_a_run_with_ends_is_done_where_models_start_anew_and_no_record_is_left() -> None:
    bench = Bench()
    bench.feed("a", "b")
    bench.worker("one").join().turns(2).close()
    bench.ends = {0: 2}
    worker = bench.worker("two", on_spec_change="restart", n_estimators=3)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        if asked == 0:
            worker.take()
        asked += 1
        return asked == 50

    worker.run(should_stop)
    assert asked < 50
    assert bench.newest().revision > 0


def test_a_run_with_ends_replays_and_saves_what_was_committed_and_not_saved() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.worker("one").join().turns(2).kill()
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 0)
    bench.ends = {0: 2}
    worker = bench.worker("two")
    turns = iter(range(50))
    worker.faults.at("consume", worker.take)
    worker.run(lambda: next(turns) == 49)
    assert bench.newest().offset == 2
    assert next(turns, 50) < 49
    assert bench.published() == bench.expected()
