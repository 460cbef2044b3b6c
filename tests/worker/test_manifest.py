"""Manifests: bases and deltas say the same as one table would, and cost what has changed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from tests.worker.support.checkpoints import HERE, files, first_of, write
from tests.worker.support.manifests import forge, loaded, put_together, taken_apart
from tests.worker.support.stores import DictStore, FaultyStore
from worker.base.errors import CorruptCheckpoint
from worker.checkpoint import Catalogue, Checkpoints, Manifest, Reader, state_hash
from worker.checkpoint.manifest import FRAME_ENTRIES
from worker.checkpoint.retention import KEPT_MS

MODELS = 100_000
WITHIN_S = 0.1
"""Of the thread's own time for a checkpoint of which one model in 100,000 has changed; a base takes more than 1 s."""


def headers(store: DictStore) -> list[dict[str, Any]]:
    return [taken_apart(store.objects[name])[0] for name in files(store, "manifest")]


# Bases and deltas


def test_a_delta_holds_what_has_changed_since_its_base_and_nothing_else(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    first = write(checkpoints, 1, {key: b"%d" % i for i, key in enumerate("abcdefgh")})
    second = write(checkpoints, 2, {"b": b"new", "z": b"z"}, first, removed=["c"])
    third = write(checkpoints, 3, {"a": b"new"}, second)
    base, *deltas = (taken_apart(store.objects[name]) for name in files(store, "manifest"))
    assert (base[0]["base"], len(base[1])) == (None, 8)
    assert [header["base"] for header, _ in deltas] == [files(store, "manifest")[0].rpartition("/")[2]] * 2
    assert [[key for key, *_ in entries] for _, entries in deltas] == [["b", "z"], ["b", "z", "a"]]
    assert [header["removed"] for header, _ in deltas] == [["c"], ["c"]]
    assert [len(header["segments"]) for header, _ in deltas] == [1, 2]
    assert Reader(store, HERE.prefix).read(files(store, "manifest")[-1].rpartition("/")[2]) == third
    assert loaded(checkpoints, third) == {
        **{key: b"%d" % i for i, key in enumerate("abcdefgh") if key not in "abc"},
        "a": b"new",
        "b": b"new",
        "z": b"z",
    }


def test_another_base_is_written_once_the_deltas_have_had_as_many_entries(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    manifest = write(checkpoints, 1, {f"{i}": b"1" * 100 for i in range(10)})
    for offset in range(2, 9):
        manifest = write(checkpoints, offset, {f"new {offset}": b"2"}, manifest)
    # 1 + 2 + 3 + 4 entries are as many as there are models.
    assert [header["base"] is None for header in headers(store)] == [True, *[False] * 4, True, False, False]
    assert [header["deltas"] for header in headers(store)] == [0, 1, 3, 6, 10, 0, 1, 3]


def test_any_sequence_of_changes_reads_as_what_was_written(store: DictStore) -> None:
    rng, checkpoints = random.Random(7), Checkpoints(store, HERE)
    state: dict[str, bytes] = {}
    manifest: Manifest | None = None
    for offset in range(1, 200):
        if rng.random() < 0.1:  # Somebody else goes on from what is in the store.
            manifest = Checkpoints(store, HERE).newest()
        gone = [key for key in state if rng.random() < 0.05]
        changed = {f"k{rng.randint(0, 25)}": rng.randbytes(rng.randint(0, 9)) for _ in range(rng.randint(0, 3))}
        state = {key: data for key, data in state.items() if key not in gone} | changed
        manifest = write(checkpoints, offset, changed, manifest, removed=gone)
        found = Checkpoints(store, HERE).newest()
        assert found == manifest
        assert found.models.keys() == state.keys()
        assert len(found.models) == len(state)
        assert found.models.alive_bytes == sum(map(len, state.values()))
        assert (found.models.usage, found.models.deltas) == (manifest.models.usage, manifest.models.deltas)
        assert found.models.usage == Catalogue.of(dict(found.models), found.segments).usage
        assert found.state_hash == state_hash(dict(found.models))
        assert loaded(checkpoints, found) == state
    assert min(Counter(header["base"] is None for header in headers(store)).values()) > 40


def test_entries_are_cut_into_frames(store: DictStore) -> None:
    models = {f"{i}": b"" for i in range(2 * FRAME_ENTRIES + 1)}
    manifest = write(Checkpoints(store, HERE), 1, models)
    assert Checkpoints(store, HERE).newest() == manifest
    data, n, at = store.objects[files(store, "manifest")[0]], 0, 0
    while at < len(data):
        n, at = n + 1, at + 4 + int.from_bytes(data[at : at + 4], "big")
    assert n == 1 + 3


# Damage


def flipped(data: bytes) -> list[bytes]:
    flips = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    return [*flips, *(data[:n] for n in range(0, len(data), 7)), data + b"\0"]


@pytest.mark.parametrize("damaged", [1, 2])
def test_any_damage_to_a_base_or_a_delta_leads_to_a_checkpoint_before_or_to_a_stop(
    store: DictStore, damaged: int
) -> None:
    checkpoints = Checkpoints(store, HERE)
    before = write(checkpoints, 1, {"a": b"old", "b": b"2"}, start_offset=1)
    base = write(checkpoints, 2, {"a": b"1", "b": b"2", "c": b"3"}, start_offset=1)
    write(checkpoints, 3, {"a": b"new"}, base, removed=["b"], start_offset=1)
    name = files(store, "manifest")[damaged]
    intact = store.objects[name]
    for data in [*flipped(intact), None]:
        if data is None:
            del store.objects[name]
        else:
            store.objects[name] = data
        reader = Checkpoints(store, HERE)
        assert reader.newest() == (before if damaged == 1 else base)
        assert data is None or name in "".join(reader.skipped)
    store.objects[name] = intact
    del store.objects[files(store, "manifest")[0]], store.objects[files(store, "manifest")[0]]
    with pytest.raises(CorruptCheckpoint, match="none of the 1 checkpoints"):
        Checkpoints(store, HERE).newest()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"removed": ["c"]}, "base does not have"),
        ({"removed": ["a"]}, "that it has itself"),
        ({"removed": ["b"]}, "state hash"),
        ({"base": "of another history"}, "of another history"),
        ({"base": "of a later offset"}, "of another history"),
        ({"covered": 8}, "covers them up to 8"),
        ({"segments": "of another size"}, "points past the end of a segment, or into one that it does not list"),
    ],
)
def test_a_delta_that_does_not_fit_its_base_is_refused(store: DictStore, changes: dict[str, Any], problem: str) -> None:
    checkpoints = Checkpoints(store, HERE)
    base = write(checkpoints, 1, {"a": b"1", "b": b"2"})
    write(checkpoints, 9, {"a": b"new"}, base)
    delta = files(store, "manifest")[-1]
    header, entries = taken_apart(store.objects.pop(delta))
    others = {
        "of another history": write(checkpoints, 5, {"a": b"1"}, start_offset=5),
        "of a later offset": write(checkpoints, 10, {"a": b"1"}),
    }
    if "base" in changes:
        changes = {"base": others[changes["base"]].models.base_name}
    if "segments" in changes:
        changes = {"segments": {name: size + 7 for name, size in base.segments.items()}}
    forged = forge(store, HERE.prefix, 9, put_together(header | changes, entries))
    with pytest.raises(CorruptCheckpoint, match=problem) as caught:
        Reader(store, HERE.prefix).read(forged.rpartition("/")[2])
    assert str(caught.value).startswith(forged)
    assert Checkpoints(store, HERE).newest(4) == base


def test_a_file_that_is_nested_deeper_than_the_stack_is_no_manifest(store: DictStore) -> None:
    first = b"\x82\xa6format\x02\xa1x" + b"\x91" * 100_000 + b"\x90"
    forged = forge(store, HERE.prefix, 9, len(first).to_bytes(4) + first)
    with pytest.raises(CorruptCheckpoint, match="is not a manifest"):
        Reader(store, HERE.prefix).read(forged.rpartition("/")[2])


def test_the_delta_of_a_delta_is_refused(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    base = write(checkpoints, 1, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"a": b"new"}, base)
    delta = files(store, "manifest")[-1]
    header, entries = taken_apart(store.objects[delta])
    changes = {"base": delta.rpartition("/")[2], "offset": 3, "covered": 3}
    forge(store, HERE.prefix, 3, put_together(header | changes, entries))
    reader = Checkpoints(store, HERE)
    assert reader.newest().offset == 2
    assert "is the delta of a delta" in reader.skipped[0]


STATE = {f"{i}": b"1" for i in range(50)}


def base_and_delta(store: DictStore, offset: int = 2) -> tuple[Checkpoints, Manifest]:
    """Of STATE a base at offset 1, and at the offset a delta that has another model 0, which is returned."""
    checkpoints = Checkpoints(store, HERE)
    return checkpoints, write(checkpoints, offset, {"0": b"2"}, write(checkpoints, 1, STATE))


def test_a_base_that_is_gone_is_made_up_for_by_another_one(store: DictStore) -> None:
    checkpoints, second = base_and_delta(store)
    del store.objects[files(store, "manifest")[0]]
    checkpoints.tidy(second, None)
    third = write(checkpoints, 3, {"1": b"2"}, second)
    assert Checkpoints(store, HERE).newest() == third
    assert headers(store)[-1]["base"] is None


def test_a_delta_without_its_base_is_garbage(store: DictStore) -> None:
    checkpoints, second = base_and_delta(store)
    gone, orphan = files(store, "manifest")
    del store.objects[gone]
    assert checkpoints.collect_garbage(2, second) == [], "nothing is deleted where no checkpoint is left"
    third = write(Checkpoints(store, HERE), 3, STATE | {"0": b"2"})
    Checkpoints(store, HERE).collect_garbage(3, third)
    assert orphan not in store.objects
    assert Checkpoints(store, HERE).newest() == third


def test_a_base_that_is_damaged_and_repaired_has_its_deltas_and_their_segments_still(store: DictStore) -> None:
    _, second = base_and_delta(store)
    damaged = files(store, "manifest")[0]
    intact = store.objects[damaged]
    store.objects[damaged] = intact[:-1]
    third = write(Checkpoints(store, HERE), 3, STATE | {"0": b"3"}, created_ms=2 * KEPT_MS)
    before = set(store.objects)
    Checkpoints(store, HERE).tidy(third, None)
    assert set(store.objects) == before
    store.objects[damaged] = intact
    again = Checkpoints(store, HERE)
    assert again.newest(2) == second
    assert loaded(again, second) == STATE | {"0": b"2"}


@pytest.mark.parametrize("offset", [3, 4])
def test_a_delta_without_its_base_stays_where_no_later_checkpoint_takes_its_place(
    store: DictStore, offset: int
) -> None:
    base_and_delta(store, offset)
    gone, orphan = files(store, "manifest")
    del store.objects[gone]
    newest = write(Checkpoints(store, HERE), 3, STATE | {"0": b"3"}, created_ms=2 * KEPT_MS)
    Checkpoints(store, HERE).tidy(newest, None)
    assert orphan in store.objects
    assert Checkpoints(store, HERE).newest() == newest
    later = write(Checkpoints(store, HERE), 5, STATE | {"0": b"5"}, created_ms=2 * KEPT_MS)
    Checkpoints(store, HERE).tidy(later, None)
    assert orphan not in store.objects


# What it costs


def counted(store: DictStore) -> tuple[FaultyStore, Checkpoints]:
    journal = FaultyStore(store, {})
    return journal, Checkpoints(journal, HERE)


def test_a_checkpoint_is_two_requests_and_listing_adds_little(store: DictStore) -> None:
    journal, checkpoints = counted(store)
    manifest = write(checkpoints, 0, {f"{i}": b"%d" % i * 100 for i in range(1000)})
    checkpoints.tidy(manifest, None)
    listed = []
    for offset in range(1, 400):
        journal.log.clear()
        manifest = write(checkpoints, offset, {f"{offset % 1000}": b"new"}, manifest)
        assert checkpoints.diverged(offset) == []
        reads = [name for call, name in journal.log if call != "create"]
        assert len(journal.log) - len(reads) == 2
        assert all(name.endswith("segment") for name in reads), "only what moves together is read"
        if checkpoints.is_untidy(manifest):
            listed.append(offset)
            assert checkpoints.tidy(manifest, None) == {}
    assert len(listed) < 20
    assert len(store.objects) < 300


def test_a_base_is_read_once_for_all_its_deltas(store: DictStore) -> None:
    base = manifest = write(Checkpoints(store, HERE), 0, {f"{i}": b"1" for i in range(50)})
    for offset in (1, 2, 3):
        manifest = write(Checkpoints(store, HERE), offset, {"0": b"%d" % offset}, manifest)
    journal, checkpoints = counted(store)
    assert [each.offset for each, _ in first_of(checkpoints.restorable(), 3)] == [3, 2, 1]
    reads = [name for call, name in journal.log if call == "read"]
    assert reads.count(f"{HERE.prefix}/{base.models.base_name}") == 1
    assert len(reads) == 4


def test_few_files_of_many_dead_bytes_are_collected_too(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    manifest = write(checkpoints, 0, {"large": b"0" * 2**19, **{f"{i}": b"%d" % i for i in range(50)}})
    for offset in range(1, 100):
        manifest = write(checkpoints, offset, {f"{offset % 50}": b"new"}, manifest)
    checkpoints.tidy(manifest, None)
    kept = len(store.objects)
    for offset in range(100, 103):
        assert not checkpoints.is_untidy(manifest)
        manifest = write(checkpoints, offset, {"large": b"%d" % offset * 2**17}, manifest)
    assert len(store.objects) < 2 * kept
    assert checkpoints.is_untidy(manifest)


def test_one_model_of_very_many_costs_next_to_nothing(store: DictStore) -> None:
    checkpoints = Checkpoints(store, HERE)
    keys = [f"model-{i:06d}" for i in range(MODELS)]
    manifest = write(checkpoints, 1, dict.fromkeys(keys, b"1"))
    base_bytes = len(store.objects[files(store, "manifest")[0]])
    for offset in range(2, 6):
        before = set(store.objects)
        started_s = time.thread_time()
        manifest = write(checkpoints, offset, {keys[offset * 77]: b"2"}, manifest)
        took_s = time.thread_time() - started_s
        written = sum(len(store.objects[name]) for name in store.objects.keys() - before)
        assert took_s < WITHIN_S
        assert written < 2000 < base_bytes / 1000
    assert len(manifest.models) == MODELS


# What others write meanwhile


def test_what_somebody_else_wrote_at_an_offset_since_is_found_with_the_next_listing(store: DictStore) -> None:
    ours, theirs = Checkpoints(store, HERE), Checkpoints(store, HERE)
    manifest = write(ours, 1, {"a": b"1"})
    assert ours.tidy(manifest, None) == {}
    manifest = write(ours, 2, {"a": b"2"}, manifest)
    write(theirs, 2, {"a": b"other"})
    for offset in range(3, 6):
        manifest = write(ours, offset, {"a": b"%d" % offset}, manifest)
    last = write(ours, 6, {"a": b"6"}, manifest, created_ms=2 * KEPT_MS)
    before = dict(store.objects)
    assert ours.diverged(6) == []
    assert ours.tidy(last, None) == {2: ["a"]}
    assert store.objects == before, "nothing is deleted before somebody has looked at it"
    assert len(ours.collect_garbage(2 * KEPT_MS, last)) > 2, "though most of it is too old to be kept"


def test_changes_that_two_make_at_one_time_are_two_revisions_and_not_compared(store: DictStore) -> None:
    ours, theirs = Checkpoints(store, HERE), Checkpoints(store, HERE)
    manifest = write(ours, 2, {"a": b"1"})
    revisions = [each.unused_revision(2, 0) for each in (ours, theirs)]
    changed = write(ours, 2, {"a": b"anew"}, manifest, revision=revisions[0])
    write(theirs, 2, {"a": b"other"}, manifest, revision=revisions[1])
    last = write(ours, 3, {"a": b"2"}, changed, revision=revisions[0])
    assert ours.tidy(last, revisions[0]) == {}
    assert ours.unused_revision(2, 0) > max(revisions)


def test_what_was_there_before_is_compared_without_a_listing(store: DictStore) -> None:
    write(Checkpoints(store, HERE), 2, {"a": b"1"})
    journal, checkpoints = counted(store)
    assert checkpoints.newest() is not None
    write(checkpoints, 2, {"a": b"2"})
    journal.log.clear()
    assert checkpoints.diverged(2) == ["a"]
    assert [call for call, _ in journal.log if call == "list"] == []


def test_threads_may_be_the_first_to_read_a_manifest(store: DictStore) -> None:
    """msgspec 0.22 reads through a null pointer where two of them ask for a type that it has not seen before."""
    write(Checkpoints(store, HERE), 1, dirty={})
    name, data = next((name, data) for name, data in store.objects.items() if name.endswith(".manifest"))
    program = f"""
import importlib, os, sys, threading
from worker.checkpoint import manifest

class Store:
    def read(self, name):
        return {data!r}

threading.excepthook = lambda _: os._exit(1)
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
