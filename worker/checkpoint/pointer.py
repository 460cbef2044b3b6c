"""What the committed offset of a partition says of its checkpoints: its metadata, committed in the same transaction.

It names the newest checkpoint that whoever committed knew of. So it is a lower bound: later ones may be there. But what
was changed out of band is saved first and committed then, so none of this history between it and the committed offset
has another revision: one that has was written by a worker that had been put out of the group, or before the group was
set back. Those from before the change are of no use either: a replay from there would make the change elsewhere. Nor is
there a lineage after a later gap (recovery.py): who goes on behind a gap commits that at once, too.
"""

from __future__ import annotations

import msgspec

from worker.checkpoint.manifest import Manifest

_VERSION = 1


class Pointer(msgspec.Struct, frozen=True):
    """A checkpoint, by what identifies its state."""

    lineage: str
    offset: int
    revision: int
    state_hash: str
    version: int = _VERSION
    start_offset: int | None = None
    """Where its history begins; None where a former version has committed it."""

    @classmethod
    def to(cls, manifest: Manifest) -> Pointer:
        lineage, start_offset = manifest.location.lineage, manifest.start_offset
        return cls(lineage, manifest.offset, manifest.revision, manifest.state_hash, start_offset=start_offset)

    @classmethod
    def read(cls, metadata: str) -> Pointer | None:
        """What the metadata of a committed offset say; None where they are somebody else's, or of another version.

        An operator who sets offsets leaves none.
        """
        try:
            pointer = _read(metadata)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return pointer if pointer.version == _VERSION else None

    def metadata(self) -> str:
        """This pointer as the metadata of a committed offset: far below the 4,096 bytes that a broker takes."""
        return msgspec.json.encode(self).decode()

    def revision_in(self, lineage: str) -> int | None:
        """The revision that is committed in a lineage; None where this names a checkpoint of another one."""
        return self.revision if lineage == self.lineage else None

    def admits(self, manifest: Manifest) -> bool:
        """Whether a checkpoint at or before the committed offset may be of the history that was committed."""
        if manifest.location.lineage != self.lineage:
            return True
        # A history begins once: who was put out of the group while it looked for the end may have begun elsewhere.
        if self.start_offset not in (None, manifest.start_offset) or manifest.start_offset > self.offset:
            return False
        if manifest.revision != self.revision:
            return False
        return manifest.offset != self.offset or manifest.state_hash == self.state_hash


# Made before there are threads, see manifest.py.
_read = msgspec.json.Decoder(Pointer).decode
