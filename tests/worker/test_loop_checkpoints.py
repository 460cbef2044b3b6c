"""When the loop saves a partition, and what a checkpoint then holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.worker.support.bench import Bench
from tests.worker.support.stores import DictStore
from worker.base.errors import Abort, NoRoom, Transient
from worker.checkpoint import Checkpoints, Manifest
from worker.runtime.executor import LAST_ATTEMPTS
from worker.task.processor import Processor


def test_a_checkpoint_is_written_when_the_interval_is_over() -> None:
    bench = Bench(interval_s=30.0)
    bench.feed("a")
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 29
    bench.feed("b")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 1
    bench.feed("a")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 3]
    bench.clock.now_s += 60
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 3]


def test_a_checkpoint_moves_on_without_labels_too() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    bench.feed("a", "b")
    worker.turns(2)
    before = bench.newest()
    bench.feed(None, None)
    worker.turns(2)
    assert (before.offset, bench.newest().offset) == (2, 4)
    assert bench.newest().models == before.models


class SmallStore(DictStore):
    """A disk for so many files."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def create(self, name: str, data: bytes) -> None:
        if len(self.objects) >= self.most:
            raise NoRoom(f"cannot write {name}: No space left on device")
        super().create(name, data)


@pytest.mark.parametrize("most", [11, 14])
def test_a_store_that_is_full_is_cleared_before_the_next_attempt(most: int) -> None:
    """Else it would be full for ever: what nobody needs any more goes once a checkpoint is written."""
    bench = Bench(interval_s=1.0)
    bench.store = SmallStore(most)
    worker = bench.worker().join().turns(2)
    for number in range(20):
        bench.feed("a", "b")
        bench.clock.now_s += 10.0
        worker.turns(3)
        assert bench.newest().offset >= 2 * (number - 1)
    assert worker.metrics.checkpoint_failures_total.series()[()] > 0
    assert worker.stops() == {}


def test_nothing_is_saved_while_a_commit_is_open() -> None:
    bench = Bench(interval_s=0.001)
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * (3 + LAST_ATTEMPTS))
    worker.join().turns(3)
    assert bench.checkpoints().offsets() == [0]
    bench.worker("two").join()
    worker.turn()
    assert bench.checkpoints().offsets() == [0]


def test_what_an_error_left_half_done_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.feed("a", "b", key="other")
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    monkeypatch.setattr(Processor, "publish", _raise)
    with pytest.raises(MemoryError):
        worker.run(lambda: False)
    assert [name.rpartition(".")[2] for name in bench.store.objects] == ["manifest"]
    assert bench.broker.group.members == []
    monkeypatch.undo()
    bench.worker().join().turns(2)
    assert bench.published() == bench.expected()


def _raise(*_: Any) -> None:
    raise MemoryError


def test_the_loop_does_not_wait_for_the_store() -> None:
    bench = Bench(interval_s=0.001)
    bench.feed("a")
    worker = bench.worker().join()
    worker.pool.is_done_within = lambda seconds: seconds > 0
    worker.turns(2)
    bench.feed("b")
    worker.turns(2)
    assert bench.broker.committed == {0: 2}
    assert len(worker.pool.jobs) == 1
    assert bench.checkpoints().offsets() == [0]
    worker.close()
    assert bench.checkpoints().offsets() == [0, 1, 2]


def test_a_checkpoint_that_fails_is_made_up_for_by_the_next() -> None:
    bench = Bench(interval_s=10.0)
    worker = bench.worker().join().turns(1)
    bench.clock.now_s += 10
    bench.feed("a")
    worker.faults.at("store create", Transient("x"))
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 10
    bench.feed("b", key="other")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 2]
    assert bench.newest().models.keys() == {"k", "other"}


def test_a_checkpoint_of_an_offset_alone_that_fails_is_written_later_though_nothing_comes() -> None:
    """Without labels no model has changed, and a restart would replay all of it."""
    bench = Bench(interval_s=10.0)
    worker = bench.worker().join().turns(1)
    bench.clock.now_s += 10
    bench.feed(None, None)
    worker.faults.at("store create", Transient("x"))
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 10
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 2]


def test_the_time_that_a_checkpoint_took_is_counted() -> None:
    bench = Bench(interval_s=60.0)
    worker = bench.worker().join().turns(1)
    [(before_s, n)] = worker.metrics.checkpoint_duration_seconds.series().values()
    bench.feed("a")
    worker.turn()

    def pass_time() -> None:
        bench.clock.now_s += 7.0

    worker.faults.at("store create", pass_time)
    worker.close()
    [(after_s, n_after)] = worker.metrics.checkpoint_duration_seconds.series().values()
    assert (n_after, after_s) == (n + 1, pytest.approx(before_s + 7.0, abs=1.0))


def test_where_the_last_checkpoint_is_damaged_the_next_one_holds_every_model() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    bench.feed("x", key="small")
    bench.feed(*"xyz" * 20, key="large")
    worker.turns(2)
    bench.damage("segment")
    # The large model is written anew, and to reclaim its old bytes the small one beside them is read: they are damaged.
    saved: list[int | None] = []
    for label in "xyz":
        bench.feed(label, key="large")
        saved += [worker.turns(1).checkpointer(0).saved_offset for _ in range(2)]
    assert None in saved, "nothing counts as saved meanwhile"
    worker.kill()
    bench.feed("y", key="small")
    worker = bench.worker().join().turns(3)
    assert worker.replayed() == 0
    assert bench.published() == bench.expected()


def test_models_that_start_anew_are_saved_before_anything_is_committed() -> None:
    bench = Bench(interval_s=60.0, seed=1)
    bench.feed("a", "b")
    bench.worker().join().turns(2).close()
    bench.feed("a")
    worker = bench.worker(on_spec_change="restart", interval_s=60.0).join().turns(2)
    seen = worker.faults.seen
    assert seen.index("store create:done") < seen.index("begin")
    assert msgspec.json.decode(bench.published()[-1].value or b"")["learned"] == 0


def test_models_that_start_anew_wait_until_that_is_saved_and_hold_up_no_other() -> None:
    bench = Bench(partitions=2, seed=1)
    bench.feed("a", "b")
    bench.worker().join().turns(2).close()
    bench.feed("a")
    worker = bench.worker(on_spec_change="restart")
    worker.faults.at("store create", *[Transient("x")] * 4)
    worker.join().turns(2)
    # It waits for the store, and its records with it; the others go on.
    bench.feed("a", "b", partition=1)
    bench.clock.now_s += 1
    worker.turns(2)
    assert (worker.state(0), bench.broker.committed) == ("waiting", {0: 2, 1: 2})
    for _ in range(6):
        bench.clock.now_s += 5
        worker.turns(2)
    assert (worker.stops(), bench.broker.committed) == ({}, {0: 3, 1: 2})
    assert msgspec.json.decode(bench.published(0)[-1].value or b"")["learned"] == 0


def test_a_crash_after_models_started_anew_does_not_bring_the_old_ones_back() -> None:
    settings = {"on_spec_change": "restart", "interval_s": 60.0}
    for seed in range(1, 9):
        bench = Bench(interval_s=60.0, seed=seed)
        bench.feed("a", "b")
        bench.worker().join().turns(2).close()
        bench.feed("a", "b")
        bench.worker(**settings).join().turns(2).kill()
        bench.feed("a")
        bench.worker(**settings).join().turns(3)
        learned = [msgspec.json.decode(each.value or b"")["learned"] for each in bench.published()]
        assert learned == [0, 1, 0, 1, 2]


def test_a_change_out_of_band_is_not_saved_by_the_checkpoint_that_was_on_its_way() -> None:
    worker = Bench(interval_s=60.0).worker().join()
    worker.begin_to_save("a")
    checkpointer = worker.checkpointer(0)
    checkpointer.change_out_of_band()
    worker.pool.jobs[0].run()
    checkpointer.poll()
    assert (checkpointer.is_writing, checkpointer.must_be_saved) == (False, True)


def test_a_broker_that_is_behind_takes_no_partition_away_from_what_is_saved() -> None:
    bench = Bench(interval_s=60.0)
    worker = bench.worker().join()
    for partitions in (3, 2):
        worker.checkpointer(0).repartitioned(partitions)
    bench.feed("a")
    worker.turns(2)
    bench.clock.now_s += 60
    worker.turns(3)
    assert (bench.newest().offset, bench.newest().partitions) == (1, 3)


def test_a_clean_up_goes_by_the_revision_that_is_committed_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab")
    bench.worker("one").join().turns(3).close()
    known = []

    def tidy(_: Checkpoints, current: Manifest, committed: int | None) -> dict[int, list[str]]:
        known.append(committed)
        return {}

    monkeypatch.setattr(Checkpoints, "is_untidy", lambda *_: True)
    monkeypatch.setattr(Checkpoints, "tidy", tidy)
    two = bench.worker("two", interval_s=60.0, on_spec_change="restart", n_estimators=3).join().turns(3)
    bench.feed("a")
    bench.clock.now_s += 60
    two.turns(3)
    assert known == [0, bench.newest().revision] != [0, 0]


def test_of_several_offsets_that_do_not_agree_the_first_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints are deleted from there on, and who learns again begins before it."""
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    monkeypatch.setattr(Checkpoints, "tidy", lambda *_: {8: ["after"], 7: ["first"]})
    bench.feed("a")
    bench.clock.now_s += 60
    worker.turns(3)
    assert worker.stops() == {"divergence": 1}
    assert ("first" in caplog.text, "after" in caplog.text) == (True, False)
