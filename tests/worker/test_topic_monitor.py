"""The topic under a running worker, and runs that have an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.worker.support.fake_broker import Log
from tests.worker.test_loop import Bench, Bound
from worker.base.errors import Abort, Transient, WorkerError
from worker.base.ports import TopicState
from worker.base.status import Board
from worker.runtime.topic_monitor import LOOK_EVERY_S, OutputMonitor, TopicMonitor

# The topic under a running worker


class Topic:
    """What a look finds: `now`, once `arrives`."""

    def __init__(self, partitions: int) -> None:
        self.now: TopicState | WorkerError | None = TopicState(
            "topic-id", partitions, dict.fromkeys(range(partitions), 0)
        )
        self.arrives = True
        self.looks = 0

    def look(self, partitions: int) -> Topic:
        self.looks += 1
        return self

    def done(self) -> bool:
        return self.arrives

    def result(self) -> TopicState | None:
        if isinstance(self.now, WorkerError):
            raise self.now
        return self.now


def watched(partitions: int = 2, on_repartition: str = "fail") -> tuple[Bench, Topic]:
    bench, topic = Bench(partitions, interval_s=1e6), Topic(partitions)
    bench.config = replace(bench.config, input=replace(bench.config.input, on_repartition=on_repartition))
    assert isinstance(topic.now, TopicState)
    bench.monitor = TopicMonitor("events", topic.now, bench.config.input.on_repartition, topic.look, bench.clock)
    return bench, topic


def look(bench: Bench, worker: Bound) -> None:
    """Let enough time pass that it is asked, and then that the answer is seen."""
    bench.clock.now_s += LOOK_EVERY_S
    worker.turn()
    bench.clock.now_s += 1
    worker.turn()


def run_on(bench: Bench, worker: Bound) -> None:
    """Run until it ends by itself: a turn every ten seconds."""

    def pass_time() -> None:
        bench.clock.now_s += 10

    worker.faults.at("consume", worker.take, *[pass_time] * 20)
    worker.run(lambda: worker.faults.seen.count("consume") > 20)


def add_a_partition(bench: Bench, topic: Topic) -> None:
    number = len(bench.broker.logs)
    bench.broker.logs[number] = Log()
    bench.broker.furthest[number] = -1
    topic.now = TopicState("topic-id", number + 1, dict.fromkeys(range(number + 1), 0))


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (TopicState("topic-id", 3, {}), "partitions-added: topic events has 3 partitions, its models .* with 2: "),
        (TopicState("other", 2, {}), "topic-recreated: topic events has the id other, .* with the id topic-id"),
        (None, "topic-deleted: topic events with the id topic-id does not exist any more"),
    ],
)
def test_a_changed_topic_ends_the_worker_in_order(now: TopicState | None, told: str) -> None:
    bench, topic = watched()
    bench.feed("a", "b")
    topic.now = now
    worker = bench.worker()
    with pytest.raises(WorkerError, match=told):
        run_on(bench, worker)
    assert bench.broker.group.members == []
    assert (bench.newest().offset, bench.published()) == (2, bench.expected())


@pytest.mark.parametrize(
    "now", [TopicState("topic-id", 2, {}), TopicState("topic-id", 1, {}), Transient("no broker"), WorkerError("no ACL")]
)
def test_what_says_nothing_of_a_change_ends_nothing(now: TopicState | WorkerError) -> None:
    bench, topic = watched()
    topic.now = now
    run_on(bench, bench.worker())
    assert topic.looks == 6


def test_a_topic_that_is_not_seen_just_once_is_still_there() -> None:
    bench, topic = watched()
    worker = bench.worker().join()
    there = topic.now
    for now in (None, there, None, there):
        topic.now = now
        look(bench, worker)
    worker.run(lambda: True)


def test_what_a_look_fails_of_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench, topic = watched()
    topic.now = WorkerError("topic events cannot be described: the user needs DESCRIBE on topic events")
    worker = bench.worker().join()
    for _ in range(3):
        look(bench, worker)
    assert caplog.text.count("needs DESCRIBE on topic events") == 1


def with_outputs() -> tuple[Bench, dict[str, Topic], Board]:
    """The topics of outputs and dead letters are looked at, too; what is missing is on the board."""
    bench, source = watched()
    outputs, board = {"predictions": Topic(1), "dead-letters": Topic(1)}, Board()
    looks = {name: topic.look for name, topic in outputs.items()}
    assert isinstance(source.now, TopicState)
    of_outputs = OutputMonitor(looks, board, bench.clock)
    bench.monitor = TopicMonitor("events", source.now, "fail", source.look, bench.clock, of_outputs)
    return bench, outputs, board


def said_of_outputs(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    return [(event.name, event.fact) for event in events if event.name.startswith("output-")]


def test_a_topic_of_outputs_that_is_deleted_is_told_once_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench, outputs, board = with_outputs()
    worker = bench.worker().join()
    there = outputs["predictions"].now
    for now in (there, None, there, None):
        outputs["predictions"].now = now
        look(bench, worker)
    assert (said_of_outputs(caplog), board.output_trouble) == ([], None)
    for _ in range(3):
        look(bench, worker)
    gone = "topic predictions does not exist any more"
    assert said_of_outputs(caplog) == [("output-missing", f"{gone}: nothing can be published or committed")]
    assert board.output_trouble == gone
    outputs["predictions"].now = there
    for _ in range(2):
        look(bench, worker)
    assert said_of_outputs(caplog)[1:] == [("output-back", "topic predictions is there again")]
    assert board.output_trouble is None


def test_both_topics_of_outputs_are_looked_at() -> None:
    bench, outputs, board = with_outputs()
    worker = bench.worker().join()
    for topic in outputs.values():
        topic.now = None
    for _ in range(3):
        look(bench, worker)
    assert board.output_trouble == "topics predictions, dead-letters do not exist any more"


@pytest.mark.parametrize("now", [Transient("no broker"), WorkerError("no ACL")])
def test_what_a_look_at_outputs_fails_of_is_told_by_others(caplog: pytest.LogCaptureFixture, now: WorkerError) -> None:
    bench, outputs, board = with_outputs()
    worker = bench.worker().join()
    outputs["predictions"].now = now
    outputs["dead-letters"].arrives = False
    for _ in range(3):
        look(bench, worker)
    assert (said_of_outputs(caplog), board.output_trouble) == ([], None)
    assert [topic.looks for topic in outputs.values()] == [3, 1]


def test_the_loop_does_not_wait_for_an_answer() -> None:
    bench, topic = watched()
    topic.arrives = False
    bench.feed("a", "b")
    worker = bench.worker().join()
    for _ in range(3):
        look(bench, worker)
    assert topic.looks == 1
    assert bench.published() == bench.expected()


def test_added_partitions_may_start_with_new_models() -> None:
    bench, topic = watched(on_repartition="new-models")
    bench.feed("a")
    worker = bench.worker().join().turns(2)
    add_a_partition(bench, topic)
    bench.feed("b", partition=2)
    look(bench, worker)
    worker.take(2)
    bench.feed("b")
    worker.turns(2)
    worker.close()
    assert [bench.newest(number).partitions for number in (0, 2)] == [3, 3]
    assert bench.published(2) == bench.expected(2)


def test_the_margin_of_retention_is_shown() -> None:
    bench, topic = watched()
    bench.feed(*"abab")
    bench.worker("before").join().turns(2).close()
    topic.now = TopicState("topic-id", 2, {0: 3, 1: 0})
    worker = bench.worker().join()
    look(bench, worker)
    shown = worker.metrics.retention_margin_records.series()
    assert {labels.partition: margin for labels, margin in shown.items()} == {0: 1, 1: 0}


# Runs with an end


def until(ends: dict[int, int], partitions: int = 2) -> Bench:
    bench = Bench(partitions, interval_s=1e6)
    bench.ends = ends
    return bench


def run_to_the_end(worker: Bound, *then: Callable[[], None] | None) -> None:
    """Take all partitions in the first turn, and do something in the next ones. Raises where it does not end."""
    worker.faults.at("consume", worker.take, *then)

    def gives_up() -> bool:
        if worker.faults.seen.count("consume") > 50:
            raise TimeoutError("it does not end")
        return False

    worker.run(gives_up)


@pytest.mark.parametrize("batch_records", [1, 3, 1000])
def test_a_run_with_an_end_publishes_and_saves_what_a_live_one_does(batch_records: int) -> None:
    live, backfill = Bench(2, interval_s=1e6), until({0: 5, 1: 2})
    for bench in (live, backfill):
        bench.feed(*"ababa")
        bench.feed("b", "a", partition=1)
    live.worker().join().turns(3).close()
    backfill.feed(*"bbbb")
    backfill.feed("b", partition=1)
    worker = backfill.worker()
    worker.input.batch_records = lambda: batch_records
    run_to_the_end(worker)
    assert backfill.broker.committed == {0: 5, 1: 2}
    for number in (0, 1):
        assert backfill.published(number) == live.published(number)
        assert backfill.newest(number).offset == live.newest(number).offset
        assert backfill.newest(number).state_hash == live.newest(number).state_hash


def test_an_empty_topic_ends_at_once() -> None:
    bench = until({0: 0, 1: 0})
    worker = bench.worker()
    run_to_the_end(worker)
    assert worker.faults.seen.count("consume") == 1


def test_the_last_record_may_be_well_before_the_end() -> None:
    bench = until({0: 9, 1: 4})
    bench.feed("a")
    for number in (0, 1):
        bench.broker.logs[number].high = 9
    run_to_the_end(bench.worker())
    assert bench.published() == bench.expected()


def test_records_that_are_still_to_come_are_waited_for() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a")
    run_to_the_end(bench.worker(), None, None, lambda: bench.feed("b", "a"))
    assert bench.broker.committed == {0: 2}


def test_partitions_that_are_not_named_are_left_as_they_are() -> None:
    bench = until({1: 1})
    bench.feed("a", "b")
    bench.feed("a", "b", partition=1)
    run_to_the_end(bench.worker())
    assert bench.broker.committed == {1: 1}


def test_where_the_group_is_past_the_end_nothing_is_done() -> None:
    bench = until({0: 1}, partitions=1)
    bench.feed("a", "b", "a")
    bench.ends, end = None, bench.ends
    bench.worker("before").join().turns(2).kill()
    bench.ends = end
    run_to_the_end(bench.worker())
    assert bench.broker.committed == {0: 3}


def test_an_end_does_not_come_before_the_commit() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a", "b", "a")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * 4)
    run_to_the_end(worker)
    assert bench.broker.committed == {0: 2}
    assert bench.newest().offset == 2


def test_records_that_were_read_before_a_partition_was_taken_away_are_read_again() -> None:
    bench = until({0: 2}, partitions=1)
    bench.feed("a", "b", "a")
    worker = bench.worker()

    def lose() -> None:
        worker.input.expire()
        worker.input.notice()
        raise Abort("x")

    def take_without_records() -> None:
        worker.input.batch_records = lambda: 0
        worker.take()

    def read_on() -> None:
        worker.input.batch_records = lambda: 10

    worker.faults.at("commit", lose)
    run_to_the_end(worker, None, None, take_without_records, None, read_on)
    assert bench.broker.committed == {0: 2}
    assert len(bench.published()) == 2


def test_a_partition_that_stopped_is_an_end_in_failure() -> None:
    bench = until({0: 2, 1: 4})
    bench.config = replace(bench.config, dead_letter=replace(bench.config.dead_letter, max_consecutive=2))
    bench.feed("a", "b")
    bench.feed_bad(3, partition=1)
    with pytest.raises(WorkerError, match=r"partitions \[1\] have stopped before the end"):
        run_to_the_end(bench.worker())
    assert bench.broker.committed == {0: 2, 1: 3}
