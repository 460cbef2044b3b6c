"""How long a turn of the loop takes: whatever records cost, the other partitions and the group wait for a moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import msgspec
import pytest

from tests.worker.support.bench import Bench
from tests.worker.support.fakes import with_transactions
from worker.base.errors import PartitionStopped, StateLost, Transient
from worker.base.records import Record
from worker.runtime import executor
from worker.runtime.executor import FIRST_PIECE, GATHERED_BYTES, TURN_S
from worker.task.processor import BatchResult
from worker.task.task import Task

_process = Task.process


def _costly(monkeypatch: pytest.MonkeyPatch, bench: Bench, seconds: dict[int, float]) -> None:
    """Have each record of these partitions take so long."""

    def process(self: Task, records: Sequence[Record], **options: Any) -> BatchResult:
        result = _process(self, records, **options)
        bench.clock.now_s += seconds.get(self.number, 0.0) * result.n_taken
        return result

    monkeypatch.setattr(Task, "process", process)


def _feed_large(bench: Bench, n: int, partition: int) -> None:
    value = msgspec.json.encode({"features": [1.0], "label": "a", "more": "x" * 900_000})
    for _ in range(n):
        bench.broker.logs[partition].append(b"k", value)


def _longest_turn_s(worker: Any, bench: Bench, turns: int) -> float:
    longest_s = 0.0
    for _ in range(turns):
        began_s = bench.clock.now_s
        worker.turn()
        longest_s = max(longest_s, bench.clock.now_s - began_s)
    return longest_s


def test_large_records_that_take_long_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(partitions=3)
    for slow in (0, 1):
        _feed_large(bench, 30, slow)
    bench.feed("a", "b", "a", partition=2)
    worker = bench.worker().join()
    _costly(monkeypatch, bench, {0: 2.4, 1: 2.4})
    assert _longest_turn_s(worker, bench, 3) < 5, "a turn comes to one of the slow ones: to two records at first"
    assert bench.published(2) == bench.expected(2)
    assert all(0 < worker.position(slow) < 30 for slow in (0, 1)), "each has its turn"


def test_a_turn_takes_no_more_records_than_a_transaction_has_bytes() -> None:
    bench = Bench()
    _feed_large(bench, 60, 0)
    worker = bench.worker().join()
    taken = [worker.position(0)]
    while taken[-1] < 60:
        worker.turn()
        taken.append(worker.position(0))
    most = GATHERED_BYTES // 900_000 + 1
    assert max(after - before for before, after in pairwise(taken)) <= most < 60


def test_a_record_larger_than_a_piece_is_taken_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.feed(*"ab")
    worker = bench.worker().join()
    monkeypatch.setattr(executor, "PIECE_BYTES", 10)
    moments = count(bench.clock.now_s, 0.01)
    monkeypatch.setattr(bench.clock, "monotonic", lambda: next(moments))
    worker.turn()
    assert bench.published() == bench.expected()


def test_partitions_take_turns_where_a_transaction_has_one_record() -> None:
    bench = Bench(partitions=2)
    bench.config = with_transactions(bench.config, max_records=1)
    worker = bench.worker().join()
    for partition in (0, 1, 0):
        bench.feed("a", partition=partition)
        worker.turns(partition)
    worker.turn()
    assert [worker.position(partition) for partition in range(2)] == [1, 1]


def test_partitions_that_wait_share_a_turn_and_the_one_that_gets_nothing_is_the_next_ones_first() -> None:
    bench = Bench(partitions=3)
    bench.config = with_transactions(bench.config, max_records=10)
    worker = bench.worker().join()

    def taken() -> list[int]:
        before = [worker.position(partition) for partition in range(3)]
        worker.turn()
        return [worker.position(partition) - n for partition, n in enumerate(before)]

    for partition, n in enumerate((9, 9, 2)):
        bench.feed(*["a"] * n, partition=partition)
    assert taken() == [5, 5, 0]
    bench.feed(*["b"] * 20, partition=0)
    assert taken() == [5, 3, 2]
    assert taken() == [9, 1, 0], "what others do not fill is not lost"
    assert taken() == [10, 0, 0]
    assert all(bench.published(partition) == bench.expected(partition) for partition in range(3))


@pytest.mark.parametrize(("record_s", "in_a_turn"), [(0.0, 1), (0.02, 1), (0.06, 2), (0.11, 4)])
def test_a_turn_that_takes_longer_copies_more_of_what_waits_to_be_saved(
    monkeypatch: pytest.MonkeyPatch, record_s: float, in_a_turn: int
) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    worker.begin_to_save("vwxyz")
    worker.limit_copies(worker.waiting_bytes("v"))
    _costly(monkeypatch, bench, {1: record_s})
    bench.feed("a", "b", partition=1)
    worker.turn()
    for key in "vwxyz":
        bench.feed("a", key=key)
    before = worker.position(0)
    worker.turn()
    assert worker.position(0) - before == in_a_turn


def test_models_that_take_long_are_given_less_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.feed(*"ab" * 1000)
    worker = bench.worker().join()
    _costly(monkeypatch, bench, {0: 0.05})
    assert _longest_turn_s(worker, bench, 20) < FIRST_PIECE * 0.05 + TURN_S + 0.5
    worker.turns(100)
    monkeypatch.undo()
    assert bench.published() == bench.expected()


def test_a_replay_that_takes_long_has_turns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval_s=3600.0, recovery_budget_s=3600.0)
    bench.feed(*"ab" * 300)
    first = bench.worker("one").join().turns(3)
    assert bench.published() == bench.expected()
    first.kill()
    again = bench.worker("two").join()
    _costly(monkeypatch, bench, {0: 0.05})
    assert _longest_turn_s(again, bench, 20) < FIRST_PIECE * 0.05 + TURN_S + 0.5
    assert again.replayed() > 0


@pytest.mark.parametrize(
    "error",
    [
        Transient("the registry is away"),
        PartitionStopped("injected", "the records are others"),
        StateLost("the spill folder is gone"),
    ],
)
def test_what_the_second_piece_meets_changes_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    bench = Bench()
    bench.feed(*"ab" * 100)
    worker = bench.worker().join()
    calls = iter(range(1000))

    def process(self: Task, records: Sequence[Record], **options: Any) -> BatchResult:
        if next(calls) == 1:
            raise error
        return _process(self, records, **options)

    monkeypatch.setattr(Task, "process", process)
    for _ in range(10):
        bench.clock.now_s += 2.0
        worker.turn()
    monkeypatch.undo()
    assert bench.published() == bench.expected()


def test_where_little_waits_in_one_partition_another_one_takes_more() -> None:
    bench = Bench(partitions=2)
    bench.config = with_transactions(bench.config, max_records=10)
    worker = bench.worker().join().turns(1)
    bench.feed("a", partition=0)
    bench.feed(*"ab" * 4, "a", partition=1)
    worker.turn()
    assert (len(bench.published(0)), len(bench.published(1))) == (1, 9)
