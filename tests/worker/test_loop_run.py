"""A run from its first producer to its end by a signal."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, Bound
from worker.base.errors import Abort, Fatal, Transient, Unanswered
from worker.task.restorer import LONGEST_RETRY_S


def test_a_worker_waits_for_its_first_producer_for_as_long_as_it_takes() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("init", *[Unanswered("no coordinator")] * 1000)
    worker.join().turns(3)
    assert bench.clock.monotonic() - 1000 >= 500
    assert bench.published() == bench.expected()


def test_a_worker_that_is_told_to_stop_before_it_has_a_producer_ends_in_order() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("init", *[Unanswered("no coordinator")] * 1000)
    worker.run(lambda: bench.clock.monotonic() > 1100)
    assert (worker.opened, bench.published()) == (201, [])


def with_two_records() -> tuple[Bench, Bound]:
    """A worker that takes its partition with its first turn."""
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    return bench, worker


@pytest.mark.parametrize("point", ["init", "committed", "bounds", "store list", "store create", "store read"])
def test_a_start_waits_for_what_does_not_answer_yet(point: str) -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at(point, Transient("x"), Transient("x"))
    worker.join()
    for _ in range(3):
        bench.clock.now_s += LONGEST_RETRY_S
        worker.turn()
    assert bench.published() == bench.expected()


def test_it_runs_until_it_is_told_to_stop() -> None:
    bench, worker = with_two_records()
    left = iter([False, False, False, True])  # the first time before it asks for a producer
    worker.run(lambda: next(left))
    assert bench.published() == bench.expected()
    assert bench.newest().offset == 2
    assert bench.broker.group.members == []


def test_at_the_end_what_is_open_is_tried_once_more() -> None:
    bench, worker = with_two_records()
    worker.faults.at("commit", Abort("x"))
    left = iter([False, False, False, True])  # the first time before it asks for a producer
    worker.run(lambda: next(left))
    assert bench.published() == bench.expected()
    assert bench.newest().offset == 2


def test_it_leaves_the_group_though_its_last_commit_fails_for_good() -> None:
    """Else its partitions would be nobody's until its session has ended."""
    bench, worker = with_two_records()
    worker.faults.at("commit", Abort("x"))

    def should_stop() -> bool:
        if "commit" in worker.faults.seen:
            worker.faults.at("commit", Fatal("another has the name of this producer"))
            return True
        return False

    with pytest.raises(Fatal, match="another has the name"):
        worker.run(should_stop)
    assert bench.published() == []
    assert bench.broker.group.members == []
