"""When a checkpoint is written, of what, and what happens when two of them say different things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.test_runtime import Bench, Bound
from worker import learners
from worker.errors import Transient, WorkerError
from worker.intake import BatchResult
from worker.partition import Partition
from worker.records import Record


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Two partitions; every record takes a second, and a replay may take ten."""
    bench = Bench(partitions=2, interval_s=1e6, recovery_budget_s=10.0)
    take = Partition._take

    def slow(here: Partition, records: Sequence[Record], **how: Any) -> BatchResult:
        bench.clock.now_s += len(records)
        return take(here, records, **how)

    monkeypatch.setattr(Partition, "_take", slow)
    return bench


def cost(worker: Bound) -> dict[int, float]:
    """What the metrics say of each partition."""
    return {labels.partition: s for labels, s in worker.metrics.checkpoint_replay_cost_seconds.series().items()}


def saves_slowly(bench: Bench, worker: Bound, seconds: float) -> None:
    def pass_time() -> None:
        bench.clock.now_s += seconds

    worker.faults.at("store create", pass_time)


# The recovery budget


def test_a_checkpoint_is_written_once_its_replay_would_cost_the_budget(bench: Bench) -> None:
    worker = bench.worker().join(0)
    bench.feed(*"ababababa")
    worker.turns(3)
    assert (bench.checkpoints().offsets(), cost(worker)) == ([0], {0: 9.0})
    bench.feed("a")
    worker.turns(2)
    assert (bench.checkpoints().offsets(), cost(worker)) == ([0, 10], {0: 0.0})
    bench.feed(*"ababababa")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 10]


def test_what_costs_no_time_waits_for_the_interval() -> None:
    bench = Bench(interval_s=60.0, recovery_budget_s=0.001)
    bench.feed(*"ab" * 50)
    worker = bench.worker().join().turns(3)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 60
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 100]


def test_the_budget_is_for_all_partitions_and_the_costliest_is_saved(bench: Bench) -> None:
    worker = bench.worker().join()
    bench.feed(*"abab")
    bench.feed(*"ababab", partition=1)
    worker.turns(3)
    assert (bench.checkpoints(0).offsets(), bench.checkpoints(1).offsets()) == ([0], [0, 6])
    assert cost(worker) == {0: 4.0, 1: 0.0}


def test_replayed_records_count_as_well(bench: Bench) -> None:
    bench.feed(*"ab" * 4)
    bench.worker("one").join(0).turns(2).kill()
    two = bench.worker("two").join(0).turns(2)
    assert two.replayed() == 8
    assert cost(two) == {0: 8.0}


def test_time_to_write_is_set_aside(bench: Bench) -> None:
    worker = bench.worker().join(0).turns(1)
    saves_slowly(bench, worker, 3.0)
    bench.feed(*"ab" * 5)
    worker.turns(3)
    bench.feed(*"ababab")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 10]
    bench.feed("a")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 10, 17]


def test_a_slow_store_does_not_make_every_moment_the_right_one(bench: Bench) -> None:
    worker = bench.worker().join(0).turns(1)
    saves_slowly(bench, worker, 1000.0)
    bench.feed(*"ab" * 5)
    worker.turns(3)
    bench.feed(*"abab")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 10]


def test_after_a_failure_the_cost_stays_and_the_store_is_left_alone_for_a_while(bench: Bench) -> None:
    worker = bench.worker().join(0)
    worker.turn()
    bench.feed(*"ab" * 5)
    worker.faults.at("store create", Transient("down"))
    worker.turns(4)
    assert cost(worker) == {0: 10.0}
    assert (worker.faults.seen.count("store create"), bench.checkpoints().offsets()) == (2, [0])
    bench.clock.now_s += 5
    worker.turns(2)
    assert (bench.checkpoints().offsets(), cost(worker)) == ([0, 10], {0: 0.0})


def test_one_checkpoint_is_written_at_a_time_and_who_has_waited_longest_is_next() -> None:
    bench = Bench(partitions=3, interval_s=30.0)
    worker = bench.worker().join().turns(2)

    def change(*partitions: int) -> None:
        for number in partitions:
            bench.feed("a", "b", partition=number)
        worker.turns(2)

    def saved() -> list[int]:
        return [bench.newest(number).offset for number in range(3)]

    change(1)
    bench.clock.now_s += 30
    worker.turns(2)
    assert saved() == [0, 2, 0]
    bench.clock.now_s += 30
    worker.pool.is_done_within = lambda seconds: seconds > 0
    change(0, 1, 2)
    assert len(worker.pool.jobs) == 1
    for expected in ([2, 2, 0], [2, 2, 2], [2, 4, 2]):
        worker.pool.jobs[0].run()
        worker.turns(2)
        assert saved() == expected
    assert not worker.pool.jobs


# What is saved


def test_a_checkpoint_is_of_its_offset_however_late_it_is_written(bench: Bench) -> None:
    worker = bench.worker().join(0)
    worker.pool.is_done_within = lambda seconds: seconds > 0
    bench.feed(*"ab" * 5)
    worker.turns(2)
    true = Partition(0, bench.config, 1_000_000)
    true.restore({}, 0, 0)
    true.apply(bench.broker.logs[0].records)
    bench.feed(*"ba" * 4)
    worker.turns(2)
    assert (len(worker.pool.jobs), cost(worker)) == (1, pytest.approx({0: 18.0}))
    worker.pool.jobs[0].run()
    manifest = bench.newest()
    assert manifest.offset == 10
    assert bench.checkpoints().load(manifest) == {model.key: model.forest.dumps() for model in true.models}


@pytest.mark.parametrize(("n_models", "committed"), [(0.1, [12, 14, 16, 16]), (2.5, [14, 16, 16, 16])])
def test_records_that_would_copy_too_much_wait_for_the_next_turn(
    bench: Bench, n_models: float, committed: list[int]
) -> None:
    worker = bench.worker().join(0)
    worker.pool.is_done_within = lambda seconds: seconds > 0
    for key in "vwxyz":
        bench.feed("a", "b", key=key)
    worker.turns(2)
    worker.limit_copies(int(n_models * worker.waiting_bytes("v")))
    for key in "vvwwx":
        bench.feed("a", key=key)
    bench.feed("a", key="new")
    seen = []
    for _ in range(4):
        worker.turn()
        seen.append(bench.broker.committed[0])
    assert seen == committed
    assert bench.published() == bench.expected()


def test_while_records_of_one_partition_wait_those_of_the_others_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    worker.pool.is_done_within = lambda seconds: seconds > 0
    for key in "vwxyz":
        bench.feed("a", key=key)
    worker.turns(2)
    bench.clock.now_s += 60
    worker.turn()
    asked, consume = [], worker.input.consume

    def noted(max_records: int, timeout_s: float) -> Any:
        asked.append(max_records)
        return consume(max_records, timeout_s)

    monkeypatch.setattr(worker.input, "consume", noted)
    worker.limit_copies(1)
    for key in "vwxyz":
        bench.feed("a", key=key)
    committed = []
    for _ in range(3):
        bench.feed("a", "b", partition=1)
        worker.turn()
        committed.append((bench.broker.committed[0], bench.broker.committed[1]))
    assert committed == [(6, 2), (7, 4), (8, 6)]
    most = bench.config.transaction.max_records
    assert asked == [most, most - 4, most - 3]


# Divergence


def set_back(bench: Bench) -> None:
    """The group begins anew, as somebody wants it."""
    bench.broker.committed[0] = 0
    bench.config = replace(bench.config, input=replace(bench.config.input, on_rewind="accept"))


def test_two_states_at_one_offset_stop_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval_s=10.0)
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(2).close()
    set_back(bench)
    monkeypatch.setattr(learners, "seed_of", lambda key, seed: seed + 1)
    two = bench.worker("two").join().turns(2)
    bench.clock.now_s += 10
    with pytest.raises(WorkerError, match="every partition"):
        two.turns(2)
    assert two.stops() == {"divergence": 1}
    two.close()
    monkeypatch.undo()
    three = bench.worker("three")
    with pytest.raises(WorkerError, match="every partition"):
        three.join()
    assert three.stops() == {"divergence": 1}


def test_the_same_state_again_is_no_divergence() -> None:
    bench = Bench(interval_s=10.0)
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(2).close()
    set_back(bench)
    two = bench.worker("two").join().turns(2)
    bench.clock.now_s += 10
    two.turns(2)
    assert two.stops() == {}
    assert len([name for name in bench.store.objects if f"{8:020d}" in name and name.endswith("manifest")]) == 2


def test_a_divergence_that_shows_while_partitions_are_given_up_stops_this_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(2).close()
    set_back(bench)
    monkeypatch.setattr(learners, "seed_of", lambda key, seed: seed + 1)
    two = bench.worker("two").join().turns(2)
    two.close()
    assert two.stops() == {"divergence": 1}


def test_what_a_decree_changes_is_no_divergence() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(3).close()
    two = bench.worker("two", interval_s=60.0, on_spec_change="restart", n_estimators=3).join().turns(2)
    two.close()
    assert (two.stops(), bench.newest().offset, bench.newest().revision, bench.newest().models) == ({}, 8, 1, {})
    bench.feed("a")
    bench.worker("three", interval_s=60.0, on_spec_change="restart", n_estimators=3).join().turns(2).close()
    assert (bench.newest().offset, bench.newest().revision) == (9, 1)
