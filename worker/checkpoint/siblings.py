"""Checkpoints beside those of a location: what other partitions of the topic, and a former topic, have left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from urllib.parse import unquote

from msgspec.structs import replace

from worker.base.ports import ObjectStore
from worker.checkpoint.gaps import before_gap, folder_in_force, folders_after_gaps
from worker.checkpoint.manifest import Manifest, readable
from worker.checkpoint.names import History, Location, is_ours, manifests_among, of_kind


def of_any_partition(store: ObjectStore, history: History, *, oldest: bool = False) -> Manifest | None:
    """The newest checkpoint, or the oldest, of the lowest partition that has one to be read."""
    return next(_one_of_each(store, history.topic_prefix, oldest=oldest), None)


def of_another_topic(store: ObjectStore, history: History) -> Manifest | None:
    """A checkpoint of a topic that had the same name and another id, if one can be read."""
    lineage, _, topic = history.topic_prefix.rpartition("/")
    found = _one_of_each(store, lineage, topic.removesuffix(history.topic_id), f"{topic}/")
    return next((m for m in found if m.location.topic == history.topic), None)


def partitions_there(store: ObjectStore, history: History) -> set[int]:
    """Those that have a checkpoint, whether or not it can be read."""
    folders = {path.rpartition("/")[0] for path in store.list(history.topic_prefix) if manifests_among([path])}
    return {int(number) for number in (folder.rpartition("/")[2] for folder in folders) if number.isdecimal()}


def other_lineages(store: ObjectStore, location: Location) -> list[str]:
    """The lineages, but for its own, of which the group has checkpoints of this topic."""
    group, _, topic, _ = location.prefix.split("/")
    found = set[str]()
    for path in store.list(group):
        match path.split("/"):
            case _, lineage, where, partition, name if where == topic and partition.isdecimal() and is_ours(name):
                other = replace(location, lineage=unquote(lineage), partition=int(partition))
                found.add(before_gap(other).lineage)
    return sorted(found - {before_gap(location).lineage})


def _one_of_each(
    store: ObjectStore, folder: str, start: str = "", but: str | None = None, *, oldest: bool = False
) -> Iterator[Manifest]:
    """The newest readable manifest, or the oldest, of each partition, the lowest first.

    Only below those folders whose names begin with `start`, and not with `but`. Each is read when it is asked for. The
    newest one lies after the last gap of its partition that is in force.
    """
    manifests: dict[str, list[str]] = defaultdict(list)
    paths = store.list(folder)
    for path in paths:
        where, _, name = path.rpartition("/")
        below = path.removeprefix(f"{folder}/")
        if (
            is_ours(name)
            and where.rpartition("/")[2].isdecimal()
            and below.startswith(start)
            and (but is None or not below.startswith(but))
        ):
            manifests[where] += of_kind("manifest", [name])
    after_gaps = {} if oldest else folders_after_gaps(paths)
    for where in sorted(manifests, key=lambda where: int(where.rpartition("/")[2])):
        names, found_in = manifests[where], where
        if where in after_gaps:
            found_in, lying_there = folder_in_force(store, where, after_gaps[where])
            names = manifests_among(lying_there)
        yield from islice(readable(store, found_in, sorted(names, reverse=not oldest), lambda _: None), 1)
