"""Checkpoints for another number of partitions, so that no model starts anew.

A key goes to another partition when their number changes, and its model has to follow. What comes out is a lineage of
its own: its models know records that are not in the partition they are in now.

It is sound if no record is on its way meanwhile, which the broker is asked about (drained.py): nobody is in the group,
and all that there was is in the checkpoints. A partition starts at the offset of its last checkpoint, a new one at 0;
with a new topic all start at 0. A worker refuses to start where the group stands elsewhere. That the producers are
stopped is for the operator to see to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from worker.base.errors import Fatal
from worker.base.log import Log
from worker.base.partitioner import partition_of
from worker.base.ports import ObjectStore
from worker.base.terms import some
from worker.checkpoint import Catalogue, Checkpoints, Location, Manifest, ModelEntry, SavedModel, state_hash
from worker.checkpoint.gaps import before_gap
from worker.cli.terminal import Advance, count, size, table
from worker.config.values import folder_name

_log = Log(__name__)

HELD_BYTES = 256 * 2**20
"""Bytes of models that wait for others with which they are written."""

_HEADERS = ("partition", "offset", "models", "bytes")


def reshard(
    old: Sequence[Manifest],
    source: ObjectStore,
    target: ObjectStore,
    partitions: int,
    *,
    topic: tuple[str, str] | None = None,
    into: str | None = None,
    drop_astray: bool = False,
    advance: Advance = lambda share, models: None,
) -> list[Manifest]:
    """Write the models of a history as the first checkpoints of another one with so many partitions.

    `topic` is the name and the id of the topic that the models are for, if that is a new one; `into` names the new
    lineage; `drop_astray` leaves out models that are not where their keys go. Repeating it is harmless, unless models
    have learned since: then it is refused. Raises WorkerError if the models cannot be divided.
    """
    if topic is None and partitions <= len(old):
        raise Fatal(f"there are {len(old)} partitions; Kafka can only add some to a topic (--topic names a new one)")
    kept = [_in_their_place(manifest, len(old), drop_astray=drop_astray) for manifest in old]
    places = _places(old, partitions, topic, into)
    if places[0][0].prefix == before_gap(old[0].location).prefix:
        raise Fatal(f"the models are in lineage {places[0][0].lineage} already", "Name another one with --into")
    _require_unused(target, places, _hashes(kept, partitions))
    entries: list[dict[str, ModelEntry]] = [{} for _ in places]
    sizes: list[dict[str, int]] = [{} for _ in places]
    done, total = 0, sum(map(len, kept))
    models = (pair for manifest, keys in zip(old, kept, strict=True) for pair in _read(source, manifest, keys))
    for number, part in _divided(models, partitions):
        location, offset, _ = places[number]
        written, new_sizes = Checkpoints(target, location).write_models(offset, part)
        entries[number] |= written
        sizes[number] |= new_sizes
        done += len(part)
        advance(done / total, done)
    return [
        Checkpoints(target, location).write_manifest(
            Manifest(
                engine=old[0].engine,
                location=location,
                start_offset=offset,
                offset=offset,
                covered=covered,
                revision=0,
                # Not the time of day: then a repetition writes the same files.
                created_ms=max(manifest.created_ms for manifest in old),
                models=Catalogue.of(entries[number], sizes[number]),
                origin=f"reshard of lineage {before_gap(old[0].location).lineage} with {len(old)} partitions",
                adopted=False,
                partitions=partitions,
                intake=old[0].intake if all(manifest.intake == old[0].intake for manifest in old) else None,
            )
        )
        for number, (location, offset, covered) in enumerate(places)
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
    print(
        f"Now set checkpoint.lineage to {location.lineage}, run `amf-worker check CONFIG --connect`, and start the "
        "workers, then the producers."
    )


def _in_their_place(manifest: Manifest, partitions: int, *, drop_astray: bool) -> dict[str, ModelEntry]:
    """The models of a partition, all of which, or else only those that are kept, are where their keys go."""
    number = manifest.location.partition
    kept = {key: entry for key, entry in manifest.models.items() if partition_of(key.encode(), partitions) == number}
    astray = manifest.models.keys() - kept.keys()
    if astray and not drop_astray:
        raise Fatal(
            f"partition {number} has {len(astray)} models that do not belong there by their key, {min(astray)!r} "
            "among them: partitions were added while producers went on, and these are second models of keys that "
            "moved; or the topic is not keyed by model, or by another partitioner than murmur2; or these are events "
            "without a key",
            "Where they are second models, --drop-astray leaves them out, with what they have learned. Else nobody can "
            "tell where their next events will go: without reshard, input.on_repartition: new-models lets models of "
            "keys that move start anew",
        )
    if astray:
        fact = f"partition {number}: {some(len(astray), 'model')} left out, of keys that do not belong there"
        _log.warning("models-left-out", fact, partition=number)
    return kept


def _places(
    old: Sequence[Manifest], partitions: int, topic: tuple[str, str] | None, into: str | None
) -> list[tuple[Location, int, int]]:
    """Location and first offset of each new partition, and up to where that covers it."""
    was = before_gap(old[0].location)
    name, topic_id = topic or (was.topic, was.topic_id)
    offsets = [(0, 0) if topic else (manifest.offset, manifest.covered) for manifest in old]
    lineage = into or f"{was.lineage}~{partitions}"
    kind = folder_name()
    try:
        kind.parse(lineage)
    except ValueError:
        expected = f"expected {kind.expected}, found {lineage!r}"
        raise Fatal(f"checkpoint.lineage cannot name these models: {expected}", "Name one with --into") from None
    return [
        (
            Location(was.group, lineage, name, topic_id, number),
            *(offsets[number] if number < len(offsets) else (0, 0)),
        )
        for number in range(partitions)
    ]


def _hashes(kept: Iterable[dict[str, ModelEntry]], partitions: int) -> list[str]:
    """Of each new partition the hash of the models that go there."""
    going: list[dict[str, ModelEntry]] = [{} for _ in range(partitions)]
    for models in kept:
        for key, entry in models.items():
            going[partition_of(key.encode(), partitions)][key] = entry
    return [state_hash(models) for models in going]


def _require_unused(store: ObjectStore, places: Iterable[tuple[Location, int, int]], hashes: Iterable[str]) -> None:
    for (location, offset, _), expected in zip(places, hashes, strict=True):
        there = Checkpoints(store, location)
        if not (offsets := there.offsets()):
            continue
        # An earlier attempt may have written some of them: what is there has to be what would be written again.
        found = there.newest() if offsets == [offset] else None
        if found is None or found.state_hash != expected:
            raise Fatal(
                f"{location.prefix} has other checkpoints already, of workers or of an earlier attempt: nothing was "
                "written",
                f"Name another lineage than {location.lineage} with --into",
            )


def _read(store: ObjectStore, manifest: Manifest, keys: Iterable[str]) -> Iterator[tuple[str, SavedModel]]:
    for key, source in Checkpoints(store, manifest.location).sources(manifest, keys).items():
        yield key, source()


def _divided(
    models: Iterable[tuple[str, SavedModel]], partitions: int
) -> Iterator[tuple[int, list[tuple[str, SavedModel]]]]:
    """New partitions with some of the models that go there, as many as there is memory for."""
    held: dict[int, list[tuple[str, SavedModel]]] = defaultdict(list)
    sizes, total = Counter[int](), 0
    for key, model in models:
        number = partition_of(key.encode(), partitions)
        held[number].append((key, model))
        sizes[number] += len(model.data)
        total += len(model.data)
        if total > HELD_BYTES:
            largest, _ = sizes.most_common(1)[0]
            total -= sizes.pop(largest)
            yield largest, held.pop(largest)
    yield from held.items()
