"""Checkpoints of one partition, written by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from tests.worker.support.stores import DictStore
from worker.base.errors import CorruptCheckpoint
from worker.checkpoint import About, Checkpoints, Location, Manifest, SavedModel, Source

HERE = Location("group", "main", "events", "topic-id", 3)
HOUR_MS = 3600 * 1000


def sources_of(state: Mapping[str, bytes], spec: str = "spec") -> dict[str, Source]:
    """Models of these bytes, as a checkpoint asks for them."""
    return {key: partial(SavedModel, spec, data, {"samples": len(data)}) for key, data in state.items()}


def write(
    checkpoints: Checkpoints,
    offset: int,
    state: Mapping[str, bytes] | None = None,
    previous: Manifest | None = None,
    *,
    dirty: Mapping[str, Source] | None = None,
    removed: Collection[str] = (),
    **more: Any,
) -> Manifest:
    """A checkpoint at an offset: models that changed, by their bytes or as they are; that which the others are in."""
    known = {"start_offset": 0, "engine": "engine-1", "created_ms": offset, "covered": offset}
    about = About(location=checkpoints.location, offset=offset, **(known | more))
    return checkpoints.write(about, dirty or sources_of(state or {}), removed, previous)


def files(store: DictStore, kind: str) -> list[str]:
    """The names of all files of a kind, in the order of their offsets."""
    return sorted(name for name in store.objects if name.endswith(kind))


def first_whole(checkpoints: Checkpoints) -> tuple[Manifest, dict[str, bytes]] | None:
    """What a restore comes to: the newest checkpoint whose models are whole."""
    for manifest, saved in checkpoints.restorable():
        try:
            return manifest, {key: model.data for key, model in saved}
        except CorruptCheckpoint as error:
            checkpoints.pass_over(str(error))
    return None


def first_of(items: Any, count: int) -> list[Any]:
    return [item for _, item in zip(range(count), items, strict=False)]


def chain_of(checkpoints: Checkpoints, count: int, every_ms: int) -> list[Manifest]:
    """A checkpoint every `every_ms`; "cold" is written once, "hot" each time, neither is ever worth moving.

    Every third manifest is a base, the two after it are deltas.
    """
    chain = [write(checkpoints, 0, {"cold": b"c" * 100, "hot": b"0"}, created_ms=0)]
    for offset in range(1, count):
        dirty = {"hot": b"%d" % offset}
        chain.append(write(checkpoints, offset, dirty, created_ms=offset * every_ms, previous=chain[-1]))
    return chain
