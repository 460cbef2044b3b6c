"""Offsets that no record has, at the end of a partition: retention may delete them, and no model has lost anything."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, Bound, learned, of_input, run_into_stop, saved_bench
from tests.worker.support.checkpoints import HERE, write
from tests.worker.support.fakes import config
from tests.worker.support.stores import DictStore
from worker.base.records import CommittedOffset, Record
from worker.checkpoint import Checkpoints
from worker.runtime.loop import WAIT_S
from worker.task.checkpointer import Reach
from worker.task.task import Task

INTERVAL_S = 60.0


def marked_bench(n: int = 1) -> Bench:
    """Five records, and so many offsets behind them that no record has."""
    bench = Bench(interval_s=INTERVAL_S)
    bench.feed(*"ababa")
    bench.broker.logs[0].mark(n)
    return bench


def goes_on(bench: Bench, *, records: int = 5) -> Bound:
    """What comes next is predicted as if nothing had happened."""
    bench.feed("a", "b")
    worker = bench.worker("next").join().turns(3)
    assert (worker.stops(), worker.replayed(), learned(bench)) == ({}, 0, [*range(records + 2)])
    assert bench.published() == bench.expected()
    return worker


def requests(worker: Bound) -> list[str]:
    seen = [point for point in worker.faults.seen if point.startswith("store ")]
    worker.faults.seen.clear()
    return seen


# Checkpoints that cover them


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_a_marker_may_be_deleted_once_the_worker_has_stopped_in_order(on_gap: str) -> None:
    bench = marked_bench()
    bench.worker().join().turns(2).close()
    assert (bench.newest().offset, bench.newest().covered, bench.broker.committed) == (5, 6, {0: 5})
    bench.broker.logs[0].retire_all()
    bench.config = of_input(bench.config, on_gap=on_gap)
    goes_on(bench).close()
    assert (bench.newest().offset, bench.newest().location.lineage) == (8, "main")


def test_what_was_aborted_in_a_topic_without_any_record_may_be_deleted() -> None:
    bench = Bench(interval_s=INTERVAL_S)
    bench.broker.logs[0].mark(101)
    bench.worker().join().turns(2).close()
    assert (bench.newest().offset, bench.newest().covered) == (0, 101)
    bench.broker.logs[0].retire_all()
    goes_on(bench, records=0)


def test_a_worker_that_is_killed_has_saved_at_the_interval_what_came_behind_its_last_checkpoint() -> None:
    bench = marked_bench(0)
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += INTERVAL_S
    worker.turns(3)
    bench.broker.logs[0].mark(3)
    bench.clock.now_s += INTERVAL_S / 2
    worker.turns(3)
    assert bench.newest().covered == 5
    bench.clock.now_s += INTERVAL_S / 2
    worker.turns(3)
    worker.kill()
    assert (bench.newest().offset, bench.newest().covered) == (5, 8)
    bench.broker.logs[0].retire_all()
    goes_on(bench)


def test_a_partition_that_stands_still_is_saved_once_more_and_then_makes_no_request() -> None:
    bench = marked_bench(0)
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += INTERVAL_S
    worker.turns(3)
    requests(worker)
    bench.broker.logs[0].mark(1)
    for _ in range(10):
        bench.clock.now_s += INTERVAL_S
        worker.turns(3)
    assert [point for point in requests(worker) if not point.endswith(":done")] == ["store create"]
    worker.close()
    assert "store create" not in requests(worker)


def test_the_next_worker_keeps_what_is_covered_and_saves_nothing() -> None:
    bench = marked_bench()
    bench.worker().join().turns(2).close()
    bench.broker.logs[0].retire_all()
    for name in ("two", "three"):
        worker = bench.worker(name).join().turns(3)
        bench.clock.now_s += INTERVAL_S
        worker.turns(3)
        worker.close()
        assert (worker.stops(), "store create" in requests(worker)) == ({}, False)
    goes_on(bench)


def test_nothing_is_saved_or_committed_beyond_the_last_record() -> None:
    """A checkpoint at an offset says that it is committed: beyond it the group would look set back."""
    bench = marked_bench()
    bench.worker().join().turns(2).close()
    bench.broker.logs[0].retire_all()
    worker = bench.worker("two").join().turns(3)
    bench.broker.logs[0].mark(2)
    bench.clock.now_s += INTERVAL_S
    worker.turns(3).kill()
    assert (bench.newest().offset, bench.newest().covered, bench.broker.committed) == (5, 8, {0: 5})
    bench.broker.logs[0].retire_all()
    goes_on(bench)


def test_records_behind_what_is_covered_are_missed(caplog: pytest.LogCaptureFixture) -> None:
    bench = marked_bench()
    bench.worker().join().turns(2).close()
    bench.feed("a", "b")
    bench.broker.logs[0].low = 7
    assert run_into_stop(bench.worker("two")) == {"retention-gap": 1}
    assert "the checkpoint is at offset 5, the group at 5, but the topic begins at 7: 1 records" in caplog.text


def test_of_two_checkpoints_of_one_state_that_which_covers_more_is_taken(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    for covered in (7, 9, 5, 8):
        write(checkpoints, 5, {"a": b"1"}, covered=covered)
    newest = checkpoints.newest()
    assert newest is not None
    assert (newest.offset, newest.covered) == (5, 9)
    for covered in range(5, 8):
        write(checkpoints, 5, {"a": b"1"}, covered=covered, created_ms=10**9)
    checkpoints.collect_garbage(10**9)
    assert Checkpoints(store, HERE).newest() == newest
    assert checkpoints.diverged(5) == []


def test_what_the_owner_before_saves_late_is_looked_up_before_the_next_one_stops() -> None:
    bench = saved_bench()
    zombie = bench.worker("zombie").join().turns(2)
    bench.broker.logs[0].mark(3)
    zombie.turns(1)
    zombie.pool.is_done_within = lambda _: False
    bench.clock.now_s += INTERVAL_S
    zombie.turns(2)
    zombie.kill()

    def delete_what_is_covered() -> None:
        zombie.pool.jobs[0].run()
        bench.broker.logs[0].retire_all()

    owner = bench.worker("owner")
    # It is held, and then read, by which time it knows what the store had.
    owner.faults.at("assign", None, delete_what_is_covered)
    owner.join().turns(3)
    bench.feed("a", "b")
    owner.turns(2)
    assert (owner.stops(), learned(bench), bench.published()) == ({}, [*range(7)], bench.expected())


def test_where_nobody_can_say_what_is_covered_the_partition_stops_under_a_name() -> None:
    bench = saved_bench()
    owner = bench.worker("owner")

    def delete_what_is_covered() -> None:
        bench.damage("manifest", newest=100)
        bench.broker.logs[0].mark(3)
        bench.broker.logs[0].retire_all()

    owner.faults.at("assign", None, delete_what_is_covered)
    assert run_into_stop(owner) == {"offset-out-of-range": 1}


# A worker that reads again


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_who_reads_again_behind_a_marker_that_is_gone_goes_on(on_gap: str) -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap=on_gap)
    worker = bench.worker("two").join().turns(2)
    bench.broker.logs[0].mark(1)
    worker.turns(2)
    bench.feed("a")
    worker._worker._consume()
    worker._worker._wait(worker._worker._tasks[0], "what it needs is away")
    bench.broker.logs[0].low = 6
    bench.clock.now_s += WAIT_S
    worker.turns(4)
    assert (worker.stops(), learned(bench), bench.published()) == ({}, [*range(6)], bench.expected())


def opened(*, end: int | None = None) -> Task:
    """A task that is live at offset 5 of a partition, and has taken all before it."""
    task = Task(0, config(), 1_000_000, end=end)
    task.open(task.load((), 5), 5, 5)
    task.go_live()
    return task


def record(offset: int) -> Record:
    return Record(offset, 0, b"k", b'{"features": [1.0], "label": "a"}', [])


def test_what_is_covered_ends_before_the_next_record_that_is_known() -> None:
    task = opened()
    assert task.reach(None) == Reach(5, 5)
    assert task.reach(7) == Reach(5, 7)
    # An end that was seen behind records which are not taken yet says nothing of them.
    task.add([record(8), record(9)])
    assert task.reach(12) == Reach(5, 8)
    task.take(1)
    assert task.reach(12) == Reach(9, 9)
    task.take(1)
    assert task.reach(12) == Reach(10, 12)


def test_what_was_dropped_is_not_covered() -> None:
    task = opened()
    task.add([record(8)])
    task.wait(0.0, "x")
    assert task.reach(12) == Reach(5, 8)
    task.resume()
    assert task.reach(None) == Reach(5, 8)
    with_end = opened(end=7)
    assert not with_end.add([record(7), record(8)])
    assert with_end.reach(12) == Reach(5, 5)


def test_an_end_in_a_replay_covers_nothing() -> None:
    """The log may have lost what is to be replayed."""
    task = Task(0, config(), 1_000_000)
    task.open(task.load((), 2), 2, 5)
    assert task.reach(9) == Reach(2, 2)


def test_a_partition_is_read_from_where_it_begins_if_nothing_is_lost_before_that() -> None:
    task = opened()
    task.reach(8)
    for low, reads_at in ((5, None), (7, 7), (7, None), (9, None), (8, 8)):
        task.gone = "out of range"
        assert task.is_covered(low) == (reads_at is not None)
        if reads_at is not None:
            task.begin_at(low)
            assert task.gone is None
            assert task.place == CommittedOffset(reads_at)
