"""What the loop shows of the worker: whether it is ready, its rates, its last dead letters."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from tests.worker.support.bench import Bench, Bound
from worker.base.errors import Abort, Refused
from worker.base.records import Membership
from worker.base.standing import OUTSIDE_S, Standing
from worker.base.status import RECENT_DEAD_LETTERS, Board, DeadLetter, short
from worker.runtime.loop import GAUGES_EVERY_S
from worker.runtime.status import HISTORY, NO_LABEL_AFTER, Reporter, _quantile
from worker.task.checkpointer import Checkpointer


def second(worker: Bound, bench: Bench) -> None:
    """A turn that takes what there is, and one in which the board is refreshed."""
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(2)
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(1)


# --- the status -------------------------------------------------------------------------------------------------------


def test_a_partition_of_which_all_is_saved_does_not_wait_for_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock of the bench stands still while records are learned.
    monkeypatch.setattr(
        Checkpointer, "add_replay_cost", lambda self, _: setattr(self, "replay_s", self.replay_s + 0.01)
    )
    bench = Bench(interval_s=5.0)
    worker = bench.worker().join()

    def age() -> float:
        second(worker, bench)
        [partition] = worker.board.status.partitions
        assert partition.checkpoint_age_seconds is not None
        return partition.checkpoint_age_seconds

    bench.feed(*"abc")
    for _ in range(3):
        bench.clock.sleep(6.0)
        worker.turns(2)
    assert age() == 0.0
    bench.clock.sleep(600.0)
    assert age() == 0.0
    bench.feed("a")  # for which a checkpoint is due at once
    assert age() == 0.0
    bench.feed("a")
    assert 0.0 < age() < 5.0


def test_a_worker_is_ready_once_all_of_its_partitions_are_live() -> None:
    bench = Bench(partitions=2)
    board, worker = Board(), bench.worker()
    assert board.status.unready == "it has not come to its loop yet; the log says what it waits for"
    worker.join_idle()
    second(worker, bench)
    assert worker.board.status.unready == "the group has not assigned partitions yet"
    worker.take(0, 1)
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.askers.is_done_within = lambda _: False
    worker.turns(1)
    assert worker.board.status.unready == "not live: partition 0 (opening), 1 (opening)"
    assert worker.metrics.ready.series() == {(): 0}
    worker.askers.is_done_within = lambda _: True
    second(worker, bench)
    assert worker.board.status.unready is None
    assert worker.metrics.ready.series() == {(): 1}
    assert [each.state for each in worker.board.status.partitions] == ["live", "live"]


def test_a_worker_without_partitions_stands_by_and_is_ready() -> None:
    bench = Bench()
    worker = bench.worker().join_idle()
    worker._worker.assigned([])
    second(worker, bench)
    assert (worker.board.status.unready, worker.board.status.partitions) == (None, [])


def test_a_worker_that_its_group_does_not_know_any_more_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the broker has been away for longer than a session; a worker that stands by is none of these."""
    bench = Bench()
    worker = bench.worker().join_idle()
    worker._worker.assigned([])
    second(worker, bench)
    assert worker.board.status.unready is None
    member = worker.input.membership
    monkeypatch.setattr(worker.input, "membership", lambda: Membership("", None))
    bench.clock.sleep(OUTSIDE_S + 1.0)
    second(worker, bench)
    assert (worker.board.status.unready or "").startswith("no member of the group for ")
    monkeypatch.setattr(worker.input, "membership", member)
    second(worker, bench)
    assert worker.board.status.unready is None


def test_time_without_a_look_is_not_spent_out_of_the_group() -> None:
    """As while a transaction waits: the member may have been one all the time."""
    bench = Bench()
    standing = Standing(bench.clock)
    standing.has_joined = True
    standing.observe(Membership("member", None))
    bench.clock.sleep(OUTSIDE_S + 60.0)
    assert standing.trouble() is None
    standing.observe(Membership("", None))
    assert standing.trouble() == "no member of the group for 65 s: does the broker answer?"


def test_a_member_that_joins_its_group_anew_is_not_outside_at_once() -> None:
    bench = Bench()
    standing = Standing(bench.clock)
    standing.has_joined = True
    bench.clock.sleep(OUTSIDE_S)
    standing.observe(Membership("", None))
    assert standing.trouble() is None


def test_a_worker_that_no_broker_lets_in_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    worker = bench.worker().join_idle()
    worker.input.connection = why = "the last connection failed: invalid credentials"
    second(worker, bench)
    assert worker.board.status.unready == f"the group has not assigned partitions yet: {why}"
    worker.take(0)
    bench.clock.sleep(GAUGES_EVERY_S)
    second(worker, bench)
    assert worker.board.status.unready is None, "one connection of several may fail"
    monkeypatch.setattr(worker.input, "membership", lambda: Membership("", None))
    bench.clock.sleep(OUTSIDE_S + 1.0)
    second(worker, bench)
    assert re.fullmatch(rf"no member of the group for \d+ s: {why}", worker.board.status.unready or "")


def test_a_worker_whose_forwarder_is_out_of_its_group_is_not_ready() -> None:
    bench = Bench()
    worker = bench.worker().join()
    worker.board.forwarder_trouble = "no member of the forwarders' group for 7 s"
    second(worker, bench)
    assert worker.board.status.unready == "no member of the forwarders' group for 7 s"
    worker.board.forwarder_trouble = None
    second(worker, bench)
    assert worker.board.status.unready is None


def test_a_topic_that_is_gone_is_named_before_what_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    worker = bench.worker().join()
    monkeypatch.setattr(worker.input, "membership", lambda: Membership("", None))
    worker.board.output_trouble = "topic predictions does not exist any more"
    bench.clock.sleep(OUTSIDE_S + 1.0)
    second(worker, bench)
    assert worker.board.status.unready == "topic predictions does not exist any more"


def test_many_partitions_that_are_not_live_are_counted_and_not_named() -> None:
    bench = Bench(partitions=13)
    worker = bench.worker()
    worker.askers.is_done_within = lambda _: False
    worker.join()
    second(worker, bench)
    unready = worker.board.status.unready or ""
    assert unready.endswith("9 (opening) and 3 more")


def test_rates_are_those_of_the_time_since_the_last_point() -> None:
    bench = Bench()
    worker = bench.worker().join()
    second(worker, bench)
    bench.feed(*"ab" * 30)
    bench.feed_bad(2)
    worker.turns(1)
    bench.clock.sleep(4.0)
    worker.turns(1)
    point = worker.board.status.point
    assert point is not None
    assert point.events_per_second == pytest.approx(15.5, rel=0.02)
    assert point.dead_letters_per_second == pytest.approx(0.5, rel=0.02)
    assert point.depth is not None
    assert point.depth > 0
    assert point.lag == 0
    bench.clock.sleep(4.0)
    worker.turns(1)
    idle = worker.board.history[-1]
    assert (idle.events_per_second, idle.depth, idle.latency_p50_seconds) == (0, None, None)


def test_calibration_is_that_of_the_time_of_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.runtime.status.HISTORY", 3)
    bench = Bench()
    worker = bench.worker()
    for confidences, hits, seen in (
        ([0.91, 0.97, 0.31], [True, False, False], {3: (0.31, 0.0, 1), 9: (0.94, 0.5, 2)}),
        ([0.99], [True], {3: (0.31, 0.0, 1), 9: (pytest.approx(2.87 / 3), pytest.approx(2 / 3), 3)}),
        ([], [], {9: (pytest.approx(0.99), 1.0, 1)}),
        ([], [], {}),
    ):
        worker.metrics.add_confidences(confidences, hits)
        worker._worker._show()
        calibration = worker.board.status.calibration
        found = {i: (each.mean, each.correct, each.count) for i, each in enumerate(calibration) if each is not None}
        assert (len(calibration), found) == (10, seen)


def test_the_history_is_bounded() -> None:
    bench = Bench()
    worker = bench.worker().join()
    for _ in range(HISTORY + 20):
        bench.clock.sleep(GAUGES_EVERY_S)
        worker.turns(1)
    times = [point.at_ms for point in worker.board.history]
    assert len(times) == HISTORY
    assert times == sorted(set(times))


def test_a_status_that_was_read_never_changes() -> None:
    bench = Bench()
    worker = bench.worker().join()
    second(worker, bench)
    read, before = worker.board.status, msgspec.json.encode(worker.board.status)
    bench.feed(*"ab" * 10)
    bench.feed_bad(3)
    second(worker, bench)
    assert msgspec.json.encode(read) == before != msgspec.json.encode(worker.board.status)


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ([0, 0, 0], 0.5, None),
        ([4, 0, 0], 0.5, 0.5),
        ([2, 2, 0], 0.75, 1.5),
        ([0, 0, 7], 0.99, 2.0),
        ([1, 0, 1], 0.5, 1),
    ],
)
def test_a_quantile_is_that_of_prometheus(counts: list[int], q: float, expected: float | None) -> None:
    assert _quantile(q, np.array([1.0, 2.0]), np.array(counts)) == expected


def test_a_reporter_shows_a_worker_that_has_done_nothing() -> None:
    bench = Bench()
    board = Board()
    Reporter(board, bench.worker().metrics, bench.clock).refresh({}, [])
    assert board.status.at_ms == bench.clock.wall_ms()
    assert board.status.point == board.history[0]
    assert board.status.point.lag is None


def test_a_partition_whose_end_the_broker_has_not_told_yet_has_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(partitions=2)
    worker = bench.worker()
    high_watermark = worker.input.high_watermark
    monkeypatch.setattr(worker.input, "high_watermark", lambda number: high_watermark(number) if number else None)
    worker.join().turns(2)
    bench.feed("a", "b", partition=1)
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.input.batch_records = lambda: 1
    worker.turn()
    assert [each.lag for each in worker.board.status.partitions] == [None, 1]
    assert worker.board.status.point is not None
    assert worker.board.status.point.lag == 1


def test_a_checkpoint_of_a_machine_whose_clock_is_ahead_is_not_from_the_future() -> None:
    bench = Bench()
    worker = bench.worker().join().turns(2)
    worker.metrics.checkpoint_last_timestamp_seconds.set(bench.clock.wall_ms() / 1000 + 60, partition=0)
    worker.metrics.checkpoint_replay_cost_seconds.set(1.0, partition=0)
    board = Board()
    Reporter(board, worker.metrics, bench.clock).refresh(worker._worker._tasks, [])
    assert board.status.partitions[0].checkpoint_age_seconds == 0


def test_a_worker_whose_events_have_no_label_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """A label under a misspelt name is no error in any event."""
    bench = Bench()
    worker = bench.worker()
    reporter = Reporter(Board(), worker.metrics, bench.clock)
    worker.metrics.events_total.add(10 * NO_LABEL_AFTER)  # of which none was good

    def told() -> int:
        reporter.refresh({}, [])
        return caplog.text.count("had a label")

    worker.metrics.predictions_total.add(NO_LABEL_AFTER - 1)
    assert told() == 0
    worker.metrics.predictions_total.add(1)
    assert (told(), told()) == (1, 1)


def test_a_worker_that_learned_and_gave_its_partitions_up_says_nothing_of_labels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one that works a topic off and ends at once: by then its models are gone."""
    bench = Bench()
    worker = bench.worker()
    worker.metrics.predictions_total.add(10 * NO_LABEL_AFTER)
    worker.metrics.learned_samples_total.add(1)
    Reporter(Board(), worker.metrics, bench.clock).refresh({}, [])
    assert "had a label" not in caplog.text


def test_a_worker_whose_models_have_learned_before_says_nothing_of_labels(caplog: pytest.LogCaptureFixture) -> None:
    """They came late before, and do so again."""
    bench = Bench()
    bench.feed(*"abab")
    bench.worker("one").join().turns(2).close()
    worker = bench.worker("two").join().turns(1)
    worker.metrics.predictions_total.add(10 * NO_LABEL_AFTER)
    bench.clock.now_s += 2 * GAUGES_EVERY_S
    worker.turns(1)
    assert worker.board.status.leaders
    assert "had a label" not in caplog.text


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_dead_letters_are_shown_once_they_are_committed() -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed("a")
    bench.feed_bad(1)
    worker.faults.at("commit", Abort("x"))
    worker.turns(1)
    assert list(worker.board.dead_letters) == []
    worker.turns(2)
    [letter] = worker.board.dead_letters
    assert (letter.offset, letter.code) == (1, "malformed-json")


def test_what_the_broker_refuses_is_shown_as_the_dead_letter_that_it_becomes() -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed("a", "b")
    worker.faults.at("produce", Refused("too large"), Refused("too large"))
    worker.turns(4)
    [letter] = worker.board.dead_letters
    assert (letter.offset, letter.key, letter.code) == (0, "k", "unpublishable")


def test_a_dead_letter_tells_where_and_why_and_nothing_of_the_value() -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed("a", "b")
    bench.broker.logs[0].append(b"secret-\xff" * 40, b'{"features": {"card": "4711"}, "label": [')
    second(worker, bench)
    [letter] = worker.board.status.dead_letters
    assert (letter.partition, letter.offset, letter.code) == (0, 2, "invalid-key")
    assert letter.key is not None
    assert letter.key.startswith("secret-\\xffsecret-")
    assert len(letter.key) == 60
    assert "4711" not in str(letter)


def test_the_last_dead_letters_are_kept_newest_first() -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed_bad(RECENT_DEAD_LETTERS)
    bench.feed("a")
    bench.feed_bad(7)
    second(worker, bench)
    offsets = [letter.offset for letter in worker.board.status.dead_letters]
    assert offsets[:8] == [57, 56, 55, 54, 53, 52, 51, 49]
    assert len(offsets) == RECENT_DEAD_LETTERS


def test_reasons_and_keys_are_cut_and_can_be_written() -> None:
    letter = DeadLetter.of(0, "events", 0, 0, None, "wrong-type", "\ud800" + "x" * 1000)
    assert letter.key is None
    assert letter.reason.startswith("\\ud800xxx")
    assert len(letter.reason) == 300
    assert short("abc", 3) == "abc"
    assert short("abcd", 3) == "ab…"
