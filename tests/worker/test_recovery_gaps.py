"""Records that are gone: the partition stops, or goes on under a lineage of its own where that is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.worker.support.bench import Bench, Bound, after_gap, learned, lineages, of_input, saved_bench
from tests.worker.support.fakes import FakeSpill
from tests.worker.support.manifests import taken_apart
from worker.base.errors import Abort, Transient
from worker.task.restorer import RETRY_S


def bench_with_gap() -> Bench:
    """Of three records that came after the checkpoint two are lost, which is accepted."""
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    return bench


def begun_after_gap(bench: Bench) -> list[tuple[int, int]]:
    """Revision and number of models of each checkpoint with which the lineage began behind the gap."""
    start = f"{after_gap(bench, 7).location.prefix}/{7:020d}"
    names = [name for name in bench.store.objects if name.startswith(start) and name.endswith("manifest")]
    found = [taken_apart(bench.store.objects[name]) for name in names]
    return sorted((header["revision"], len(entries)) for header, entries in found)


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
        worker = bench.worker(name).cannot_commit().join().turns(2)
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


def begin_uncommitted(bench: Bench) -> None:
    """Somebody comes through the gap, and is put out of the group before that is committed."""
    bench.worker("two").cannot_commit().join().turns(2).kill()


def test_of_two_who_come_through_a_gap_the_one_that_commits_counts() -> None:
    """They begin at the same offset with other models, for the checkpoint that the first one had is damaged by then."""
    bench = bench_with_gap()
    begin_uncommitted(bench)
    bench.damage("segment", newest=1)
    three = bench.worker("three").join().turns(2)
    (first, n_first), (last, n_last) = begun_after_gap(bench)
    assert first < last
    assert (n_first, n_last) == (1, 0)
    three.kill()
    bench.feed("a")
    four = bench.worker("four").join().turns(3)
    assert (three.stops(), four.stops(), learned(bench)[5:]) == ({}, {}, [0, 1])


@pytest.mark.parametrize("low", [7, 8])
@pytest.mark.parametrize("stands", ["at an offset that somebody has set", "nowhere, its offsets are deleted"])
def test_a_gap_that_nobody_has_committed_counts_for_less_than_what_was_saved_behind_it(stands: str, low: int) -> None:
    """Who found it was put out of the group; what is said of the history without a gap is gone with the pointer."""
    bench = bench_with_gap()
    bench.broker.logs[0].low = low
    begin_uncommitted(bench)
    assert after_gap(bench, low).offsets() == [low]
    # Who had the records in memory goes on, and saves.
    bench.broker.logs[0].low = 0
    bench.config = of_input(bench.config, on_gap="fail")
    [gap] = [name for name in bench.store.objects if "/gaps/" in name]
    hidden = bench.store.objects.pop(gap)
    bench.worker("three").join().turns(2).close()
    bench.store.objects[gap] = hidden
    bench.broker.logs[0].low = low
    bench.feed("a")
    if stands.startswith("at"):
        bench.broker.set_offsets({0: 8})
    else:
        bench.broker.expire_offsets()
    worker = bench.worker("four").join().turns(3)
    assert worker.stops() == {}
    assert learned(bench) == [*range(9)]
    assert set(lineages(bench)) == {"main"}


def test_a_gap_that_was_committed_counts_though_more_was_saved_without_it() -> None:
    """The group was set back, and has gone on without the lost records."""
    bench = bench_with_gap()
    bench.broker.logs[0].low = 0
    bench.worker("two").join().turns(2).close()
    bench.broker.set_offsets({0: 5})
    bench.broker.logs[0].low = 7
    bench.config = of_input(bench.config, on_rewind="accept")
    bench.worker("three").join().turns(2).kill()
    assert (bench.newest().offset, after_gap(bench, 7).offsets(), bench.broker.committed[0]) == (8, [7], 8)
    bench.feed("a")
    bench.worker("four").join().turns(3)
    assert (lineages(bench)[-1], learned(bench)[-2:]) == ("main~p0@7", [5, 6])


@pytest.mark.parametrize("n_damaged", [0, 9])
def test_a_gap_that_nobody_has_committed_is_taken_where_nothing_is_to_be_had_from_behind_it(n_damaged: int) -> None:
    bench = bench_with_gap()
    begin_uncommitted(bench)
    bench.config = of_input(bench.config, on_gap="fail")
    if n_damaged:
        bench.damage("manifest", newest=n_damaged)
    bench.broker.set_offsets({0: 7})
    worker = bench.worker("three").join().turns(2)
    assert (worker.stops(), lineages(bench)[5:]) == ({}, ["main~p0@7"])


def test_a_damaged_checkpoint_of_a_gap_that_nobody_has_committed_does_not_say_that_the_group_was_there() -> None:
    bench = bench_with_gap()
    begin_uncommitted(bench)
    [name] = [f"{after_gap(bench, 7).location.prefix}/{each}" for each in after_gap(bench, 7)._manifests()]
    bench.store.objects[name] = b"?"
    bench.feed("a")
    bench.broker.logs[0].low = 8
    worker = bench.worker("three").join().turns(2)
    assert (worker.stops(), lineages(bench)[5:]) == ({}, ["main~p0@8"])


def test_who_comes_through_a_gap_in_the_same_way_makes_no_other_state() -> None:
    bench = bench_with_gap()
    for name in ("two", "three"):
        bench.worker(name).cannot_commit().join().turns(2).kill()
    one, other = begun_after_gap(bench)
    assert one == other


def bench_that_replays_behind_a_gap() -> Bench:
    """Of five records that were predicted after the checkpoint two are lost, which is accepted; one came since."""
    bench = saved_bench()
    bench.feed(*"babab")
    bench.worker("before").join().turns(2).kill()
    bench.feed("a")
    bench.config = of_input(bench.config, on_gap="accept")
    bench.broker.logs[0].low = 7
    return bench


def replays_one(worker: Bound) -> Bound:
    """It takes one of the records that are to be replayed, and saves that."""
    worker.input.batch_records = lambda: 1
    worker.turns(1)
    worker.bench.clock.now_s += 60.0
    worker.input.batch_records = lambda: 0
    return worker.turns(2)


def goes_on_behind_the_gap(bench: Bench) -> None:
    """What was learned before the gap, and what was replayed behind it, is in the models."""
    bench.feed("b")
    worker = bench.worker("last").join().turns(3)
    assert (worker.stops(), learned(bench)[10:]) == ({}, [8, 9])


def test_who_comes_through_a_gap_as_somebody_before_does_not_take_what_a_third_one_has_replayed() -> None:
    bench = bench_that_replays_behind_a_gap()
    whole = dict(bench.store.objects)
    bench.damage("segment")
    replays_one(bench.worker("of what is damaged").join()).kill()
    assert after_gap(bench, 7).offsets() == [7, 8]
    bench.store.objects |= whole
    bench.worker("nobody").join().kill()
    bench.worker("as nobody").join().turns(3).kill()
    assert (len(begun_after_gap(bench)), len(bench.published())) == (3, 11)
    goes_on_behind_the_gap(bench)


def test_of_two_who_come_through_a_gap_at_once_each_takes_its_own() -> None:
    """Neither sees what the other one begins with."""
    bench = bench_that_replays_behind_a_gap()
    whole = dict(bench.store.objects)
    bench.damage("segment")
    one, two = bench.worker("of what is damaged"), bench.worker("two")

    def meanwhile() -> None:
        one.input.expire()
        bench.store.objects |= whole
        two.join().turns(3).kill()

    one.faults.at("store create", meanwhile)
    replays_one(one.join())
    assert after_gap(bench, 7).offsets() == [7, 8]
    goes_on_behind_the_gap(bench)


def test_a_damaged_file_that_names_a_gap_ends_no_worker() -> None:
    """Before anything is committed behind it the gap is accepted once more."""
    bench = bench_with_gap()
    begin_uncommitted(bench)
    bench.damage("gaps/00000000000000000007")
    three = bench.worker("three").join().turns(2)
    assert (three.stops(), learned(bench)) == ({}, [*range(6)])


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
    assert learned(bench)[5:] == [5, 6, 7], "it goes on behind the last gap, and predicts nothing twice"


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
        assert worker.held()[2] == 1, "models that were read in vain are still there"
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
