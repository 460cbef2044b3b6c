"""A partition that cannot go on stops under a name, and the others go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.worker.support.bench import Bench
from worker.base.errors import Abort, WorkerError
from worker.base.ports import Gone
from worker.base.records import Record
from worker.base.refusals import UNDECOMPRESSED, unreadable_records
from worker.runtime import loop
from worker.runtime.loop import REVOKE_S, WAIT_S


def test_one_partition_stops_and_the_others_go_on() -> None:
    bench = Bench(partitions=2, max_consecutive=2, interval_s=60.0)
    bench.feed("a")
    bench.feed_bad(3)
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(2)
    assert worker.stops() == {"too-many-dead-letters": 1}
    assert bench.broker.committed == {0: 4, 1: 1}
    assert bench.newest(0).offset == 4
    bench.feed("b")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert bench.broker.committed == {0: 4, 1: 2}
    assert bench.published(1) == bench.expected(1)


def test_records_behind_outputs_that_cannot_be_committed_take_some_megabytes_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However large they are: ten thousand of them may be gigabytes."""
    monkeypatch.setattr(loop, "GATHERED_BYTES", 100_000)
    bench = Bench(partitions=2)
    for number, log in bench.broker.logs.items():
        for i in range(100):
            log.append(b"k", b'{"features": [%d], "label": "ab", "padding": "%s"}' % (i + number, 10_000 * b"."))
    worker = bench.worker().join()
    worker.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 10_000)
    worker.input.batch_records = lambda: 1
    most = 0
    for _ in range(300):
        worker.turn()
        most = max(most, worker._worker._tasks.buffered(1, 1)[0])
    assert 10 < most < 40
    worker.faults.forget("commit")
    for _ in range(60):
        bench.clock.sleep(WAIT_S)
        worker.turns(10)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)


def test_of_those_behind_outputs_that_cannot_be_committed_only_partitions_with_records_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "GATHERED_BYTES", 10)
    bench = Bench(partitions=3, max_consecutive=2)
    bench.feed_bad(3)
    worker = bench.worker().join().turns(2)
    worker.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 10)
    bench.feed(*"abab", partition=1)
    worker.input.batch_records = lambda: 1
    worker.turns(3)
    states = [task.state for task in worker._worker._tasks.values()]
    assert states == ["stopped", "waiting", "live"]


def test_records_that_can_never_be_read_stop_their_partition_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a")
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(1)
    consume = worker.input.consume

    def without_one(most: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]:
        return consume(most, timeout_s)[0], {
            0: unreadable_records("events[0]", "Invalid compressed data", UNDECOMPRESSED)
        }

    monkeypatch.setattr(worker.input, "consume", without_one)
    bench.feed("b", partition=1)
    worker.turns(2)
    assert worker.stops() == {"unreadable-records": 1}
    assert bench.newest(0).offset == 1
    assert bench.broker.committed == {0: 1, 1: 2}
    assert bench.published(1) == bench.expected(1)


def test_a_partition_stops_only_once_its_last_batch_is_committed() -> None:
    bench = Bench(partitions=2, max_consecutive=2)
    bench.feed_bad(3)
    worker = bench.worker()
    worker.faults.at("commit", Abort("x"))
    worker.join().turns(1)
    assert worker.stops() == {}
    worker.turn()
    assert worker.stops() == {"too-many-dead-letters": 1}
    assert bench.published() == bench.expected()


def test_what_was_taken_is_saved_where_the_next_records_are_gone() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    bench.feed(*"aba")
    worker.turns(2)
    assert bench.newest().offset == 0
    bench.feed(*"ab")
    bench.broker.logs[0].low = 4
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert (bench.newest().offset, bench.broker.committed[0]) == (3, 3)


def test_what_was_taken_is_committed_before_it_is_saved_where_the_next_records_are_gone() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    consume = worker.input.consume
    bench.feed(*"aba")
    worker.faults.at("commit", Abort("x"))
    worker.input.consume = lambda *wanted: (consume(*wanted)[0], {0: "gone"})  # type: ignore[method-assign]
    worker.turn()
    assert (worker.stops(), bench.newest().offset) == ({}, 0)
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert (bench.newest().offset, bench.published()) == (3, bench.expected())


def test_a_worker_without_a_partition_to_work_on_ends() -> None:
    bench = Bench(max_consecutive=2)
    bench.feed_bad(3)
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.run(lambda: worker.faults.seen.count("consume") == 9)
    assert bench.published() == bench.expected()
    assert bench.broker.group.members == []


def test_a_worker_that_ends_lets_go_of_its_producer_and_its_threads() -> None:
    worker = Bench().worker().join()
    waiting = [pool.submit(lambda: None) for pool in (worker.pool, worker.cleaners, worker.askers)]
    worker.close()
    assert worker.output.is_closed
    assert [job.done() for job in waiting] == [True] * 3


def bad_records(bench: Bench, number: int) -> None:
    bench.feed_bad(3, partition=number)


def lost_records(bench: Bench, number: int) -> None:
    bench.feed("a", partition=number)
    bench.broker.logs[number].low = 2


@pytest.mark.parametrize(
    ("trouble", "code"), [(bad_records, "too-many-dead-letters"), (lost_records, "offset-out-of-range")]
)
def test_all_partitions_that_stop_at_a_time_wait_for_a_store_that_hangs_once_together(
    trouble: Callable[[Bench, int], None], code: str
) -> None:
    """One after the other they would keep the worker from its group for minutes, and from those that go on."""
    bench = Bench(partitions=21, max_consecutive=2, interval_s=60.0)
    for number in range(20):
        bench.feed("a", partition=number)
    worker = bench.worker().join().turns(2)
    worker.pool.is_done_within = lambda seconds: False
    for number in range(20):
        trouble(bench, number)
    before_s = bench.clock.now_s
    worker.turns(2)
    assert worker.stops() == {code: 20}
    assert bench.clock.now_s - before_s == pytest.approx(REVOKE_S, abs=1.0)


def test_nobody_waits_for_what_a_store_that_hangs_knows_of_partitions_whose_next_records_are_gone() -> None:
    bench = Bench(partitions=3, interval_s=60.0)
    for number in range(3):
        bench.feed("a", partition=number)
    worker = bench.worker().join().turns(2)
    worker.askers.is_done_within = lambda seconds: seconds > 0
    for number in range(2):
        lost_records(bench, number)
    bench.feed("b", partition=2)
    before_s = bench.clock.now_s
    worker.turns(3)
    assert bench.published(2) == bench.expected(2)
    assert (worker.stops(), bench.clock.now_s - before_s) == ({}, pytest.approx(0.0, abs=1.0))
    worker.askers.is_done_within = lambda seconds: True
    worker.turns(1)
    assert worker.stops() == {"offset-out-of-range": 2}
