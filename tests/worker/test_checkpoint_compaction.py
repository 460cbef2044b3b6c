"""Compaction: what is dead in segments stays little, what lives is not copied for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

import pytest

from tests.worker.support.checkpoints import HERE, files, first_whole, write
from tests.worker.support.manifests import loaded
from tests.worker.support.stores import DictStore
from worker.base.errors import CorruptCheckpoint
from worker.checkpoint import Checkpoints, SavedModel, segments
from worker.checkpoint.catalogue import Usage


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


def test_of_many_small_segments_those_are_merged_that_are_no_larger_than_all_before_them() -> None:
    alike = {f"s{n:03d}": Usage(10, 1, 10) for n in range(segments.SMALL_SEGMENTS)}
    assert segments.to_rewrite(alike, 0) == set(), "so many may stay"
    assert segments.to_rewrite(alike | {"zz": Usage(10, 1, 10)}, 0) == {*alike, "zz"}
    # What has been merged before is larger than all that came since, and is not copied again and again.
    assert segments.to_rewrite(alike | {"merged": Usage(1_000, 9, 1_000)}, 0) == set(alike)


def test_compaction_refuses_damaged_models(store: DictStore, checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"big": b"b" * 90, "small": b"x" * 10})
    (segment,) = files(store, "segment")
    store.objects[segment] = store.objects[segment][:-1] + b"?"
    with pytest.raises(CorruptCheckpoint, match="does not hold model 'small' at byte"):
        write(checkpoints, 2, removed=["big"], previous=first)
    assert checkpoints.offsets() == [1]


class Watched(bytes):
    """Bytes that tell how many of their kind are in memory."""

    alive: ClassVar[int] = 0

    def __new__(cls, data: Iterable[int]) -> Watched:
        cls.alive += 1
        return super().__new__(cls, data)

    def __del__(self) -> None:
        type(self).alive -= 1


class WatchedStore(DictStore):
    """Notes with each segment that is read how many of those before it are still in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[int] = []

    def read(self, name: str) -> bytes:
        if not name.endswith("segment"):
            return super().read(name)
        self.alive.append(Watched.alive)
        return Watched(super().read(name))


def test_one_segment_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those whose models move, and of those that are restored: several partitions do so at once."""
    store = WatchedStore()
    checkpoints = Checkpoints(store, HERE)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 100)
    first = write(checkpoints, 1, {str(number): bytes([number]) * 45 for number in range(8)})
    assert first_whole(checkpoints) is not None
    assert store.alive == [0] * 4
    write(checkpoints, 2, removed=["0", "2", "4", "6"], previous=first)
    assert store.alive == [0] * (4 + 2)


@pytest.mark.parametrize("segment_bytes", [1, 100])
def test_a_model_is_let_go_of_before_the_next_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """Be it copied into a segment, or one itself: models may have 64 MB."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", segment_bytes)
    alive = list[int]()

    def source(data: bytes) -> SavedModel:
        alive.append(Watched.alive)
        return SavedModel("spec", Watched(data), {})

    store = DictStore()
    monkeypatch.setattr(store, "create", lambda name, data: None)  # a store of this process would keep them
    write(Checkpoints(store, HERE), 1, dirty={key: partial(source, key.encode()) for key in "abc"})
    assert alive == [0, 0, 0]
