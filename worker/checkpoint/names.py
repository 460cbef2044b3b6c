"""Names: where the checkpoints of a partition lie, and what the name of a file says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote

import msgspec

from worker.base.errors import CorruptCheckpoint

LONGEST = 255
"""Bytes of a name in a file system, as most have it."""

DEEPEST = 3
"""So many slashes are in the folder of a location, as seen from the URL of its store."""

_FILE = re.compile(r"[0-9]{20}-[0-9a-f]{64}\.(manifest|segment)")

Kind = Literal["manifest", "segment"]


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose checkpoints these are: one topic, as learned by one group in one lineage."""

    group: str
    lineage: str
    topic: str
    topic_id: str

    @property
    def topic_prefix(self) -> str:
        """Folder of all partitions in the store."""
        topic = f"{_folder(self.topic, LONGEST - len(self.topic_id) - 1)}-{self.topic_id}"
        return f"{_folder(self.group)}/{_folder(self.lineage)}/{topic}"


class Location(History, frozen=True):
    """One partition of a history."""

    partition: int

    @property
    def prefix(self) -> str:
        """Folder of this location in the store."""
        return f"{self.topic_prefix}/{self.partition}"

    @property
    def title(self) -> str:
        """The partition as messages name it."""
        return f"{self.topic}[{self.partition}]"


def _folder(text: str, longest: int = LONGEST) -> str:
    """Any text as one segment of an object name; of one that is too long the beginning, and its hash."""
    quoted = quote(text, safe="@")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= longest:
        return quoted
    end = f"~{sha256(text.encode())}"
    # Not in the middle of what stands for a byte.
    return re.sub(r"%.?$", "", quoted[: longest - len(end)]) + end


def file_name(offset: int, digest: str, kind: Kind) -> str:
    return f"{offset:020d}-{digest}.{kind}"


def is_ours(name: str) -> bool:
    """Whether a file of this name is part of a checkpoint."""
    return _FILE.fullmatch(name) is not None


def of_kind(kind: Kind, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(kind)]


def manifests_among(paths: Iterable[str]) -> list[str]:
    """The names of manifests among the files at these paths, which may be any."""
    return of_kind("manifest", filter(is_ours, (path.rpartition("/")[2] for path in paths)))


def offset_of(name: str) -> int:
    return int(name[:20])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def expect_hash(path: str, data: bytes) -> None:
    """Raises CorruptCheckpoint unless the bytes are those that the name promises."""
    if sha256(data) != path.rpartition("-")[2].partition(".")[0]:
        raise CorruptCheckpoint(f"{path} is damaged: its bytes do not have the hash in its name")
