"""What is committed along with an offset, and whose checkpoints are taken by it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from tests.worker.support.bench import Bench, Bound, after_gap, learned, of_input, saved_bench
from tests.worker.support.fakes import config
from worker.base.errors import Fatal
from worker.checkpoint import Catalogue, Manifest, ModelEntry, Pointer, Reader
from worker.checkpoint.retention import HOUR_MS, KEPT_MANIFESTS, KEPT_MS, Content, expired
from worker.task.recovery import Recovery, Terms

RESTART = {"on_spec_change": "restart", "interval_s": 60.0, "n_estimators": 3}


def pointer(bench: Bench, partition: int = 0) -> Pointer:
    found = Pointer.read(bench.broker.metadata[partition])
    assert found is not None
    return found


def revisions(bench: Bench) -> list[tuple[int, int]]:
    """(offset, which revision there is, counted from 0) of the checkpoints of the first partition."""
    folder = bench.checkpoints().location.prefix
    names = [name.rpartition("/")[2] for name in bench.store.objects if name.endswith("manifest")]
    found = [Reader(bench.store, folder).read(name) for name in names]
    drawn = sorted({manifest.revision for manifest in found})
    return sorted((manifest.offset, drawn.index(manifest.revision)) for manifest in found)


def test_one_of_another_version_tells_nothing() -> None:
    ours = Pointer("main", 3, 0, "hash")
    assert Pointer.read(ours.metadata()) == ours
    assert Pointer.read(msgspec.structs.replace(ours, version=ours.version + 1).metadata()) is None


def test_one_of_a_former_version_does_not_say_where_its_history_begins() -> None:
    pointer = Pointer.read('{"lineage":"main","offset":3,"revision":0,"state_hash":"hash","version":1}')
    assert pointer == Pointer("main", 3, 0, "hash")
    assert pointer.start_offset is None


def test_it_names_the_newest_checkpoint_known_at_the_commit() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    worker = bench.worker().join().turns(2)
    assert pointer(bench) == Pointer.to(bench.newest())
    assert (pointer(bench).offset, bench.broker.committed[0]) == (0, 2)
    bench.clock.now_s += 60
    worker.turns(3)
    bench.feed("a")
    worker.turns(2)
    assert (pointer(bench), pointer(bench).offset) == (Pointer.to(bench.newest()), 2)


def take_over(bench: Bench, zombie: Bound) -> None:
    """Another worker takes three records while the first one, which the group does not know any more, stands still."""
    zombie.kill()
    bench.feed(*"bab")
    bench.worker("two").join().turns(2).kill()


def test_what_a_worker_saves_out_of_band_after_it_was_put_out_of_the_group_is_not_taken() -> None:
    bench = saved_bench()
    zombie = bench.worker("zombie", **RESTART)
    zombie.faults.at("store create", lambda: take_over(bench, zombie))
    zombie.join().turns(1)
    # It knew the group at 5 and starts all models anew there; by now they have learned three records more.
    assert (5, 1) in revisions(bench)
    assert bench.broker.committed[0] == 8
    bench.feed("a")
    last = bench.worker("three").join().turns(3)
    assert (last.stops(), last.replayed()) == ({}, 3)
    assert bench.published() == bench.expected()


def test_what_one_saves_beyond_the_known_checkpoint_is_not_taken_either() -> None:
    bench = saved_bench()
    bench.feed(*"bab")
    bench.worker("one").join().turns(2).kill()
    assert (pointer(bench).offset, bench.broker.committed[0]) == (5, 8)
    zombie = bench.worker("zombie", **RESTART)
    zombie.faults.at("store create", lambda: take_over(bench, zombie))
    zombie.join().turns(2)
    assert revisions(bench) == [(0, 0), (5, 0), (8, 1)]
    bench.feed("a")
    bench.worker("three").join().turns(3)
    assert bench.published() == bench.expected()


def test_a_change_out_of_band_is_committed_though_there_is_no_record() -> None:
    bench = saved_bench()
    bench.worker("two", **RESTART).join().turns(2).kill()
    assert (pointer(bench).revision > 0, bench.broker.committed[0]) == (True, 5)
    # Going back to the former configuration brings no model back.
    bench.feed("a")
    bench.worker("three").join().turns(2)
    assert learned(bench)[5:] == [0]


def test_a_change_out_of_band_that_was_not_committed_has_not_happened() -> None:
    bench = saved_bench()
    for name in ("two", "three", "four", "five"):
        bench.worker(name, **RESTART).cannot_commit().join().turns(3).kill()
        bench.clock.now_s += 1
    assert pointer(bench).revision == 0
    bench.feed("a")
    last = bench.worker("six").join().turns(2)
    assert (last.stops(), learned(bench)[5:]) == ({}, [5])
    assert bench.published() == bench.expected()


def test_models_that_start_anew_are_committed_once() -> None:
    bench = saved_bench()
    worker = bench.worker("two", **RESTART).join().turns(4)
    assert worker.outcomes() == {"committed": 1}


@pytest.mark.parametrize(
    "metadata", ["", "{", "somebody else's", "[]", '{"version":2,"offset":0}', "[" * 5000, '{"a":' + "[" * 4000]
)
def test_where_an_operator_has_set_the_offset_all_checkpoints_count(metadata: str) -> None:
    bench = saved_bench()
    bench.worker("two", **RESTART).join().turns(2).close()
    bench.broker.metadata[0] = metadata
    bench.feed("a")
    last = bench.worker("three").join().turns(2)
    assert (last.stops(), learned(bench)[5:]) == ({}, [0])


def test_of_two_states_of_one_checkpoint_that_which_was_committed_is_taken() -> None:
    bench = Bench(interval_s=60.0)
    manifest = Manifest(
        engine="e",
        location=bench.checkpoints().location,
        start_offset=0,
        offset=5,
        covered=5,
        revision=1,
        created_ms=0,
        models=state_of("one"),
    )
    known = Pointer.to(manifest)
    assert known.admits(manifest)
    assert not known.admits(msgspec.structs.replace(manifest, models=state_of("another")))
    assert not known.admits(msgspec.structs.replace(manifest, offset=3, revision=2))
    assert known.admits(msgspec.structs.replace(manifest, offset=7, models=state_of("a later one")))
    elsewhere = msgspec.structs.replace(manifest.location, lineage="other")
    assert known.admits(msgspec.structs.replace(manifest, location=elsewhere, revision=9))
    begun_elsewhere = msgspec.structs.replace(manifest, start_offset=6, offset=7, covered=7)
    assert not known.admits(begun_elsewhere)
    of_a_former_version = msgspec.structs.replace(known, start_offset=None)
    assert of_a_former_version.admits(manifest)
    assert not of_a_former_version.admits(begun_elsewhere)
    assert Pointer.read(known.metadata()) == known
    assert len(replace_lineage(known).metadata()) < 1000


def state_of(key: str) -> Catalogue:
    return Catalogue.of({key: ModelEntry("spec", "segment", 0, 1, "0" * 64, {})}, {"segment": 1})


def replace_lineage(known: Pointer) -> Pointer:
    """A pointer that is as long as they get."""
    return msgspec.structs.replace(known, lineage="x" * 200, offset=2**63 - 1, revision=2**63 - 1, state_hash="f" * 64)


def test_the_newest_checkpoints_of_the_committed_revision_stay_for_longer_than_a_day() -> None:
    """A group that stands still has no others, and a worker that changes models out of band may never commit that."""
    now_ms = 1000 * HOUR_MS
    later = {f"{9 - i}": Content(now_ms, 1, frozenset()) for i in range(2 * KEPT_MANIFESTS)}
    before = {f"1.{9 - i}": Content(now_ms - 2 * KEPT_MS, 0, frozenset()) for i in range(KEPT_MANIFESTS + 2)}
    [_, gone] = expired(later | before, now_ms, 0, ())
    assert [name for name in before if name not in gone] == list(before)[:KEPT_MANIFESTS]
    assert gone[:2] == list(before)[:2:-1]
    assert set(expired(later | before, now_ms, 1, ())[1]) >= {*before}


def test_checkpoints_that_are_never_committed_push_out_none_of_the_committed_history() -> None:
    bench = saved_bench()
    # The partition has had no record for longer than checkpoints are kept by their age.
    bench.clock.now_s += 2 * KEPT_MS / 1000
    for attempt in range(4 * KEPT_MANIFESTS):
        bench.worker(f"two.{attempt}", **RESTART).cannot_commit().join().turns(3).kill()
        bench.clock.now_s += 1
    bench.feed("a")
    last = bench.worker("last").join().turns(2)
    assert (last.stops(), learned(bench)[5:]) == ({}, [5])


def test_a_clean_up_by_who_was_put_out_of_the_group_leaves_what_may_be_committed_by_now() -> None:
    bench = saved_bench()
    checkpoints, other = bench.checkpoints(), bench.checkpoints()
    manifest = bench.newest()
    written = [manifest]
    for revision in (0, 0, 0, 0, 1, 2, 3, 4):
        about = msgspec.structs.replace(written[-1].about, revision=revision, created_ms=written[-1].created_ms + 1)
        written.append(other.write(about, {}, previous=written[-1]))
    checkpoints.tidy(written[4], 0)
    committed = Pointer.to(written[5])
    newest = bench.checkpoints().newest(5, committed)
    assert newest is not None
    assert (newest.revision, committed.revision) == (1, 1)
    # An hour later the worker that writes on knows better.
    later = msgspec.structs.replace(written[5].about, created_ms=manifest.created_ms + 2 * HOUR_MS)
    last = other.write(later, {}, previous=written[5])
    bench.checkpoints().tidy(last, 1)
    assert {revision for _, revision in revisions(bench)} >= {0, 1, 4}


def test_a_gap_that_a_worker_finds_after_it_was_put_out_of_the_group_is_not_taken() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, on_gap="accept")
    zombie = bench.worker("zombie")

    def others_go_on() -> None:
        zombie.kill()
        bench.feed(*"bab")
        other = bench.worker("two").join().turns(2)
        bench.broker.logs[0].low = 7
        zombie.faults.at("store create", other.close)

    # It knows the group at 5, and a moment later that the topic begins at 7.
    zombie.faults.at("bounds", others_go_on)
    zombie.join().turns(2)
    assert after_gap(bench, 7).offsets() == [7]
    bench.feed("a")
    bench.worker("three").join().turns(3)
    assert bench.published() == bench.expected()


def test_two_changes_out_of_band_at_one_offset_are_two_revisions() -> None:
    bench = saved_bench()
    bench.feed(*"ab", key="other")
    bench.worker("one").join().turns(2).close()
    bench.worker("two", **RESTART).cannot_commit().join().turns(3).kill()
    # Another configuration comes before that one is committed; it starts fewer models anew.
    overrides = [{"match": "other", "n_estimators": 5}]
    second = bench.worker("three", on_spec_change="restart", interval_s=60.0, overrides=overrides).join().turns(3)
    assert (second.stops(), pointer(bench).revision) == ({}, bench.newest().revision)
    assert revisions(bench)[-2:] == [(7, 1), (7, 2)]
    bench.feed("a")
    second.turns(2)
    assert learned(bench)[7:] == [5]


def test_a_group_may_be_set_back_before_a_change_out_of_band() -> None:
    bench = saved_bench()
    bench.feed(*"bab")
    bench.worker("one").join().turns(2).close()
    bench.worker("two", **RESTART).join().turns(3).close()
    bench.broker.committed[0], bench.broker.metadata[0] = 5, ""
    again = Bound(bench, "three", of_input(config(**RESTART), on_rewind="accept")).join().turns(4)
    again.close()
    # What started anew at 8 then, and at 5 now, are two histories, each with a checkpoint at 8.
    assert (again.stops(), revisions(bench)[-3:]) == ({}, [(8, 0), (8, 1), (8, 2)])


def test_what_was_learned_before_the_group_was_set_back_is_not_taken_after_another_change() -> None:
    bench = saved_bench()
    bench.feed(*"bab")
    bench.worker("one").join().turns(2).close()
    bench.worker("two", **RESTART).join().turns(3).close()
    bench.feed(*"ab")
    bench.worker("three", **RESTART).join().turns(3).close()
    assert revisions(bench)[-1] == (10, 1)
    bench.broker.committed[0], bench.broker.metadata[0] = 5, ""
    accepting = of_input(config(**RESTART), on_rewind="accept")
    Bound(bench, "four", accepting).join().turns(4).kill()
    assert bench.broker.committed[0] == 10
    bench.feed("a")
    last = Bound(bench, "five", accepting).join().turns(4)
    # Models started anew at 5: the checkpoint at 10 has those that did so at 8.
    assert (last.stops(), learned(bench)[-6:]) == ({}, [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("drawn", [3, 30], ids=["below", "above"])
def test_another_change_at_the_same_moment_is_not_taken_where_the_committed_one_is_damaged(
    drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = saved_bench()
    bench.feed(*"ab", key="other")
    bench.worker("one").join().turns(2).close()
    draws = iter((drawn, 10, 10, 10))
    monkeypatch.setattr("worker.checkpoint.checkpoints.random.randint", lambda *_: next(draws))
    zombie = bench.worker("zombie", **RESTART)
    overrides = [{"match": "other", "n_estimators": 5}]

    def owner() -> Bound:
        return bench.worker("owner", on_spec_change="restart", interval_s=60.0, overrides=overrides)

    def take_it_over() -> None:
        zombie.kill()
        owner().join().turns(3).kill()

    zombie.faults.at("store create", take_it_over)
    zombie.join().turns(3)
    committed = pointer(bench)
    assert committed.revision == 10
    folder = bench.checkpoints().location.prefix
    for name in [name for name in bench.store.objects if name.endswith("manifest")]:
        if Pointer.to(Reader(bench.store, folder).read(name.rpartition("/")[2])) == committed:
            bench.store.objects[name] += b"?"
    bench.feed("a")
    last = owner()
    with pytest.raises(Fatal, match="every partition of this worker has stopped"):
        last.join().turns(3)
    assert last.stops() == {"corrupt-checkpoint": 1}


def test_a_change_out_of_band_is_not_undone_by_damage() -> None:
    bench = saved_bench()
    two = bench.worker("two", **RESTART).join().turns(3)
    bench.feed(*"bab")
    two.turns(2)
    assert learned(bench)[-3:] == [0, 1, 2]
    two.kill()
    bench.damage("manifest", 2)
    bench.feed("a")
    last = bench.worker("three", **RESTART)
    with pytest.raises(Fatal, match="every partition of this worker has stopped"):
        last.join().turns(4)
    assert last.stops() == {"corrupt-checkpoint": 1}


def begin_at_end(bench: Bench, worker: Bound) -> None:
    """Somebody who found no offset of the group begins where the partition ends by now, and goes no further."""
    late = Recovery(bench.store, bench.checkpoints().location, Terms.of(bench.config, 1), bench.clock, worker.metrics)
    late.open(None, bench.broker.bounds(0), lambda *_: SimpleNamespace(close=lambda: None, sources=lambda: {}))


def test_a_beginning_further_on_of_a_worker_that_was_put_out_of_the_group_is_not_taken() -> None:
    """With input.start: latest each looks for the end; the records between two ends are not learned from the later."""
    bench = Bench(interval_s=60.0, start="latest")
    bench.feed(*"ab")
    zombie, two = bench.worker("zombie"), bench.worker("two")

    def begin_further_on() -> None:
        bench.feed(*"aba")
        begin_at_end(bench, two)

    def begin() -> None:
        zombie.kill()
        two.faults.at("store create", begin_further_on)
        two.join()

    zombie.faults.at("bounds", begin)
    zombie.join()
    assert bench.checkpoints().offsets() == [2, 5]
    two.turns(3).kill()
    bench.feed("a")
    last = bench.worker("three").join().turns(3)
    assert (last.stops(), learned(bench)) == ({}, [0, 1, 2, 3])


def test_a_beginning_further_on_is_not_taken_where_a_later_checkpoint_is_damaged() -> None:
    bench = Bench(interval_s=60.0, start="latest")
    bench.feed(*"ab")
    worker = bench.worker("one").join()
    begun = dict(bench.store.objects)
    # Somebody who was put out of the group looked for one before it was there, and for the end after more had come.
    bench.store.objects.clear()
    bench.feed(*"aba")
    begin_at_end(bench, worker)
    bench.store.objects |= begun
    bench.feed("a")
    worker.turns(2)
    bench.clock.now_s += 60.0
    worker.turns(3)
    bench.feed("b")
    worker.turns(2).kill()
    assert (bench.checkpoints().offsets(), pointer(bench).offset) == ([2, 5, 6], 6)
    bench.damage("manifest")
    bench.feed("b")
    last = bench.worker("two").join().turns(3)
    assert (last.stops(), last.replayed(), learned(bench)) == ({}, 5, [*range(6)])


def test_a_beginning_further_on_does_not_say_that_the_group_was_set_back() -> None:
    """Two who look for the end and are put out of the group begin beside each other; a third goes on from the first."""
    bench = Bench(interval_s=60.0, start="latest")
    bench.feed(*"ab")
    one, two, three = (bench.worker(name) for name in ("one", "two", "three"))
    one.pool.is_done_within = lambda _: False
    one.join()
    bench.feed(*"aba")

    def meanwhile() -> None:
        one.pool.jobs[0].run()
        two.kill()
        three.input.batch_records = lambda: 1
        three.join().turns(1).kill()

    one.kill()
    two.faults.at("store create", meanwhile)
    two.join()
    assert (bench.checkpoints().offsets(), bench.broker.committed) == ([2, 5], {0: 3})
    last = bench.worker("last").join().turns(3)
    assert (last.stops(), last.replayed(), learned(bench)) == ({}, 1, [0, 1, 2])


def test_a_change_out_of_band_never_sets_the_group_back() -> None:
    bench = saved_bench()
    # Somebody has set the group behind offsets that are no records, such as markers of transactions.
    bench.broker.set_offsets({0: 8})
    bench.broker.logs[0].append(b"k", b"{}", gap=4)
    worker = bench.worker("two", **RESTART).join().turns(1)
    worker.input.batch_records = lambda: 0
    worker.turns(3)
    assert (bench.broker.committed[0], pointer(bench).offset) == (8, 8)
