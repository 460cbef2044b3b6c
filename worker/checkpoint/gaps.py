"""Gaps: where retention was faster than the checkpoints, and the lineages that go on without the lost records.

A partition whose topic begins at OFFSET, after its newest checkpoint, may go on from there (input.on_gap: accept). What
it then knows follows from the input and from what was lost, so it does so under a lineage of its own,
`<lineage>~p<partition>@<OFFSET>`, with a folder of its own. A small file in the folder of the configured lineage,

    <group>/<lineage>/<topic>-<topic id>/<partition>/gaps/<OFFSET>

leads there. It is written after the first checkpoint of the new folder, so it never leads nowhere. All gaps of a
partition are named by the configured lineage, and a later one lies at a higher offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from worker.base.ports import ObjectStore
from worker.checkpoint.names import Location, manifests_among, offset_of


def after_gap(location: Location, offset: int) -> Location:
    """Where the history of a partition goes on whose records before `offset` were lost; `location` is configured."""
    return msgspec.structs.replace(location, lineage=_after(location.lineage, location.partition, offset))


def gaps_of(store: ObjectStore, location: Location) -> list[int]:
    """Offsets at which this partition went on after a gap, the newest first."""
    names = (path.rpartition("/")[2] for path in store.list(_folder(location)))
    return sorted(map(int, filter(_is_gap, names)), reverse=True)


def before_gap(location: Location) -> Location:
    """The configured location of a partition; `location` is that or one of those after its gaps."""
    lineage, _, gap = location.lineage.rpartition(f"~p{location.partition}@")
    return msgspec.structs.replace(location, lineage=lineage) if lineage and gap.isdecimal() else location


class AfterGap(NamedTuple):
    """Where a history went on."""

    folder: str
    gap: int
    """The offset behind the lost records, at which it began."""


def folders_after_gaps(paths: Iterable[str]) -> dict[str, list[AfterGap]]:
    """Where the histories of partitions went on after their gaps, the newest first, by the folder that is configured.

    paths: names of objects, those that record the gaps among them.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder.endswith("/gaps") and _is_gap(name):
            found[folder.removesuffix("/gaps")].append(int(name))
    after = {}
    for folder, gaps in found.items():
        lineage, topic, partition = folder.rsplit("/", 2)
        after[folder] = [
            AfterGap(f"{_after(lineage, partition, gap)}/{topic}/{partition}", gap)
            for gap in sorted(gaps, reverse=True)
        ]
    return after


def folder_in_force(store: ObjectStore, configured: str, after_gaps: Sequence[AfterGap]) -> tuple[str, list[str]]:
    """The folder in which a partition goes on, as far as the store knows: the configured one, or one after its gaps,
    which come newest first. With the paths of what lies there.

    A gap behind which nothing is saved may be one that nobody has committed: what was saved as far without it counts
    for more then, as it does for recovery where no pointer says what was committed.
    """
    folder, paths = configured, store.list(configured)
    for after, gap in reversed(after_gaps):
        there = store.list(after)
        saved = _newest_offset(there)
        if saved > gap or saved > _newest_offset(paths):
            folder, paths = after, there
    return folder, paths


def record_gap(store: ObjectStore, location: Location, offset: int) -> None:
    """From now on the partition is found after this gap. Repeating it is harmless."""
    if offset in gaps_of(store, location):
        return  # Its name alone counts: no store takes it again where its bytes are damaged.
    store.create(f"{_folder(location)}/{offset:020d}", after_gap(location, offset).lineage.encode())


def _newest_offset(paths: Iterable[str]) -> int:
    return max(map(offset_of, manifests_among(paths)), default=-1)


def _after(lineage: str, partition: int | str, gap: int) -> str:
    return f"{lineage}~p{partition}@{gap}"


def _is_gap(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _folder(location: Location) -> str:
    return f"{location.prefix}/gaps"
