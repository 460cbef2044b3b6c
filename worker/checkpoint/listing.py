"""What checkpoints a store holds, for people and for tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from worker.base.errors import Fatal, Transient
from worker.base.ports import ObjectStore
from worker.checkpoint.gaps import before_gap, folder_in_force, folders_after_gaps
from worker.checkpoint.manifest import Manifest, readable
from worker.checkpoint.names import DEEPEST, is_ours, of_kind, offset_of


def history(store: ObjectStore, under: str = "", but: str | None = None) -> list[Manifest]:
    """The newest checkpoint of each partition of the one topic and lineage in a folder, after its last gap in force.

    What is in the folder `but` is left out. Raises WorkerError unless there is just one, whole, with all partitions.
    """
    histories: dict[tuple[str, str, str, str], list[Manifest]] = defaultdict(list)
    paths, left_out = set(store.list(under)), set[str]()
    for folder, after in folders_after_gaps(paths).items():
        folders = {folder, *(each.folder for each in after)}
        if but is None or not folder.startswith(f"{but}/"):
            in_force, lying_there = folder_in_force(store, folder, after)
            folders.remove(in_force)
            paths.update(lying_there)
        left_out |= folders
    for listing in describe(store, paths):
        if listing.folder in left_out or (but is not None and listing.folder.startswith(f"{but}/")):
            continue
        if listing.is_outdated:
            raise Transient(f"checkpoints in {listing.folder} are replaced faster than they are read")
        if listing.problems or listing.newest is None:
            problems = listing.problems or [f"{listing.folder} has no manifest"]
            raise Fatal(
                "\n".join(["there are damaged checkpoints, which must not be left out:", *problems]),
                "Have workers make whole ones: delete the manifests that are named, or the newest one where a segment "
                "is missing; then `amf-worker run CONFIG --until end`, which goes on from the checkpoint before",
            )
        where = listing.newest.location
        if where.prefix != listing.folder:
            raise Fatal(f"the URL of the store must be the one that {where.group}/ lies in, not a folder below it")
        histories[where.group, before_gap(where).lineage, where.topic, where.topic_id].append(listing.newest)
    if len(histories) != 1:
        found = "; ".join(f"{topic} ({i}) of group {group}, lineage {of}" for group, of, topic, i in sorted(histories))
        place = f" in {under}" if under else ""
        raise Fatal(
            f"expected the checkpoints of one topic and one lineage{place}, found {found or 'none'}",
            "Copy the folder GROUP/LINEAGE that is meant to a place of its own, and name that" if found else None,
        )
    (manifests,) = histories.values()
    manifests.sort(key=lambda manifest: manifest.location.partition)
    numbers = [manifest.location.partition for manifest in manifests]
    expected = max(len(numbers), *(manifest.partitions or 0 for manifest in manifests))
    if numbers != list(range(expected)):
        raise Fatal(
            f"some of {expected} partitions have no checkpoint: found those of {numbers}",
            "Where this is a copy, copy all of it. Else let workers run until all partitions are live, which makes one "
            "of each, and stop them in order",
        )
    return manifests


class Listing(msgspec.Struct, frozen=True):
    """The checkpoints of one folder, for people."""

    folder: str
    manifests: int
    newest: Manifest | None
    """The newest that can be read."""
    problems: list[str]
    is_outdated: bool = False
    """Whether a later one was there when files were listed, and was gone when it was to be read."""


def describe(store: ObjectStore, paths: Iterable[str] | None = None) -> Iterator[Listing]:
    """What lies in each folder of checkpoints below the store's URL, which may itself be one, or in a folder there.

    paths: names of objects, where they are listed already.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for path in store.list("") if paths is None else paths:
        folder, _, name = path.rpartition("/")
        # What lies deeper is of a store whose URL is that of a folder in this one: other workers' own.
        if is_ours(name) and folder.count("/") <= DEEPEST:
            files[folder].append(name)
    for folder, names in sorted(files.items()):
        listing = _listing(store, folder, names)
        # Workers that go on may have collected what was listed, and a listing of many pages is not of one moment.
        yield look_again(store, folder) if listing.problems or listing.is_outdated else listing


def look_again(store: ObjectStore, folder: str) -> Listing:
    """What lies in a folder of checkpoints by now."""
    paths = (path.rpartition("/") for path in store.list(folder))
    return _listing(store, folder, [name for where, _, name in paths if where == folder and is_ours(name)])


def _listing(store: ObjectStore, folder: str, names: Sequence[str]) -> Listing:
    manifests = of_kind("manifest", sorted(names, reverse=True))
    problems: list[str] = []
    newest = next(readable(store, folder, manifests, problems.append), None)
    if newest is not None:
        problems += [f"{folder}/{name} is missing" for name in sorted(newest.segments.keys() - set(names))]
    # One that is damaged is a problem.
    is_outdated = bool(manifests) and not problems and (newest is None or newest.offset < offset_of(manifests[0]))
    return Listing(folder, len(manifests), newest, problems, is_outdated)
