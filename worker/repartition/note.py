"""What the forwarder commits along with an offset of its input: its metadata, committed in the same transaction.

It says with how many partitions the group began, and where it was seen that offsets have no record: markers of
transactions have some, and so has what was aborted. Retention may delete them, and who comes back to the offset of the
group could not tell them from records. They are named from where to where, since a part of a transaction is committed
with the same note at an earlier offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from worker.base.records import CommittedOffset

_TEXT = re.compile(r"forwarder since partitions (\d+)(?:, no record from (\d+) to (\d+))?", re.ASCII)


class Note(NamedTuple):
    """The leader epoch of an offset with a note is that of the record before it."""

    began_with: int
    """Partitions that the input had when the group began."""
    bare_from: int = 0
    bare_to: int = 0
    """There was no record at `bare_from` or behind it, before `bare_to`."""

    @classmethod
    def read(cls, metadata: str) -> Note | None:
        """What the metadata of a committed offset say; None where they are somebody else's.

        An operator who sets offsets leaves none.
        """
        found = _TEXT.fullmatch(metadata)
        return None if found is None else cls(*(int(each or 0) for each in found.groups()))

    def metadata(self) -> str:
        """This note as the metadata of a committed offset."""
        bare = f", no record from {self.bare_from} to {self.bare_to}" if self.bare_to > self.bare_from else ""
        return f"forwarder since partitions {self.began_with}{bare}"

    def covered(self, offset: int) -> int:
        """Up to where no record lies behind this offset, as far as the note tells."""
        return self.bare_to if self.bare_from <= offset <= self.bare_to else offset


def beginning(committed: Iterable[CommittedOffset | None], partitions: int) -> int:
    """With how many partitions the group began, of which these are the committed offsets; `partitions` if it does now.

    Where all offsets were set by others, nothing tells: 0, so that of a partition without one nothing is lost.
    """
    known = [Note.read(each.metadata) for each in committed if each is not None]
    return min((each.began_with for each in known if each is not None), default=0 if known else partitions)
