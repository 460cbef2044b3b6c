"""Records are predicted as they come, and committed together when the transaction's interval is over."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.worker.support.bench import PIECES, Bench, Bound, gathering, lose_and_come_back
from tests.worker.support.fake_clients import FakeOutput
from tests.worker.support.fakes import FakeClock, with_transactions
from worker.base.errors import Abort, StateLost, Unknown
from worker.base.records import Membership
from worker.runtime.loop import LOOK_EVERY_S
from worker.runtime.pace import CALM_PIECE_S, LEAST_PIECE_S, Pace
from worker.runtime.reloads import Reloads
from worker.state.model_store import ModelStore


def with_two_partitions() -> tuple[Bench, Bound]:
    """A worker that has gathered two records of one partition and one of another."""
    bench = Bench(partitions=2)
    worker = gathering(bench)
    bench.feed(*"ab")
    bench.feed("a", partition=1)
    return bench, worker.turns(1)


def test_what_comes_is_learned_at_once_and_committed_when_it_is_time() -> None:
    bench = Bench(interval_s=0.001)
    worker = gathering(bench)
    for n, label in enumerate("abab", 1):
        bench.feed(label)
        worker.turn()
        assert (worker.position(0), bench.published(), worker.outcomes()) == (n, [], {})
        assert bench.newest().offset == 0
    bench.clock.now_s += 10
    worker.turn()
    assert worker.outcomes() == {"committed": 1}
    assert (bench.published(), bench.broker.committed) == (bench.expected(), {0: 4})
    assert sum(worker.metrics.predictions_total.series().values()) == 4


def test_each_piece_waits_for_its_share_of_the_interval_and_the_last_one_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    worker = gathering(bench)
    waits: list[float] = []
    consume = worker.input.consume

    def waited_in_full(most: int, timeout_s: float) -> object:
        waits.append(timeout_s)
        found = consume(most, timeout_s)
        bench.clock.now_s += timeout_s - timeout_s / 4
        return found

    monkeypatch.setattr(worker.input, "consume", waited_in_full)
    for _ in range(2 * PIECES):
        bench.feed("a")
        worker.turn()
    assert waits == pytest.approx([2.5] * 2 * PIECES)
    assert worker.outcomes() == {"committed": 2}
    assert bench.published() == bench.expected()


def test_while_a_partition_opens_records_are_not_waited_for_as_long_as_between_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(partitions=2)
    bench.config = with_transactions(bench.config, interval_s=10.0)
    worker = bench.worker().join(0)
    worker.predict_often(PIECES)
    waits: list[float] = []
    consume = worker.input.consume

    def noted(most: int, timeout_s: float) -> object:
        waits.append(timeout_s)
        return consume(most, timeout_s)

    worker.askers.is_done_within = lambda seconds: False
    worker.take(0, 1)
    worker.turn()
    monkeypatch.setattr(worker.input, "consume", noted)
    worker.turn()
    worker.askers.is_done_within = lambda seconds: True
    worker.turns(2)
    assert waits[0] == LOOK_EVERY_S < waits[-1]


def test_an_interval_has_no_pieces_that_are_shorter_than_a_few_milliseconds() -> None:
    """Each piece has a price of its own, however little has come."""
    clock = FakeClock()
    pace = Pace(0.01, clock)
    pace.worth_s = 0.0
    assert pace.next_piece_s() == pytest.approx(LEAST_PIECE_S)


def test_where_there_is_little_to_do_an_interval_is_one_piece() -> None:
    clock = FakeClock()
    pace = Pace(1.0, clock)

    def reads(turn_s: float) -> int:
        """How often it is read in the next interval, after turns that took so long."""
        for n in count(1):
            clock.now_s += pace.next_piece_s()
            pace.has_read(1, turn_s)
            if pace.is_due:
                return n
        raise AssertionError

    reads(0.0)
    assert [reads(seconds) for seconds in (0.001, 0.001, 0.02, 0.02, 0.02, 0.001, 0.001)] == [1, 1, 1, 4, 4, 4, 1]


def test_nobody_waits_for_the_end_of_a_long_interval_in_which_there_is_little_to_do() -> None:
    """A signal to stop is seen between two pieces."""
    assert Pace(10.0, FakeClock()).next_piece_s() == pytest.approx(2.5)
    assert Pace(2.0, FakeClock()).next_piece_s() == pytest.approx(CALM_PIECE_S)
    assert Pace(0.5, FakeClock()).next_piece_s() == pytest.approx(0.5)


def test_the_last_piece_ends_with_the_interval() -> None:
    clock = FakeClock()
    pace = Pace(1.0, clock)
    pace.worth_s = 0.0
    pace.next_piece_s()
    clock.now_s += 0.85
    pace.has_read(1, 0.0)
    assert (pace.next_piece_s(), pace.is_due) == (pytest.approx(0.15), True)


def test_so_many_records_end_a_calm_spell_and_no_more_are_read_in_it() -> None:
    pace = Pace(1.0, FakeClock())
    few = pace.calm_records
    assert [pace.most_records(most) for most in (3, 1000)] == [3, few]
    pace.next_piece_s()
    pace.has_read(few, 0.0)
    assert (pace.is_due, pace.most_records(1000), pace.next_piece_s()) == (False, 1000, pytest.approx(0.25))


def test_a_burst_after_a_calm_spell_is_taken_piece_by_piece_at_once() -> None:
    """Else all of an interval's records are predicted at its end, and those of the next one come meanwhile: where that
    takes most of an interval there is never time for a second piece again."""
    clock = FakeClock()
    pace, end_s = Pace(0.1, clock), clock.now_s + 2.0
    a_second, an_event_s = 20_000, 1 / 22_000
    waiting = turn_s = 0.0
    before_commits: list[float] = []
    while clock.now_s < end_s:
        came_s, wait_s, most = clock.now_s, pace.next_piece_s(), pace.most_records(20_000)
        clock.now_s += min(wait_s, max(0.0, (most - waiting) / a_second))
        waiting += (clock.now_s - came_s) * a_second
        n_records = min(most, round(waiting))
        pace.has_read(n_records, turn_s)
        turn_s = n_records * an_event_s
        clock.now_s += turn_s
        waiting += turn_s * a_second - n_records
        if pace.is_due:
            before_commits.append(turn_s)
    # What an interval brings takes 91 ms.
    assert len(before_commits) > 10
    assert max(before_commits) < 0.06


def test_a_transaction_that_is_full_does_not_wait() -> None:
    bench = Bench()
    bench.config = with_transactions(bench.config, max_records=3)
    worker = gathering(bench)
    bench.feed(*"ab")
    worker.turn()
    assert worker.outcomes() == {}
    bench.feed(*"abab")
    worker.turn()
    assert (worker.outcomes(), bench.broker.committed) == ({"committed": 1}, {0: 3})


def test_what_is_gathered_is_committed_and_saved_before_the_partition_goes() -> None:
    bench = Bench(interval_s=3600.0)
    worker, two = gathering(bench), bench.worker("two").join_idle()
    bench.feed(*"ab")
    worker.turn()
    two.take(0)
    worker.turns(1)
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 2)
    two.turns(3)
    assert (two.replayed(), bench.published()) == (0, bench.expected())


def test_what_is_gathered_of_partitions_that_are_lost_is_not_sent() -> None:
    bench, worker = with_two_partitions()
    worker.input.expire()
    worker.input.notice()
    worker.turns(1)
    bench.clock.now_s += 10
    worker.turns(2)
    assert (bench.broker.committed, bench.published()) == ({}, [])


def test_who_was_given_up_and_is_back_commits_nothing_of_what_it_had_gathered() -> None:
    bench = Bench()
    worker, two = gathering(bench), bench.worker("two").join_idle()
    bench.feed(*"ab")
    worker.turn()
    lose_and_come_back(worker, two, "revoked")
    bench.clock.now_s += 10
    worker.turns(3)
    assert worker.outcomes().get("committed", 0) == 0
    assert bench.published() == bench.expected()


def test_each_record_is_committed_by_who_has_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id may be another one, or none, before the callback says that partitions were lost."""
    bench = Bench()
    worker = gathering(bench)
    sent: list[tuple[str, int]] = []
    publish, membership = FakeOutput.publish, worker.input.membership

    def noted(output: FakeOutput, outgoing: Any, offsets: Any, member: Membership) -> None:
        sent.append((member.id, len(outgoing)))
        publish(output, outgoing, offsets, member)

    monkeypatch.setattr(FakeOutput, "publish", noted)
    bench.feed(*"ab")
    worker.turn()
    member = membership()
    monkeypatch.setattr(worker.input, "membership", lambda: member._replace(id="another"))
    bench.feed("a")
    worker.turn()
    bench.clock.now_s += 10
    worker.turn()
    assert sent == [(member.id, 2), ("another", 1)]


def test_what_was_read_before_a_rebalance_is_committed_in_the_generation_after_it() -> None:
    bench = Bench()
    worker = gathering(bench)
    bench.feed(*"ab")
    worker.turn()
    bench.worker("two").join_idle()
    worker.take(0)
    bench.clock.now_s += 10
    worker.turn()
    assert (worker.outcomes(), bench.broker.committed) == ({"committed": 1}, {0: 2})


def test_a_run_has_not_come_to_its_end_before_all_is_committed() -> None:
    bench = Bench()
    bench.config = with_transactions(bench.config, interval_s=10.0)
    bench.ends = {0: 2}
    bench.feed(*"ab")
    worker, turns = bench.worker(), iter(range(100))
    worker.predict_often(PIECES)
    worker.faults.at("commit", *[Abort("injected")] * 6)

    def should_stop() -> bool:
        turn = next(turns, None)
        if turn == 0:
            worker.take(0)
        bench.clock.now_s += 1
        return turn is None

    worker.run(should_stop)
    assert next(turns, None) is not None
    assert (bench.broker.committed, bench.published()) == ({0: 2}, bench.expected())


def test_what_is_gathered_is_committed_before_a_partition_whose_next_record_is_gone_is_saved() -> None:
    bench = Bench(partitions=2, interval_s=3600.0)
    worker = gathering(bench)
    bench.feed(*"ab")
    worker.turn()
    bench.broker.logs[0].low = bench.broker.logs[0].high = 7
    bench.clock.now_s += 10
    worker.faults.at("commit", Abort("injected"))
    worker.turn()
    assert (bench.broker.committed, bench.newest().offset) == ({}, 0)
    worker.turns(3)
    assert (worker.stops(), bench.broker.committed, bench.newest().offset) == ({"offset-out-of-range": 1}, {0: 2}, 2)


def test_what_is_taken_back_of_a_partition_that_stops_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, worker = with_two_partitions()

    def lost(models: ModelStore, keys: object) -> None:
        raise StateLost("the model k is gone")

    monkeypatch.setattr(ModelStore, "fetch", lost)
    monkeypatch.setattr(Reloads, "next_pause_s", lambda *_: None)
    bench.feed("a")
    worker.turn()
    bench.clock.now_s += 10
    worker.turn()
    assert (worker.stops(), bench.broker.committed) == ({"state-lost": 1}, {1: 1})
    assert sum(worker.metrics.predictions_total.series().values()) == 1


def test_a_state_that_is_lost_takes_what_was_gathered_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is predicted once more, from the committed offset on, and published once."""
    bench, worker = with_two_partitions()
    fetch = ModelStore.fetch

    def lost(models: ModelStore, keys: object) -> None:
        monkeypatch.setattr(ModelStore, "fetch", fetch)
        raise StateLost("the model k is gone")

    monkeypatch.setattr(ModelStore, "fetch", lost)
    bench.feed("a")
    worker.turns(4)
    bench.clock.now_s += 10
    worker.turns(4)
    for partition in (0, 1):
        assert bench.published(partition) == bench.expected(partition)


def test_a_partition_with_too_many_dead_letters_takes_no_more_of_them() -> None:
    bench = Bench(partitions=2, max_consecutive=2)
    worker = gathering(bench)
    bench.feed("a", partition=1)
    worker.turn()
    bench.feed_bad(4)
    worker.turn()
    assert (worker.stops(), worker.outcomes()) == ({"too-many-dead-letters": 1}, {"committed": 1})
    assert bench.broker.committed == {0: 4, 1: 1}
    assert (len(bench.published(0)), bench.published(1)) == (4, bench.expected(1))


def test_at_the_end_what_is_gathered_is_committed_and_saved() -> None:
    bench = Bench(interval_s=3600.0)
    worker = gathering(bench)
    bench.feed(*"ab")
    worker.turn()
    worker.close()
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 2)
    assert bench.published() == bench.expected()


@pytest.mark.parametrize(("point", "error"), [("offsets", Abort("not now")), ("begin", Unknown("not now"))])
def test_while_nothing_can_be_committed_what_is_read_stays_bounded(point: str, error: Exception) -> None:
    bench = Bench(interval_s=60.0)
    bench.config = with_transactions(bench.config, max_records=10)
    worker = bench.worker()
    worker.join()
    worker.faults.at(point, *[error] * 5_000)
    for _ in range(200):
        bench.feed("a")
        worker.turns(1)
        bench.clock.now_s += 1
        assert worker.buffered() <= 20
    worker.faults.forget(point)
    for _ in range(100):
        worker.turns(1)
        bench.clock.now_s += 1
    assert bench.published() == bench.expected()
