"""Damage is never taken for state: the checkpoint before is used, or none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.worker.support.checkpoints import HERE, files, first_of, first_whole, write
from tests.worker.support.manifests import forge, loaded, put_together, taken_apart
from tests.worker.support.stores import DictStore
from worker.base.errors import CorruptCheckpoint
from worker.checkpoint import Checkpoints


def damaged(data: bytes, kind: str) -> list[bytes]:
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    # Behind its models a segment may have anything.
    longer = [data + b"\0"] if kind == "manifest" else []
    return [*flipped, *longer, b"", data[:-1], data[: len(data) // 2]]


@pytest.mark.parametrize("kind", ["manifest", "segment"])
def test_any_damage_to_the_newest_checkpoint_falls_back(store: DictStore, checkpoints: Checkpoints, kind: str) -> None:
    old = {"a": b"old", "b": b"2"}
    write(checkpoints, 1, old)
    write(checkpoints, 2, {"a": b"new", "b": b"3"})
    name = files(store, kind)[-1]
    intact = store.objects[name]
    for data in damaged(intact, kind):
        store.objects[name] = data
        reader = Checkpoints(store, HERE)
        manifest, state = first_whole(reader)
        assert (manifest.offset, state) == (1, old)
        assert first_whole(reader) == (manifest, state)
        assert len(reader.skipped) == 1, "once, however often it is met"
        assert name in reader.skipped[0]


def test_a_missing_segment_falls_back(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"old"})
    newest = write(checkpoints, 2, {"a": b"new"})
    del store.objects[files(store, "segment")[-1]]
    manifest, state = first_whole(checkpoints)
    assert (manifest.offset, state) == (1, {"a": b"old"})
    for load in (lambda: loaded(checkpoints, newest), lambda: checkpoints.load_one(newest, "a")):
        with pytest.raises(CorruptCheckpoint, match="missing"):
            load()


def test_of_a_damaged_base_its_deltas_are_named_as_well(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"old"})
    base = write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 3, {"a": b"3"}, previous=base)
    _, of_base, of_delta = files(store, "manifest")
    store.objects[of_base] = b"?"
    reader = Checkpoints(store, HERE)
    assert reader.newest().offset == 1
    assert [message.split()[0] for message in reader.skipped] == [of_delta, of_base]


def test_one_model_of_a_damaged_segment_is_refused(store: DictStore, checkpoints: Checkpoints) -> None:
    manifest = write(checkpoints, 1, {"a": b"123", "b": b"456"})
    (segment,) = files(store, "segment")
    for damaged, good, bad in ((b"12x456", "b", "a"), (b"12345", "a", "b"), (b"", None, "a")):
        store.objects[segment] = damaged
        if good:
            assert checkpoints.load_one(manifest, good) in (b"123", b"456")
        with pytest.raises(CorruptCheckpoint, match=f"does not hold model '{bad}'"):
            checkpoints.load_one(manifest, bad)


def test_what_is_learned_again_is_saved_beside_its_damaged_bytes(store: DictStore, checkpoints: Checkpoints) -> None:
    """The name of a segment follows from its models and their offset, and no file is written over."""
    write(checkpoints, 1, {"a": b"old"})
    write(checkpoints, 2, {"a": b"new"})
    damaged = files(store, "segment")[-1]
    store.objects[damaged] = b"?"
    again = Checkpoints(store, HERE)
    manifest = write(again, 2, {"a": b"new"}, created_ms=3)
    assert first_whole(again) == (manifest, {"a": b"new"})
    assert store.objects[damaged] == b"?"
    assert damaged in again.skipped[0]
    assert write(Checkpoints(store, HERE), 2, {"a": b"new"}, created_ms=3) == manifest, "for everybody the same name"


def test_nothing_readable_is_not_nothing_there(store: DictStore, checkpoints: Checkpoints) -> None:
    for offset in (1, 2):
        write(checkpoints, offset, {"a": b"1"})
    for name in files(store, "segment"):
        store.objects[name] = b"?"
    assert checkpoints.newest() is not None
    with pytest.raises(CorruptCheckpoint, match=r"none of the 2 checkpoints .* from offset 1 to 2 can be used"):
        first_whole(checkpoints)
    for name in files(store, "manifest"):
        store.objects[name] = b"?"
    with pytest.raises(CorruptCheckpoint, match="none of the 2"):
        checkpoints.newest()
    assert checkpoints.newest(0) is None


def test_a_checkpoint_that_its_reader_refuses_is_not_the_end(checkpoints: Checkpoints) -> None:
    for offset in (1, 2):
        write(checkpoints, offset, {"a": b"1"})
    attempts = checkpoints.restorable()
    assert [manifest.offset for manifest, _ in first_of(attempts, 2)] == [2, 1]
    with pytest.raises(CorruptCheckpoint, match="none of the 2"):
        next(attempts)


def test_a_skipped_checkpoint_is_logged(
    store: DictStore, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    write(checkpoints, 1, {"a": b"1"})
    name = forge(store, HERE.prefix, 2, put_together({"format": 3}, []))
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest().offset == 1
    assert [name in record.getMessage() for record in caplog.records] == [True]


KEY, SEGMENT, START, LENGTH, SHA256 = 0, 2, 3, 4, 5
ABSENT = f"{1:020d}-{'0' * 64}"
DAMAGE: dict[str, tuple[Callable[[dict[str, Any], list[Any]], object], str]] = {
    "format": (lambda m, _: m.update(format=1), "has format 1, this version reads format 3"),
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
    header, entries = taken_apart(elsewhere.objects[files(elsewhere, "manifest")[0]])
    change(header, entries)
    name = forge(store, HERE.prefix, 9, put_together(header, entries))
    assert checkpoints.newest().offset == 1
    (problem,) = checkpoints.skipped
    assert problem.startswith(name)
    assert message in problem


def test_a_frame_that_goes_beyond_its_file_is_refused(store: DictStore, checkpoints: Checkpoints) -> None:
    """Though all that is written is there: such a file nobody has written."""
    write(checkpoints, 9, {"a": b"1"})
    (name,) = files(store, "manifest")
    data = store.objects.pop(name)
    at = 4 + int.from_bytes(data[:4], "big")
    longer = int.from_bytes(data[at : at + 4], "big") + 1
    forge(store, HERE.prefix, 9, data[:at] + longer.to_bytes(4, "big") + data[at + 4 :])
    with pytest.raises(CorruptCheckpoint):
        checkpoints.newest()
    assert "ends within a frame" in checkpoints.skipped[0]


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
