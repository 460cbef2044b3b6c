"""Segments: the bytes of some models, one after the other, and which of them are worth writing again.

To hash all bytes takes longer than all else that a checkpoint does with them. So it is done once: who makes the bytes
of a model tells their hash, and what the name of a segment promises are the hashes of its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import groupby
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from worker.base.errors import CorruptCheckpoint, NotFound
from worker.base.ports import ObjectStore
from worker.checkpoint.catalogue import ModelEntry, Usage
from worker.checkpoint.names import file_name, sha256

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
    known_sha256: str | None = None
    """The hash of `data`, where it is known."""

    @property
    def sha256(self) -> str:
        return self.known_sha256 or sha256(self.data)


Source: TypeAlias = Callable[[], SavedModel]
"""Gives a model when its turn to be written has come, so that not all of them have to be in memory as bytes at once."""


class Segment(NamedTuple):
    """The bytes of some models, one after the other."""

    data: bytes
    models: list[tuple[str, ModelEntry]]
    """Where each lies; the segment has no name before it has all its bytes."""

    def names(self, offset: int) -> tuple[str, str]:
        """The name that it has by the hash of the hashes of its models, and the one to take where that is taken.

        What has the first name and other bytes is damaged, and no file is written over: who replays to the offset of a
        damaged checkpoint makes the same segment again.
        """
        digest = sha256("".join(entry.sha256 for _, entry in self.models).encode())
        return file_name(offset, digest, "segment"), file_name(offset, sha256(digest.encode()), "segment")

    def entries(self, name: str) -> Iterator[tuple[str, ModelEntry]]:
        """Where each model lies in the segment, which has this name."""
        for key, entry in self.models:
            yield key, msgspec.structs.replace(entry, segment=name)


def packed(models: Iterable[tuple[str, SavedModel]]) -> Iterator[Segment]:
    """Models in segments: model by model, each let go of once it is copied, so that a segment is in memory once."""
    room, n, entries = BytesIO(), 0, list[tuple[str, ModelEntry]]()
    for key, model in models:
        length = len(model.data)
        if entries and n + length > SEGMENT_BYTES:
            yield Segment(_first(n, room), entries)
            n, entries = 0, []
        entry = key, ModelEntry(model.spec, "", n, length, model.sha256, model.summary)
        if length >= SEGMENT_BYTES:
            yield Segment(model.data, [entry])
        else:
            if not entries:
                room = BytesIO(bytes(SEGMENT_BYTES))
            entries.append(entry)
            with room.getbuffer() as view:
                # By numpy, which lets other threads have the interpreter meanwhile.
                np.frombuffer(view, np.uint8)[n : n + length] = np.frombuffer(model.data, np.uint8)
            n += length
        del model  # which else would be in memory beside the next one
    if entries:
        yield Segment(_first(n, room), entries)


def _first(n: int, room: BytesIO) -> bytes:
    """The first n bytes of a room that is used for nothing else after it; they are not copied."""
    room.truncate(n)
    return room.getvalue()


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
        for key in keys:
            entry = wanted[key]
            yield key, verified(path, key, entry, data[entry.start : entry.start + entry.length])
        del data  # which else would be in memory beside the next one


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


def saved(entry: ModelEntry, data: bytes) -> SavedModel:
    """What was written as this entry, to be written elsewhere: `data` as it was verified."""
    return SavedModel(entry.spec, data, entry.summary, entry.sha256)


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
