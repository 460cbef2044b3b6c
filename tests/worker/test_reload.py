"""A partition that has lost a model is loaded again, and no output differs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.worker.support.bench import Bound
from tests.worker.support.tight import Tight
from worker.base.errors import StateLost
from worker.base.records import CommittedOffset
from worker.base.rewinds import REWOUND_S
from worker.runtime.reloads import LONGEST_S, MOST_RELOADS, Reloads
from worker.state.entry import Entry
from worker.state.model import Model
from worker.state.model_store import ModelStore
from worker.task.restorer import RETRY_S
from worker.task.task import Task


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


def test_a_partition_that_is_lost_as_it_goes_live_is_opened_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, go_live, lost = Tight(), Task.go_live, [StateLost("the model a is gone")]

    def lose_once(task: Task) -> bool:
        if lost:
            raise lost.pop()
        return go_live(task)

    bench.feed("x", "y", key="a")
    bench.worker("one").join().turns(2).close()
    bench.feed("x", key="a")
    monkeypatch.setattr(Task, "go_live", lose_once)
    two = bench.worker("two").join().turns(3)
    assert (bench.published(), lost, two.stops()) == (bench.expected(), [], {})


class Hole:
    """While it is open no place gives back the model of the key a."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = True
        load = ModelStore._load

        def load_others(models: ModelStore, entry: Entry) -> Model:
            if self.open and entry.key == "a":
                raise StateLost("the model a is gone")
            return load(models, entry)

        monkeypatch.setattr(ModelStore, "_load", load_others)


def loaded_again_s(worker: Bound, seconds: float) -> list[float]:
    """When partitions were loaded again, for so many seconds in which the second one gets events."""
    times_s, began_s = [], worker.bench.clock.now_s
    while worker.bench.clock.now_s < began_s + seconds:
        before = worker.faults.seen.count("committed")
        worker.bench.feed("y", key="b", partition=1)
        worker.turn()
        times_s += [worker.bench.clock.now_s] * (worker.faults.seen.count("committed") - before)
        worker.bench.clock.now_s += 0.5
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
    Hole(monkeypatch)
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


def test_a_partition_that_is_loaded_again_and_saved_since_has_all_attempts_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Tight(partitions=2)
    worker = bench.worker().join().turns(2)
    for i in range(3 * MOST_RELOADS):
        bench.feed("x", "y", key="a")
        worker.turns(2)
        bench.lose()
        bench.feed("y", key="a")
        worker.turns(4)
        assert caplog.text.count("partition 0 is loaded again") == i + 1
        bench.wait(60)
        worker.turns(4)
        assert (bench.newest().offset, bench.published()) == (3 * i + 3, bench.expected())
    assert worker.stops() == {}


def test_attempts_are_counted_until_there_is_a_checkpoint_newer_than_all_before() -> None:
    """One that is passed over for an older one is no news when it is the newest again, nor is one that is not known."""
    reloads = Reloads()
    assert reloads.next_pause_s(0, 5) == 0.0
    pauses_s = [reloads.next_pause_s(0, saved) for saved in (3, 5, None, 3, 5, None, 3, 5, None)]
    assert all(pause_s is not None and pause_s > 0 for pause_s in pauses_s)
    assert reloads.next_pause_s(0, 5) is None
    assert reloads.next_pause_s(0, 6) == 0.0


def test_a_partition_that_comes_anew_has_all_attempts_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Tight(partitions=2)
    bench.feed("x", "y", key="a")
    worker = bench.worker().join().turns(2)
    bench.feed("x", key="a")
    hole = Hole(monkeypatch)
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


def forgets(worker: Bound, *answers: int | None) -> None:
    """The coordinator of its group has not read all of its log: so it answers for the first partition, at first."""
    ask, left = worker.input.committed, iter(answers)

    def committed(partitions: Sequence[int]) -> dict[int, CommittedOffset | None]:
        found = next(left, -1)
        return ask(partitions) if found == -1 else {0: None if found is None else CommittedOffset(found)}

    worker.input.committed = committed  # type: ignore[method-assign]


def loses_its_state(bench: Tight) -> Bound:
    """A worker that has committed two records of its first partition, whose state is lost with the third."""
    worker = bench.worker().join().turns(1)
    bench.feed("x", "y", key="a")
    worker.turns(2)
    bench.feed("x", key="a")
    bench.lose()
    return worker


@pytest.mark.parametrize("answer", [None, 1])
def test_a_coordinator_that_has_forgotten_what_was_committed_is_not_believed(answer: int | None) -> None:
    bench = Tight()
    worker = loses_its_state(bench)
    forgets(worker, answer)
    for _ in range(4):
        worker.turns(2)
        bench.wait(RETRY_S)
    assert (bench.published(), worker.stops()) == (bench.expected(), {})


def test_nor_is_one_that_has_forgotten_where_the_partition_was_opened() -> None:
    bench = Tight()
    bench.feed("x", "y", key="a")
    bench.worker("one").join().turns(2).kill()
    worker = bench.worker("two").join().turns(2)
    bench.feed("x", key="a")
    bench.lose()
    forgets(worker, 1)
    for _ in range(4):
        worker.turns(2)
        bench.wait(RETRY_S)
    assert (bench.published(), worker.stops(), worker.replayed()) == (bench.expected(), {}, 4)


def test_a_coordinator_that_has_forgotten_for_good_stops_the_partition(caplog: pytest.LogCaptureFixture) -> None:
    bench = Tight(partitions=2)
    worker = loses_its_state(bench)
    forgets(worker, *[1] * 1000)
    began_s = bench.clock.now_s
    while not worker.stops():
        worker.turn()
        bench.wait(RETRY_S)
    assert REWOUND_S <= bench.clock.now_s - began_s < REWOUND_S + 10
    assert worker.stops() == {"group-rewound": 1}
    assert "partition 0: the broker has the group at offset 1, but this worker committed 2" in caplog.text
    assert bench.published() == bench.expected()[:2]


def test_at_least_once_a_group_may_be_set_back_by_who_was_put_out_of_it() -> None:
    bench = Tight(delivery="at-least-once")
    worker = loses_its_state(bench)
    bench.broker.committed[0] = 1
    worker.turns(4)
    assert (worker.stops(), bench.broker.committed) == ({}, {0: 3})
