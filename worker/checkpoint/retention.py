"""Which checkpoints are kept.

Recovery takes the newest one; the two before it are there in case it is damaged. Where the group was set back these are
the newest three up to where it has come again. The newest three of the revision that is committed are there also where
others were never committed (pointer.py); and those of later revisions for an hour, since one of them may be committed
by now. Older ones serve people who set the group back: one for every hour of a day, since each of them keeps its own
copy of what was changed in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from worker.checkpoint.manifest import Header
from worker.checkpoint.names import offset_of

KEPT_MANIFESTS = 3
HOUR_MS = 3600 * 1000
KEPT_MS = 24 * HOUR_MS


class Content(msgspec.Struct, frozen=True):
    """What garbage collection needs to know of a manifest."""

    created_ms: int
    revision: int
    segments: frozenset[str]
    base: str | None = None
    """The manifest that this one is the difference to, where it is one."""
    covered: int = 0

    @classmethod
    def of(cls, header: Header) -> Content:
        return cls(header.created_ms, header.revision, frozenset(header.segments), header.base, header.covered)

    @property
    def rank(self) -> tuple[int, int]:
        """Of several at one offset the highest is the newest."""
        return self.revision, self.covered


def expired(
    manifests: Mapping[str, Content],
    now_ms: int,
    committed: int | None,
    stay: Collection[str | None],
    reached: int | None = None,
) -> list[list[str]]:
    """Names of manifests that nobody needs any more; `manifests` are the readable ones, newest first.

    committed: the revision that the committed offset names, which admits no other one. stay: those that do, whatever
    else is said. reached: the offset of the checkpoint that was written last, which lies before the newest one where
    the group was set back. First come the deltas, then bases: a delta must not be there without its base.
    """
    dispensable: list[str] = []
    hours = set()
    newest = set(list(manifests)[:KEPT_MANIFESTS])
    if reached is not None:
        newest.update([name for name in manifests if offset_of(name) <= reached][:KEPT_MANIFESTS])
    of_newest = next((_base_of(name, manifests) for name in manifests), None)
    # What is damaged may be a base: of those that need another one than the newest does, one is kept as well.
    newest.update([name for name in manifests if _base_of(name, manifests) != of_newest][:1])
    if committed is not None:
        newest.update([name for name, each in manifests.items() if each.revision == committed][:KEPT_MANIFESTS])
        # Who was put out of the group does not know which of those that came since is committed by now.
        later = [name for name, each in manifests.items() if each.revision > committed]
        newest.update(name for name in later if now_ms - manifests[name].created_ms < HOUR_MS)
    for name, content in reversed(list(manifests.items())):
        if name in newest:
            continue
        # The first of an hour stays: what is kept once is not given up for one that comes later.
        hour = content.created_ms // HOUR_MS
        if now_ms - content.created_ms >= KEPT_MS or hour in hours:
            dispensable.append(name)
        else:
            hours.add(hour)
    stayed = (manifests.keys() - set(dispensable)) | (manifests.keys() & stay)
    needed = {*stay, *(manifests[name].base for name in stayed)}
    gone = [name for name in dispensable if name not in needed]
    return [[name for name in gone if (manifests[name].base is None) is is_base] for is_base in (False, True)]


def _base_of(name: str, manifests: Mapping[str, Content]) -> str:
    return manifests[name].base or name


def unneeded(segments: Sequence[str], needed: Collection[str], above: int, below: int) -> list[str]:
    """Segments with an offset between `above` and `below` that no manifest points into."""
    return [name for name in segments if name not in needed and above < offset_of(name) < below]
