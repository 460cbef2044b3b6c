"""Where a partition starts when the topic or the configuration is not what its checkpoints know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import amf
from tests.worker.support.bench import Bench, Bound
from tests.worker.support.fake_broker import Log
from tests.worker.support.fakes import FakeSpill
from tests.worker.support.manifests import forge, put_together, taken_apart
from worker.adapters.store import open_store
from worker.base.errors import Abort, Transient, WorkerError
from worker.base.records import Bounds
from worker.checkpoint import Checkpoints, Location
from worker.checkpoint.siblings import of_another_topic
from worker.config import Config
from worker.task.restorer import RETRY_S


def of_input(config: Config, **changes: Any) -> Config:
    return replace(config, input=replace(config.input, **changes))


def saved_bench(partitions: int = 1, **settings: Any) -> Bench:
    """Five records of each partition were taken, and all is saved."""
    bench = Bench(partitions, interval_s=60.0, **settings)
    for number in range(partitions):
        bench.feed(*"ababa", partition=number)
    bench.worker().join().turns(2).close()
    return bench


def bench_with_gap() -> Bench:
    """Three more have come, and two of them are lost, which is accepted."""
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    return bench


def add_partitions(bench: Bench, count: int) -> None:
    for _ in range(len(bench.broker.logs), count):
        bench.broker.add_partition()
    bench.setting = replace(bench.setting, partitions=count)


def learned(bench: Bench, partition: int = 0) -> list[int]:
    return [msgspec.json.decode(each.value or b"")["learned"] for each in bench.published(partition)]


def lineages(bench: Bench) -> list[str]:
    return [(dict(each.headers)["lineage"] or b"").decode() for each in bench.published()]


def after_gap(bench: Bench, offset: int) -> Checkpoints:
    return Checkpoints(bench.store, Location("group", f"main~p0@{offset}", "events", "topic-id", 0))


def begun_after_gap(bench: Bench, offset: int) -> list[tuple[int, int]]:
    """Revision and number of models of each checkpoint with which a lineage began behind a gap."""
    start = f"{after_gap(bench, offset).location.prefix}/{offset:020d}"
    names = [name for name in bench.store.objects if name.startswith(start) and name.endswith("manifest")]
    found = [taken_apart(bench.store.objects[name]) for name in names]
    return sorted((header["revision"], len(entries)) for header, entries in found)


def run_into_stop(worker: Bound, turns: int = 2) -> dict[str, float]:
    """It joins, its only partitions stop, and so does the worker; returns the codes."""
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.join().turns(turns)
    worker.kill()
    return worker.stops()


# Another topic of the same name


@pytest.mark.parametrize("offsets_remain", [False, True])
def test_a_topic_made_anew_is_told_with_both_ids(offsets_remain: bool, caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench()
    bench.setting = replace(bench.setting, topic_id="another-id")
    if not offsets_remain:
        bench.broker.committed.clear()
    assert run_into_stop(bench.worker("two")) == {"topic-recreated": 1}
    assert "has the id another-id, its models were learned from one with the id topic-id" in caplog.text


def test_a_topic_whose_name_begins_alike_is_another_one() -> None:
    bench = saved_bench()
    there = {name: data for name, data in bench.store.objects.items()}
    bench.store.objects.clear()
    for name, data in there.items():
        bench.store.objects[name.replace("events-topic-id", "events-topic-id-2")] = data
    bench.broker.committed.clear()
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {}
    assert learned(bench) == [*range(5), *range(5)]


# Partitions are added


def test_after_partitions_were_added_nobody_starts(caplog: pytest.LogCaptureFixture) -> None:
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


# A group that is before its checkpoints


def test_a_group_that_lost_commits_stops_instead_of_publishing_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench(2)
    bench.broker.committed[0] = 4
    bench.feed("a")
    bench.feed("a", partition=1)
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {"group-rewound": 1}
    assert "events[0]: the group is at offset 4, but has been at 5" in caplog.text
    assert (learned(bench, 0), learned(bench, 1)) == ([*range(5)], [*range(6)])
    worker.close()
    # The broker has found its commits again, or somebody has set them forward.
    bench.broker.committed[0] = 5
    assert bench.worker("three").join().turns(2).stops() == {}
    assert learned(bench, 0) == [*range(6)]


@pytest.mark.parametrize("at_least_once", [False, True])
def test_a_group_may_be_set_back_where_repetition_is_accepted(at_least_once: bool) -> None:
    bench = saved_bench()
    if at_least_once:
        bench.config = replace(bench.config, delivery="at-least-once")
    else:
        bench.config = of_input(bench.config, on_rewind="accept")
    bench.broker.committed[0] = 3
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {}
    assert learned(bench) == [*range(5), 3, 4]
    again = bench.published()
    assert again[3:5] == again[5:]


# Records that are gone


def test_a_gap_that_is_accepted_begins_a_lineage_of_its_own() -> None:
    bench = bench_with_gap()
    worker = bench.worker("two").join()
    worker.turns(2)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")
    # The models of the checkpoint, and nothing of the two records in between.
    assert learned(bench) == [*range(5), 5]
    assert lineages(bench) == ["main"] * 5 + ["main~p0@7"]
    worker.close()
    manifest = after_gap(bench, 7).newest()
    assert manifest is not None
    assert (manifest.offset, manifest.start_offset) == (8, 7)
    assert "gap after offset 5 of lineage main" in (manifest.origin or "")
    assert bench.newest().offset == 5


def test_models_that_only_the_checkpoint_has_come_through_a_gap() -> None:
    bench = saved_bench(cache_bytes=1)
    bench.setting = replace(bench.setting, spill=FakeSpill(room=0))
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {}
    assert learned(bench) == [*range(5), 5]
    manifest = after_gap(bench, 7).newest()
    assert manifest is not None
    assert manifest.models.keys() == {"k"}


def test_the_lineage_after_a_gap_is_found_again() -> None:
    bench = bench_with_gap()
    bench.worker("two").join().turns(2).kill()
    # Accepted once is enough.
    bench.config = of_input(bench.config, on_gap="fail")
    bench.feed("a")
    worker = bench.worker("three").join().turns(3)
    assert (worker.stops(), worker.replayed()) == ({}, 1)
    assert learned(bench)[5:] == [5, 6]
    assert lineages(bench)[5:] == ["main~p0@7"] * 2


def test_a_gap_may_be_accepted_again_before_anything_is_committed_behind_it() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"ba")
    bench.broker.logs[0].low = 7
    for name in ("two", "three"):
        worker = bench.worker(name)
        worker.faults.at("offsets", *[Abort("not now")] * 9)
        worker.join().turns(2)
        assert (worker.stops(), bench.broker.committed[0]) == ({}, 5)
        worker.kill()
    assert after_gap(bench, 7).offsets() == [7]
    # Meanwhile more is lost, and then something comes.
    bench.feed(*"ab")
    bench.broker.logs[0].low = 8
    worker = bench.worker("four").join().turns(2)
    assert worker.stops() == {}
    assert learned(bench, 0) == [*range(5), 5]
    assert lineages(bench)[-1] == "main~p0@8"
    worker.close()
    # What is committed behind a gap is known, as anywhere else.
    bench.broker.committed[0] = 8
    assert bench.worker("five").join().turns(2).stops() == {"group-rewound": 1}


def test_of_two_who_come_through_a_gap_the_one_that_commits_counts() -> None:
    """They begin at the same offset with other models, for the checkpoint that the first one had is damaged by then."""
    bench = bench_with_gap()
    two = bench.worker("two")
    two.faults.at("offsets", *[Abort("not now")] * 9)
    two.join().turns(2).kill()
    bench.damage("segment", newest=1)
    three = bench.worker("three").join().turns(2)
    assert begun_after_gap(bench, 7) == [(0, 1), (1, 0)]
    three.kill()
    bench.feed("a")
    four = bench.worker("four").join().turns(3)
    assert (three.stops(), four.stops(), learned(bench)[5:]) == ({}, {}, [0, 1])


def test_who_comes_through_a_gap_in_the_same_way_makes_no_other_state() -> None:
    bench = bench_with_gap()
    for name in ("two", "three"):
        worker = bench.worker(name)
        worker.faults.at("offsets", *[Abort("not now")] * 9)
        worker.join().turns(2).kill()
    assert begun_after_gap(bench, 7) == [(0, 1), (0, 1)]


def test_an_epoch_says_nothing_of_the_record_before_an_offset_behind_a_gap() -> None:
    """It is that of the last record that was predicted, and another one has led the partition since."""
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.broker.logs[0].elect()
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    worker = bench.worker("two").join().turns(3)
    assert (worker.stops(), learned(bench)[5:]) == ({}, [5])


def test_a_gap_that_is_accepted_is_committed_though_no_record_is_behind_it() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.broker.logs[0].append(b"k", b"{}", gap=2)
    bench.broker.logs[0].low = 8
    bench.worker("two").join().turns(2)
    assert bench.broker.committed[0] == 8


def test_there_may_be_a_gap_after_a_gap() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    for low in (7, 10):
        bench.feed(*"bab")
        bench.broker.logs[0].low = low
        bench.worker(f"until {low}").join().turns(2).close()
    assert lineages(bench)[5:] == ["main~p0@7", "main~p0@10"]
    assert learned(bench)[5:] == [5, 6]
    bench.broker.committed.clear()
    bench.feed("a")
    bench.worker("last").join().turns(2)
    assert lineages(bench)[-1] == "main~p0@10"
    assert learned(bench)[-1] == 7


def test_a_gap_is_accepted_for_its_partition_alone() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.feed("a", partition=1)
    bench.broker.logs[0].low = 7
    bench.worker("two").join().turns(2)
    assert sorted(set(lineages(bench))) == ["main", "main~p0@7"]
    assert dict(bench.published(1)[-1].headers)["lineage"] == b"main"


def test_a_group_that_is_set_back_before_a_gap_goes_the_same_way() -> None:
    bench = bench_with_gap()
    bench.worker("two").join().turns(2).close()
    bench.broker.committed[0] = 6
    bench.config = of_input(bench.config, on_rewind="accept")
    bench.worker("three").join().turns(2)
    first, again = bench.published()[-2:]
    assert first == again


def test_a_damaged_checkpoint_may_lead_to_a_gap_too() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.worker("two").join().turns(2).close()
    bench.damage("segment")
    bench.broker.logs[0].low = 7
    bench.feed("a")
    bench.worker("three").join().turns(3)
    # One of the three was left to be replayed.
    assert learned(bench) == [*range(8), 6]
    assert lineages(bench)[-1] == "main~p0@7"


@pytest.mark.parametrize("point", ["store create", "store list", "store read"])
def test_a_store_that_does_not_answer_at_a_gap_is_waited_for(point: str) -> None:
    bench = bench_with_gap()
    for skipped in range(6):
        world = Bench(interval_s=60.0)
        world.config, world.broker, world.clock = bench.config, bench.broker, bench.clock
        world.store.objects = dict(bench.store.objects)
        worker = world.worker(f"two.{skipped}")
        worker.faults.at(point, *[None] * skipped, Transient("x"), Transient("x"))
        worker.join()
        for _ in range(3):
            bench.clock.now_s += RETRY_S
            worker.turn()
        assert bench.published()[-1] == bench.published()[5]
        worker.kill()
        bench.broker.committed[0] = 5


# Records that vanish while they are read


def test_records_that_vanish_in_a_replay_may_be_given_up() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"abab")
    bench.worker("one").join().turns(2).kill()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed("a")
    two = bench.worker("two").join()
    two.input.batch_records = lambda: 1
    two.turns(2)
    bench.broker.logs[0].low = 3
    two.turns(5)
    # What had been replayed by then is not lost with the one record that is.
    assert (two.stops(), two.replayed()) == ({}, 3)
    assert learned(bench) == [0, 1, 2, 3, 3]
    assert lineages(bench) == ["main"] * 4 + ["main~p0@3"]


def test_what_is_in_hand_when_the_next_records_vanish_is_still_taken() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"babab")
    two = bench.worker("two").join()
    two.input.batch_records = lambda: 2
    two.faults.at("commit", Abort("x"), Abort("x"))
    two.turn()
    bench.broker.logs[0].low = 9
    two.turns(6)
    assert [dict(each.headers)["source-offset"] for each in bench.published()[5:]] == [b"5", b"6", b"9"]
    assert learned(bench)[5:] == [5, 6, 7]
    assert lineages(bench)[5:] == ["main", "main", "main~p0@9"]


def test_a_broker_that_does_not_say_where_the_records_begin_again_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    worker = bench.worker("two").join().turns(2)
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    worker.faults.at("bounds", Transient("no answer"), Transient("no answer"))
    worker.turns(2)
    assert [each.getMessage() for each in caplog.records if "trying again" in each.getMessage()] == [
        "partition 0: trying again: no answer"
    ] * 2
    worker.turns(3)
    assert (worker.stops(), learned(bench)[5:], lineages(bench)[5:]) == ({}, [5], ["main~p0@7"])


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_a_group_beyond_the_end_stops_instead_of_learning_what_it_never_predicts(
    saved: bool, on_gap: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"ababa")
    bench.feed("a", partition=1)
    one = bench.worker("one").join().turns(2)
    if saved:
        one.close()
    else:
        one.kill()
    # The broker has lost the last records, and others take their place.
    bench.config = of_input(bench.config, on_gap=on_gap)
    log = bench.broker.logs[0]
    log.records, log.high = log.records[:3], 3
    bench.feed("b")
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert "events[0]: the group is at offset 5, but the topic ends at 4" in caplog.text
    bench.feed(*"baba")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert (len(bench.published(0)), learned(bench, 1)) == (5, [0, 1])
    assert bench.broker.committed == {0: 5, 1: 2}


def test_a_group_that_was_set_behind_an_open_transaction_is_not_beyond_the_end() -> None:
    """What the transaction has written is in the log, and is replayed once it can be read."""
    bench = saved_bench()
    log = bench.broker.logs[0]
    readable = log.high
    bench.broker.committed[0] = readable + 2
    worker = bench.worker("two")
    worker.input.bounds = lambda _: Bounds(log.low, log.high, readable + 2)  # type: ignore[method-assign]
    worker.join().turns(3)
    assert worker.stops() == {}
    n_published = len(bench.published())
    bench.feed(*"bab")
    worker.turns(3)
    assert [dict(each.headers)["source-offset"] for each in bench.published()[n_published:]] == [b"%d" % (readable + 2)]


def test_a_group_without_offsets_whose_checkpoint_is_beyond_the_end_stops_too() -> None:
    bench = saved_bench()
    bench.broker.committed.clear()
    log = bench.broker.logs[0]
    log.records, log.high = log.records[:3], 3
    assert run_into_stop(bench.worker("two")) == {"offset-out-of-range": 1}


def test_an_offset_beyond_the_end_is_no_gap() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept")
    worker = bench.worker("two").join().turns(1)
    consume = worker.input.consume
    worker.input.consume = lambda *wanted: (consume(*wanted)[0], {0: "out of range"})  # type: ignore[method-assign]
    worker.turn()
    assert worker.stops() == {"offset-out-of-range": 1}


# Another intake


def test_what_must_be_replayed_must_be_taken_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    former = bench.config
    bench.config = of_input(former, max_bytes=10, tombstones="reset")
    assert run_into_stop(bench.worker("two")) == {"intake-changed": 1}
    assert "3 records up to offset 3" in caplog.text
    assert "input.max_bytes was 1000000 and is 10, input.tombstones was dead-letter and is reset" in caplog.text
    # As the message says: once more with the former values.
    changed, bench.config = bench.config, former
    bench.worker("three").join().turns(2).close()
    bench.config = of_input(changed, max_bytes=1_000_000)
    bench.feed("b")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, [0, 1, 2, 3])


def test_what_must_be_replayed_must_be_learned_by_the_same_learner(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    engine = amf.ENGINE
    monkeypatch.setattr(amf, "ENGINE", "another")
    assert run_into_stop(bench.worker("two")) == {"engine-changed": 1}
    assert (
        f"3 records up to offset 3 must be replayed as they were learned, by {engine}, and this is another"
        in caplog.text
    )
    # As the message says: once more with the former version.
    monkeypatch.undo()
    bench.worker("three").join().turns(2).close()
    monkeypatch.setattr(amf, "ENGINE", "another")
    bench.feed("b")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, [0, 1, 2, 3])


def test_another_learner_is_on_record_before_anything_is_committed_under_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed before its first checkpoint it learns again what it has learned, and the former version must not."""
    bench = saved_bench()
    bench.feed("b")
    engine = amf.ENGINE
    monkeypatch.setattr(amf, "ENGINE", "another")
    worker = bench.worker("two").join().turns(2)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")
    manifest = bench.newest()
    assert (manifest.offset, manifest.engine, manifest.revision > 0) == (5, "another", True)
    worker.kill()
    monkeypatch.undo()
    assert run_into_stop(bench.worker("three")) == {"engine-changed": 1}
    assert f"1 records up to offset 6 must be replayed as they were learned, by another, and this is {engine}" in (
        caplog.text
    )
    monkeypatch.setattr(amf, "ENGINE", "another")
    bench.feed("a")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, list(range(7)))


def test_another_intake_is_on_record_before_anything_is_committed_under_it() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, tombstones="reset")
    bench.feed("b")
    worker = bench.worker("two").join().turns(2)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")
    manifest = bench.newest()
    assert (manifest.offset, manifest.revision > 0) == (5, True)
    assert (manifest.intake or {})["input.tombstones"] == "reset"
    worker.kill()
    # So that a replay of what came since knows what to compare with.
    bench.config = of_input(bench.config, tombstones="dead-letter")
    assert run_into_stop(bench.worker("three")) == {"intake-changed": 1}


def test_there_is_no_fallback_to_a_checkpoint_of_another_intake() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, tombstones="reset")
    bench.feed("b")
    bench.worker("two").join().turns(2).close()
    bench.damage("segment", newest=2)
    bench.feed("b")
    assert run_into_stop(bench.worker("three")) == {"corrupt-checkpoint": 1}


def test_checkpoints_that_do_not_know_are_believed() -> None:
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    forget_what_is_new(bench)
    bench.config = of_input(bench.config, max_bytes=999_999)
    add_partitions(bench, 3)
    worker = bench.worker("two").join().turns(3)
    assert (worker.stops(), worker.replayed()) == ({}, 3)


def forget_what_is_new(bench: Bench) -> None:
    """Turn every manifest into one of a version that knew neither partitions nor intake."""
    renamed: dict[str | None, str | None] = {None: None}
    for name in sorted(name for name in bench.store.objects if name.endswith("manifest")):
        header, entries = taken_apart(bench.store.objects.pop(name))
        del header["partitions"], header["intake"]
        header["base"] = renamed[header["base"]]
        folder, _, file = name.rpartition("/")
        forged = forge(bench.store, folder, header["offset"], put_together(header, entries))
        renamed[file] = forged.rpartition("/")[2]


@pytest.mark.parametrize("what", ["intake", "engine"])
def test_what_is_left_to_be_replayed_behind_a_gap_is_taken_as_it_was_predicted_or_not_at_all(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ababa")
    bench.worker("one").join().turns(2).close()
    bench.feed(*"babab")
    bench.worker("two").join().turns(2).kill()
    # The checkpoint is of 5, and 10 is committed: 5 and 6 are lost, 7 to 9 are to be replayed.
    bench.broker.logs[0].low = 7
    bench.config = of_input(bench.config, on_gap="accept")
    if what == "intake":
        bench.config = of_input(bench.config, tombstones="reset")
    else:
        monkeypatch.setattr(amf, "ENGINE", "another")
    assert run_into_stop(bench.worker("three")) == {f"{what}-changed": 1}


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
