"""Which checkpoints are kept, and that nothing goes which one of them needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.worker.support.checkpoints import HERE, HOUR_MS, chain_of, files, first_of, write
from tests.worker.support.manifests import loaded
from tests.worker.support.stores import DictStore, FaultyStore
from worker.base.errors import CorruptCheckpoint, Denied
from worker.checkpoint import Checkpoints, Manifest
from worker.checkpoint.retention import Content, expired


def test_young_checkpoints_stay(store: DictStore, checkpoints: Checkpoints) -> None:
    chain_of(checkpoints, 20, HOUR_MS)
    before = dict(store.objects)
    assert checkpoints.collect_garbage(23 * HOUR_MS) == []
    assert store.objects == before


def test_old_checkpoints_go_with_what_only_they_needed(store: DictStore, checkpoints: Checkpoints) -> None:
    chain = chain_of(checkpoints, 40, HOUR_MS)
    deleted = checkpoints.collect_garbage(40 * HOUR_MS)
    kept = [chain[15], *chain[17:]]  # 17 is a delta of 15
    assert checkpoints.offsets() == [manifest.offset for manifest in kept]
    needed = {f"{HERE.prefix}/{name}" for manifest in kept for name in manifest.segments}
    assert set(files(store, "segment")) == needed
    assert len(deleted) == 16 + 15
    for manifest in kept:
        assert loaded(checkpoints, manifest)["cold"] == b"c" * 100


def test_of_older_checkpoints_the_first_of_each_hour_stays(checkpoints: Checkpoints) -> None:
    chain = chain_of(checkpoints, 61, HOUR_MS // 20)
    checkpoints.collect_garbage(3 * HOUR_MS, chain[-1])
    # And the bases of those that stay, and the last one of another base than the newest has.
    assert checkpoints.offsets() == [0, 18, 20, 39, 40, 57, 58, 59, 60]
    assert checkpoints.collect_garbage(3 * HOUR_MS, chain[-1]) == []
    for manifest in (chain[0], chain[40], chain[60]):
        assert loaded(checkpoints, manifest)["hot"] == b"%d" % manifest.offset


@pytest.mark.parametrize(
    ("count", "kept"), [(6, [0, 2, 3, 4, 5]), (7, [3, 4, 5, 6]), (8, [3, 5, 6, 7]), (9, [3, 5, 6, 7, 8])]
)
def test_three_checkpoints_stay_whatever_their_age_and_one_of_another_base(
    checkpoints: Checkpoints, count: int, kept: list[int]
) -> None:
    chain_of(checkpoints, count, HOUR_MS)
    checkpoints.collect_garbage(1000 * HOUR_MS)
    assert checkpoints.offsets() == kept
    assert checkpoints.collect_garbage(1000 * HOUR_MS) == []


@pytest.mark.parametrize("seed", range(8))
def test_of_many_changes_at_one_offset_the_last_ones_stay(checkpoints: Checkpoints, seed: int) -> None:
    manifest = None
    for revision in range(7):
        changed = {"a": b"%d %d" % (seed, revision)}
        manifest = write(checkpoints, 5, changed, previous=manifest, revision=revision)
        checkpoints.tidy(manifest, 0)
        kept = [each.revision for each, _ in first_of(checkpoints.restorable(), min(revision + 1, 3))]
        assert kept == list(range(revision, max(-1, revision - 3), -1))


def test_later_revisions_than_the_committed_one_stay_for_an_hour() -> None:
    """Of which one may be committed by now; later on they are as old as all others."""
    later = {f"later {n}": Content(created_ms=n, revision=1, segments=frozenset()) for n in (9, 8, 7, 6, 5, 4)}
    manifests = {**later, "committed": Content(created_ms=0, revision=0, segments=frozenset())}
    assert expired(manifests, HOUR_MS, 0, ()) == [[], []]
    assert expired(manifests, HOUR_MS + 9, 0, ()) == [[], ["later 5", "later 6"]]


def test_damaged_checkpoints_do_not_count_and_protect_what_they_may_need(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    chain_of(checkpoints, 8, HOUR_MS)
    for name in files(store, "manifest")[-3:]:
        store.objects[name] = b"?"
    segments = files(store, "segment")
    # By another reader than the one that wrote them, and knows what they were.
    Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS)
    assert checkpoints.offsets() == [0, 2, 3, 4, 5, 6, 7]  # 2 is a delta of 0
    assert files(store, "segment") == segments
    assert checkpoints.newest().offset == 4


def test_nothing_is_deleted_while_nothing_can_be_read(store: DictStore, checkpoints: Checkpoints) -> None:
    chain_of(checkpoints, 5, HOUR_MS)
    for name in files(store, "manifest"):
        store.objects[name] = b"?"
    assert Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS) == []


def test_manifests_go_before_segments(store: DictStore) -> None:
    chain_of(Checkpoints(store, HERE), 10, HOUR_MS)
    journal = FaultyStore(store, {})
    Checkpoints(journal, HERE).collect_garbage(1000 * HOUR_MS)
    deleted = [name.rpartition("/")[2] for call, name in journal.log if call == "delete"]
    assert [name.rpartition(".")[2] for name in deleted] == ["manifest"] * 6 + ["segment"] * 5
    # Deltas go before their bases, so that what is left of them can be read at any time.
    assert [int(name[:20]) for name in deleted[:6]] == [1, 2, 4, 5, 0, 3]


def test_orphans_go_but_not_those_whose_manifest_may_be_on_its_way(store: DictStore, checkpoints: Checkpoints) -> None:
    chain_of(checkpoints, 4, HOUR_MS)
    older, same, newer = (f"{HERE.prefix}/{offset:020d}-{'0' * 64}.segment" for offset in (2, 3, 4))
    store.objects |= {older: b"?", same: b"?", newer: b"?"}
    checkpoints.collect_garbage(4 * HOUR_MS)
    assert older not in store.objects
    assert {same, newer} <= store.objects.keys()


def before_a_manifest(store: DictStore, clean_up: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have somebody clean up when all of the next checkpoint but its manifest is written."""
    create = store.create

    def creating(name: str, data: bytes) -> None:
        if name.endswith("manifest"):
            clean_up()
        create(name, data)

    monkeypatch.setattr(store, "create", creating)


def test_after_the_group_was_set_back_a_segment_whose_manifest_is_on_its_way_stays(
    store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Checkpoints(store, HERE)
    before = write(owner, 5, {"cold": b"c" * 100, "hot": b"5"})
    write(owner, 10, {"hot": b"10"}, previous=before)
    # Who had the partition before comes to its clean-up while the next owner saves: below what was saved once.
    former = Checkpoints(store, HERE)
    before_a_manifest(store, lambda: former.tidy(before, 0), monkeypatch)
    following = write(owner, 7, {"hot": b"7"}, previous=before)
    assert loaded(owner, following) == {"cold": b"c" * 100, "hot": b"7"}


def history_of_an_hour(checkpoints: Checkpoints) -> list[Manifest]:
    """Nine checkpoints, ten offsets apart."""
    manifests = [write(checkpoints, 10, {"cold": b"c" * 100, "hot": b"10"}, created_ms=0)]
    for offset in range(20, 100, 10):
        manifests.append(write(checkpoints, offset, {"hot": b"%d" % offset}, manifests[-1], created_ms=offset))
    return manifests


def test_who_had_the_partition_before_the_group_was_set_back_deletes_nothing_that_has_come_since(
    store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For it all that lies before its own checkpoint is old: what the next owner works on now as well."""
    former = Checkpoints(store, HERE)
    manifests = history_of_an_hour(former)
    former.tidy(manifests[-1], 0)
    owner = Checkpoints(store, HERE)
    before = owner.newest(10)
    before_a_manifest(store, lambda: former.tidy(manifests[-1], 0), monkeypatch)
    following = write(owner, 15, {"hot": b"15"}, before, created_ms=200)
    assert loaded(owner, following) == {"cold": b"c" * 100, "hot": b"15"}
    # Nor does it delete the manifest that has come.
    former.tidy(manifests[-1], 0)
    assert Checkpoints(store, HERE).newest(15) == following


def test_after_the_group_was_set_back_the_owner_keeps_what_it_has_saved_since(store: DictStore) -> None:
    """Recovery takes the newest one up to where the group has come again, not those from before, which lie further."""
    history_of_an_hour(Checkpoints(store, HERE))
    owner = Checkpoints(store, HERE)
    current = owner.newest(10)
    for offset in range(11, 16):
        current = write(owner, offset, {"hot": b"%d" % offset}, current, created_ms=200 + offset)
        owner.tidy(current, 0)
        assert Checkpoints(store, HERE).newest(offset) == current
    assert [offset for offset in owner.offsets() if 10 < offset < 20] == [13, 14, 15]


def test_where_the_models_of_the_current_checkpoint_are_gone_nothing_is_deleted_and_all_is_written_anew(
    store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who looks at what is there by now, and at nothing else, may clean up while the owner saves below."""
    owner = Checkpoints(store, HERE)
    before = write(owner, 5, {"cold": b"c" * 100, "hot": b"5"})
    other = Checkpoints(store, HERE)
    beyond = write(other, 10, {"hot": b"10"}, previous=before)
    with monkeypatch.context() as patch:
        before_a_manifest(store, lambda: other.collect_garbage(HOUR_MS, beyond), patch)
        following = write(owner, 7, {"hot": b"7"}, previous=before)
    there = set(store.objects)
    with pytest.raises(CorruptCheckpoint, match=r"-[0-9a-f]{64}\.segment is missing"):
        owner.tidy(following, 0)
    assert store.objects.keys() == there
    with pytest.raises(CorruptCheckpoint, match=r"-[0-9a-f]{64}\.segment is missing"):
        write(owner, 8, {"cold": b"new"}, previous=following)
    # Of what does not point there any more nothing is wrong.
    whole = write(owner, 8, {"hot": b"8"}, previous=following)
    assert loaded(owner, whole) == {"cold": b"c" * 100, "hot": b"8"}
    owner.tidy(whole, 0)


def test_a_delta_that_stays_without_its_base_keeps_its_models_until_somebody_restores_that(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    """It stays while it is among the newest: a listing is not of one moment, and its base may be there."""
    base = write(checkpoints, 3, {"cold": b"c" * 100, "hot": b"3"})
    delta = write(checkpoints, 4, {"hot": b"4"}, previous=base)
    path = f"{HERE.prefix}/{base.models.base_name}"
    lost = store.objects.pop(path)
    write(checkpoints, 4, {"cold": b"c" * 100, "hot": b"4"})
    Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS)
    store.objects[path] = lost
    assert loaded(checkpoints, delta) == {"cold": b"c" * 100, "hot": b"4"}
    write(checkpoints, 5, {"hot": b"5"})
    del store.objects[path]
    deleted = Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS)
    assert sorted(name.rpartition(".")[2] for name in deleted) == ["manifest", "segment", "segment"]


def test_what_a_manifest_may_need_stays_which_another_collector_took_since_the_listing(
    store: DictStore, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_of(checkpoints, 40, HOUR_MS)
    listed, segments = store.list(""), files(store, "segment")
    monkeypatch.setattr(store, "list", lambda prefix: listed)
    del store.objects[files(store, "manifest")[-1]]
    assert len(Checkpoints(store, HERE).collect_garbage(40 * HOUR_MS)) > 10
    assert files(store, "segment") == segments


def test_what_the_next_checkpoint_builds_on_stays(store: DictStore, checkpoints: Checkpoints) -> None:
    chain = chain_of(checkpoints, 10, HOUR_MS)
    checkpoints.collect_garbage(1000 * HOUR_MS, current=chain[2])
    assert f"{HERE.prefix}/{chain[2].models.base_name}" in store.objects
    following = write(checkpoints, 3, {"new": b"n"}, previous=chain[2])
    assert loaded(checkpoints, following) == {"cold": b"c" * 100, "hot": b"2", "new": b"n"}


def test_known_manifests_are_not_read_again(store: DictStore) -> None:
    chain_of(Checkpoints(store, HERE), 10, HOUR_MS)
    journal = FaultyStore(store, {})
    checkpoints = Checkpoints(journal, HERE)
    checkpoints.collect_garbage(10 * HOUR_MS)
    read = [call for call, _ in journal.log].count("read")
    checkpoints.collect_garbage(10 * HOUR_MS)
    assert [call for call, _ in journal.log].count("read") == read == 10


def test_where_nothing_can_be_deleted_a_clean_up_takes_no_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store, compared = FaultyStore(DictStore(), {}), list[int]()
    checkpoints, manifest = Checkpoints(store, HERE), None

    def diverged(offset: int) -> list[str]:
        compared.append(offset)
        return Checkpoints.diverged(checkpoints, offset)

    def delete(*_: str) -> None:
        raise Denied("the server answered 403 (AccessDenied)")

    monkeypatch.setattr(checkpoints, "diverged", diverged)
    monkeypatch.setattr(store, "delete", delete)
    for offset in range(40):
        manifest = write(checkpoints, offset, {"a": b"%d" % offset}, manifest, created_ms=offset * HOUR_MS)
        with suppress(Denied):
            checkpoints.tidy(manifest, None)
    assert [name for method, name in store.log if method == "read"] == []
    assert compared == [*range(40)]
    monkeypatch.undo()
    assert checkpoints.tidy(manifest, None) == {}
    assert len(checkpoints.offsets()) < 30


def test_files_are_listed_again_once_they_or_the_bytes_of_models_would_double(checkpoints: Checkpoints) -> None:
    """A few bytes aside: small models may be written many times."""
    chain = chain_of(checkpoints, 10, HOUR_MS)
    assert checkpoints.is_untidy(chain[-1])  # nobody has looked at what others left
    checkpoints.tidy(chain[-1], None)
    manifest, untidy = chain[-1], list[bool]()
    for offset in range(10, 20):
        manifest = write(checkpoints, offset, {"hot": b"%d" % offset}, manifest)
        untidy.append(checkpoints.is_untidy(manifest))
    assert untidy == [False] * 9 + [True]
    checkpoints.tidy(manifest, None)
    untidy.clear()
    for offset in range(20, 22):
        manifest = write(checkpoints, offset, {"hot": bytes([offset]) * 3 * 2**20}, manifest)
        untidy.append(checkpoints.is_untidy(manifest))
    assert untidy == [False, True]
