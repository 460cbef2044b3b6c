"""The end of a partition's log is lost, and other records come in its place: they must not pass for predicted ones."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, Bound, run_into_stop, saved_bench
from worker.base.errors import WorkerError
from worker.base.records import CommittedOffset, Membership, Outgoing, Record
from worker.commit.pending import Pending

STOPPED = {"offset-out-of-range": 1}


def unsaved_bench() -> Bench:
    """Five records were predicted, of which the last three are to be replayed."""
    bench = Bench(interval_s=60.0)
    bench.feed(*"ab")
    bench.worker().join().turns(2).close()
    bench.feed(*"aba")
    bench.worker().join().turns(2).kill()
    assert (bench.newest().offset, bench.broker.committed) == (2, {0: 5})
    return bench


def test_who_replays_stops_before_a_record_that_came_in_place_of_one_that_was_predicted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = unsaved_bench()
    bench.broker.logs[0].truncate(3)
    bench.feed(*"bbbbb")
    assert run_into_stop(bench.worker("two")) == STOPPED
    assert "offset 3 was written in leader epoch 1, but what was predicted" in caplog.text
    assert "up to the group's offset 5, ends with epoch 0" in caplog.text
    assert (bench.newest().offset, len(bench.published())) == (2, 5)


def test_what_was_said_of_the_end_of_a_log_does_not_count_once_there_is_more_of_it() -> None:
    """A replica that has just taken over may be behind, and who it is that answers is not known."""
    bench = unsaved_bench()
    log = bench.broker.logs[0]
    worker = bench.worker("two")
    worker.input.batch_records = lambda: 1
    worker.join().askers.is_done_within = lambda seconds: False
    log.high = 3
    worker.turns(2)
    [asked] = worker.askers.jobs
    asked.run()
    log.high = 4
    worker.turns(2)
    log.high = 5
    worker.askers.is_done_within = lambda seconds: True
    worker.turns(3)
    assert (worker.stops(), worker.replayed()) == ({}, 3)


@pytest.mark.parametrize("epoch", [None, 0])
def test_the_epoch_of_an_offset_that_somebody_has_set_proves_nothing(epoch: int | None) -> None:
    # There are clients that leave the epoch of the commit before.
    bench = unsaved_bench()
    bench.broker.logs[0].elect()
    bench.feed(*"ab")
    bench.broker.set_offsets({0: 7})
    if epoch is not None:
        bench.broker.leader_epochs[0] = epoch
    worker = bench.worker("two").join().turns(4)
    assert (worker.stops(), worker.replayed()) == ({}, 5)


def test_records_before_them_are_replayed_first() -> None:
    bench = unsaved_bench()
    bench.broker.logs[0].truncate(4)
    bench.feed(*"bbbbb")
    worker = bench.worker("two")
    worker.input.batch_records = lambda: 1
    assert run_into_stop(worker, turns=9) == STOPPED
    assert (worker.replayed(), bench.newest().offset, len(bench.published())) == (2, 4, 5)


@pytest.mark.parametrize("lost_from", [1, 3])
def test_who_has_nothing_to_replay_stops_too(lost_from: int, caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench()
    bench.broker.logs[0].truncate(lost_from)
    bench.feed(*"bbbbbbbbb")
    assert run_into_stop(bench.worker("two"), turns=3) == STOPPED
    assert "Delete the checkpoints beyond that offset and set the group to it" in caplog.text
    assert (bench.newest().offset, len(bench.published())) == (5, 5)


def test_what_comes_behind_the_committed_offset_alone_hides_no_loss() -> None:
    bench = unsaved_bench()
    log = bench.broker.logs[0]
    log.truncate(2)
    # What has the offsets of the lost records are markers of transactions.
    log.append(b"k", b'{"features": [1.0], "label": "b"}', gap=4)
    assert run_into_stop(bench.worker("two"), turns=4) == STOPPED
    assert (bench.newest().offset, len(bench.published())) == (2, 5)


def test_an_end_before_the_committed_offset_is_seen_while_records_are_replayed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = unsaved_bench()
    worker = bench.worker("two")
    worker.input.batch_records = lambda: 1
    worker.join().turns(2)
    bench.broker.logs[0].truncate(4)
    # A position that no record was read before has no epoch that could tell.
    worker.input.batch_records = lambda: 10
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.turns(5)
    assert worker.stops() == STOPPED
    assert "events[0]: the group is at offset 5, but the topic ends at 4" in caplog.text


def test_an_end_that_a_new_leader_is_yet_to_learn_of_stops_nobody() -> None:
    bench = unsaved_bench()
    worker = bench.worker("two")
    worker.input.batch_records = lambda: 0
    worker.join().turns(2)
    worker.input._ends[0] = 2
    worker.turns(2)
    assert worker.faults.seen.count("bounds") > 1
    worker.input.batch_records = lambda: 10
    worker.turns(2)
    bench.feed("a")
    worker.turns(2)
    assert (worker.stops(), bench.published()) == ({}, bench.expected())


@pytest.mark.parametrize("saved", [True, False])
def test_leaders_that_are_elected_in_order_stop_nobody(saved: bool) -> None:
    bench = saved_bench() if saved else unsaved_bench()
    log = bench.broker.logs[0]
    for _ in range(3):
        log.elect()
        bench.feed("a", "b")
        worker = bench.worker("two").join().turns(4)
        assert (worker.stops(), bench.published()) == ({}, bench.expected())
        assert bench.broker.leader_epochs == {0: log.epochs[-1][0]}
        if saved:
            worker.close()
        else:
            worker.kill()
        bench.clock.now_s += 60


def test_markers_up_to_the_committed_offset_stop_nobody() -> None:
    bench = unsaved_bench()
    log = bench.broker.logs[0]
    # The last record was compacted away, after a leader had been elected in order.
    log.elect()
    bench.feed("a")
    del log.records[4]
    worker = bench.worker("two").join().turns(4)
    assert (worker.stops(), len(bench.published()), bench.broker.committed) == ({}, 6, {0: 6})


def test_a_commit_without_a_record_has_the_epoch_of_the_last_one_that_was_predicted() -> None:
    bench = saved_bench()
    log = bench.broker.logs[0]
    bench.feed("a")
    log.elect()
    bench.feed("b")
    worker = bench.worker("two").join().turns(2)
    worker.kill()
    assert (bench.newest().offset, bench.broker.committed, bench.broker.leader_epochs) == (5, {0: 7}, {0: 1})
    # The last record was compacted away; those who replay see that by what comes behind it.
    del log.records[6]
    bench.feed("a")
    anew = bench.worker("three", on_spec_change="restart", n_estimators=3, interval_s=60.0)
    anew.input.batch_records = lambda: 3 if bench.newest().offset < 7 else 0
    anew.join().turns(6)
    assert (bench.newest().offset, bench.broker.committed, bench.broker.leader_epochs) == (7, {0: 7}, {0: 1})


def test_an_offset_that_somebody_has_set_says_nothing_of_what_is_before_it() -> None:
    bench = unsaved_bench()
    bench.broker.logs[0].truncate(3)
    bench.feed(*"bbbbb")
    bench.broker.set_offsets({0: 5})
    worker = bench.worker("two").join().turns(4)
    assert (worker.stops(), worker.replayed(), bench.broker.leader_epochs) == ({}, 3, {0: 1})


def test_with_a_part_of_the_outputs_the_epoch_of_its_last_record_is_committed() -> None:
    records = [Record(n, 0, None, None, [], leader_epoch=n // 2) for n in range(4)]
    outputs = [Outgoing("out", None, b"", [], 0)] * 4
    pending = Pending(Membership("id", None), lambda *_: None)
    pending.add(0, records, outputs, CommittedOffset(4, "there", 1))
    pending.most = 1
    pending.cut()
    assert pending.part_offsets() == {0: CommittedOffset(1, "there", 0)}
    pending.most = 4
    pending.cut()
    assert pending.part_offsets() == {0: CommittedOffset(4, "there", 1)}


def test_an_error_names_the_partition_and_what_the_client_says(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench()
    worker: Bound = bench.worker("two").join().turns(2)
    bench.broker.logs[0].truncate(3)
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.turns(3)
    assert "events[0]: offset out of range" in caplog.text
