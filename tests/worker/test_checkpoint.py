"""A checkpoint: what is written of a state, read back whole, and chosen of several."""

from __future__ import annotations

import hashlib
import random
from functools import partial

import msgspec
import pytest

from tests.worker.support.checkpoints import HERE, HOUR_MS, chain_of, files, first_of, first_whole, write
from tests.worker.support.manifests import loaded
from tests.worker.support.stores import DictStore, Fault, FaultyStore
from worker.base.errors import NotFound, Transient
from worker.checkpoint import Checkpoints, SavedModel, segments, state_hash

# Reading and writing


def test_a_state_comes_back_whole(store: DictStore, checkpoints: Checkpoints) -> None:
    state = {"b": b"22", "a": b"1", "": b"", "любой/ключ\n": b"x" * 1000}
    written = write(checkpoints, 7, state)
    manifest = checkpoints.newest()
    assert manifest == written
    assert loaded(checkpoints, manifest) == state
    assert {key: checkpoints.load_one(manifest, key) for key in state} == state
    assert manifest.models["b"].summary == {"samples": 2}
    assert (manifest.location, manifest.start_offset, manifest.offset, manifest.engine) == (HERE, 0, 7, "engine-1")
    assert len(files(store, "segment")) == 1


def test_file_names_carry_place_offset_and_hash(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 41, {"a": b"1", "b": b"2"})
    of_models = "".join(hashlib.sha256(data).hexdigest() for data in (b"1", b"2"))
    for name, data in store.objects.items():
        folder, _, file = name.rpartition("/")
        assert folder == "group/main/events-topic-id/3"
        hashed = of_models.encode() if file.endswith("segment") else data
        assert file.partition(".")[0] == f"{41:020d}-{hashlib.sha256(hashed).hexdigest()}"


def test_a_change_out_of_band_has_a_revision_above_all_that_came_after_its_checkpoint(checkpoints: Checkpoints) -> None:
    """Somebody who was put out of the group, or the owner before the group was set back, may have made others."""
    write(checkpoints, 5, {"a": b"1"})
    write(checkpoints, 9, {"a": b"2"}, revision=2**40)
    assert checkpoints.unused_revision(5, 0) > 2**40
    assert 7 < checkpoints.unused_revision(10, 7) < 2**40


def test_an_empty_state_is_a_checkpoint(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 5, start_offset=5)
    manifest, state = first_whole(checkpoints)
    assert (manifest.start_offset, manifest.offset, state) == (5, 5, {})
    assert files(store, "segment") == []


def test_a_checkpoint_whose_segment_is_gone_is_passed_over_before_any_is_read(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    first = write(checkpoints, 1, {"a": b"1"})
    write(checkpoints, 2, {"b": b"2"}, previous=first)
    gone = next(name for name in files(store, "segment") if f"{2:020d}" in name)
    del store.objects[gone]
    assert [manifest.offset for manifest, _ in first_of(checkpoints.restorable(), 1)] == [1]
    assert checkpoints.skipped == [f"{gone} is missing"]


def test_a_segment_that_was_written_since_the_listing_is_there(store: DictStore) -> None:
    """A manifest may be listed on a later page than its segment would have been."""
    write(Checkpoints(store, HERE), 1, {"a": b"1"})

    class Behind(DictStore):
        listed = 0

        def list(self, prefix: str) -> list[str]:
            self.listed += 1
            return [name for name in super().list(prefix) if self.listed > 1 or name.endswith("manifest")]

    behind = Behind()
    behind.objects = store.objects
    assert [manifest.offset for manifest, _ in first_of(Checkpoints(behind, HERE).restorable(), 1)] == [1]


def test_writing_twice_is_writing_once(store: DictStore, checkpoints: Checkpoints) -> None:
    assert write(checkpoints, 1, {"a": b"1"}) == write(checkpoints, 1, {"a": b"1"})
    assert len(store.objects) == 2


def test_only_changed_models_are_written(store: DictStore, checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"a": b"a" * 10, "b": b"b" * 50, "c": b"c" * 10})
    second = write(checkpoints, 2, {"a": b"A" * 10}, removed=["c"], previous=first)
    assert loaded(checkpoints, second) == {"a": b"A" * 10, "b": b"b" * 50}
    assert second.models["b"] == first.models["b"]
    assert sorted(second.segments.values()) == [10, 70]
    third = write(checkpoints, 3, previous=second)
    assert third.models == second.models
    assert len(files(store, "segment")) == 2


def test_a_model_that_is_removed_and_comes_back_is_the_new_one(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"a": b"old", "b": b"keep"})
    second = write(checkpoints, 2, {"a": b"new"}, removed=["a"], previous=first)
    assert loaded(checkpoints, second) == {"a": b"new", "b": b"keep"}


def test_a_model_that_is_removed_is_not_there(store: DictStore, checkpoints: Checkpoints) -> None:
    """Though the base has it, and its segment."""
    first = write(checkpoints, 1, {"a": b"1", "b": b"2"})
    second = write(checkpoints, 2, removed=["a"], previous=first)
    assert second.models.base_name == first.models.base_name
    for manifest in (second, Checkpoints(store, HERE).newest()):
        assert manifest.models.get("a") is None
        with pytest.raises(NotFound):
            checkpoints.load_one(manifest, "a")


def test_data_first_and_manifest_last(store: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4)
    journal = FaultyStore(store, {})
    write(Checkpoints(journal, HERE), 1, {"a": b"123", "b": b"456", "c": b"7"})
    assert [(call, name.rpartition(".")[2]) for call, name in journal.log] == [
        ("create", "segment"),
        ("create", "segment"),
        ("create", "manifest"),
    ]


def test_large_states_are_cut_into_segments(
    store: DictStore, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 10)
    state = {"a": b"a" * 25, "b": b"b" * 6, "c": b"c" * 4, "d": b"d" * 6, "e": b"e" * 6}
    manifest = write(checkpoints, 1, state)
    assert sorted(manifest.segments.values()) == [6, 6, 10, 25]
    assert loaded(checkpoints, manifest) == state


def test_load_reads_each_segment_once_and_load_one_only_its_range(store: DictStore) -> None:
    manifest = write(Checkpoints(store, HERE), 1, {"a": b"12", "b": b"345", "c": b"6"})
    journal = FaultyStore(store, {})
    checkpoints = Checkpoints(journal, HERE)
    loaded(checkpoints, manifest)
    assert [call for call, _ in journal.log] == ["read"]
    assert checkpoints.load_one(manifest, "b") == b"345"
    assert [call for call, _ in journal.log] == ["read", "read_range"]
    with pytest.raises(NotFound, match="no model 'd'"):
        checkpoints.load_one(manifest, "d")


def test_the_state_hash_is_of_the_models_alone(checkpoints: Checkpoints) -> None:
    whole = write(checkpoints, 9, {"a": b"1", "b": b"2"})
    part = write(checkpoints, 8, {"a": b"1", "b": b"old"}, engine="engine-2")
    parts = write(checkpoints, 9, {"b": b"2"}, previous=part, created_ms=77)
    assert parts.models != whole.models
    assert parts.state_hash == whole.state_hash != part.state_hash
    others = ({"a": b"2", "b": b"1"}, {"A": b"1", "b": b"2"}, {"a": b"1"}, {})
    assert whole.state_hash not in [write(checkpoints, 9, state).state_hash for state in others]


def test_the_state_hash_follows_from_what_changed(checkpoints: Checkpoints) -> None:
    rng, state, manifest = random.Random(1), dict[str, bytes](), None
    for offset in range(1, 60):
        changed = {rng.choice("abcdefgh"): rng.randbytes(2) for _ in range(rng.randint(0, 3))}
        removed = {key for key in "abcdefgh" if rng.random() < 0.1} - changed.keys()
        state = {key: data for key, data in (state | changed).items() if key not in removed}
        manifest = write(checkpoints, offset, changed, previous=manifest, removed=removed)
        assert manifest.state_hash == state_hash(manifest.models)
        assert loaded(checkpoints, manifest) == state


def test_a_previous_checkpoint_of_another_history_is_refused(store: DictStore, checkpoints: Checkpoints) -> None:
    elsewhere = write(Checkpoints(store, msgspec.structs.replace(HERE, partition=4)), 1, {"a": b"1"})
    with pytest.raises(ValueError, match="another history"):
        write(checkpoints, 2, previous=elsewhere)
    earlier = write(checkpoints, 5, {"a": b"1"})
    with pytest.raises(ValueError, match="another history"):
        write(checkpoints, 6, start_offset=1, previous=earlier)
    with pytest.raises(ValueError, match="into a later segment"):
        write(checkpoints, 4, previous=earlier)


def test_a_source_is_asked_when_its_turn_comes(store: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all models that changed would be in memory once more."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    journal = FaultyStore(store, {})

    def source(data: bytes) -> SavedModel:
        journal.log.append(("source", data.decode()))
        return SavedModel("spec", data, {})

    write(Checkpoints(journal, HERE), 1, dirty={key: partial(source, key.encode()) for key in "abc"})
    calls = [call if call == "create" else name for call, name in journal.log]
    assert calls == ["a", "create", "b", "create", "c", "create", "create"]


# Which checkpoint


def test_the_newest_at_or_before_an_offset(checkpoints: Checkpoints) -> None:
    for offset in (9, 10, 100):
        write(checkpoints, offset, {"a": str(offset).encode()})
    assert checkpoints.offsets() == [9, 10, 100]
    found = {at_most: checkpoints.newest(at_most) for at_most in (None, 100, 99, 10, 9, 8)}
    assert {at_most: manifest and manifest.offset for at_most, manifest in found.items()} == {
        None: 100,
        100: 100,
        99: 10,
        10: 10,
        9: 9,
        8: None,
    }
    assert [manifest.offset for manifest, _ in first_of(checkpoints.restorable(10), 2)] == [10, 9]


def test_nothing_there_is_not_an_error(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() is None
    assert list(checkpoints.restorable()) == []
    assert checkpoints.offsets() == []
    assert checkpoints.collect_garbage(0) == []


def test_files_of_others_are_ignored(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"1"})
    for name in (
        "README",
        f"{9:020d}-x.manifest",
        f"{'9' * 20}-{'0' * 64}.manifest.bak",
        f"deeper/{9:020d}-{'0' * 64}.manifest",
    ):
        store.objects[f"{HERE.prefix}/{name}"] = b"?"
    assert checkpoints.offsets() == [1]
    assert checkpoints.newest() is not None
    checkpoints.collect_garbage(10**15)
    assert len(store.objects) == 6


class StaleListing(DictStore):
    """Still lists what was deleted a moment ago, as another process's garbage collection does to a list at hand."""

    def __init__(self, ghosts: list[str]) -> None:
        super().__init__()
        self.ghosts = ghosts

    def list(self, prefix: str) -> list[str]:
        return sorted([*super().list(prefix), *self.ghosts])


def test_a_manifest_that_was_deleted_since_the_listing_is_no_damage() -> None:
    store = StaleListing([f"{HERE.prefix}/{9:020d}-{'0' * 64}.manifest"])
    checkpoints = Checkpoints(store, HERE)
    chain = chain_of(checkpoints, 5, HOUR_MS)
    assert checkpoints.newest() == chain[-1]
    assert first_whole(checkpoints)[0] == chain[-1]
    checkpoints.collect_garbage(1000 * HOUR_MS)
    assert checkpoints.offsets() == [0, 2, 3, 4, 9]
    assert checkpoints.skipped == []


def test_what_is_built_on_a_manifest_that_was_deleted_since_the_listing_keeps_its_segments() -> None:
    store = StaleListing([])
    owner, collector = Checkpoints(store, HERE), Checkpoints(store, HERE)
    base = write(owner, 5, {"a": b"a" * 100})
    write(collector, 9, {"b": b"b"})
    [listed] = [name for name in files(store, "manifest") if f"{5:020d}" in name]
    last = write(owner, 12, {"c": b"c"}, previous=base)
    [newer] = [name for name in files(store, "manifest") if f"{12:020d}" in name]
    store.delete(listed)
    # The collector has listed the files before the last checkpoint was there, and looks at them now.
    hidden, store.ghosts = store.objects.pop(newer), [listed]
    collector.collect_garbage(10)
    store.objects[newer], store.ghosts = hidden, []
    assert loaded(owner, last) == {"a": b"a" * 100, "c": b"c"}


def test_a_store_that_does_not_answer_is_no_reason_to_fall_back(store: DictStore) -> None:
    for offset in (1, 2):
        write(Checkpoints(store, HERE), offset, {"a": b"%d" % offset})
    for call in range(3):
        checkpoints = Checkpoints(FaultyStore(store, {call: Fault.BEFORE}), HERE)
        with pytest.raises(Transient):
            first_whole(checkpoints)
        assert checkpoints.skipped == []


def test_what_one_checkpoint_has_seen_of_the_topic_holds_for_a_later_revision_at_its_offset(
    checkpoints: Checkpoints,
) -> None:
    """Retention may have deleted it by then, and whoever changed models out of band may have read an older one."""
    before = write(checkpoints, 12, {"a": b"1"})
    write(checkpoints, 12, previous=before, covered=14)
    write(checkpoints, 12, {"a": b"2"}, previous=before, revision=3)
    write(checkpoints, 11, {"a": b"0"})
    restorable = first_of(checkpoints.restorable(), 4)
    found = [(manifest.offset, manifest.revision, manifest.covered) for manifest, _ in restorable]
    newest = checkpoints.newest()
    assert found == [(12, 3, 14), (12, 0, 14), (12, 0, 14), (11, 0, 11)]
    assert newest is not None
    assert (newest.revision, newest.covered) == (3, 14)


def test_models_of_two_segments_are_read_with_one_read_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2)
    store, wanted = DictStore(), {}
    for n, (one, other) in enumerate([("a", "c"), ("b", "d")]):
        models = [(key, SavedModel("spec", key.encode(), {})) for key in (one, other)]
        [segment] = segments.packed(models)
        name, _ = segment.names(n)
        store.create(f"folder/{name}", segment.data)
        wanted |= dict(segment.entries(name))
    reads, read = list[str](), store.read
    monkeypatch.setattr(store, "read", lambda name: (reads.append(name), read(name))[1])
    assert dict(segments.read_models(store, "folder", wanted)) == {key: key.encode() for key in "abcd"}
    assert len(reads) == 2


def test_a_model_larger_than_a_segment_has_one_of_its_own_and_none_without_models_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 3)
    models = [(key, SavedModel("spec", key.encode() * size, {})) for key, size in (("a", 4), ("b", 4), ("c", 1))]
    found = list(segments.packed(models))
    assert [segment.data for segment in found] == [b"aaaa", b"bbbb", b"c"]
    assert found[0].data is models[0][1].data, "hundreds of megabytes, and not twice"


@pytest.mark.parametrize("sizes", [(1, 2, 3), (3, 3), (2, 2, 1), (1, 0, 2, 0), (9, 1, 9)])
def test_a_segment_is_the_bytes_of_its_models_and_no_more(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int]) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4)
    models = [(str(n), SavedModel("spec", f"{n}".encode() * size, {})) for n, size in enumerate(sizes)]
    found = list(segments.packed(iter(models)))
    assert b"".join(segment.data for segment in found) == b"".join(model.data for _, model in models)
    pieces = {
        key: segment.data[entry.start : entry.start + entry.length]
        for segment in found
        for key, entry in segment.models
    }
    assert pieces == {key: model.data for key, model in models}
