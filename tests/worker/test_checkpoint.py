"""Checkpoints: what is written can be read whole after any failure, and damage is never taken for state."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.support.manifests import forge, loaded, put_together, taken_apart
from tests.worker.support.stores import DictStore, Fault, FaultyStore
from worker.adapters.store import FileStore
from worker.base.errors import CorruptCheckpoint, NotFound, Transient
from worker.base.ports import ObjectStore
from worker.checkpoint import (
    Checkpoints,
    Location,
    Manifest,
    Policy,
    SavedModel,
    Source,
    describe,
    segments,
    state_hash,
)

HERE = Location("group", "main", "events", "topic-id", 3)
HOUR_MS = 3600 * 1000


def models(state: Mapping[str, bytes], spec: str = "spec") -> dict[str, Source]:
    return {key: partial(SavedModel, spec, data, {"samples": len(data)}) for key, data in state.items()}


def write(checkpoints: Checkpoints, offset: int, state: Mapping[str, bytes] | None = None, **more: Any) -> Manifest:
    arguments = {"start_offset": 0, "engine": "engine-1", "created_ms": offset, "dirty": models(state or {})}
    return checkpoints.write(offset=offset, **(arguments | more))


def names(store: DictStore, kind: str) -> list[str]:
    return sorted(name for name in store.objects if name.endswith(kind))


def first_whole(checkpoints: Checkpoints) -> tuple[Manifest, dict[str, bytes]] | None:
    """What a restore comes to: the newest checkpoint whose models are whole."""
    for manifest, saved in checkpoints.restorable():
        try:
            return manifest, {key: model.data for key, model in saved}
        except CorruptCheckpoint as error:
            checkpoints.pass_over(str(error))
    return None


@pytest.fixture
def store() -> DictStore:
    return DictStore()


@pytest.fixture
def checkpoints(store: DictStore) -> Checkpoints:
    return Checkpoints(store, HERE)


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
    assert len(names(store, "segment")) == 1


def test_file_names_carry_place_offset_and_hash(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 41, {"a": b"1"})
    for name, data in store.objects.items():
        folder, _, file = name.rpartition("/")
        assert folder == "group/main/events-topic-id/3"
        assert file.partition(".")[0] == f"{41:020d}-{hashlib.sha256(data).hexdigest()}"


def test_an_empty_state_is_a_checkpoint(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 5, start_offset=5)
    manifest, state = first_whole(checkpoints)
    assert (manifest.start_offset, manifest.offset, state) == (5, 5, {})
    assert names(store, "segment") == []


def test_a_checkpoint_whose_segment_is_gone_is_passed_over_before_any_is_read(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    first = write(checkpoints, 1, {"a": b"1"})
    write(checkpoints, 2, {"b": b"2"}, previous=first)
    gone = next(name for name in names(store, "segment") if f"{2:020d}" in name)
    del store.objects[gone]
    assert [manifest.offset for manifest, _ in _take(checkpoints.restorable(), 1)] == [1]
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
    assert [manifest.offset for manifest, _ in _take(Checkpoints(behind, HERE).restorable(), 1)] == [1]


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
    assert len(names(store, "segment")) == 2


def test_a_model_that_is_removed_and_comes_back_is_the_new_one(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"a": b"old", "b": b"keep"})
    second = write(checkpoints, 2, {"a": b"new"}, removed=["a"], previous=first)
    assert loaded(checkpoints, second) == {"a": b"new", "b": b"keep"}


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
    assert [manifest.offset for manifest, _ in _take(checkpoints.restorable(10), 2)] == [10, 9]


def _take(items: Any, count: int) -> list[Any]:
    return [item for _, item in zip(range(count), items, strict=False)]


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
    chain = _chain(checkpoints, 5, HOUR_MS)
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
    [listed] = [name for name in names(store, "manifest") if f"{5:020d}" in name]
    last = write(owner, 12, {"c": b"c"}, previous=base)
    [newer] = [name for name in names(store, "manifest") if f"{12:020d}" in name]
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


@pytest.mark.parametrize(
    "location",
    [
        Location("..", ".tmp", "a.b_c-d", "id", 0),
        Location("a/b", "x~p3@7", "t", "-_id", 12),
        Location("группа", "a b%", "t", "i", 1),
    ],
)
def test_any_group_and_lineage_has_a_folder_of_its_own(store: DictStore, location: Location) -> None:
    checkpoints = Checkpoints(store, location)
    write(checkpoints, 1, {"a": b"1"})
    assert checkpoints.newest() is not None
    segments = location.prefix.split("/")
    assert len(segments) == 4
    assert not any(segment.startswith(".") or not segment.isascii() for segment in segments)


def test_names_of_any_length_have_folders_that_a_file_system_takes(tmp_path: Path) -> None:
    store, topics = FileStore(tmp_path), ["t" * 249, "t" * 248 + "u", "t" * 232]
    groups = ["é" * 300, "é" * 301, "a" + "é" * 300, "ab" + "é" * 300]
    locations = [Location(group, group, topic, "i" * 22, 0) for topic in topics for group in groups]
    for location in locations:
        write(Checkpoints(store, location), 1, {"a": b"1"})
    assert len({location.prefix for location in locations}) == len(locations)
    for segment in {segment for location in locations for segment in location.prefix.split("/")}:
        assert len(segment) <= 255
        assert re.fullmatch(r"([^%]|%[0-9A-F]{2})+", segment)


def test_names_that_a_file_system_takes_are_their_own_folders() -> None:
    location = Location("g" * 255, "l" * 255, "t" * 232, "i" * 22, 0)
    assert location.prefix == f"{'g' * 255}/{'l' * 255}/{'t' * 232}-{'i' * 22}/0"


# Divergence


def test_equal_models_do_not_diverge(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"b": b"3"}, previous=first)
    write(checkpoints, 2, {"a": b"1", "b": b"3"}, created_ms=99)
    assert len(checkpoints.offsets()) == 2
    assert checkpoints.diverged(2) == []


def test_different_bytes_for_one_model_at_one_offset_are_found(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2", "c": b"3"})
    write(checkpoints, 2, {"a": b"1", "b": b"x", "c": b"y"})
    write(checkpoints, 3, {"a": b"other"})
    assert checkpoints.diverged(2) == ["b", "c"]
    assert len(names(store, "manifest")) == 3
    assert checkpoints.newest(2) == Checkpoints(store, HERE).newest(2)


def test_a_model_that_only_one_of_them_has_is_found(checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"a": b"1"})
    assert checkpoints.diverged(2) == ["b"]


def test_states_with_a_change_out_of_band_or_another_beginning_may_differ(
    checkpoints: Checkpoints,
) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"a": b"2"}, revision=1)
    write(checkpoints, 2, {"a": b"3"}, start_offset=1)
    assert checkpoints.diverged(2) == []
    write(checkpoints, 2, {"a": b"4"}, revision=1)
    assert checkpoints.diverged(2) == ["a"]


def test_another_engine_or_spec_may_differ(checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1"})
    write(checkpoints, 2, {"a": b"2"}, engine="engine-2")
    write(checkpoints, 2, dirty=models({"a": b"3"}, spec="other"))
    assert checkpoints.diverged(2) == []


# Compaction


def test_dead_bytes_stay_below_half_of_the_living(checkpoints: Checkpoints, store: DictStore) -> None:
    state = {f"{number:02d}": bytes([number]) * 10 for number in range(20)}
    manifest = write(checkpoints, 1, state)
    written = 200
    for offset in range(2, 60):
        dirty = {f"{(offset * 7 + step) % 20:02d}": bytes([offset]) * 10 for step in range(3)}
        state |= dirty
        manifest = write(checkpoints, offset, dirty, previous=manifest)
        assert loaded(checkpoints, manifest) == state
        assert sum(manifest.segments.values()) <= 200 + 100
        written += 30
    stored = sum(len(data) for name, data in store.objects.items() if name.endswith("segment"))
    assert stored <= 4 * written


def test_models_that_stay_where_they_are_are_not_copied(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"hot": b"h" * 30, "cold": b"c" * 70})
    second = write(checkpoints, 2, {"hot": b"i" * 30}, previous=first)
    assert second.models["cold"] == first.models["cold"]
    third = write(checkpoints, 3, {"other": b"o"}, removed=["hot"], previous=second)
    assert third.models["cold"] == first.models["cold"]
    fourth = write(checkpoints, 4, {"cold": b"d" * 70}, removed=["other"], previous=third)
    assert sorted(fourth.segments.values()) == [70]


def test_a_wasteful_segment_is_rewritten_and_an_economical_one_is_not(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"solid": b"s" * 60})
    second = write(checkpoints, 2, {"big": b"b" * 90, "small": b"x" * 10}, previous=first)
    third = write(checkpoints, 3, removed=["big"], previous=second)
    assert third.models["solid"] == first.models["solid"]
    assert third.models["small"].segment.startswith(f"{3:020d}")
    assert sorted(third.segments.values()) == [10, 60]
    assert loaded(checkpoints, third) == {"solid": b"s" * 60, "small": b"x" * 10}
    assert third.models["small"].summary == second.models["small"].summary


def test_small_segments_stay_few(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 4)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 100)
    state = {"large": b"l" * 60}
    manifest = write(checkpoints, 0, state)
    large = manifest.models["large"]
    for offset in range(1, 30):
        dirty = {f"key-{offset}": b"%03d" % offset}
        state |= dirty
        manifest = write(checkpoints, offset, dirty, previous=manifest)
        assert sum(size < 50 for size in manifest.segments.values()) <= 4 + 1
        assert manifest.models["large"] == large
    assert loaded(checkpoints, manifest) == state


def test_compaction_refuses_damaged_models(store: DictStore, checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"big": b"b" * 90, "small": b"x" * 10})
    (segment,) = names(store, "segment")
    store.objects[segment] = store.objects[segment][:-1] + b"?"
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        write(checkpoints, 2, removed=["big"], previous=first)
    assert checkpoints.offsets() == [1]


# Damage


def _flipped(data: bytes) -> list[bytes]:
    flips = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    return [*flips, b"", data[:-1], data + b"\0", data[: len(data) // 2]]


@pytest.mark.parametrize("kind", ["manifest", "segment"])
def test_any_damage_to_the_newest_checkpoint_falls_back(store: DictStore, checkpoints: Checkpoints, kind: str) -> None:
    old = {"a": b"old", "b": b"2"}
    write(checkpoints, 1, old)
    write(checkpoints, 2, {"a": b"new", "b": b"3"})
    name = names(store, kind)[-1]
    intact = store.objects[name]
    for damaged in _flipped(intact):
        store.objects[name] = damaged
        reader = Checkpoints(store, HERE)
        manifest, state = first_whole(reader)
        assert (manifest.offset, state) == (1, old)
        assert len(reader.skipped) == 1
        assert name in reader.skipped[0]


def test_a_missing_segment_falls_back(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"old"})
    newest = write(checkpoints, 2, {"a": b"new"})
    del store.objects[names(store, "segment")[-1]]
    manifest, state = first_whole(checkpoints)
    assert (manifest.offset, state) == (1, {"a": b"old"})
    for load in (lambda: loaded(checkpoints, newest), lambda: checkpoints.load_one(newest, "a")):
        with pytest.raises(CorruptCheckpoint, match="missing"):
            load()


def test_one_model_of_a_damaged_segment_is_refused(store: DictStore, checkpoints: Checkpoints) -> None:
    manifest = write(checkpoints, 1, {"a": b"123", "b": b"456"})
    (segment,) = names(store, "segment")
    for damaged, good, bad in ((b"12x456", "b", "a"), (b"12345", "a", "b"), (b"", None, "a")):
        store.objects[segment] = damaged
        if good:
            assert checkpoints.load_one(manifest, good) in (b"123", b"456")
        with pytest.raises(CorruptCheckpoint, match=f"does not hold model '{bad}'"):
            checkpoints.load_one(manifest, bad)


def test_nothing_readable_is_not_nothing_there(store: DictStore, checkpoints: Checkpoints) -> None:
    for offset in (1, 2):
        write(checkpoints, offset, {"a": b"1"})
    for name in names(store, "segment"):
        store.objects[name] = b"?"
    assert checkpoints.newest() is not None
    with pytest.raises(CorruptCheckpoint, match=r"none of the 2 checkpoints .* from offset 1 to 2 can be used"):
        first_whole(checkpoints)
    for name in names(store, "manifest"):
        store.objects[name] = b"?"
    with pytest.raises(CorruptCheckpoint, match="none of the 2"):
        checkpoints.newest()
    assert checkpoints.newest(0) is None


def test_a_checkpoint_that_its_reader_refuses_is_not_the_end(checkpoints: Checkpoints) -> None:
    for offset in (1, 2):
        write(checkpoints, offset, {"a": b"1"})
    attempts = checkpoints.restorable()
    assert [manifest.offset for manifest, _ in _take(attempts, 2)] == [2, 1]
    with pytest.raises(CorruptCheckpoint, match="none of the 2"):
        next(attempts)


def test_a_skipped_checkpoint_is_logged(
    store: DictStore, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    write(checkpoints, 1, {"a": b"1"})
    name = forge(store, HERE.prefix, 2, put_together({"format": 2}, []))
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest().offset == 1
    assert [name in record.getMessage() for record in caplog.records] == [True]


KEY, SEGMENT, START, LENGTH, SHA256 = 0, 2, 3, 4, 5
ABSENT = f"{1:020d}-{'0' * 64}"
DAMAGE: dict[str, tuple[Callable[[dict[str, Any], list[Any]], object], str]] = {
    "format": (lambda m, _: m.update(format=1), "has format 1, this version reads format 2"),
    "no format": (lambda m, _: m.pop("format"), "is not a manifest"),
    "unknown field": (lambda m, _: m.update(more=1), "is not a manifest"),
    "wrong type": (lambda m, _: m.update(segments=[]), "is not a manifest"),
    "negative start": (lambda _, rows: rows[0].__setitem__(START, -1), "is not a manifest"),
    "negative segment": (lambda _, rows: rows[0].__setitem__(SEGMENT, -1), "is not a manifest"),
    "short hash": (lambda _, rows: rows[0].__setitem__(SHA256, b"0"), "is not a manifest"),
    "no entry": (lambda _, rows: rows.append(1), "is not a manifest"),
    "escaping name": (lambda m, _: m.update(segments={"../../secret": 1}), "is not a manifest"),
    "escaping base": (lambda m, _: m.update(base="../../secret"), "is not a manifest"),
    "other partition": (lambda m, _: m["location"].update(partition=4), "belongs to group/main/events-topic-id/4"),
    "other topic": (
        lambda m, _: m["location"].update(topic_id="recreated"),
        "belongs to group/main/events-recreated/3",
    ),
    "other offset": (lambda m, _: m.update(offset=8), "its name says 9"),
    "starts after its end": (lambda m, _: m.update(start_offset=10), "from 10 to 9"),
    "other model": (lambda _, rows: rows[0].__setitem__(SHA256, bytes(32)), "state hash"),
    "model lost": (lambda m, rows: (rows.clear(), m.update(segments={})), "state hash"),
    "model twice": (lambda _, rows: rows.append(rows[0]), "has a model twice"),
    "segment not listed": (lambda m, _: m.update(segments={}), "does not list the segments"),
    "segment too many": (lambda m, _: m["segments"].update({f"{ABSENT}.segment": 1}), "that no model of it is in"),
    "past the end": (lambda _, rows: rows[0].__setitem__(LENGTH, 10), "past the end"),
    "later segment": (lambda m, _: m.update(segments={f"{10:020d}-{'0' * 64}.segment": 1}), "a later segment"),
    "removes without a base": (lambda m, _: m.update(removed=["b"]), "without a base"),
    "delta of nothing": (lambda m, _: m.update(base=f"{ABSENT}.manifest"), "which is missing"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_well_formed_file_with_wrong_content_is_refused(
    store: DictStore, checkpoints: Checkpoints, case: str
) -> None:
    change, message = DAMAGE[case]
    write(checkpoints, 1, {"a": b"1"})
    elsewhere = DictStore()
    write(Checkpoints(elsewhere, HERE), 9, {"a": b"1"})
    header, entries = taken_apart(elsewhere.objects[names(elsewhere, "manifest")[0]])
    change(header, entries)
    name = forge(store, HERE.prefix, 9, put_together(header, entries))
    assert checkpoints.newest().offset == 1
    (problem,) = checkpoints.skipped
    assert problem.startswith(name)
    assert message in problem


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\0\0\0\1",
        b"\0\0\0\0",
        b"\xff" * 20,
        put_together([], []),
        (100_000).to_bytes(4, "big") + b"\x91" * 100_000,
        (100_009).to_bytes(4, "big") + b"\x82\xa6format\x02" + b"\x91" * 100_000,
    ],
    ids=range(8),
)
def test_a_file_that_is_no_manifest_is_refused(store: DictStore, checkpoints: Checkpoints, data: bytes) -> None:
    forge(store, HERE.prefix, 9, data)
    with pytest.raises(CorruptCheckpoint, match="none of the 1"):
        checkpoints.newest()
    assert "is not a manifest" in checkpoints.skipped[0]


def test_a_copied_folder_is_foreign(store: DictStore, checkpoints: Checkpoints) -> None:
    write(Checkpoints(store, msgspec.structs.replace(HERE, partition=4)), 1, {"a": b"1"})
    for name in list(store.objects):
        store.objects[name.replace("topic-id/4", "topic-id/3")] = store.objects[name]
    with pytest.raises(CorruptCheckpoint):
        checkpoints.newest()


# Garbage collection


def _chain(checkpoints: Checkpoints, count: int, every_ms: int) -> list[Manifest]:
    """A checkpoint every `every_ms`; "cold" is written once, "hot" each time, neither is ever worth moving.

    Every third manifest is a base, the two after it are deltas.
    """
    chain = [write(checkpoints, 0, {"cold": b"c" * 100, "hot": b"0"}, created_ms=0)]
    for offset in range(1, count):
        dirty = {"hot": b"%d" % offset}
        chain.append(write(checkpoints, offset, dirty, created_ms=offset * every_ms, previous=chain[-1]))
    return chain


def test_young_checkpoints_stay(store: DictStore, checkpoints: Checkpoints) -> None:
    _chain(checkpoints, 20, HOUR_MS)
    before = dict(store.objects)
    assert checkpoints.collect_garbage(23 * HOUR_MS) == []
    assert store.objects == before


def test_old_checkpoints_go_with_what_only_they_needed(store: DictStore, checkpoints: Checkpoints) -> None:
    chain = _chain(checkpoints, 40, HOUR_MS)
    deleted = checkpoints.collect_garbage(40 * HOUR_MS)
    kept = [chain[15], *chain[17:]]  # 17 is a delta of 15
    assert checkpoints.offsets() == [manifest.offset for manifest in kept]
    needed = {f"{HERE.prefix}/{name}" for manifest in kept for name in manifest.segments}
    assert set(names(store, "segment")) == needed
    assert len(deleted) == 16 + 15
    for manifest in kept:
        assert loaded(checkpoints, manifest)["cold"] == b"c" * 100


def test_of_older_checkpoints_the_first_of_each_hour_stays(checkpoints: Checkpoints) -> None:
    chain = _chain(checkpoints, 61, HOUR_MS // 20)
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
    _chain(checkpoints, count, HOUR_MS)
    checkpoints.collect_garbage(1000 * HOUR_MS)
    assert checkpoints.offsets() == kept
    assert checkpoints.collect_garbage(1000 * HOUR_MS) == []


@pytest.mark.parametrize("seed", range(8))
def test_of_many_changes_at_one_offset_the_last_ones_stay(checkpoints: Checkpoints, seed: int) -> None:
    manifest = None
    for revision in range(7):
        changed = {"a": b"%d %d" % (seed, revision)}
        manifest = write(checkpoints, 5, changed, previous=manifest, revision=revision)
        checkpoints.collect_garbage(manifest.created_ms, manifest, committed=0)
        kept = [each.revision for each, _ in _take(checkpoints.restorable(), min(revision + 1, 3))]
        assert kept == list(range(revision, max(-1, revision - 3), -1))


def test_damaged_checkpoints_do_not_count_and_protect_what_they_may_need(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    _chain(checkpoints, 8, HOUR_MS)
    for name in names(store, "manifest")[-3:]:
        store.objects[name] = b"?"
    segments = names(store, "segment")
    # Not by who wrote them, and knows what they were.
    Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS)
    assert checkpoints.offsets() == [0, 2, 3, 4, 5, 6, 7]  # 2 is a delta of 0
    assert names(store, "segment") == segments
    assert checkpoints.newest().offset == 4


def test_nothing_is_deleted_while_nothing_can_be_read(store: DictStore, checkpoints: Checkpoints) -> None:
    _chain(checkpoints, 5, HOUR_MS)
    for name in names(store, "manifest"):
        store.objects[name] = b"?"
    assert Checkpoints(store, HERE).collect_garbage(1000 * HOUR_MS) == []


def test_threads_may_be_the_first_to_read_a_manifest(store: DictStore) -> None:
    """msgspec 0.22 reads through a null pointer where two of them ask for a type that it has not seen before."""
    write(Checkpoints(store, HERE), 1, dirty={})
    name, data = next((name, data) for name, data in store.objects.items() if name.endswith(".manifest"))
    program = f"""
import importlib, sys, threading
from worker.checkpoint import manifest

class Store:
    def read(self, name):
        return {data!r}

sys.setswitchinterval(1e-6)
for _ in range(200):
    importlib.reload(manifest)
    start = threading.Barrier(3)
    def read():
        start.wait()
        manifest.Reader(Store(), {HERE.prefix!r}).read({name.rpartition("/")[2]!r})
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_manifests_go_before_segments(store: DictStore) -> None:
    _chain(Checkpoints(store, HERE), 10, HOUR_MS)
    journal = FaultyStore(store, {})
    Checkpoints(journal, HERE).collect_garbage(1000 * HOUR_MS)
    deleted = [name.rpartition("/")[2] for call, name in journal.log if call == "delete"]
    assert [name.rpartition(".")[2] for name in deleted] == ["manifest"] * 6 + ["segment"] * 5
    # Deltas go before their bases, so that what is left of them is never one that nobody can read.
    assert [int(name[:20]) for name in deleted[:6]] == [1, 2, 4, 5, 0, 3]


def test_orphans_go_but_not_those_whose_manifest_may_be_on_its_way(store: DictStore, checkpoints: Checkpoints) -> None:
    _chain(checkpoints, 4, HOUR_MS)
    older, same, newer = (f"{HERE.prefix}/{offset:020d}-{'0' * 64}.segment" for offset in (2, 3, 4))
    store.objects |= {older: b"?", same: b"?", newer: b"?"}
    checkpoints.collect_garbage(4 * HOUR_MS)
    assert older not in store.objects
    assert {same, newer} <= store.objects.keys()


def test_what_the_next_checkpoint_builds_on_stays(checkpoints: Checkpoints) -> None:
    chain = _chain(checkpoints, 10, HOUR_MS)
    checkpoints.collect_garbage(1000 * HOUR_MS, current=chain[2])
    following = write(checkpoints, 3, {"new": b"n"}, previous=chain[2])
    assert loaded(checkpoints, following) == {"cold": b"c" * 100, "hot": b"2", "new": b"n"}


def test_known_manifests_are_not_read_again(store: DictStore) -> None:
    _chain(Checkpoints(store, HERE), 10, HOUR_MS)
    journal = FaultyStore(store, {})
    checkpoints = Checkpoints(journal, HERE)
    checkpoints.collect_garbage(10 * HOUR_MS)
    read = [call for call, _ in journal.log].count("read")
    checkpoints.collect_garbage(10 * HOUR_MS)
    assert [call for call, _ in journal.log].count("read") == read == 10


# Failures


def _scenario(checkpoints: Checkpoints, confirmed: dict[int, dict[str, bytes]]) -> None:
    """A life of checkpoints with compaction and garbage collection; `confirmed` gets each state once it is written."""
    state: dict[str, bytes] = {}
    previous = None
    for offset in range(1, 7):
        dirty = {f"k{offset % 3}": b"%d" % offset * 10, "hot": b"%d" % offset * 30}
        removed = [f"k{(offset + 1) % 3}"] if offset % 2 else []
        state = {key: data for key, data in state.items() if key not in removed} | dirty
        previous = write(checkpoints, offset, dirty, removed=removed, previous=previous, created_ms=0)
        confirmed[offset] = state
        if offset % 3 == 0:
            checkpoints.collect_garbage(1000 * HOUR_MS, previous)


EXPECTED: dict[int, dict[str, bytes]] = {}
_journal = FaultyStore(DictStore(), {})
_scenario(Checkpoints(_journal, HERE), EXPECTED)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", range(len(_journal.log)))
def test_a_crash_at_any_step_leaves_a_whole_checkpoint(store: DictStore, step: int, fault: Fault) -> None:
    confirmed: dict[int, dict[str, bytes]] = {}
    with pytest.raises(Transient):
        _scenario(Checkpoints(FaultyStore(store, {step: fault}), HERE), confirmed)

    survivor = Checkpoints(store, HERE)
    found = first_whole(survivor)
    if found is None:
        assert confirmed == {}
        return
    manifest, state = found
    assert manifest.offset >= max(confirmed, default=0)
    assert state == EXPECTED[manifest.offset]
    assert survivor.skipped == []

    write(survivor, 7, {"after": b"crash"}, previous=manifest)
    survivor.collect_garbage(2000 * HOUR_MS)
    assert first_whole(survivor)[1] == EXPECTED[manifest.offset] | {"after": b"crash"}


def test_the_scenario_compacts_and_collects() -> None:
    calls = {(call, name.rpartition(".")[2]) for call, name in _journal.log}
    assert {("read", "segment"), ("delete", "manifest"), ("delete", "segment")} <= calls


@dataclass
class Life:
    """A worker that checkpoints over a failing store, beside a dict that says what is true."""

    store: DictStore = field(default_factory=DictStore)
    truth: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Offset -> state, as far as a checkpoint of it may exist."""
    state: dict[str, bytes] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    offset: int = 0
    confirmed: int = -1
    previous: Manifest | None = None

    def learn(self, changes: Mapping[str, bytes | None]) -> None:
        self.offset += 1
        for key, data in changes.items():
            if data is None:
                self.removed |= {key} & self.state.keys()
                self.state.pop(key, None)
                self.dirty.discard(key)
            else:
                self.state[key] = data
                self.dirty.add(key)

    def save(self, faults: Mapping[int, Fault]) -> None:
        self.truth[self.offset] = dict(self.state)
        try:
            self.previous = write(
                Checkpoints(FaultyStore(self.store, faults), HERE),
                self.offset,
                {key: self.state[key] for key in self.dirty},
                removed=self.removed,
                previous=self.previous,
                created_ms=self.offset * HOUR_MS,
            )
        except Transient:
            return
        self.confirmed = self.offset
        self.dirty, self.removed = set(), set()

    def collect(self, faults: Mapping[int, Fault]) -> None:
        checkpoints = Checkpoints(FaultyStore(self.store, faults), HERE)
        try:
            checkpoints.collect_garbage(self.offset * HOUR_MS + 10 * HOUR_MS, self.previous)
        except Transient:
            return

    def crash(self) -> None:
        found = first_whole(Checkpoints(self.store, HERE))
        if found is None:
            assert self.confirmed == -1
            return
        self.previous, self.state = found
        self.offset = self.previous.offset
        assert self.offset >= self.confirmed
        assert self.state == self.truth[self.offset]
        self.dirty, self.removed = set(), set()

    def lose_newest(self) -> None:
        """The newest checkpoint rots on disk; those that do not need it must still be whole."""
        manifests = names(self.store, "manifest")
        bases = {taken_apart(self.store.objects[name])[0]["base"] for name in manifests}
        if len(manifests) > 1:
            newest = [name for name in manifests if name.rpartition("/")[2] not in bases][-1]
            self.store.objects[newest] += b" "
            manifests.remove(newest)
            self.confirmed = int(manifests[-1].rpartition("/")[2][:20])


KEYS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(min_size=1, max_size=12), max_size=4)
FAULTS = st.dictionaries(st.integers(0, 6), st.sampled_from(Fault), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("learn"), CHANGES),
    st.tuples(st.just("save"), FAULTS),
    st.tuples(st.just("save"), st.just({})),
    st.tuples(st.just("collect"), FAULTS),
    st.tuples(st.just("crash")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_any_life_can_be_resumed_from_its_newest_checkpoint(steps: list[Any], rot: bool) -> None:
    life = Life()
    for step, *arguments in steps:
        getattr(life, step)(*arguments)
    if rot:
        life.lose_newest()
    life.crash()


# Policy and listing


def test_the_interval_is_over_at_its_end() -> None:
    policy = Policy(interval_s=30.0, recovery_budget_s=10.0)
    assert policy.is_over(30.0)
    assert not policy.is_over(29.9)


@pytest.mark.parametrize(
    ("replay_s", "writing_s", "spent"),
    [(9.9, 0.0, False), (10.0, 0.0, True), (7.9, 2.0, False), (8.0, 2.0, True), (4.9, 60.0, False), (5.0, 60.0, True)],
)
def test_the_recovery_budget_leaves_room_for_the_time_that_writing_takes(
    replay_s: float, writing_s: float, spent: bool
) -> None:
    assert Policy(interval_s=30.0, recovery_budget_s=10.0).spent(replay_s, writing_s) is spent


def test_a_source_is_asked_when_its_turn_comes(store: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all models that changed would be in memory once more."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    journal = FaultyStore(store, {})

    def source(data: bytes) -> SavedModel:
        journal.log.append(("source", data.decode()))
        return SavedModel("spec", data, {})

    write(Checkpoints(journal, HERE), 1, dirty={key: partial(source, key.encode()) for key in "abc"})
    calls = [call if call == "create" else name for call, name in journal.log]
    assert calls == ["a", "b", "create", "c", "create", "create", "create"]


class Below:
    """The part of a store below a folder, as a URL with that folder in its path shows it."""

    def __init__(self, store: DictStore, folder: str) -> None:
        self.store, self.folder = store, folder

    def list(self, prefix: str) -> list[str]:
        assert prefix == ""
        return [name.removeprefix(self.folder + "/") for name in self.store.list(self.folder)]

    def read(self, name: str) -> bytes:
        return self.store.read(f"{self.folder}/{name}")


def test_describe_walks_all_locations(store: DictStore) -> None:
    others = [msgspec.structs.replace(HERE, partition=4), msgspec.structs.replace(HERE, lineage="trial")]
    for location in (HERE, *others):
        write(Checkpoints(store, location), 1, {"a": b"1"})
        write(Checkpoints(store, location), 2, {"a": b"2"})
    store.objects["unrelated/file"] = b"?"
    listings = list(describe(store))
    assert [listing.folder for listing in listings] == [HERE.prefix, others[0].prefix, others[1].prefix]
    assert [(listing.manifests, listing.newest.offset, listing.problems) for listing in listings] == [(2, 2, [])] * 3


def test_describe_starts_at_any_folder(store: DictStore, checkpoints: Checkpoints) -> None:
    manifest = write(checkpoints, 1, {"a": b"1"})
    parts = HERE.prefix.split("/")
    for depth in range(1, 5):
        view: ObjectStore = Below(store, "/".join(parts[:depth]))
        (listing,) = describe(view)
        assert listing.folder == "/".join(parts[depth:])
        assert (listing.newest, listing.problems) == (manifest, [])


def test_describe_tells_what_is_wrong(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"1"})
    store.objects.pop(names(store, "segment")[0])
    damaged = forge(store, HERE.prefix, 5, put_together({"format": 99}, []))
    (listing,) = describe(store)
    assert (listing.manifests, listing.newest.offset) == (2, 1)
    assert [problem.split(" ")[0] for problem in listing.problems] == [
        damaged,
        f"{HERE.prefix}/{1:020d}-{hashlib.sha256(b'1').hexdigest()}.segment",
    ]
