"""A manifest: the state of a partition at an offset, as a catalogue of where its models lie.

A manifest is either a base, which holds it whole, or a delta, which holds what has changed since one base, whose
name it says: two files at most are read for a state, and one of them is small. A delta holds all that has changed since
its base, so it grows; once the deltas of a base have had as many entries, all in all, as the base has models, another
base is written. So a checkpoint at which one of n models has changed costs about the square root of n entries.

The bytes are frames, each of them its length in four bytes and then MessagePack: first the header, then entries, up to
FRAME_ENTRIES in a frame, so that encoding or decoding many of them never holds up other threads for long. Segments are
named once, in the header; an entry counts into them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import groupby, islice
from typing import Annotated, Any

import msgspec

from worker.base.errors import CorruptCheckpoint, NotFound
from worker.base.ports import ObjectStore
from worker.checkpoint.catalogue import Catalogue, ModelEntry, Size
from worker.checkpoint.names import Location, expect_hash, offset_of

FORMAT = 3
"""What is written, and all that can be read."""
FRAME_ENTRIES = 1000
_LENGTH_BYTES = 4

SegmentName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}-[0-9a-f]{64}\.segment\Z")]
ManifestName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{20}-[0-9a-f]{64}\.manifest\Z")]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a state but its models: every record of [start_offset, offset) is in it, nothing else."""

    engine: str
    location: Location
    start_offset: Size
    offset: Size
    covered: Size
    """Up to where no record lies behind `offset`, as far as that was seen; at least `offset`.

    What has these offsets are markers of transactions, or was aborted: when retention deletes it, nothing is lost.
    """
    revision: Size = 0
    """Higher after each change out of band, which no record makes, but a configuration that starts models anew, say.

    No two changes have the same one, see Checkpoints.unused_revision.
    """
    created_ms: int
    """Wall clock of the writer, for people and for garbage collection."""
    origin: str | None = None
    """Where the models of the first checkpoint came from, if this history did not begin with nothing."""
    adopted: bool = True
    """False until a worker has started from it: made without a broker, it does not know where the group stands."""
    partitions: int | None = None
    """How many the topic had: when some are added, keys move. None where nobody looked."""
    intake: dict[str, str] | None = None
    """What the configuration said of which records are learned, and the specs of the models do not; None if unknown."""


class Manifest(About, frozen=True, kw_only=True):
    """The state at `offset`."""

    models: Catalogue

    @classmethod
    def of(cls, about: About, models: Catalogue) -> Manifest:
        return cls(models=models, **_about(about))

    @property
    def about(self) -> About:
        return About(**_about(self))

    @property
    def state_hash(self) -> str:
        """Of the models alone: two checkpoints of one state have one hash, however their segments were cut."""
        return self.models.state_hash

    @property
    def segments(self) -> dict[str, int]:
        """Bytes of each segment that `models` point into."""
        return self.models.segments


class Header(About, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says before its entries."""

    format: int
    base: ManifestName | None
    """The base of a delta."""
    deltas: Size
    """How many entries the deltas of that base have had by now."""
    segments: dict[SegmentName, Size]
    """Bytes of each segment that the entries of this file point into, in the order in which these count."""
    removed: list[str]
    """Models of the base that are no more."""
    state_hash: str


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A model as its frame has it."""

    key: str
    spec: str
    segment: Size
    start: Size
    length: Size
    sha256: Digest
    summary: dict[str, int]


class _Version(msgspec.Struct):
    format: int


_ABOUT = About.__struct_fields__
# Made before there are threads: msgspec 0.22 crashes where two of them are the first to ask for a type.
_read_version = msgspec.msgpack.Decoder(_Version).decode
_read_header = msgspec.msgpack.Decoder(Header).decode
_read_rows = msgspec.msgpack.Decoder(list[_Row]).decode
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def ready_to_write(manifest: Manifest) -> Manifest:
    """A manifest as it is to be written: with a base of its own where it is time for that."""
    models = manifest.models
    if models.base_name is None or models.deltas + models.delta_length > models.base_length:
        return msgspec.structs.replace(manifest, models=models.whole())
    return manifest


def encoded(manifest: Manifest) -> tuple[Header, bytes]:
    """The bytes of a manifest, and their header: a delta, where a manifest in the store has its base."""
    models, is_delta = manifest.models, manifest.models.base_name is not None
    entries: Mapping[str, ModelEntry] = models.changed if is_delta else models
    segments = {name: models.usage[name].size for name in sorted({entry.segment for entry in entries.values()})}
    removed = sorted(models.removed) if is_delta else []
    header = Header(
        format=FORMAT,
        base=models.base_name,
        deltas=models.deltas + models.delta_length if is_delta else 0,
        segments=segments,
        removed=removed,
        state_hash=manifest.state_hash,
        **_about(manifest),
    )
    stream = BytesIO()
    for frame in _frames(header, entries):
        stream.write(len(frame).to_bytes(_LENGTH_BYTES, "big"))
        stream.write(frame)
    return header, stream.getvalue()


def _about(state: About) -> dict[str, Any]:
    return {name: getattr(state, name) for name in _ABOUT}


def _frames(header: Header, entries: Mapping[str, ModelEntry]) -> Iterator[bytes]:
    yield _encode(header)
    number_of = {name: number for number, name in enumerate(header.segments)}
    rows = (
        _Row(
            key,
            entry.spec,
            number_of[entry.segment],
            entry.start,
            entry.length,
            bytes.fromhex(entry.sha256),
            entry.summary,
        )
        for key, entry in entries.items()
    )
    while some := list(islice(rows, FRAME_ENTRIES)):
        yield _encode(some)


class Reader:
    """Reads the manifests of one folder; a base that several deltas have is read once, if they come together."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._base: tuple[str, Manifest] | None = None

    def read(self, name: str) -> Manifest:
        """Raises NotFound; CorruptCheckpoint for a file that is damaged, foreign or of an unknown format."""
        path = self._path(name)
        header, frames = self._open(name)
        if header.base is None:
            return self._read_base(name, header, frames)
        try:
            return self._read_delta(header, header.base, frames)
        except ValueError as error:
            raise CorruptCheckpoint(f"{path} {error}") from error
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{path} needs what is damaged: {error}") from error
        except NotFound as error:
            self._store.read(path)  # Not found either where both were collected since they were listed.
            raise CorruptCheckpoint(f"{path} needs {self._path(header.base)}, which is missing") from error

    def header(self, name: str) -> Header:
        """The header alone, of a file whose bytes are those that were written. Raises as `read` does."""
        return self._open(name)[0]

    def begins(self, name: str) -> bool:
        """Whether a history begins with it: of one that cannot be read nobody knows, so it does not."""
        try:
            header = self.header(name)
        except (NotFound, CorruptCheckpoint):
            return False
        return header.offset == header.start_offset

    def _open(self, name: str) -> tuple[Header, Iterator[bytes]]:
        path = self._path(name)
        data = self._store.read(path)
        expect_hash(path, data)
        try:
            frames = _cut(data)
            first = next(frames, b"")
            version = _read_version(first).format
            if version != FORMAT:
                raise CorruptCheckpoint(f"{path} has format {version}, this version reads format {FORMAT}")
            header = _read_header(first)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise CorruptCheckpoint(f"{path} is not a manifest: {error}") from error
        if problem := problem_of(header, header.segments, self._folder, offset_of(name)):
            raise CorruptCheckpoint(f"{path} {problem}")
        return header, frames

    def _read_base(self, name: str, header: Header, frames: Iterator[bytes]) -> Manifest:
        try:
            models = Catalogue.of(_entries(header, frames), header.segments, name)
            _require_hash(header, models)
            if header.removed:
                raise ValueError("removes models without a base")
        except ValueError as error:
            raise CorruptCheckpoint(f"{self._path(name)} {error}") from error
        manifest = Manifest.of(header, models)
        self._base = name, manifest
        return manifest

    def _read_delta(self, header: Header, base_name: str, frames: Iterator[bytes]) -> Manifest:
        """Raises ValueError for what is wrong with it; NotFound, CorruptCheckpoint of its base."""
        base = self._base_of(header, base_name)
        entries = _entries(header, frames)
        if not all(key in base.models and key not in entries for key in header.removed):
            raise ValueError("removes models that its base does not have, or that it has itself")
        models = base.models.less(header.removed).plus(entries, header.segments).saved(None, header.deltas)
        _require_hash(header, models)
        return Manifest.of(header, models)

    def _base_of(self, header: Header, name: str) -> Manifest:
        if self._base is not None and self._base[0] == name:
            base = self._base[1]
        else:
            of_base, frames = self._open(name)
            if of_base.base is not None:
                raise ValueError(f"is the delta of a delta, {name}")
            base = self._read_base(name, of_base, frames)
        if (base.location, base.start_offset) != (header.location, header.start_offset) or base.offset > header.offset:
            raise ValueError(f"is the delta of a base of another history, {name}")
        return base

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


def _require_hash(header: Header, models: Catalogue) -> None:
    if header.state_hash != models.state_hash:
        raise ValueError("has a state hash that is not that of its models")


def _cut(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(data[at:start], "big")
        if end > len(data):
            raise ValueError("it ends within a frame")
        yield data[start:end]
        at = end


def _entries(header: Header, frames: Iterator[bytes]) -> dict[str, ModelEntry]:
    """Raises ValueError."""
    names, pointed_at, entries, n = list(header.segments), set[int](), dict[str, ModelEntry](), 0
    try:
        for frame in frames:
            for row in _read_rows(frame):
                segment = names[row.segment]
                pointed_at.add(row.segment)
                entries[row.key] = ModelEntry(row.spec, segment, row.start, row.length, row.sha256.hex(), row.summary)
                n += 1
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"is not a manifest: {error}") from error
    except IndexError:
        raise ValueError("does not list the segments of its models") from None
    if len(pointed_at) < len(names):
        raise ValueError("lists segments that no model of it is in")
    if len(entries) < n:
        raise ValueError("has a model twice")
    return entries


def readable(
    store: ObjectStore, folder: str, names: Iterable[str], on_problem: Callable[[str], None]
) -> Iterator[Manifest]:
    """The manifests of these names, which are sorted by offset.

    At one offset the last revision goes first, and of one revision what covers most. What one of them covers all of
    them do: where no records are is a fact of the topic, and whoever wrote a later revision may have read less of it.
    """
    reader = Reader(store, folder)
    for _, together in groupby(names, offset_of):
        found = []
        for name in together:
            try:
                found.append(reader.read(name))
            except NotFound:
                continue  # Collected as garbage since it was listed.
            except CorruptCheckpoint as error:
                on_problem(str(error))
        covered = max((manifest.covered for manifest in found), default=0)
        # Sorting is stable: of several that are alike everybody takes the same one.
        for manifest in sorted(found, key=lambda manifest: (-manifest.revision, -manifest.covered)):
            yield manifest if manifest.covered == covered else msgspec.structs.replace(manifest, covered=covered)


def problem_of(state: About, segments: Iterable[str], folder: str, offset: int) -> str | None:
    """What makes a manifest that points into these segments unusable at `offset` in `folder`.

    Asked before it is written and when it is read.
    """
    if not f"/{state.location.prefix}".endswith(f"/{folder}" if folder else ""):
        return f"belongs to {state.location.prefix}"
    if state.offset != offset or state.start_offset > offset:
        return f"holds the records from {state.start_offset} to {state.offset}, its name says {offset}"
    if state.covered < offset:
        return f"holds the records up to {offset}, and covers them up to {state.covered}"
    if any(offset_of(name) > offset for name in segments):
        return "points into a later segment"
    return None


def differing(manifests: Iterable[Manifest]) -> list[str]:
    """Keys of models on which manifests of one offset do not agree, though nothing allows them to differ.

    What allows it: another engine, another beginning, a change out of band, and for each model another spec.
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
