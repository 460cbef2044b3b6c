"""A worker with little memory: what it does when models are lost on its disk, or when only the store has them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.worker.support.bench import Bench, Bound
from tests.worker.support.fakes import FakeSpill
from tests.worker.support.manifests import loaded
from tests.worker.support.tasks import live
from worker.base.errors import StateLost, Transient
from worker.runtime.loop import WAIT_S
from worker.runtime.reloads import LONGEST_S, MOST_RELOADS
from worker.state.entry import Entry
from worker.state.model import Model
from worker.state.model_store import ModelStore
from worker.task.model_reader import FETCH_S
from worker.task.restorer import RETRY_S
from worker.task.task import Task


class Tight(Bench):
    """No model stays in the memory of its workers, though a turn may use any number; `spill` takes so many."""

    def __init__(self, partitions: int = 1, room: int = 1000, **settings: Any) -> None:
        super().__init__(partitions, **({"cache_bytes": 1, "interval_s": 60.0} | settings))
        self.spill = FakeSpill(room)
        self.setting = replace(self.setting, spill=self.spill)

    def worker(self, name: str = "one", **settings: Any) -> Bound:
        worker = super().worker(name, **settings)
        worker.limit_models(math.inf)
        return worker

    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def lose(self, newest: int = 1000) -> None:
        """The disk damages what came last."""
        for place in self.spill.places[-newest:]:
            place.damaged = True


def shown(worker: Bound, name: str) -> float:
    worker.bench.clock.now_s += 1
    worker.turn()
    return next(iter(getattr(worker.metrics, name).series().values()))


def saved(bench: Tight) -> Bound:
    """A worker of which the store has all that was fed to it."""
    worker = bench.worker().join().turns(2)
    bench.wait(60)
    return worker.turns(8)


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
    worker.limit_models(12 * 7_320)
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
    bench.config = replace(bench.config, transaction=replace(bench.config.transaction, interval_s=10.0))
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


def test_a_lost_model_is_learned_again_and_no_output_differs() -> None:
    bench = Tight(partitions=2)
    bench.feed("x", "y", key="other", partition=1)
    worker = bench.worker().join().turns(2)
    bench.feed("x", "y", "x", key="a")
    bench.feed("y", key="b")
    worker.turns(2)
    bench.lose(newest=2)
    bench.feed("y", key="b")
    bench.feed("y", "x", key="a")
    bench.feed("y", key="another", partition=1)
    worker.turns(4)
    assert (bench.published(0), bench.published(1)) == (bench.expected(0), bench.expected(1))
    assert (worker.replayed(), worker.stops()) == (4, {})
    worker.close()
    assert [bench.newest(number).offset for number in (0, 1)] == [7, 3]


def test_a_model_that_is_lost_while_it_is_replayed_is_replayed_again() -> None:
    bench = Tight()
    bench.feed("x", "y", key="a")
    bench.worker("one").join().turns(2).close()
    bench.feed("x", "y", "x", key="a")
    one = bench.worker("two").join().turns(2)
    one.kill()
    two = bench.worker("three")
    two.input.batch_records = lambda: 2
    two.join().turns(1)
    bench.lose()
    two.turns(6)
    assert bench.published() == bench.expected()
    assert two.stops() == {}


def test_a_model_that_is_lost_before_it_is_saved_is_learned_again() -> None:
    bench = Tight()
    worker = bench.worker().join().turns(1)
    bench.feed("x", "y", key="a")
    worker.turns(2)
    bench.lose()
    bench.wait(60)
    worker.turns(4)
    assert (worker.replayed(), bench.published()) == (2, bench.expected())
    bench.wait(60)
    worker.turns(2)
    assert (bench.newest().offset, worker.stops()) == (2, {})


def test_what_is_lost_at_the_end_is_replayed_by_the_next_owner(caplog: pytest.LogCaptureFixture) -> None:
    bench = Tight()
    bench.feed("x", "y", key="a")
    worker = bench.worker("one").join().turns(2)
    bench.lose()
    worker.close()
    assert "not saved, who takes it over replays more" in caplog.text
    two = bench.worker("two").join().turns(2)
    bench.feed("x", key="a")
    two.turns(2)
    assert (two.replayed(), bench.published()) == (2, bench.expected())


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
    worker.turn()
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


class Hole:
    """While it is open no place gives back the model of one key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        self.open = True
        load = ModelStore._load

        def load_others(models: ModelStore, entry: Entry) -> Model:
            if self.open and entry.key == key:
                raise StateLost(f"the model {key} is gone")
            return load(models, entry)

        monkeypatch.setattr(ModelStore, "_load", load_others)


def loaded_again_s(worker: Bound, seconds: float, each_s: float = 0.5) -> list[float]:
    """When partitions were loaded again, for so many seconds in which the second one gets events."""
    times_s, began_s = [], worker.bench.clock.now_s
    while worker.bench.clock.now_s < began_s + seconds:
        before = worker.faults.seen.count("committed")
        worker.bench.feed("y", key="b", partition=1)
        worker.turn()
        times_s += [worker.bench.clock.now_s] * (worker.faults.seen.count("committed") - before)
        worker.bench.clock.now_s += each_s
    return times_s


def test_a_partition_that_loses_a_model_again_and_again_is_loaded_less_and_less_often_and_then_stops(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all the while the other one goes on."""
    bench = Tight(partitions=2)
    bench.feed("x", "y", key="a")
    bench.feed("x", key="b", partition=1)
    worker = bench.worker().join().turns(2)
    bench.feed("x", key="a")
    Hole(monkeypatch, "a")
    times_s = loaded_again_s(worker, 120)
    assert worker.stops() == {}
    assert 5 <= len(times_s) <= 8
    assert (bench.published(0), bench.published(1)) == (bench.expected(0)[:2], bench.expected(1))
    times_s += loaded_again_s(worker, 300)
    pauses_s = [later - earlier for earlier, later in pairwise(times_s)]
    assert pauses_s == sorted(pauses_s)
    assert max(pauses_s) <= LONGEST_S + 5
    assert worker.stops() == {"state-lost": 1}
    assert len(times_s) == caplog.text.count("is loaded again") == MOST_RELOADS
    assert (worker.state(0), worker.state(1)) == ("stopped", "live")
    assert bench.published(1) == bench.expected(1)


def test_a_partition_that_is_loaded_again_and_saved_since_has_all_attempts_anew() -> None:
    bench = Tight(partitions=2)
    worker = bench.worker().join().turns(2)
    for _ in range(3 * MOST_RELOADS):
        bench.feed("x", "y", key="a")
        worker.turns(2)
        bench.wait(60)
        worker.turns(4)
        saved = bench.newest().offset
        bench.feed("y", key="a")
        bench.lose()
        worker.turns(4)
        assert (saved, bench.published()) == (bench.newest().offset, bench.expected())
    assert worker.stops() == {}


def test_a_partition_that_comes_anew_has_all_attempts_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Tight(partitions=2)
    bench.feed("x", "y", key="a")
    worker = bench.worker().join().turns(2)
    bench.feed("x", key="a")
    hole = Hole(monkeypatch, "a")
    loaded_again_s(worker, 100)
    other = bench.worker("two").join_idle()
    bench.broker.group.rebalance({0: other.input, 1: worker.input})
    worker.turns(1)
    other.turns(1)
    bench.broker.group.rebalance({0: worker.input, 1: other.input})
    other.turns(1)
    caplog.clear()
    worker.turns(3)
    assert "partition 0 is loaded again: " in caplog.text
    hole.open = False
    bench.wait(LONGEST_S / 2)
    worker.turns(5)
    assert (bench.published(0), worker.stops()) == (bench.expected(0), {})


def test_a_model_that_is_lost_just_when_it_is_to_start_anew_is_loaded_again() -> None:
    bench = Tight(interval_s=0.001)
    bench.feed("x", "y", key="a")
    bench.worker("one").join().turns(2).close()
    bench.feed("x", key="a")
    bench.feed("y", "x", key="b")
    bench.worker("two", interval_s=60.0).join().turns(2).kill()
    restarting = bench.worker("three", on_spec_change="restart", n_estimators=3, cache_bytes=1, interval_s=0.001)
    restarting.input.batch_records = lambda: 1
    # No checkpoint gets done, so that the one on its way still needs the model.
    restarting.pool.is_done_within = lambda _: not restarting.waits("a")
    restarting.join().turns(2)
    assert restarting.waits("a")
    bench.spill.places[0].damaged = True
    restarting.turns(1)
    restarting.pool.is_done_within = lambda _: True
    restarting.turns(8)
    assert (restarting.stops(), bench.newest().revision > 0) == ({}, True)


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
def some_fit() -> Tight:
    """Three models are in one checkpoint, a fourth in the next; what workers load fits their memory in part."""
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


def test_an_open_that_nobody_waits_for_keeps_nothing_of_what_it_has_loaded(some_fit: Tight) -> None:
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
