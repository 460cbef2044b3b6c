"""When a checkpoint is written, of what, and what happens when two of them say different things."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.worker.support.bench import Bench, Bound
from tests.worker.support.manifests import loaded
from tests.worker.support.tasks import restore
from worker.base.errors import Transient, WorkerError
from worker.base.records import Record
from worker.checkpoint import Checkpoints
from worker.runtime import executor
from worker.runtime.loop import READ_AHEAD, REVOKE_S
from worker.state import targets
from worker.task.processor import BatchResult
from worker.task.task import Task


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Two partitions; every record takes a second, a turn as long as it pleases, and a replay may take ten."""
    monkeypatch.setattr("worker.runtime.executor.TURN_S", 1e6)
    bench = Bench(partitions=2, interval_s=1e6, recovery_budget_s=10.0)
    process = Task.process

    def slow(here: Task, records: Sequence[Record], **options: Any) -> BatchResult:
        bench.clock.now_s += len(records)
        return process(here, records, **options)

    monkeypatch.setattr(Task, "process", slow)
    return bench


def cost(worker: Bound) -> dict[int, float]:
    """What the metrics say of each partition."""
    return {labels.partition: s for labels, s in worker.metrics.checkpoint_replay_cost_seconds.series().items()}


def saves_slowly(bench: Bench, worker: Bound, seconds: float) -> None:
    def pass_time() -> None:
        bench.clock.now_s += seconds

    worker.faults.at("store create", pass_time)


# The recovery budget


def test_a_partition_that_was_saved_as_it_stopped_costs_no_replay() -> None:
    bench = Bench(partitions=2, max_consecutive=2, interval_s=1e6)
    worker = bench.worker().join().turns(2)
    bench.feed(*"ab")
    worker.turns(1)
    worker.checkpointer(0).add_replay_cost(5.0)
    worker.turn()
    assert cost(worker) == {0: pytest.approx(5.0, abs=1.0), 1: 0.0}
    bench.feed_bad(3)
    worker.turns(2)
    assert (worker.stops(), bench.newest().offset) == ({"too-many-dead-letters": 1}, 5)
    assert cost(worker) == {0: 0.0, 1: 0.0}


def test_equal_states_are_equal_bytes_in_whatever_order_the_models_came() -> None:
    stores = []
    for keys in ("abc", "cab"):
        bench = Bench(interval_s=60.0)
        for key in keys:
            bench.broker.logs[0].append(key.encode(), b'{"features": [1.0], "label": "x"}')
        bench.worker().join().turns(2).close()
        stores.append({name for name in bench.store.objects if name.endswith("segment")})
    assert stores[0] == stores[1] != set()


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


# Clean-up


def cleaning(partitions: int) -> tuple[Bench, Bound]:
    """A worker of which the first partition has been saved, and the clean-up after that waits for its turn."""
    bench = Bench(partitions=partitions, interval_s=30.0)
    worker = bench.worker().join().turns(2)
    worker.cleaners.is_done_within = lambda seconds: False
    bench.feed("a", "b")
    bench.clock.now_s += 30
    worker.turns(2)
    assert (bench.newest().offset, len(worker.cleaners.jobs)) == (2, 1)
    return bench, worker


def test_a_clean_up_that_hangs_holds_up_no_checkpoint_of_other_partitions() -> None:
    bench, worker = cleaning(partitions=2)
    [job] = worker.cleaners.jobs
    job.set_running_or_notify_cancel()
    for number in range(2):
        bench.feed("a", "b", partition=number)
    bench.clock.now_s += 30
    worker.turns(3)
    assert [bench.newest(number).offset for number in range(2)] == [2, 2]
    job.run()
    worker.turns(2)
    assert [bench.newest(number).offset for number in range(2)] == [4, 2]


def test_a_clean_up_that_waits_for_its_turn_is_left_to_the_next_checkpoint() -> None:
    bench, worker = cleaning(partitions=1)
    [first] = worker.cleaners.jobs
    bench.feed("a")
    bench.clock.now_s += 30
    worker.faults.at("store create", worker.turn)  # The loop goes on while that is written.
    worker.turns(2)
    assert bench.newest().offset == 3
    assert first.cancelled()
    [second] = worker.cleaners.jobs
    lists = worker.faults.seen.count("store list")
    second.run()
    assert worker.faults.seen.count("store list") == lists + 1


def test_a_clean_up_that_has_not_begun_when_its_partition_goes_is_not_made_any_more() -> None:
    bench, worker = cleaning(partitions=1)
    bench.broker.group.rebalance({0: bench.worker("other").join_idle().input})
    worker.turn()
    assert worker.cleaners.jobs == []


def test_a_clean_up_that_has_just_begun_is_waited_for_by_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread at a time is at the checkpoints of a partition."""
    bench, worker = cleaning(partitions=1)
    [first] = worker.cleaners.jobs
    monkeypatch.setattr(first, "cancel", lambda: False)
    bench.feed("a")
    bench.clock.now_s += 30
    worker.faults.seen.clear()
    worker.turns(2)
    calls = [point for point in worker.faults.seen if point in ("store list", "store create")]
    assert (first.done(), calls[0], bench.newest().offset) == (True, "store list", 3)


def test_who_leaves_waits_for_the_clean_up() -> None:
    """A worker that runs for moments only, now and then, would never come to it."""
    bench = Bench(interval_s=60.0)
    worker = bench.worker().join().turns(2)
    worker.cleaners.is_done_within = lambda seconds: seconds > 0
    bench.feed("a")
    worker.turns(2)
    lists = worker.faults.seen.count("store list")
    worker.close()
    assert worker.faults.seen.count("store list") == lists + 1
    assert not worker.cleaners.jobs


# What is saved


def test_a_checkpoint_moves_on_with_records_that_change_no_model() -> None:
    """Else that of a partition without labels would stay where it is, and retention would pass it."""
    bench = Bench(interval_s=60.0)
    bench.feed(None, None, None)
    worker = bench.worker().join().turns(3)
    bench.clock.now_s += 60
    worker.turns(2)
    assert (bench.newest().offset, bench.newest().models) == (3, {})


def test_a_checkpoint_is_of_its_offset_however_late_it_is_written(bench: Bench) -> None:
    worker = bench.worker().join(0)
    worker.pool.is_done_within = lambda seconds: seconds > 0
    bench.feed(*"ab" * 5)
    worker.turns(2)
    true = Task(0, bench.config, 1_000_000)
    restore(true, (), 0, 0)
    true.process(bench.broker.logs[0].records)
    bench.feed(*"ba" * 4)
    worker.turns(2)
    assert (len(worker.pool.jobs), cost(worker)) == (1, pytest.approx({0: 18.0}))
    worker.pool.jobs[0].run()
    manifest = bench.newest()
    assert manifest.offset == 10
    assert loaded(bench.checkpoints(), manifest) == {model.key: model.forest.dumps() for model in true.models}


@pytest.mark.parametrize(("n_models", "committed"), [(0.1, [12, 14, 16, 16]), (2.5, [14, 16, 16, 16])])
def test_records_that_would_copy_too_much_wait_for_the_next_turn(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, n_models: float, committed: list[int]
) -> None:
    monkeypatch.setattr(executor, "SHORT_TURN_S", math.inf)
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
    worker.begin_to_save("vwxyz")
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
    most = READ_AHEAD * bench.config.transaction.max_records
    assert asked == [most, most - 4, most - 3]


# Requests to the store


def test_a_checkpoint_is_two_requests_and_a_partition_that_stands_still_none() -> None:
    bench = Bench(interval_s=60.0)
    for n in range(20):
        bench.feed("a", "b", key=f"{n}")
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 60
    worker.turns(3)

    def requests() -> Counter[str]:
        seen = [point for point in worker.faults.seen if point.startswith("store ") and not point.endswith(":done")]
        worker.faults.seen.clear()
        return Counter(seen)

    assert requests()["store list"] > 0
    for n in range(40):
        bench.feed("a", key=f"{n % 20}")
        bench.clock.now_s += 60
        worker.turns(3)
    found = requests()
    assert found["store create"] == 2 * 40
    assert found["store list"] < 8
    for _ in range(10):
        bench.clock.now_s += 60
        worker.turns(2)
    assert requests() == {}


# Divergence


def set_back(interval_s: float) -> Bench:
    """Eight records were taken and saved; then the group begins anew, which the configuration accepts."""
    bench = Bench(interval_s=interval_s, on_rewind="accept")
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(2).close()
    bench.broker.committed[0] = 0
    return bench


@pytest.mark.parametrize("is_untidy", [True, False])
def test_two_states_at_one_offset_stop_the_partition(monkeypatch: pytest.MonkeyPatch, is_untidy: bool) -> None:
    """Also where the files are not listed once more after the checkpoint: the other one was there at the start."""
    bench = set_back(interval_s=10.0)
    monkeypatch.setattr(Checkpoints, "is_untidy", lambda *_: is_untidy)
    monkeypatch.setattr(targets, "seed_of", lambda key, seed: seed + 1)
    two = bench.worker("two").join().turns(2)
    bench.clock.now_s += 10
    with pytest.raises(WorkerError, match="every partition"):
        two.turns(2)
    assert two.stops() == {"divergence": 1}
    two.close()
    monkeypatch.undo()
    three = bench.worker("three")
    with pytest.raises(WorkerError, match="every partition"):
        three.join().turns(1)
    assert three.stops() == {"divergence": 1}
    assert three.held()[:2] == (0, 0), "its models were loaded, and are let go of"


def test_the_same_state_again_is_no_divergence() -> None:
    bench = set_back(interval_s=10.0)
    two = bench.worker("two").join().turns(2)
    bench.clock.now_s += 10
    two.turns(2)
    assert two.stops() == {}
    assert len([name for name in bench.store.objects if f"{8:020d}" in name and name.endswith("manifest")]) == 2


def test_a_divergence_that_shows_while_partitions_are_given_up_stops_this_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = set_back(interval_s=60.0)
    monkeypatch.setattr(targets, "seed_of", lambda key, seed: seed + 1)
    two = bench.worker("two").join().turns(2)
    two.close()
    assert two.stops() == {"divergence": 1}


def test_what_changes_out_of_band_is_no_divergence() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab" * 4)
    bench.worker("one").join().turns(3).close()
    two = bench.worker("two", interval_s=60.0, on_spec_change="restart", n_estimators=3).join().turns(2)
    two.close()
    anew = bench.newest()
    assert (two.stops(), anew.offset, anew.revision > 0, anew.models) == ({}, 8, True, {})
    bench.feed("a")
    bench.worker("three", interval_s=60.0, on_spec_change="restart", n_estimators=3).join().turns(2).close()
    assert (bench.newest().offset, bench.newest().revision) == (9, anew.revision)


# Partitions that go


def test_the_last_checkpoints_of_partitions_that_go_are_written_side_by_side_the_costliest_first(bench: Bench) -> None:
    worker = bench.worker().join()
    for number, n in enumerate((1, 3)):
        bench.feed(*"a" * n, partition=number)
    worker.turns(2)
    waiting = list[int]()
    worker.faults.at("store create", lambda: waiting.append(len(worker.pool.jobs)))
    worker.close()
    assert waiting == [1]
    manifests = [name for name in bench.store.objects if name.endswith("manifest")]
    assert [name.split("/")[3] for name in manifests] == ["0", "1", "1", "0"]


def test_what_is_not_begun_when_a_partition_goes_is_not_written_any_more() -> None:
    bench = Bench(partitions=3, interval_s=1e6)
    worker, other = bench.worker().join(), bench.worker("other").join_idle()
    for number in range(3):
        bench.feed("a", partition=number)
    worker.turns(2)
    worker.pool.is_done_within = lambda seconds: False
    bench.broker.group.rebalance(dict.fromkeys(range(3), other.input))
    worker.turn()
    assert worker.pool.jobs == []
    assert [bench.newest(number).offset for number in range(3)] == [0, 0, 0]


def hang(worker: Bound, after: int = 0) -> None:
    """The store takes nothing more, once it has taken what so many waits are for."""
    left = iter([True] * after)
    worker.pool.is_done_within = lambda seconds: next(left, False)


@pytest.mark.parametrize("on_its_way", [True, False])
def test_all_partitions_that_go_wait_for_a_store_that_hangs_once_together(on_its_way: bool) -> None:
    bench = Bench(partitions=3, interval_s=30.0)
    worker, other = bench.worker().join(), bench.worker("other").join_idle()
    hang(worker)
    for number in range(3):
        bench.feed("a", partition=number)
    if on_its_way:
        bench.clock.now_s += 30
    worker.turns(2)
    assert len(worker.pool.jobs) == on_its_way
    bench.broker.group.rebalance(dict.fromkeys(range(3), other.input))
    before_s = bench.clock.now_s
    worker.turn()
    assert bench.clock.now_s - before_s == pytest.approx(REVOKE_S, abs=1.0)


def test_what_is_begun_behind_a_checkpoint_on_its_way_has_what_is_left_of_the_time() -> None:
    bench = Bench(interval_s=30.0)
    worker, other = bench.worker().join(), bench.worker("other").join_idle()
    worker.pool.is_done_within = lambda seconds: seconds > 0
    bench.feed("a")
    bench.clock.now_s += 30
    worker.turns(2)
    [first] = worker.pool.jobs
    saves_slowly(bench, worker, 0.7 * REVOKE_S)
    bench.feed("b")
    worker.turns(2)
    hang(worker, after=1)
    other.take(0)
    before_s = bench.clock.now_s
    worker.turn()
    assert first.done()
    assert (worker.faults.seen.count("store create:done"), bench.newest().offset) == (1 + 2, 1)
    assert bench.clock.now_s - before_s == pytest.approx(REVOKE_S, abs=1.0)
