"""A partition does not start where its topic is another one, or has more partitions, than its checkpoints know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.support.bench import Bench, add_partitions, learned, of_input, run_into_stop, saved_bench
from tests.worker.support.fake_broker import Log
from worker.adapters.store import open_store
from worker.checkpoint import Checkpoints, Location
from worker.checkpoint.siblings import of_another_topic

# Another topic of the same name


@pytest.mark.parametrize("offsets_remain", [False, True])
def test_a_topic_made_anew_stops_the_partition_with_both_ids(
    offsets_remain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = saved_bench()
    bench.setting = replace(bench.setting, topic_id="another-id")
    if not offsets_remain:
        bench.broker.committed.clear()
    assert run_into_stop(bench.worker("two")) == {"topic-recreated": 1}
    assert "has the id another-id, its models were learned from one with the id topic-id" in caplog.text


def test_a_topic_whose_name_begins_alike_is_another_one() -> None:
    other, bench = Bench(), Bench()
    other.config = of_input(other.config, topic="events-2")
    other.feed("a")
    other.worker().join().turns(2).close()
    bench.store = other.store
    bench.feed("a", "b")
    worker = bench.worker().join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, [0, 1])


def test_a_topic_whose_name_begins_with_a_dot_is_one_like_any_other(tmp_path: Path) -> None:
    bench = Bench()
    bench.config = of_input(bench.config, topic=".events")
    bench.store = open_store(f"file://{tmp_path}")
    bench.feed(*"ab")
    bench.worker("one").join().turns(2).close()
    bench.feed(*"ab")
    bench.worker("two").join().turns(2).close()
    assert learned(bench) == [0, 1, 2, 3]
    checkpoints = Checkpoints(bench.store, Location("group", "main", ".events", "topic-id", 0))
    assert max(checkpoints.offsets()) == 4
    again = Location("group", "main", ".events", "made-anew", 0)
    found = of_another_topic(bench.store, again)
    assert found is not None
    assert found.location == checkpoints.location


# Partitions are added


def test_after_partitions_were_added_no_partition_starts(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench(2)
    add_partitions(bench, 3)
    assert run_into_stop(bench.worker("two")) == {"partitions-added": 3}
    assert "topic events has 3 partitions, its models were learned with 2" in caplog.text
    assert "`amf-worker reshard CONFIG`" in caplog.text


def test_the_consumer_may_know_of_a_partition_first() -> None:
    bench = saved_bench(2)
    bench.broker.logs[2] = Log()
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {"partitions-added": 1}
    assert worker.input.paused == {2}


def test_a_partition_that_the_consumer_knows_first_is_on_record_in_its_checkpoints() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_repartition="new-models")
    bench.broker.add_partition()
    bench.feed("a", partition=2)
    bench.worker("two").join().turns(2).close()
    assert (bench.newest(2).offset, bench.newest(2).partitions) == (1, 3)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_models_of_added_partitions_may_start_anew(start: str) -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_repartition="new-models", start=start)
    add_partitions(bench, 3)
    bench.feed("a", "b", partition=2)
    bench.feed("a")
    worker = bench.worker("two").join().turns(3)
    assert worker.stops() == {}
    assert (learned(bench, 0), learned(bench, 2)) == ([*range(6)], [0, 1])
    # The one without a new record knows it too, so that the choice can be taken back.
    assert [bench.newest(number).partitions for number in range(3)][1] == 3
    worker.close()
    bench.config = of_input(bench.config, on_repartition="fail")
    assert bench.worker("three").join().turns(2).stops() == {}
