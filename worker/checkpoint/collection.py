"""Which checkpoints are kept.

Recovery takes the newest one; the two before it are there in case it is damaged. Older ones serve people who set the
group back: one for every hour of a day, since each of them keeps its own copy of what was changed in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from worker.checkpoint.manifest import Manifest
from worker.checkpoint.names import offset_of

KEPT_MANIFESTS = 3
HOUR_MS = 3600 * 1000
KEPT_MS = 24 * HOUR_MS


class Content(msgspec.Struct, frozen=True):
    """What garbage collection needs to know of a manifest."""

    created_ms: int
    segments: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> Content:
        return cls(manifest.created_ms, frozenset(manifest.segments))


def expired(manifests: Mapping[str, Content], now_ms: int) -> list[str]:
    """Names of manifests that nobody needs any more; `manifests` are the readable ones, newest first."""
    dispensable: list[str] = []
    hours = set()
    for name, content in reversed(list(manifests.items())[KEPT_MANIFESTS:]):
        # The first of an hour stays: what is kept once is not given up for one that comes later.
        hour = content.created_ms // HOUR_MS
        if now_ms - content.created_ms >= KEPT_MS or hour in hours:
            dispensable.append(name)
        else:
            hours.add(hour)
    return dispensable


def unneeded(segments: Sequence[str], needed: Collection[str], above: int, below: int) -> list[str]:
    """Segments with an offset between `above` and `below` that no manifest points into."""
    return [name for name in segments if name not in needed and above < offset_of(name) < below]
