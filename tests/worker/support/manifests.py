"""What checkpoints hold; and the bytes of a manifest taken apart and put together, for tests that forge one."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from tests.worker.support.stores import DictStore
from worker.checkpoint import Checkpoints, Manifest


def loaded(checkpoints: Checkpoints, manifest: Manifest) -> dict[str, bytes]:
    """All models of a checkpoint."""
    return {key: source().data for key, source in checkpoints.sources(manifest, manifest.models).items()}


def taken_apart(data: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
    """Header and entries."""
    frames, at = [], 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "big")
        frames.append(msgspec.msgpack.decode(data[start:at]))
    return frames[0], [row for frame in frames[1:] for row in frame]


def put_together(header: Any, entries: list[Any]) -> bytes:
    frames = [msgspec.msgpack.encode(frame, order="deterministic") for frame in (header, entries)]
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def forge(store: DictStore, folder: str, offset: int, data: bytes) -> str:
    """Put any bytes into the store under the name of a manifest that fits them; returns the name."""
    name = f"{folder}/{offset:020d}-{hashlib.sha256(data).hexdigest()}.manifest"
    store.objects[name] = data
    return name
