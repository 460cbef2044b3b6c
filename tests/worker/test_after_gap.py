"""After an accepted gap a partition has a lineage of its own: tools, siblings and warm starts find it there."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, add_partitions, learned, lineages, of_input, saved_bench
from tests.worker.support.checkpoints import HERE, write
from tests.worker.support.stores import DictStore
from worker.base.ports import TopicState
from worker.checkpoint import Checkpoints, History, Location, history
from worker.checkpoint.gaps import after_gap, before_gap, record_gap
from worker.checkpoint.siblings import of_any_partition
from worker.cli.drained import require_drained
from worker.cli.reshard import reshard
from worker.preflight import known_partitions, of_checkpoints
from worker.task.warm_start import WarmStart

FOLDER = History("group", "main", "events", "topic-id").topic_prefix


@pytest.fixture
def bench() -> Bench:
    """Two partitions, of which the first went on after a gap; all is saved."""
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept")
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    bench.worker("two").join().turns(2).close()
    assert lineages(bench)[-1] == "main~p0@7"
    return bench


def places(bench: Bench, under: str = "") -> list[tuple[int, str, int]]:
    found = history(bench.store, under)
    return [(each.location.partition, each.location.lineage, each.offset) for each in found]


@pytest.mark.parametrize("under", ["", FOLDER])
def test_its_newest_checkpoint_is_the_one_after_the_gap(bench: Bench, under: str) -> None:
    assert places(bench, under) == [(0, "main~p0@7", 8), (1, "main", 5)]


@pytest.mark.parametrize("under", ["", FOLDER])
def test_of_several_gaps_the_last_one_counts(bench: Bench, under: str) -> None:
    bench.feed(*"ab")
    bench.broker.logs[0].low = 9
    bench.worker("three").join().turns(2).close()
    assert places(bench, under) == [(0, "main~p0@9", 10), (1, "main", 5)]


@pytest.mark.parametrize("under", ["", FOLDER])
def test_a_gap_that_nobody_has_committed_counts_for_less_than_what_was_saved_behind_it(under: str) -> None:
    """As it does for a worker: who found it was put out of the group, and the owner had the records in memory."""
    bench = saved_bench(2)
    bench.feed(*"bab")
    found = Bench(2)
    found.store, found.broker, found.clock = bench.store, bench.broker, bench.clock
    found.config = of_input(bench.config, on_gap="accept")
    bench.broker.logs[0].low = 6
    found.worker("former").cannot_commit().join().turns(2).kill()
    assert places(bench, under) == [(0, "main~p0@6", 6), (1, "main", 5)], "nothing is saved beside it yet"
    bench.broker.logs[0].low = 0
    bench.worker("owner").join().turns(2).close()
    assert places(bench, under) == [(0, "main", 8), (1, "main", 5)]
    sibling = of_any_partition(bench.store, Location("group", "main", "events", "topic-id", 1))
    assert sibling is not None
    assert (sibling.location.lineage, sibling.offset) == ("main", 8)


def test_a_gap_behind_which_something_is_saved_counts_though_more_was_saved_without_it() -> None:
    """As it does for a worker: the group was set back, and has gone on without the lost records."""
    store, after = DictStore(), after_gap(HERE, 7)
    for location, offset in ((HERE, 12), (after, 7), (after, 10)):
        write(Checkpoints(store, location), offset)
    record_gap(store, HERE, 7)
    found = of_any_partition(store, HERE)
    assert found is not None
    assert (found.location, found.offset) == (after, 10)


def test_what_others_put_beside_checkpoints_is_passed_over(bench: Bench) -> None:
    for folder in {path.rpartition("/")[0] for path in bench.store.objects}:
        bench.store.objects |= dict.fromkeys((f"{folder}/notes.manifest", f"{folder}/README"), b"?")
    bench.store.objects |= dict.fromkeys(("7", "group/7"), b"?")
    assert places(bench) == [(0, "main~p0@7", 8), (1, "main", 5)]
    found = of_any_partition(bench.store, bench.newest().location)
    assert (found.location.lineage, found.offset) == ("main~p0@7", 8)
    bench.feed("a")
    assert bench.worker("three").join().turns(2).stops() == {}
    assert lineages(bench)[-1] == "main~p0@7"


def test_its_models_can_move_to_other_partitions(bench: Bench) -> None:
    worker = bench.worker("three")
    add_partitions(bench, 3)
    old = history(bench.store, FOLDER)
    require_drained(old, 3, worker.input, bench.clock)
    written = reshard(old, bench.store, DictStore(), 3, drop_astray=True)
    assert [each.location.lineage for each in written] == ["main~3"] * 3
    assert [each.offset for each in written] == [8, 5, 0]


def test_a_start_knows_of_partitions_that_were_added_since(bench: Bench) -> None:
    add_partitions(bench, 3)
    bench.config = of_input(bench.config, on_repartition="new-models")
    for number in range(3):
        bench.feed("a", partition=number)
    bench.worker("three").join().turns(3).close()
    bench.config = of_input(bench.config, on_repartition="fail")
    state = TopicState("topic-id", 3, dict.fromkeys(range(3), 0))
    assert known_partitions(bench.config, state, bench.store) == 3
    assert of_checkpoints(bench.config, state, bench.store).level == "ok"


def test_of_several_gaps_the_last_one_tells_how_many_partitions_there_were(bench: Bench) -> None:
    add_partitions(bench, 3)
    bench.config = of_input(bench.config, on_repartition="new-models")
    bench.feed(*"ab")
    bench.broker.logs[0].low = 9
    bench.worker("three").join(0).turns(2).close()
    assert lineages(bench)[-1] == "main~p0@9"
    assert known_partitions(bench.config, TopicState("topic-id", 3, {}), bench.store) == 3


def test_a_partition_that_was_added_before_a_gap_of_another_one_keeps_its_first_records() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept", on_repartition="new-models", start="latest")
    add_partitions(bench, 3)
    bench.feed(*"bab")
    bench.broker.logs[0].low = 7
    bench.feed(*"ab", partition=2)
    bench.worker("two").join(0).turns(2).close()
    assert lineages(bench)[-1] == "main~p0@7"
    bench.worker("three").join(2).turns(2)
    assert learned(bench, 2) == [0, 1]


def test_a_warm_start_takes_the_models_after_the_gap(bench: Bench) -> None:
    origin, _ = WarmStart(bench.store, 2, "group/other/events-topic-id").models_of(0)
    assert "main~p0@7/events-topic-id/0 at offset 8" in origin


def test_the_gaps_of_the_history_that_begins_are_left_out_of_a_warm_start(bench: Bench) -> None:
    begun = History("group", "other", "events", "topic-id").topic_prefix
    for name in list(bench.store.objects):
        bench.store.objects[name.replace("/main", "/other", 1)] = bench.store.objects[name]
    assert [each.location.lineage for each in history(bench.store, but=begun)] == ["main~p0@7", "main"]


@pytest.mark.parametrize(
    ("lineage", "configured"),
    [("main", "main"), ("main~p0@7", "main"), ("main~p1@7", "main~p1@7"), ("~p0@", "~p0@"), ("7", "7")],
)
def test_the_lineage_before_all_gaps_is_the_configured_one(lineage: str, configured: str) -> None:
    assert before_gap(Location("group", lineage, "events", "topic-id", 0)).lineage == configured
