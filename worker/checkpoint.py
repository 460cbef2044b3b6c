"""Checkpoints of one partition: names, manifests, segments. Models are opaque bytes here.

    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.manifest
    <group>/<lineage>/<topic>-<topic id>/<partition>/<offset>-<sha256>.segment

A segment is the bytes of some models, one after the other. A manifest is the state at an offset: for every model key
the range of a segment, this checkpoint's own or an older one's, that holds the model. Offsets have 20 digits; the hash
is of the file's own bytes. Files are created, never changed: segments first, the manifest last, so a manifest that can
be read is a whole checkpoint. State is a function of the input alone, so it is true whoever wrote it, however late.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from worker.errors import CorruptCheckpoint, NotFound
from worker.ports import ObjectStore

FORMAT = 1
SEGMENT_BYTES = 64 * 2**20
"""Models are packed into segments of about this size; a larger model has a segment of its own."""
SMALL_SEGMENTS = 64
"""More segments than this with less than half of SEGMENT_BYTES alive are merged: they bound the reads of a restore."""
KEPT_MANIFESTS = 3
KEPT_MS = 24 * 3600 * 1000

_log = logging.getLogger(__name__)
_FILE = re.compile(r"[0-9]{20}-[0-9a-f]{64}\.(manifest|segment)")

Kind = Literal["manifest", "segment"]
Size = Annotated[int, msgspec.Meta(ge=0)]
SegmentName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}-[0-9a-f]{64}\.segment\Z")]


class Policy(msgspec.Struct, frozen=True):
    """When to write a checkpoint."""

    interval_s: float

    def due(self, now_s: float, last_s: float, dirty: bool) -> bool:
        """Whether models have changed and the last checkpoint, at monotonic `last_s`, is an interval ago."""
        return dirty and now_s - last_s >= self.interval_s


class Location(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose checkpoints these are: one partition of one topic, as learned by one group in one lineage."""

    group: str
    lineage: str
    topic: str
    topic_id: str
    partition: int

    @property
    def prefix(self) -> str:
        """Folder of this location in the store."""
        return f"{_folder(self.group)}/{_folder(self.lineage)}/{self.topic}-{self.topic_id}/{self.partition}"


def _folder(text: str) -> str:
    """Any text as one segment of an object name."""
    quoted = quote(text, safe="@")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


class Model(msgspec.Struct, frozen=True):
    """One model to be written."""

    spec: str
    data: bytes
    summary: dict[str, int]
    """Figures for people: samples, nodes, depth, bytes."""


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
    """How many states this one replaced at the same offset: models that start anew change the state by decree."""
    created_ms: int
    """Wall clock of the writer, for people and for garbage collection."""
    segments: dict[SegmentName, Size]
    """Bytes of each segment that `models` point into."""
    models: dict[str, ModelEntry]
    state_hash: str
    """Of the models alone: two checkpoints of one state have one hash, however their segments were cut."""


class Listing(msgspec.Struct, frozen=True):
    """The checkpoints of one folder, for people."""

    folder: str
    manifests: int
    newest: Manifest | None
    """The newest that can be read."""
    problems: list[str]


class Checkpoints:
    """The checkpoints of one location. For one thread at a time; other processes may use the location as well.

    Store errors (`Transient`, `WorkerError`) pass through: a store that does not answer is no reason to fall back.
    """

    def __init__(self, store: ObjectStore, location: Location) -> None:
        self.location = location
        self.skipped: list[str] = []
        """A message for each damaged checkpoint that was met and passed over since this object was made."""
        self._store = store
        self._folder = location.prefix
        self._contents: dict[str, _Content] = {}
        """Of the manifests that the last garbage collection kept: files never change, so they are read once."""

    def offsets(self) -> list[int]:
        """Offsets that have a manifest, ascending; whether it can be read is not looked at."""
        return sorted({_offset(name) for name in self._manifests()})

    def newest(self, at_most: int | None = None) -> Manifest | None:
        """The newest readable manifest at or before an offset; None if there is no manifest at all.

        Of several at one offset everybody takes the same one. Raises CorruptCheckpoint if there are some and none can
        be read.
        """
        names = self._manifests(at_most)
        manifest = next(self._readable(names), None)
        if names and manifest is None:
            raise self._nothing_left(names)
        return manifest

    def restorable(self, at_most: int | None = None) -> Iterator[tuple[Manifest, dict[str, bytes]]]:
        """Checkpoints with all their models, newest first: take the first whose models can be used.

        Yields nothing if there is no manifest at all. Running out of checkpoints raises CorruptCheckpoint, so that
        "none was good enough" is never taken for "there was none".
        """
        names = self._manifests(at_most)
        for manifest in self._readable(names):
            try:
                models = self.load(manifest)
            except CorruptCheckpoint as error:
                self._skip(str(error))
                continue
            yield manifest, models
        if names:
            raise self._nothing_left(names)

    def load(self, manifest: Manifest) -> dict[str, bytes]:
        """All models of a checkpoint; reads each segment once. Raises CorruptCheckpoint."""
        return dict(self._read_models(manifest.models))

    def load_one(self, manifest: Manifest, key: str) -> bytes:
        """One model by a ranged read. Raises NotFound if the checkpoint has no such model, CorruptCheckpoint."""
        entry = manifest.models.get(key)
        if entry is None:
            raise NotFound(f"the checkpoint at offset {manifest.offset} has no model {key!r}")
        path = self._path(entry.segment)
        try:
            data = self._store.read_range(path, entry.start, entry.length) if entry.length else b""
        except NotFound as error:
            raise CorruptCheckpoint(f"{path} is missing") from error
        return _verified_model(path, key, entry, data)

    def write(
        self,
        *,
        offset: int,
        start_offset: int,
        engine: str,
        created_ms: int,
        dirty: Mapping[str, Model],
        removed: Collection[str] = (),
        previous: Manifest | None = None,
    ) -> Manifest:
        """Write the state at `offset`: the `previous` checkpoint less `removed`, with `dirty` on top.

        Models that did not change are not written again, except to reclaim space. After `Transient` the same call may
        be repeated. Raises CorruptCheckpoint if models of `previous` are damaged: write all models without it then.
        """
        if previous is not None and (previous.location, previous.start_offset) != (self.location, start_offset):
            raise ValueError("the previous checkpoint belongs to another history")
        before = {} if previous is None else previous.models
        sizes = {} if previous is None else previous.segments
        carried = {key: entry for key, entry in before.items() if key not in dirty and key not in removed}
        moving = _segments_to_rewrite(sizes, carried, sum(len(model.data) for model in dirty.values()))
        moved = {key: entry for key, entry in carried.items() if entry.segment in moving}

        models = {key: entry for key, entry in carried.items() if key not in moved}
        segments = {entry.segment: sizes[entry.segment] for entry in models.values()}
        for batch in _packed(chain(sorted(dirty.items()), self._read_again(moved))):
            data = b"".join(model.data for _, model in batch)
            name = _file_name(offset, data, "segment")
            self._store.create(self._path(name), data)
            segments[name] = len(data)
            models.update(_entries(name, batch))
        manifest = Manifest(
            format=FORMAT,
            engine=engine,
            location=self.location,
            start_offset=start_offset,
            offset=offset,
            revision=0 if previous is None or previous.offset != offset else previous.revision + 1,
            created_ms=created_ms,
            segments=segments,
            models=models,
            state_hash=_state_hash(models),
        )
        if problem := _problem(manifest, self._folder, offset):
            raise ValueError(f"refused to write a checkpoint that nobody could read: {problem}")
        data = msgspec.json.encode(manifest, order="sorted")
        self._store.create(self._path(_file_name(offset, data, "manifest")), data)
        return manifest

    def collect_garbage(self, now_ms: int, current: Manifest | None = None) -> list[str]:
        """Delete manifests that are neither among the newest three nor younger than 24 h, then segments nobody needs.

        `current` is what the next `write` builds on; its segments stay whatever its age. Segments newer than the newest
        manifest stay too: their own may be on its way. A manifest that cannot be read may be of a newer version: it
        stays, and so does every segment it could point into. Returns the deleted names.
        """
        names = self._names()
        kept: dict[str, _Content] = {}
        expired: list[str] = []
        unreadable = -1
        for name in _of_kind("manifest", names):
            try:
                content = self._contents.get(name) or _content(_read_manifest(self._store, self._folder, name))
            except NotFound:
                continue  # Another collector was faster.
            except CorruptCheckpoint as error:
                self._skip(str(error))
                unreadable = max(unreadable, _offset(name))
                continue
            if len(kept) < KEPT_MANIFESTS or now_ms - content.created_ms < KEPT_MS:
                kept[name] = content
            else:
                expired.append(name)
        self._contents = kept
        if not kept:
            return []

        needed = frozenset[str]().union(*(content.segments for content in kept.values()))
        needed |= frozenset(current.segments if current is not None else ())
        newest = _offset(next(iter(kept)))
        segments = _of_kind("segment", names)
        unneeded = [name for name in segments if name not in needed and unreadable < _offset(name) < newest]
        for name in expired + unneeded:
            self._store.delete(self._path(name))
        return expired + unneeded

    def diverged(self, offset: int) -> list[str]:
        """Keys of models that have different bytes in two checkpoints at this offset, of one engine and one spec each.

        None is what determinism promises. State hashes alone would also differ where a model was started anew at this
        offset because its spec changed.
        """
        hashes: dict[tuple[str, str, str], str] = {}
        differing = set()
        for manifest in self._readable([name for name in self._manifests() if _offset(name) == offset]):
            for key, entry in manifest.models.items():
                if hashes.setdefault((manifest.engine, key, entry.spec), entry.sha256) != entry.sha256:
                    differing.add(key)
        return sorted(differing)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _names(self) -> list[str]:
        """Names of all checkpoint files, newest first."""
        names = [path.removeprefix(f"{self._folder}/") for path in self._store.list(self._folder)]
        return sorted(filter(_FILE.fullmatch, names), reverse=True)

    def _manifests(self, at_most: int | None = None) -> list[str]:
        names = _of_kind("manifest", self._names())
        return [name for name in names if at_most is None or _offset(name) <= at_most]

    def _readable(self, names: Iterable[str]) -> Iterator[Manifest]:
        return _readable(self._store, self._folder, names, self._skip)

    def _skip(self, problem: str) -> None:
        _log.warning("damaged checkpoint passed over: %s", problem)
        self.skipped.append(problem)

    def _nothing_left(self, names: Sequence[str]) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"none of the {len(names)} checkpoints in {self._folder} from offset {_offset(names[-1])} to "
            f"{_offset(names[0])} can be used: restore the files, or learn anew under another checkpoint.lineage"
        )

    def _read_models(self, entries: Mapping[str, ModelEntry]) -> Iterator[tuple[str, bytes]]:
        """The models of `entries`, one segment in memory at a time."""
        keys_in = defaultdict(list)
        for key, entry in entries.items():
            keys_in[entry.segment].append(key)
        for segment, keys in sorted(keys_in.items()):
            path = self._path(segment)
            try:
                data = self._store.read(path)
            except NotFound as error:
                raise CorruptCheckpoint(f"{path} is missing") from error
            _expect_hash(path, data)
            for key in sorted(keys):
                entry = entries[key]
                yield key, _verified_model(path, key, entry, data[entry.start : entry.start + entry.length])

    def _read_again(self, entries: Mapping[str, ModelEntry]) -> Iterator[tuple[str, Model]]:
        for key, data in self._read_models(entries):
            yield key, Model(entries[key].spec, data, entries[key].summary)


def describe(store: ObjectStore) -> Iterator[Listing]:
    """What lies in each folder of checkpoints below the store's URL, which may itself be such a folder."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in store.list(""):
        folder, _, name = path.rpartition("/")
        if _FILE.fullmatch(name):
            files[folder].append(name)
    for folder, names in sorted(files.items()):
        manifests = _of_kind("manifest", sorted(names, reverse=True))
        problems: list[str] = []
        newest = next(_readable(store, folder, manifests, problems.append), None)
        if newest is not None:
            problems += [f"{folder}/{name} is missing" for name in sorted(newest.segments.keys() - set(names))]
        yield Listing(folder, len(manifests), newest, problems)


class _Content(msgspec.Struct, frozen=True):
    """What garbage collection needs to know of a manifest."""

    created_ms: int
    segments: frozenset[str]


class _Version(msgspec.Struct):
    format: int


def _content(manifest: Manifest) -> _Content:
    return _Content(manifest.created_ms, frozenset(manifest.segments))


def _readable(
    store: ObjectStore, folder: str, names: Iterable[str], on_problem: Callable[[str], None]
) -> Iterator[Manifest]:
    for _, together in groupby(names, _offset):
        found = []
        for name in together:
            try:
                found.append(_read_manifest(store, folder, name))
            except NotFound:
                continue  # Collected as garbage since it was listed.
            except CorruptCheckpoint as error:
                on_problem(str(error))
        # Sorting is stable: of several of one revision everybody takes the same one.
        yield from sorted(found, key=lambda manifest: -manifest.revision)


def _read_manifest(store: ObjectStore, folder: str, name: str) -> Manifest:
    """Raises NotFound; CorruptCheckpoint for a file that is damaged, foreign or of an unknown format."""
    path = f"{folder}/{name}" if folder else name
    data = store.read(path)
    _expect_hash(path, data)
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != FORMAT:
            raise CorruptCheckpoint(f"{path} has format {version}, this version reads format {FORMAT}")
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptCheckpoint(f"{path} is not a manifest: {error}") from error
    if problem := _problem(manifest, folder, _offset(name)):
        raise CorruptCheckpoint(f"{path} {problem}")
    return manifest


def _problem(manifest: Manifest, folder: str, offset: int) -> str | None:
    """What makes a manifest unusable at `offset` in `folder`; asked before it is written and after it is read."""
    ends: dict[str, int] = {}
    for entry in manifest.models.values():
        ends[entry.segment] = max(ends.get(entry.segment, 0), entry.start + entry.length)
    if not f"/{manifest.location.prefix}".endswith(f"/{folder}" if folder else ""):
        return f"belongs to {manifest.location.prefix}"
    if manifest.offset != offset or manifest.start_offset > offset:
        return f"holds the records from {manifest.start_offset} to {manifest.offset}, its name says {offset}"
    if manifest.state_hash != _state_hash(manifest.models):
        return "has a state hash that is not that of its models"
    if ends.keys() != manifest.segments.keys():
        return "does not list the segments of its models"
    if any(end > manifest.segments[name] or _offset(name) > offset for name, end in ends.items()):
        return "points past the end of a segment, or into a later one"
    return None


def _of_kind(kind: Kind, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(kind)]


def _offset(name: str) -> int:
    return int(name[:20])


def _file_name(offset: int, data: bytes, kind: Kind) -> str:
    return f"{offset:020d}-{_sha256(data)}.{kind}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _expect_hash(path: str, data: bytes) -> None:
    if _sha256(data) != path.rpartition("-")[2].partition(".")[0]:
        raise CorruptCheckpoint(f"{path} is damaged: its bytes do not have the hash in its name")


def _verified_model(path: str, key: str, entry: ModelEntry, data: bytes) -> bytes:
    if _sha256(data) != entry.sha256:
        raise CorruptCheckpoint(f"{path} does not hold model {key!r} at byte {entry.start}")
    return data


def _state_hash(models: Mapping[str, ModelEntry]) -> str:
    return _sha256(msgspec.json.encode([(key, entry.sha256) for key, entry in sorted(models.items())]))


def _packed(models: Iterable[tuple[str, Model]]) -> Iterator[list[tuple[str, Model]]]:
    """Models in groups that fit a segment."""
    batch: list[tuple[str, Model]] = []
    size = 0
    for key, model in models:
        if batch and size + len(model.data) > SEGMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((key, model))
        size += len(model.data)
    if batch:
        yield batch


def _entries(segment: str, batch: Iterable[tuple[str, Model]]) -> Iterator[tuple[str, ModelEntry]]:
    start = 0
    for key, model in batch:
        length = len(model.data)
        yield key, ModelEntry(model.spec, segment, start, length, _sha256(model.data), model.summary)
        start += length


def _segments_to_rewrite(sizes: Mapping[str, int], carried: Mapping[str, ModelEntry], dirty_bytes: int) -> set[str]:
    """Segments whose models move into a new one, so that dead bytes stay below half of the living ones, and small
    segments few. The most wasteful segments go first: a byte that is moved frees about half a byte at least.
    """
    alive: dict[str, int] = defaultdict(int)
    for entry in carried.values():
        alive[entry.segment] += entry.length
    dead = sum(sizes[name] - alive[name] for name in alive)
    limit = (dirty_bytes + sum(alive.values())) // 2
    moving = set()
    for name in sorted(alive, key=lambda name: (alive[name] / max(sizes[name], 1), name)):
        if dead <= limit:
            break
        moving.add(name)
        dead -= sizes[name] - alive[name]
    small = {name for name in alive.keys() - moving if alive[name] < SEGMENT_BYTES // 2}
    return moving | small if len(small) > SMALL_SEGMENTS else moving
