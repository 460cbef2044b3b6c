"""A manifest: the state of a partition at an offset, as a table of where its models lie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Annotated

import msgspec

from worker.checkpoint.names import Location, expect_hash, offset_of, sha256
from worker.errors import CorruptCheckpoint, NotFound
from worker.ports import ObjectStore

FORMAT = 1

Size = Annotated[int, msgspec.Meta(ge=0)]
SegmentName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}-[0-9a-f]{64}\.segment\Z")]


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a model lies and what it is. `sha256` is of the model's own bytes, `start` and `length` are in bytes."""

    spec: str
    segment: SegmentName
    start: Size
    length: Size
    sha256: str
    summary: dict[str, int]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state at `offset`: every record of [start_offset, offset) is in the models, nothing else."""

    format: int
    engine: str
    location: Location
    start_offset: Size
    offset: Size
    revision: Size
    """How often the state was changed by decree, not by a record: a configuration that starts models anew does so."""
    created_ms: int
    """Wall clock of the writer, for people and for garbage collection."""
    segments: dict[SegmentName, Size]
    """Bytes of each segment that `models` point into."""
    models: dict[str, ModelEntry]
    state_hash: str
    """Of the models alone: two checkpoints of one state have one hash, however their segments were cut."""
    origin: str | None = None
    """Where the models of the first checkpoint came from, if this history did not begin with nothing."""
    adopted: bool = True
    """False until a worker has started from it: made without a broker, it does not know where the group stands."""
    partitions: int | None = None
    """How many the topic had: when some are added, keys move. None where nobody looked."""
    intake: dict[str, str] | None = None
    """What the configuration said of which records are learned, and the specs of the models do not; None as above."""


class _Version(msgspec.Struct):
    format: int


# Made before there are threads: msgspec 0.22 crashes where two of them are the first to ask for a type.
_read_version = msgspec.json.Decoder(_Version).decode
_read_manifest = msgspec.json.Decoder(Manifest).decode


def state_hash(models: Mapping[str, ModelEntry]) -> str:
    return sha256(msgspec.json.encode([(key, entry.sha256) for key, entry in sorted(models.items())]))


def in_order(manifest: Manifest) -> Manifest:
    """The same with models and segments in the order of their names, in which they are written.

    Left to the encoder's own sort, a few models that changed behind 100,000 that did not take it up to a minute, for
    which it holds the interpreter; what is in order already takes it no time.
    """
    models, segments = dict(sorted(manifest.models.items())), dict(sorted(manifest.segments.items()))
    return msgspec.structs.replace(manifest, models=models, segments=segments)


def read_manifest(store: ObjectStore, folder: str, name: str) -> Manifest:
    """Raises NotFound; CorruptCheckpoint for a file that is damaged, foreign or of an unknown format."""
    path = f"{folder}/{name}" if folder else name
    data = store.read(path)
    expect_hash(path, data)
    try:
        version = _read_version(data).format
        if version != FORMAT:
            raise CorruptCheckpoint(f"{path} has format {version}, this version reads format {FORMAT}")
        manifest = _read_manifest(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptCheckpoint(f"{path} is not a manifest: {error}") from error
    if problem := problem_of(manifest, folder, offset_of(name)):
        raise CorruptCheckpoint(f"{path} {problem}")
    return manifest


def readable(
    store: ObjectStore, folder: str, names: Iterable[str], on_problem: Callable[[str], None]
) -> Iterator[Manifest]:
    """The manifests of these names, which are sorted by offset; of several at one offset the last decree goes first."""
    for _, together in groupby(names, offset_of):
        found = []
        for name in together:
            try:
                found.append(read_manifest(store, folder, name))
            except NotFound:
                continue  # Collected as garbage since it was listed.
            except CorruptCheckpoint as error:
                on_problem(str(error))
        # Sorting is stable: of several of one revision everybody takes the same one.
        yield from sorted(found, key=lambda manifest: -manifest.revision)


def problem_of(manifest: Manifest, folder: str, offset: int) -> str | None:
    """What makes a manifest unusable at `offset` in `folder`; asked before it is written and after it is read."""
    ends: dict[str, int] = {}
    for entry in manifest.models.values():
        ends[entry.segment] = max(ends.get(entry.segment, 0), entry.start + entry.length)
    if not f"/{manifest.location.prefix}".endswith(f"/{folder}" if folder else ""):
        return f"belongs to {manifest.location.prefix}"
    if manifest.offset != offset or manifest.start_offset > offset:
        return f"holds the records from {manifest.start_offset} to {manifest.offset}, its name says {offset}"
    if manifest.state_hash != state_hash(manifest.models):
        return "has a state hash that is not that of its models"
    if ends.keys() != manifest.segments.keys():
        return "does not list the segments of its models"
    if any(end > manifest.segments[name] or offset_of(name) > offset for name, end in ends.items()):
        return "points past the end of a segment, or into a later one"
    return None


def differing(manifests: Iterable[Manifest]) -> list[str]:
    """Keys of models on which manifests of one offset do not agree, though nothing allows them to differ.

    What allows it: another engine, another beginning, a change by decree, and for each model another spec.
    """
    comparable: dict[tuple[str, str | None, int, int], list[Manifest]] = defaultdict(list)
    for manifest in manifests:
        history = manifest.engine, manifest.origin, manifest.start_offset, manifest.revision
        comparable[history].append(manifest)
    keys: set[str] = set()
    for together in comparable.values():
        if len({manifest.state_hash for manifest in together}) > 1:
            every = set().union(*(manifest.models for manifest in together))
            keys |= {key for key in every if not _agree([manifest.models.get(key) for manifest in together])}
    return sorted(keys)


def _agree(entries: list[ModelEntry | None]) -> bool:
    """Whether these may be entries of one model; None is a state without it."""
    specs = {entry.spec for entry in entries if entry is not None}
    hashes = {(entry.spec, entry.sha256) for entry in entries if entry is not None}
    return len(hashes) == len(specs) and (None not in entries or len(specs) > 1)
