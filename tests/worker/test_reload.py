"""A worker with little memory: what it does when models are lost on its disk, or when only the store has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.worker.fakes import FakeSpill
from tests.worker.test_runtime import Bench, Bound
from worker.backlog import WAIT_S
from worker.errors import Transient


class Tight(Bench):
    """No model fits the memory of its workers; `spill` takes so many."""

    def __init__(self, partitions: int = 1, room: int = 1000, **settings: Any) -> None:
        super().__init__(partitions, **({"cache_bytes": 1, "interval_s": 60.0} | settings))
        self.spill = FakeSpill(room)
        self.setting = replace(self.setting, spill=self.spill)

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


def test_nothing_leaves_while_a_commit_is_open() -> None:
    bench = Tight()
    worker = bench.worker().join().turns(1)
    bench.feed("x")
    worker.faults.at("commit", Transient("slow"), Transient("slow"))
    worker.turn()
    assert bench.spill.places == []
    worker.turns(3)
    assert len(bench.spill.places) == 1


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
    worker = bench.worker().join().turns(2)
    bench.wait(60)
    worker.turns(3)
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
