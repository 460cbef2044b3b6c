"""The topics under a running worker: made anew, repartitioned, deleted, cut short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.support.bench import Bench, Bound
from tests.worker.support.fake_broker import Log
from worker.base.errors import CorruptCheckpoint, Transient, WorkerError
from worker.base.ports import TopicState
from worker.base.status import Board
from worker.runtime.topic_monitor import LOOK_EVERY_S, OutputMonitor, TopicMonitor


class Topic:
    """What a look finds: `now`, with the beginnings of as many partitions as are asked for, once `arrives`."""

    def __init__(self, partitions: int) -> None:
        self.now: TopicState | WorkerError | None = TopicState(
            "topic-id", partitions, dict.fromkeys(range(partitions), 0)
        )
        self.arrives = True
        self.looks = 0
        self.asked = 0

    def look(self, partitions: int) -> Topic:
        self.looks += 1
        self.asked = partitions
        return self

    def ends_within(self, seconds: float) -> bool:
        return self.arrives

    def answer(self) -> TopicState | None:
        if isinstance(self.now, WorkerError):
            raise self.now
        if self.now is None:
            return None
        return replace(self.now, begins={n: low for n, low in self.now.begins.items() if n < self.asked})


def watched(partitions: int = 2, on_repartition: str = "fail", **settings: Any) -> tuple[Bench, Topic]:
    bench, topic = Bench(partitions, interval_s=1e6, **settings), Topic(partitions)
    bench.config = replace(bench.config, input=replace(bench.config.input, on_repartition=on_repartition))
    assert isinstance(topic.now, TopicState)
    on_repartition, no_outputs = bench.config.input.on_repartition, OutputMonitor({}, Board(), bench.clock)
    bench.monitor = TopicMonitor("events", topic.now, on_repartition, topic.look, bench.clock, no_outputs)
    return bench, topic


def look(bench: Bench, worker: Bound) -> None:
    """Let enough time pass that it is asked, and then that the answer is seen."""
    bench.clock.now_s += LOOK_EVERY_S
    worker.turn()
    bench.clock.now_s += 1
    worker.turn()


def run_on(bench: Bench, worker: Bound, change: Callable[[], None] | None = None) -> None:
    """Run until it ends by itself: a turn every ten seconds, once its partitions are open and the topic has changed."""

    def pass_time() -> None:
        bench.clock.now_s += 10

    worker.faults.at("consume", worker.take, change, *[pass_time] * 20)
    worker.run(lambda: worker.faults.seen.count("consume") > 21)


def add_a_partition(bench: Bench, topic: Topic) -> None:
    number = len(bench.broker.logs)
    bench.broker.logs[number] = Log()
    bench.broker.furthest[number] = -1
    topic.now = TopicState("topic-id", number + 1, dict.fromkeys(range(number + 1), 0))


@pytest.mark.parametrize(
    ("now", "message", "saved"),
    [
        (TopicState("topic-id", 3, {}), "partitions-added: topic events has 3 partitions, its models .* with 2: ", 2),
        (None, "topic-deleted: topic events with the id topic-id does not exist any more", 2),
        (TopicState("topic-id", 2, {}, "compact,delete"), "compacted-input: topic events has .*=compact,delete: ", 2),
        # Of its records some may be of the new topic: to none of these may a model owe anything under the former id.
        (TopicState("other", 2, {}), "topic-recreated: topic events has the id other, .* with the id topic-id", 0),
    ],
)
def test_a_changed_topic_ends_the_worker_in_order(now: TopicState | None, message: str, saved: int) -> None:
    bench, topic = watched()
    bench.feed("a", "b")
    worker = bench.worker()
    with pytest.raises(WorkerError, match=message):
        run_on(bench, worker, lambda: setattr(topic, "now", now))
    assert bench.broker.group.members == []
    assert (bench.newest().offset, bench.published()) == (saved, bench.expected())


@pytest.mark.parametrize("now", [TopicState("topic-id", 3, {}), TopicState("other", 2, {})])
def test_who_was_out_of_the_group_takes_nothing_before_it_has_seen_the_topic(now: TopicState) -> None:
    """Meanwhile its models may have been moved to another lineage, under which others have published."""
    bench, topic = watched()
    bench.feed("a")
    worker = bench.worker().join().turns(1)
    worker.input.expire()
    topic.now = now
    bench.feed("b")
    worker.input.notice(rejoin=True)
    worker.take(0)
    worker.turns(3)
    assert (len(bench.published()), worker.is_done()) == (1, True)


def test_an_answer_that_was_on_its_way_when_partitions_came_opens_none() -> None:
    bench, topic = watched()
    worker = bench.worker().join(1)
    topic.arrives = False
    look(bench, worker)
    worker.take(0, 1)
    bench.feed("a")
    worker.turns(3)
    assert (topic.looks, bench.published()) == (3, [])
    topic.arrives = True
    worker.turns(2)
    assert bench.published() == bench.expected()


@pytest.mark.parametrize(
    "now",
    [
        TopicState("topic-id", 2, {}),
        TopicState("topic-id", 1, {}),
        TopicState("topic-id", 2, {}, "delete"),
        Transient("no broker"),
        WorkerError("no ACL"),
    ],
)
def test_what_says_nothing_of_a_change_ends_nothing(now: TopicState | WorkerError) -> None:
    bench, topic = watched()
    topic.now = now
    run_on(bench, bench.worker())
    assert topic.looks == 1 + 20


def test_a_topic_that_is_not_seen_just_once_is_still_there() -> None:
    bench, topic = watched()
    worker = bench.worker().join()
    there = topic.now
    for now in (None, there, None, there):
        topic.now = now
        look(bench, worker)
    worker.run(lambda: True)
    assert topic.looks == 1 + 4


def test_a_topic_that_two_looks_do_not_find_is_gone() -> None:
    bench, topic = watched()
    worker = bench.worker().join()
    topic.now = None
    for _ in range(2):
        look(bench, worker)
    with pytest.raises(WorkerError, match="topic-deleted"):
        worker.run(lambda: True)


def test_a_topic_that_two_looks_of_one_moment_do_not_find_may_be_there() -> None:
    """A broker that has just come up does not know it yet, and moves partitions."""
    bench, topic = watched()
    worker = bench.worker().join(1)
    topic.now = None
    look(bench, worker)
    worker.take(0, 1)
    worker.turns(2)
    assert (topic.looks, worker.is_done()) == (3, False)


def test_a_failed_look_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench, topic = watched()
    topic.now = WorkerError("topic events cannot be described: the user needs DESCRIBE on topic events")
    worker = bench.worker().join()
    for _ in range(3):
        look(bench, worker)
    assert caplog.text.count("needs DESCRIBE on topic events") == 1
    topic.now = WorkerError("no broker")
    look(bench, worker)
    assert caplog.text.count("no broker") == 1, "another trouble is news"


def test_a_look_that_fails_again_after_one_that_did_not_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    bench, topic = watched()
    worker, there = bench.worker().join(), topic.now
    for now in (WorkerError("no ACL"), there, WorkerError("no ACL")):
        topic.now = now
        look(bench, worker)
    assert caplog.text.count("no ACL") == 2


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


def test_a_deleted_topic_of_outputs_is_logged_once_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_topic_of_outputs_that_two_looks_do_not_find_is_told_of_and_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench, outputs, board = with_outputs()
    worker, shown = bench.worker().join(), list[bool]()
    for now in (None, None, outputs["predictions"].now):
        outputs["predictions"].now = now
        look(bench, worker)
        shown.append(board.output_trouble is not None)
    assert shown == [False, True, False]
    assert [name for name, _ in said_of_outputs(caplog)] == ["output-missing", "output-back"]


def test_both_topics_of_outputs_are_looked_at() -> None:
    bench, outputs, board = with_outputs()
    worker = bench.worker().join()
    for topic in outputs.values():
        topic.now = None
    for _ in range(3):
        look(bench, worker)
    assert board.output_trouble == "topics predictions, dead-letters do not exist any more"


@pytest.mark.parametrize("now", [Transient("no broker"), WorkerError("no ACL")])
def test_a_failed_look_at_outputs_is_not_logged_nor_shown(caplog: pytest.LogCaptureFixture, now: WorkerError) -> None:
    bench, outputs, board = with_outputs()
    worker = bench.worker().join()
    outputs["predictions"].now = now
    outputs["dead-letters"].arrives = False
    for _ in range(3):
        look(bench, worker)
    assert (said_of_outputs(caplog), board.output_trouble) == ([], None)
    assert [topic.looks for topic in outputs.values()] == [3, 1]
    worker.run(lambda: True)  # and ends nothing


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


def test_a_broker_that_has_not_heard_of_added_partitions_takes_none_away() -> None:
    bench, topic = watched(on_repartition="new-models")
    worker, before = bench.worker().join(0), topic.now
    add_a_partition(bench, topic)
    look(bench, worker)
    topic.now = before
    look(bench, worker)
    assert list(worker.metrics.topic_partitions.series().values()) == [3]
    worker.take(0, 1)
    for number in (0, 1):
        bench.feed("a", partition=number)
    worker.turns(3).close()
    assert [(bench.newest(number).offset, bench.newest(number).partitions) for number in (0, 1)] == [(1, 3), (1, 3)]


def test_partitions_that_were_added_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bench, topic = watched(on_repartition="new-models")
    worker = bench.worker().join()
    add_a_partition(bench, topic)
    for _ in range(3):
        look(bench, worker)
    assert caplog.text.count("topic events has 3 partitions instead of 2") == 1
    add_a_partition(bench, topic)
    look(bench, worker)
    assert caplog.text.count("topic events has 4 partitions instead of 3") == 1


def test_a_partition_that_is_being_opened_learns_of_partitions_that_were_added_meanwhile() -> None:
    bench, topic = watched(on_repartition="new-models")
    bench.feed("a")
    worker = bench.worker().join(1)
    worker.askers.is_done_within = lambda seconds: False
    worker.take(0, 1)
    worker.turn()
    add_a_partition(bench, topic)
    look(bench, worker)
    worker.askers.is_done_within = lambda seconds: True
    worker.turns(3).close()
    assert (bench.newest(0).offset, bench.newest(0).partitions) == (1, 3)


def worked_off(caplog: pytest.LogCaptureFixture) -> tuple[Bench, Bound]:
    """A run to the end, with all that its topic has by now, of two partitions to which two were added before."""
    bench, topic = watched()
    bench.feed("a", "b")
    bench.worker("before").join().turns(2).close()
    for _ in range(2):
        add_a_partition(bench, topic)
    assert isinstance(topic.now, TopicState)
    no_outputs = OutputMonitor({}, Board(), bench.clock)
    bench.monitor = TopicMonitor("events", topic.now, "fail", topic.look, bench.clock, no_outputs)
    bench.ends = {0: 3, 1: 0}
    caplog.clear()
    worker = bench.worker()
    worker.join().turn()
    for _ in range(3):
        look(bench, worker)
    assert topic.looks > 1
    bench.feed("a")
    worker.turns(3)
    assert worker.is_done()
    worker.close()
    return bench, worker


def test_a_run_with_an_end_saves_models_of_the_partitions_that_they_know(caplog: pytest.LogCaptureFixture) -> None:
    """Else the next worker takes them for those of all partitions, and no model is moved to where its key is now."""
    bench, _ = worked_off(caplog)
    assert (bench.newest().offset, bench.newest().partitions) == (3, 2)


def test_added_partitions_that_a_run_with_an_end_leaves_alone_are_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    bench, worker = worked_off(caplog)
    assert [each.getMessage() for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []
    assert worker.stops() == {}
    assert bench.checkpoints(2).newest() is None


def margins(worker: Bound) -> dict[int, float]:
    """By partition, as the metrics have them."""
    return {labels.partition: n for labels, n in worker.metrics.retention_margin_records.series().items()}


def test_the_margin_of_retention_is_shown() -> None:
    bench, topic = watched()
    bench.feed(*"abab")
    bench.worker("before").join().turns(2).close()
    topic.now = TopicState("topic-id", 2, {0: 3, 1: 0})
    worker = bench.worker().join()
    look(bench, worker)
    assert margins(worker) == {0: 1, 1: 0}


def test_the_margin_of_a_partition_that_has_stopped_is_shown_as_it_shrinks() -> None:
    """Whoever is to see to it must know for how long its records are still there."""
    bench, topic = watched(max_consecutive=2)
    bench.feed("a", "b")
    bench.feed_bad(3)
    worker = bench.worker().join().turns(2)
    assert (worker.stops(), bench.newest().offset) == ({"too-many-dead-letters": 1}, 5)
    for begin, margin in ((0, 5), (4, 1), (6, -1)):
        topic.now = TopicState("topic-id", 2, {0: begin, 1: 0})
        look(bench, worker)
        assert margins(worker) == {0: margin, 1: 0}


def test_the_margin_of_a_partition_that_stopped_before_it_was_open_is_not_known() -> None:
    bench, _ = watched()
    bench.feed("a", "b")
    bench.worker("before").join().turns(2).close()
    bench.broker.logs[0].low = 2
    bench.broker.committed[0] = 1
    worker = bench.worker().join().turns(2)
    assert worker.stops() == {"group-rewound": 1}
    look(bench, worker)
    assert margins(worker) == {1: 0}


def test_while_the_newest_checkpoint_is_damaged_its_margin_is_not_known() -> None:
    bench, topic = watched()
    worker = bench.worker().join().turns(1)
    bench.feed("a")
    worker.turn()
    worker.faults.at("store create", CorruptCheckpoint("a model that it points to is damaged"))
    for known in ({1: 0}, {0: 1, 1: 0}):
        bench.clock.now_s += 1e6
        topic.arrives = False
        worker.turns(2)
        topic.arrives = True
        look(bench, worker)
        assert margins(worker) == known
