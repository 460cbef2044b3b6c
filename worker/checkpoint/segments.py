"""Segments: the bytes of some models, one after the other, and which of them are worth writing again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import groupby
from typing import TypeAlias

import msgspec

from worker.base.errors import CorruptCheckpoint, NotFound
from worker.base.ports import ObjectStore
from worker.checkpoint.catalogue import ModelEntry, Usage
from worker.checkpoint.names import expect_hash, sha256

SEGMENT_BYTES = 32 * 2**20
"""Models are packed into segments of about this size, a larger model has a segment of its own: small enough that
putting one together does not hold up the other threads, large enough for an object store.
"""
SMALL_SEGMENTS = 64
"""More segments than this with less than half of SEGMENT_BYTES alive are merged: they bound the reads of a restore."""


class SavedModel(msgspec.Struct, frozen=True):
    """One model to be written."""

    spec: str
    data: bytes
    summary: dict[str, int]
    """Figures for people: samples, nodes, depth, bytes; and what the model was made with that its bytes do not tell."""


Source: TypeAlias = Callable[[], SavedModel]
"""Gives a model when its turn to be written has come, so that not all of them have to be in memory as bytes at once."""


def packed(models: Iterable[tuple[str, SavedModel]]) -> Iterator[list[tuple[str, SavedModel]]]:
    """Models in groups that fit a segment."""
    batch: list[tuple[str, SavedModel]] = []
    size = 0
    for key, model in models:
        if batch and size + len(model.data) > SEGMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, model))
        size += len(model.data)
    if batch:
        yield batch


def joined(batch: Iterable[tuple[str, SavedModel]]) -> bytes:
    """The bytes of a segment.

    Model by model: while bytes are copied no other thread has the interpreter, and a segment would take long.
    """
    stream = BytesIO()
    for _, model in batch:
        stream.write(model.data)
    return stream.getvalue()


def entries(segment: str, batch: Iterable[tuple[str, SavedModel]]) -> Iterator[tuple[str, ModelEntry]]:
    """Where each model of a batch lies in the segment made of it."""
    start = 0
    for key, model in batch:
        length = len(model.data)
        yield key, ModelEntry(model.spec, segment, start, length, sha256(model.data), model.summary)
        start += length


def in_order(wanted: Mapping[str, ModelEntry]) -> list[str]:
    """The keys of these models in the order in which they are read, those in a segment side by side."""
    return sorted(wanted, key=lambda key: (wanted[key].segment, key))


def read_models(store: ObjectStore, folder: str, wanted: Mapping[str, ModelEntry]) -> Iterator[tuple[str, bytes]]:
    """The models of `wanted`, one segment in memory at a time. Raises CorruptCheckpoint."""
    for segment, keys in groupby(in_order(wanted), lambda key: wanted[key].segment):
        path = f"{folder}/{segment}"
        try:
            data = store.read(path)
        except NotFound as error:
            raise CorruptCheckpoint(f"{path} is missing") from error
        expect_hash(path, data)
        for key in keys:
            entry = wanted[key]
            yield key, verified(path, key, entry, data[entry.start : entry.start + entry.length])


def read_one(store: ObjectStore, folder: str, key: str, entry: ModelEntry) -> bytes:
    """One model by a ranged read. Raises CorruptCheckpoint."""
    path = f"{folder}/{entry.segment}"
    try:
        data = store.read_range(path, entry.start, entry.length) if entry.length else b""
    except NotFound as error:
        raise CorruptCheckpoint(f"{path} is missing") from error
    return verified(path, key, entry, data)


def verified(path: str, key: str, entry: ModelEntry, data: bytes) -> bytes:
    if sha256(data) != entry.sha256:
        raise CorruptCheckpoint(f"{path} does not hold model {key!r} at byte {entry.start}")
    return data


def to_rewrite(usage: Mapping[str, Usage], dirty_bytes: int) -> set[str]:
    """Segments whose models move into a new one, so that dead bytes stay below half of the living ones, and small
    segments few. The most wasteful segments go first: a byte that is moved frees about half a byte at least.
    """
    alive = {name: each.alive for name, each in usage.items()}
    dead = sum(each.size - each.alive for each in usage.values())
    limit = (dirty_bytes + sum(alive.values())) // 2
    moving = set()
    for name in sorted(alive, key=lambda name: (alive[name] / max(usage[name].size, 1), name)):
        if dead <= limit:
            break
        moving.add(name)
        dead -= usage[name].size - alive[name]
    small = sorted((alive[name], name) for name in alive.keys() - moving if alive[name] < SEGMENT_BYTES // 2)
    return moving | _merged(small) if len(small) > SMALL_SEGMENTS else moving


def _merged(small: Sequence[tuple[int, str]]) -> set[str]:
    """Of segments with so many bytes alive, the least first, half and those that are no larger than all before them.

    So what has been merged moves again only once as much has come beside it.
    """
    names, total = set[str](), 0
    for n, (size, name) in enumerate(small):
        if 2 * n > len(small) and size > total:
            break
        names.add(name)
        total += size
    return names
