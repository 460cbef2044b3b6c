"""Partitions that start while others cannot: nobody waits for a partition that nobody answers for."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tests.worker.test_runtime import Bench
from worker.errors import Transient, WorkerError
from worker.kafka.questions import Questions
from worker.opening import LONGEST_RETRY_S, RETRY_S


def test_a_partition_without_a_leader_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(partitions=3)
    for number in range(3):
        bench.feed("a", "b", partition=number)
    bench.broker.leaderless = {1}
    worker = bench.worker().join().turns(2)
    assert bench.broker.committed == {0: 2, 2: 2}
    for _ in range(20):
        bench.clock.now_s += LONGEST_RETRY_S
        worker.turn()
    assert (worker.state(0), worker.state(1), worker.state(2)) == ("live", "restore", "live")
    told = [each.getMessage() for each in caplog.records if "cannot start" in each.getMessage()]
    assert told == ["partition 1 cannot start yet, trying again: partition 1 has no leader"]
    bench.broker.leaderless.clear()
    bench.clock.now_s += LONGEST_RETRY_S
    worker.turns(3)
    for number in range(3):
        assert bench.published(number) == bench.expected(number)


def test_the_loop_does_not_wait_for_an_answer() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", partition=1)
    worker = bench.worker().join(1).turns(2)
    worker.askers.is_done_within = lambda seconds: False
    worker.take(0, 1)
    asked = worker.faults.seen.count("bounds")
    for _ in range(5):
        bench.feed("b", partition=1)
        worker.turn()
    # The question was put once, to somebody else.
    assert (len(worker.askers.jobs), worker.faults.seen.count("bounds")) == (1, asked)
    worker.turn()
    assert bench.published(1) == bench.expected(1)


def test_who_does_not_answer_is_asked_less_and_less_often() -> None:
    bench = Bench()
    bench.broker.leaderless = {0}
    worker = bench.worker().join()
    times: list[float] = []
    for _ in range(100):
        before = worker.faults.seen.count("bounds")
        bench.clock.now_s += RETRY_S / 4
        start = bench.clock.now_s
        worker.turn()
        times += [start] * (worker.faults.seen.count("bounds") - before)
    pauses = [round(later - sooner) for sooner, later in pairwise(times)]
    assert pauses[:2] == [2, 4]
    assert set(pauses[2:]) == {LONGEST_RETRY_S}


def test_what_the_broker_forbids_ends_the_worker() -> None:
    bench = Bench(partitions=2)
    worker = bench.worker()
    worker.faults.at("bounds", WorkerError("not authorized"))
    with pytest.raises(WorkerError, match="not authorized"):
        worker.join()


def test_a_consumer_is_closed_once_no_question_is_open() -> None:
    questions = Questions()
    asked, answered = threading.Event(), threading.Event()
    order: list[str] = []

    def ask() -> None:
        with questions.asking():
            asked.set()
            answered.wait(10)
            order.append("answered")

    with ThreadPoolExecutor(2) as threads:
        question = threads.submit(ask)
        assert asked.wait(10)
        closing = threads.submit(lambda: (questions.hold_off(), order.append("closed")))
        while not questions._held_off:
            pass
        with pytest.raises(Transient, match="is being closed"), questions.asking():
            pass
        assert not closing.done()
        answered.set()
        question.result(10)
        closing.result(10)
    assert order == ["answered", "closed"]
    questions.go_on()
    with questions.asking():
        pass


def test_a_partition_that_is_given_up_is_asked_about_no_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(partitions=2)
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.askers.is_done_within = lambda seconds: False
    one.join()
    assert len(one.askers.jobs) == 2
    two.take(0)
    one.turn()
    assert len(one.askers.jobs) == 1
    bench.feed("a")
    two.turns(3)
    assert bench.published() == bench.expected()
