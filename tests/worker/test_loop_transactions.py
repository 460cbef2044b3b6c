"""Records become outputs and committed offsets in one transaction, whatever fails in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.worker.support.bench import Bench, Bound
from worker.base.errors import Abort, Transient, Unknown
from worker.base.rewinds import REWOUND_S
from worker.commit.pending import LONGEST_PAUSE_S, PATIENCE


def test_records_become_outputs_and_committed_offsets() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b", None)
    bench.feed("a", partition=1, key="other")
    worker = bench.worker().join().turns(2)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)
    assert bench.broker.committed == {0: 3, 1: 1}
    assert worker.outcomes() == {"committed": 1}


def test_a_partition_whose_commits_are_forgotten_stops_and_the_others_go_on() -> None:
    bench = Bench(partitions=2)
    for partition in (0, 1):
        bench.feed("a", "b", partition=partition)
    worker = bench.worker().join().turns(2)
    for partition in (0, 1):
        bench.feed("a", partition=partition)
    worker.faults.at("commit", Unknown("injected"))
    worker.turns(1)
    bench.broker.committed[0] = 1
    started_s = bench.clock.monotonic()
    while bench.clock.monotonic() < started_s + REWOUND_S + 10:
        worker.turns(1)
        bench.clock.sleep(1.0)
    assert worker.stops() == {"group-rewound": 1}
    assert (worker.state(0), worker.state(1)) == ("stopped", "live")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert bench.published(1) == bench.expected(1)
    assert bench.broker.committed == {0: 1, 1: 4}


def fail(point: str, *errors: BaseException) -> Callable[[Bound], None]:
    return lambda worker: worker.faults.at(point, *errors)


@pytest.mark.parametrize(
    ("fault", "outcome", "producers"),
    [
        (fail("produce", Abort("x")), "aborted", 1),
        (fail("offsets", Abort("x")), "aborted", 1),
        (fail("commit", Abort("x")), "aborted", 1),
        (fail("begin", Unknown("x")), "unknown", 2),
        (fail("produce", Transient("x")), "unknown", 2),
        (fail("commit", Unknown("x")), "unknown", 2),
        (fail("commit:done", Unknown("x")), "unknown", 2),
        (
            lambda worker: worker.faults.at("commit", Abort("x")) or worker.faults.at("abort", Unknown("x")),
            "aborted",
            2,
        ),
        (
            lambda worker: worker.faults.at("init", None, Unknown("x")) or worker.faults.at("commit", Unknown("x")),
            "unknown",
            3,
        ),
    ],
)
def test_a_failed_transaction_is_made_up_for(fault: Callable[[Bound], None], outcome: str, producers: int) -> None:
    bench = Bench()
    bench.feed("a", "b", "a", None)
    worker = bench.worker()
    fault(worker)
    worker.join().turns(4)
    bench.feed("b")
    worker.turns(2)
    assert bench.published() == bench.expected()
    assert bench.broker.committed == {0: 5}
    assert bench.broker.open == {}
    assert worker.outcomes().keys() == {outcome, "committed"}
    assert worker.opened == producers


def test_while_a_transaction_is_open_no_more_than_a_record_is_taken_and_none_is_lost() -> None:
    bench = Bench()
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * 5)
    worker.join().turns(1)
    bench.feed("a", "b", "a", "b", "a", "b")
    worker.turns(3)
    assert worker.input.positions == {0: 5}
    assert bench.broker.committed == {}
    for _ in range(6):
        bench.clock.sleep(LONGEST_PAUSE_S)
        worker.turns(1)
    assert bench.published() == bench.expected()


def test_a_late_commit_of_the_old_producer_does_no_harm() -> None:
    bench = Bench()
    bench.feed("a", "b")
    worker = bench.worker()

    def late() -> None:
        bench.broker.commit_late("one", 1)
        raise Unknown("no answer")

    worker.faults.at("commit", late)
    worker.join().turns(1)
    assert worker.outcomes() == {"unknown": 1}
    worker.turn()
    bench.broker.deliver_late()
    worker.turn()
    assert bench.published() == bench.expected()


def test_at_least_once_sends_the_same_again() -> None:
    bench = Bench(delivery="at-least-once")
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("produce:done", Unknown("x"))
    worker.faults.at("commit offsets", Abort("x"), Transient("x"))
    worker.join().turns(4)
    bench.clock.sleep(LONGEST_PAUSE_S)
    worker.turns(1)
    assert bench.published() == bench.expected() * 4
    assert bench.broker.committed == {0: 2}


def test_a_transaction_that_fails_and_fails_is_tried_less_and_less_often() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("offsets", *[Abort("the group does not know this member")] * 1000)
    worker.join()
    started_s = bench.clock.monotonic()
    for _ in range(1000):
        worker.turns(1)
        bench.clock.sleep(0.01)
    tries = worker.faults.seen.count("offsets")
    assert 10 <= tries <= PATIENCE + 6 + (bench.clock.monotonic() - started_s) / LONGEST_PAUSE_S
    worker.faults.forget("offsets")
    bench.clock.sleep(LONGEST_PAUSE_S)
    worker.turns(1)
    assert bench.broker.committed == {0: 1}
