"""A worker whose models do not fit its memory: what leaves, when, and that a load or a slow store exceeds nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.worker.support.bench import Bench
from tests.worker.support.fakes import FakeSpill, with_transactions
from tests.worker.support.manifests import loaded
from tests.worker.support.tasks import live
from tests.worker.support.tight import Tight, shown
from worker.base.errors import Transient
from worker.state import cache
from worker.task.restorer import RETRY_S
from worker.task.task import Task


def test_models_that_do_not_fit_wait_on_disk_between_two_batches() -> None:
    bench = Tight()
    worker = bench.worker().join()
    for _ in range(3):
        for key in "abc":
            bench.feed("x", "y", key=key)
        worker.turns(2)
        assert len(bench.spill.places) == 3
    assert bench.published() == bench.expected()
    assert (shown(worker, "models"), shown(worker, "models_away"), shown(worker, "evictions_total")) == (0, 3, 9)


def test_models_that_are_away_come_back_into_no_more_memory_than_there_is() -> None:
    bench, keys, seen = Tight(), [f"key-{i}" for i in range(24)], list[int]()
    for key in keys:
        bench.feed("x", key=key)
    roomy = bench.worker(cache_bytes=None).join().turns(2)
    limit = roomy.held()[0] // 4
    roomy.close()
    worker = Bench.worker(bench, "two", cache_bytes=limit, interval_s=60.0).join()
    for key in keys:
        bench.feed("y", key=key)
    worker.faults.at("commit", *[lambda: seen.append(worker.held()[0])] * 99)
    worker.turns(20)
    assert (len(bench.published()), len(seen)) == (48, 8)
    assert max(seen) <= 1.05 * limit


def test_no_partition_waits_for_another_one_that_is_behind() -> None:
    bench, keys = Tight(partitions=3), [f"key-{i}" for i in range(24)]
    for key in keys:
        for partition in range(3):
            bench.feed("x", key=key, partition=partition)
    worker = bench.worker().join().turns(2)
    worker.limit_models(12 * 8_200)  # room for twelve, of 8,000 bytes each
    for key in keys:
        for partition in range(3):
            bench.feed("y", key=key, partition=partition)
    worker.turns(3)
    assert bench.broker.committed == {0: 36, 1: 36, 2: 36}
    worker.turns(4)
    assert [bench.published(n) for n in range(3)] == [bench.expected(n) for n in range(3)]


def test_nothing_leaves_while_a_commit_is_open() -> None:
    bench = Tight()
    worker = bench.worker().join().turns(1)
    bench.feed("x")
    worker.faults.at("commit", Transient("slow"), Transient("slow"))
    worker.turn()
    assert bench.spill.places == []
    worker.turns(3)
    assert len(bench.spill.places) == 1


def test_models_that_a_replay_brings_leave_before_the_next_commit_is_due() -> None:
    bench = Tight()
    bench.config = with_transactions(bench.config, interval_s=10.0)
    one = bench.worker().join()
    for key in "abcdef":
        bench.feed("x", key=key)
    bench.wait(10)
    one.turn()
    assert bench.broker.committed == {0: 6}
    one.kill()
    two = bench.worker("two")
    two.predict_often(4)
    two.input.batch_records = lambda: 1
    two.join()
    for n in range(1, 4):
        two.turn()
        assert (two.replayed(), two.position(0), len(bench.spill.places)) == (n, n, 6 + n)


def test_partitions_that_go_give_back_their_room() -> None:
    bench = Tight(partitions=2)
    bench.feed("x", key="a")
    bench.feed("x", key="b", partition=1)
    worker = bench.worker().join().turns(2)
    assert len(bench.spill.places) == 2
    bench.setting = replace(bench.setting, spill=FakeSpill())
    bench.worker("two").join(1)
    worker.turns(2)
    assert (len(bench.spill.places), shown(worker, "models_away")) == (1, 1)
    worker.close()
    assert bench.spill.places == []


def test_a_restore_needs_no_more_memory_than_there_is() -> None:
    bench = Tight()
    for key in "abc":
        bench.feed("x", "y", key=key)
    bench.worker("one").join().turns(2).close()
    bench.spill.places.clear()
    two = bench.worker("two").join().turns(2)
    assert (len(bench.spill.places), shown(two, "models")) == (3, 0)
    bench.feed("x", key="b")
    two.turns(2)
    assert bench.published() == bench.expected()


# A slow store


@pytest.mark.parametrize("room", [1000, 0])
@pytest.mark.parametrize("end", ["written", "failed", "lost"])
def test_copies_that_wait_for_a_slow_store_are_part_of_the_memory(room: int, end: str) -> None:
    bench, keys, seen = Tight(room=room, interval_s=60.0), [f"key-{i}" for i in range(24)], list[int]()
    for key in keys:
        bench.feed("x", key=key)
    worker = bench.worker(cache_bytes=None, interval_s=60.0).join().turns(2)
    limit = worker.held()[0]
    worker.limit_memory(limit)
    bench.wait(60)
    worker.pool.is_done_within = lambda _: False
    worker.turns(2)
    assert (len(worker.pool.jobs), worker.held()[:2]) == (1, (limit, 0))
    for key in keys:
        bench.feed("y", key=key)
    worker.faults.at("commit", *[lambda: seen.append(worker.held()[0])] * 99)
    worker.turns(12)
    assert bench.published() == bench.expected()
    # Without room on disk nothing can leave: what the checkpoint on its way has not written has no other place.
    assert (max(*seen, worker.held()[0]) <= 1.05 * limit) == (room > 0)
    assert worker.held()[1] > 0 or room == 0

    if end == "failed":
        worker.faults.at("store create", Transient("down"))
    if end == "lost":
        bench.broker.group.rebalance({0: bench.worker("three").join_idle().input})
        worker.turn()
    worker.pool.is_done_within = lambda _: True
    worker.turns(2)
    models_left = 0 if end == "lost" else len(keys)
    assert (worker.held()[0] <= 1.05 * limit, len(bench.spill.places) <= models_left) == (True, True)
    if end == "written":
        true = live(Task(0, bench.config, 1_000_000))
        true.process(bench.broker.logs[0].records[: len(keys)])
        assert bench.newest().offset == len(keys)
        assert loaded(bench.checkpoints(), bench.newest()) == {each.key: each.forest.dumps() for each in true.models}
    worker.close()
    assert (worker.held()[:2], len(bench.spill.places)) == ((0, 0), 0)


# What was loaded in vain


@pytest.fixture
def some_fit(monkeypatch: pytest.MonkeyPatch) -> Tight:
    """Three models are in one checkpoint, a fourth in the next; what workers load fits their memory in part."""
    monkeypatch.setattr(cache, "MODEL_BYTES", 0)  # what has left takes none of it
    bench = Tight(cache_bytes=None)
    one = bench.worker("one").join()
    for keys in ("abc", "d"):
        for key in keys:
            bench.feed("x", "y", key=key)
        one.turns(2)
        bench.wait(60)
        one.turns(2)
    n_bytes, *_ = one.held()
    one.close()
    bench.config = replace(bench.config, models=replace(bench.config.models, cache_bytes=n_bytes // 3))
    return bench


def test_an_open_that_fails_keeps_nothing_of_what_it_has_loaded(some_fit: Tight) -> None:
    # That is on record before anything is committed, so it is written once the models are loaded.
    some_fit.config = replace(some_fit.config, input=replace(some_fit.config.input, tombstones="reset"))
    worker = some_fit.worker("two").join_idle()
    worker.faults.at("store create", *[Transient("down")] * 3)
    worker.take(0)
    for _ in range(3):
        worker.turn()
        assert worker.held() == (0, 0, 1)
        some_fit.wait(RETRY_S)
    worker.turn()
    assert [n > 0 for n in worker.held()] == [True] * 3
    assert worker.held()[2] == 1


def test_an_open_of_a_partition_that_was_taken_away_keeps_nothing_of_what_it_has_loaded(some_fit: Tight) -> None:
    worker, other = some_fit.worker("two").join_idle(), some_fit.worker("three").join_idle()
    worker.pool.is_done_within = lambda seconds: False
    worker.take(0)
    worker.turn()
    [loading] = worker.pool.jobs
    loading.set_running_or_notify_cancel()
    other.take(0)
    worker.turn()
    loading.run()
    assert loading.result().manifest.offset == 8
    assert worker.held() == (0, 0, 0)


def test_a_damaged_checkpoint_leaves_nothing_of_what_was_loaded_of_it(some_fit: Tight) -> None:
    whole = dict(some_fit.store.objects)
    for name in [name for name in whole if f"{8:020d}" in name]:
        del some_fit.store.objects[name]
    without = some_fit.worker("two").join()
    expected = without.held()
    without.close()
    some_fit.store.objects = whole
    some_fit.damage("segment")
    damaged = some_fit.worker("three").join()
    assert (damaged.position(0), damaged.held()) == (6, expected)
    assert all(expected)


def test_copies_for_a_checkpoint_that_is_given_up_take_no_memory() -> None:
    bench = Bench(interval_s=60.0)
    worker, other = bench.worker().join(), bench.worker("other").join_idle()
    worker.begin_to_save("ab")
    before = worker.held()[0]
    bench.feed("b", key="b")
    worker.turns(2)
    assert worker.held()[0] > before, "there is a copy of the model that has changed since"
    worker.pool.is_done_within = lambda seconds: False
    bench.broker.group.rebalance({0: other.input})
    worker.turn()
    assert worker.held() == (0, 0, 0)
