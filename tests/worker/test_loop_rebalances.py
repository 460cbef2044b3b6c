"""Partitions come and go while records are gathered, committed, saved and replayed."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, lose_and_come_back
from worker.base.errors import Abort, Transient, Unknown
from worker.commit.pending import LONGEST_PAUSE_S
from worker.runtime.executor import LAST_ATTEMPTS
from worker.runtime.loop import REVOKE_S
from worker.task.checkpointer import Checkpointer
from worker.task.restorer import RETRY_S

# Transactions


def test_outputs_of_a_partition_that_was_taken_away_are_not_sent_again() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", "b", partition=1)
    one, two = bench.worker("one"), bench.worker("two")
    one.faults.at("commit", *[Abort("x")] * (1 + LAST_ATTEMPTS))
    one.join().turns(1)
    two.join(1)
    one.turns(1)
    bench.clock.sleep(LONGEST_PAUSE_S)
    one.turns(1)
    assert bench.broker.committed == {0: 2}
    two.turns(2)
    assert bench.broker.committed == {0: 2, 1: 2}
    for number in (0, 1):
        assert bench.published(number) == bench.expected(number)


@pytest.mark.parametrize(
    ("point", "callback"),
    [("metadata:done", "lost"), ("produce", "revoked")],
    ids=["lost while it commits", "revoked while it produces"],
)
def test_a_member_that_was_given_up_and_is_back_commits_nothing_of_what_it_had_read(point: str, callback: str) -> None:
    """Its partitions were another member's in between, and the group would believe the new member."""
    bench = Bench()
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.join()
    one.faults.at(point, lambda: lose_and_come_back(one, two, callback))
    one.turns(3)
    assert one.outcomes() == {"aborted": 1}
    assert bench.published() == bench.expected()


@pytest.mark.parametrize("trouble", [(), (Unknown("x"),)], ids=["", "with a new producer"])
def test_what_a_rebalance_interrupts_is_committed_and_saved_before_the_partition_goes(trouble: tuple[Unknown]) -> None:
    """Another version of the worker would refuse to replay what this one has predicted."""
    bench = Bench(interval_s=3600.0)
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.join()
    one.faults.at("produce", lambda: two.take(0))
    one.turns(1)
    assert one.outcomes() == {"aborted": 1}
    one.faults.at("commit", *trouble)
    one.turns(1)
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 2)
    two.turns(3)
    assert two.replayed() == 0
    assert bench.published() == bench.expected()


def test_what_is_pending_when_partitions_go_is_not_tried_for_longer_than_the_group_waits() -> None:
    bench = Bench()
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()

    def answer_late() -> None:
        bench.clock.now_s += 0.6 * REVOKE_S
        raise Abort("the broker is slow")

    one.faults.at("commit", Abort("x"), *[answer_late] * LAST_ATTEMPTS)
    one.join().turns(1)
    assert one.outcomes() == {"aborted": 1}
    two.take(0)
    one.turn()
    assert one.outcomes() == {"aborted": 1 + 2}
    two.turns(3)
    assert bench.published() == bench.expected()


# Checkpoints


def test_partitions_that_are_given_up_are_saved_and_lost_ones_are_not() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a")
    bench.feed("a", partition=1)
    one, two = bench.worker("one").join().turns(2), bench.worker("two").join(0)
    one.turn()
    assert bench.checkpoints(0).offsets() == [0, 1]
    one.input.expire()
    one.input.notice()
    one.turn()
    assert bench.checkpoints(1).offsets() == [0]
    two.take(1)
    two.turns(2)
    assert two.replayed() == 1


def test_all_partitions_that_are_given_up_are_on_their_way_to_the_store_before_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those that the store does not take in time the next owner replays more: the costliest go first."""
    bench = Bench(partitions=3, interval_s=60.0)
    worker = bench.worker().join().turns(2)
    for number in range(3):
        bench.feed("a", partition=number)
    worker.turn()
    for number, cost_s in enumerate((1.0, 3.0, 2.0)):
        worker.checkpointer(number).add_replay_cost(cost_s)
    started: list[int] = []
    begin = Checkpointer.start

    def noted(checkpointer: Checkpointer, position: int) -> None:
        started.append(checkpointer._location.partition)
        begin(checkpointer, position)

    at_first_wait: list[int] = []

    def done_within(seconds: float) -> bool:
        at_first_wait.extend(started if not at_first_wait else ())
        return True

    monkeypatch.setattr(Checkpointer, "start", noted)
    worker.pool.is_done_within = done_within
    worker.close()
    assert at_first_wait == [1, 2, 0]
    assert [bench.newest(number).offset for number in range(3)] == [1, 1, 1]


def test_a_partition_that_goes_while_a_checkpoint_of_it_hangs_begins_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One at a time is at the checkpoints of a partition."""
    bench = Bench(interval_s=60.0)
    one, two = bench.worker("one").join(), bench.worker("two").join_idle()
    one.begin_to_save("v")
    one.pool.is_done_within = lambda seconds: False
    bench.feed("b", key="v")
    one.turn()
    started: list[object] = []
    monkeypatch.setattr(Checkpointer, "start", lambda *arguments: started.append(arguments))
    two.take(0)
    one.turn()
    assert started == []
    monkeypatch.undo()
    two.turns(3)
    assert bench.published() == bench.expected()


def test_records_of_a_partition_that_is_taken_away_meanwhile_are_dropped() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    one, two = bench.worker("one"), bench.worker("two")
    one.faults.at("commit", *[Abort("x")] * 3)
    one.join().turns(1)
    bench.feed("a", "b")
    two.join(0)
    one.input.reads_ahead = lambda: True
    one.turn()
    one.take(0)
    two.turn()
    one.turns(5)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)


# Start, patience, end


def test_others_go_on_while_a_partition_waits_for_its_models() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    worker = bench.worker().join(0)
    worker.faults.at("store list", *[Transient("away")] * 8)
    worker.take(0, 1)
    for _ in range(6):
        bench.clock.now_s += RETRY_S
        worker.turn()
    assert (bench.published(0), bench.published(1)) == (bench.expected(0), [])
    assert worker.state(1) == "opening"
    for _ in range(6):
        bench.clock.now_s += RETRY_S
        worker.turn()
    assert bench.published(1) == bench.expected(1)


def test_a_partition_that_is_taken_away_while_it_is_opened_is_let_go_of() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker().join_idle()
    worker.pool.is_done_within = lambda seconds: False
    worker.take(0)
    worker.turns(2)
    job = worker.pool.jobs[0]
    assert job.set_running_or_notify_cancel()
    other = bench.worker("other").join()
    worker.turn()
    job.run()
    other.turns(3)
    bench.clock.now_s += 1
    worker.turn()
    assert bench.published() == bench.expected()
    assert next(iter(worker.metrics.models.series().values())) == 0


def test_a_new_owner_waits_for_the_open_transaction_of_the_old_one() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    one, two = bench.worker("one").join(), bench.worker("two").join_idle()
    one.faults.at("commit", Unknown("x"))
    one.turn()
    one.kill()
    two.take(0)
    assert bench.broker.open.keys() == {"one"}
    for _ in range(12):
        bench.clock.now_s += RETRY_S
        two.turn()
    assert bench.broker.open == {}
    assert bench.published() == bench.expected()
