"""Where a partition starts: at a checkpoint, with a replay, from the beginning, or not at all."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench


def test_a_new_history_begins_with_an_empty_checkpoint() -> None:
    bench = Bench()
    bench.broker.logs[0].low = bench.broker.logs[0].high = 7
    bench.feed("a")
    bench.worker().join().turns(1)
    assert bench.checkpoints().offsets()[0] == 7
    assert bench.broker.committed == {0: 8}


def test_the_empty_checkpoint_is_there_before_the_first_commit() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.join().turns(1)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")


def test_a_history_may_begin_at_the_end() -> None:
    bench = Bench(start="latest")
    bench.feed("a", "b")
    worker = bench.worker().join().turns(1)
    bench.feed("a")
    worker.turns(2)
    assert [dict(each.headers)["source-offset"] for each in bench.published()] == [b"2"]
    bench.worker("two").join().turns(2)
    assert bench.newest().start_offset == 2


def test_where_the_group_lost_its_offsets_the_newest_checkpoint_counts() -> None:
    bench = Bench()
    bench.feed("a", "b", "a")
    bench.worker().join().turns(1).close()
    bench.broker.committed.clear()
    bench.feed("b")
    bench.worker().join().turns(2)
    assert bench.published() == bench.expected()


def test_a_restart_replays_what_the_checkpoint_does_not_have() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", "a")
    bench.worker().join().turns(2).kill()
    bench.feed("b", None)
    worker = bench.worker().join().turns(3)
    assert worker.replayed() == 3
    assert bench.published() == bench.expected()


def test_after_an_orderly_end_nothing_is_replayed() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", None)
    bench.worker().join().turns(2).close()
    bench.feed("b")
    worker = bench.worker().join().turns(2)
    assert worker.replayed() == 0
    assert bench.published() == bench.expected()


def test_the_first_record_at_or_after_the_committed_offset_ends_the_replay() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.worker().join().turns(2).kill()
    # As markers of transactions leave it, which are no records.
    bench.broker.committed[0] = bench.broker.logs[0].high = 4
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 1
    worker.turn()
    assert worker.state(0) == "replay"
    bench.broker.logs[0].append(b"k", b'{"features": [1], "label": "b"}', gap=1)
    worker.turn()
    bench.clock.now_s += 1
    worker.turn()
    assert worker.state(0) == "live"
    assert bench.published() == bench.expected()
    assert bench.broker.committed == {0: 6}


def test_a_damaged_checkpoint_is_passed_over_and_more_is_replayed() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for _ in range(3):
        bench.feed("a", "b")
        worker.turns(2)
    worker.kill()
    assert bench.checkpoints().offsets() == [0, 2, 4, 6]
    bench.damage("segment", newest=1)
    bench.damage("manifest", newest=2)
    bench.feed("a")
    worker = bench.worker().join().turns(4)
    assert worker.replayed() == 4
    assert worker.skipped() == 2
    assert bench.published() == bench.expected()


def test_damaged_models_of_a_good_manifest_lead_further_back_than_was_thought() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for _ in range(2):
        bench.feed("a", "b")
        worker.turns(2)
    worker.kill()
    bench.damage("segment")
    bench.feed("a")
    worker = bench.worker().join()
    assert worker.input.positions == {0: 2}
    worker.turns(3)
    assert worker.replayed() == 2
    assert worker.skipped() == 1
    assert bench.published() == bench.expected()


def test_checkpoints_that_share_what_is_damaged_are_counted_each() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for labels in (("a", "b"), (None, None)):
        bench.feed(*labels)
        worker.turns(2)
    worker.kill()
    assert bench.checkpoints().offsets() == [0, 2, 4]
    bench.damage("segment")
    worker = bench.worker().join().turns(2)
    assert (worker.skipped(), worker.replayed()) == (2, 4)


@pytest.mark.parametrize("kind", ["manifest", "segment"])
def test_without_any_whole_checkpoint_the_partition_stops(kind: str) -> None:
    bench = Bench(partitions=2, interval_s=0.001)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    bench.worker().join().turns(3).kill()
    # The empty checkpoint at the start has no segment: without its manifest nothing is left but damage.
    bench.damage(kind, newest=9)
    if kind == "segment":
        first = min(name for name in bench.store.objects if name.endswith("manifest"))
        del bench.store.objects[first]
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(3)
    assert worker.stops() == {"corrupt-checkpoint": 1}
    assert bench.broker.committed == {0: 2, 1: 2}
    assert worker.input.paused == {0}


def test_a_partition_whose_group_is_ahead_of_all_checkpoints_stops() -> None:
    bench = Bench(partitions=2)
    bench.broker.committed[0] = 5
    worker = bench.worker().join().turns(1)
    assert worker.stops() == {"no-checkpoint": 1}


def test_a_retention_gap_stops_the_partition_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", "b", "a", "b")
    bench.worker().join().turns(2).kill()
    bench.broker.logs[0].low = 3
    worker = bench.worker().join().turns(2)
    assert worker.stops() == {"retention-gap": 1}
    assert "the checkpoint is at offset 0, the group at 4, but the topic begins at 3: 3 records" in caplog.text


def test_records_that_vanish_while_they_are_replayed_stop_the_partition() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", "b", "a", "b")
    bench.worker().join().turns(2).kill()
    worker = bench.worker().join()
    worker.input.batch_records = lambda: 1
    worker.turns(2)
    bench.broker.logs[0].low = 3
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
