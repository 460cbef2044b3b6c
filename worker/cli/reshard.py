"""Checkpoints for another number of partitions, so that no model starts anew. Works on the store alone.

A key goes to another partition when their number changes, and its model has to follow. What comes out is a lineage of
its own: its models know records that are not in the partition they are in now.

It is sound if no record is on its way meanwhile: stop the producers, let the workers work off everything, stop them in
order (which saves the models at the end of each partition), add the partitions, reshard, set checkpoint.lineage, start
all again. A partition starts at the offset of its last checkpoint, a new one at 0; with a new topic all start at 0. The
worker refuses to start where the group stands elsewhere; that no record was left unread in a partition is for the
operator to see to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from worker.checkpoint import FORMAT, Checkpoints, Location, Manifest, Model, ModelEntry, history, state_hash
from worker.cli.terminal import count, size, table
from worker.errors import WorkerError
from worker.partitioner import partition_of
from worker.ports import ObjectStore

_HEADERS = ("partition", "offset", "models", "bytes")


def reshard(
    source: ObjectStore,
    target: ObjectStore,
    partitions: int,
    *,
    lineage: str | None = None,
    topic: tuple[str, str] | None = None,
) -> list[Manifest]:
    """Write the models of a lineage as the first checkpoints of another one with so many partitions.

    `lineage` has to be given where there are several; `topic` is the name and the id of the topic that the models are
    for, if that is a new one. Repeating it is harmless. Raises WorkerError if the models cannot be divided.
    """
    old = history(source, lineage)
    _require_divisible(old, partitions, new_topic=topic is not None)
    places = _places(old, partitions, topic)
    _require_unused(target, places)
    entries: list[dict[str, ModelEntry]] = [{} for _ in places]
    sizes: list[dict[str, int]] = [{} for _ in places]
    for manifest in old:
        data = Checkpoints(source, manifest.location).load(manifest)
        for number, keys in _divided(manifest.models, partitions).items():
            location, offset = places[number]
            was = manifest.models
            models = [(key, Model(was[key].spec, data[key], was[key].summary)) for key in keys]
            written, new_sizes = Checkpoints(target, location).write_models(offset, models)
            entries[number] |= written
            sizes[number] |= new_sizes
    return [
        Checkpoints(target, location).write_manifest(
            Manifest(
                format=FORMAT,
                engine=old[0].engine,
                location=location,
                start_offset=offset,
                offset=offset,
                revision=0,
                # Not the time of day: then a repetition writes the same files.
                created_ms=max(manifest.created_ms for manifest in old),
                segments=sizes[number],
                models=entries[number],
                state_hash=state_hash(entries[number]),
                origin=f"reshard of lineage {old[0].location.lineage} with {len(old)} partitions",
                adopted=False,
                partitions=partitions,
                intake=old[0].intake if all(manifest.intake == old[0].intake for manifest in old) else None,
            )
        )
        for number, (location, offset) in enumerate(places)
    ]


def show(written: Sequence[Manifest]) -> None:
    """Print what was made, and what to do with it."""
    rows = [
        (
            str(manifest.location.partition),
            count(manifest.offset),
            count(len(manifest.models)),
            size(sum(manifest.segments.values())),
        )
        for manifest in written
    ]
    location = written[0].location
    table(_HEADERS, rows, title=f"topic {location.topic} ({location.topic_id}), lineage {location.lineage}", left=0)
    print(f"Now set checkpoint.lineage to {location.lineage} and start the workers, then the producers.")


def _require_divisible(old: Sequence[Manifest], partitions: int, *, new_topic: bool) -> None:
    if partitions == len(old) or (partitions < len(old) and not new_topic):
        raise WorkerError(
            f"there are {len(old)} partitions; Kafka can only add some to a topic (--topic names a new one)"
        )
    for manifest in old:
        number = manifest.location.partition
        astray = [key for key in manifest.models if partition_of(key.encode(), len(old)) != number]
        if astray:
            raise WorkerError(
                f"partition {number} has {len(astray)} models that do not belong there by their key, {min(astray)!r} "
                "among them: the topic is not keyed by model, or by another partitioner than murmur2, or these are "
                "events without a key. Nobody can tell where their next events will go"
            )


def _places(old: Sequence[Manifest], partitions: int, topic: tuple[str, str] | None) -> list[tuple[Location, int]]:
    """Location and first offset of each new partition."""
    was = old[0].location
    name, topic_id = topic or (was.topic, was.topic_id)
    offsets = [0 if topic else manifest.offset for manifest in old]
    return [
        (
            Location(was.group, f"{was.lineage}~{partitions}", name, topic_id, number),
            offsets[number] if number < len(offsets) else 0,
        )
        for number in range(partitions)
    ]


def _require_unused(store: ObjectStore, places: Iterable[tuple[Location, int]]) -> None:
    for location, offset in places:
        if Checkpoints(store, location).offsets() not in ([], [offset]):
            raise WorkerError(f"workers have used {location.prefix} already: nothing was written")


def _divided(models: Mapping[str, ModelEntry], partitions: int) -> dict[int, list[str]]:
    """New partition -> keys of these models that go there, sorted."""
    keys: dict[int, list[str]] = defaultdict(list)
    for key in sorted(models):
        keys[partition_of(key.encode(), partitions)].append(key)
    return keys
