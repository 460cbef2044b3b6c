"""The checkpoints of one location: choose, load, write, collect, compare."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from worker.checkpoint import collection, segments
from worker.checkpoint.manifest import (
    FORMAT,
    Manifest,
    ModelEntry,
    differing,
    in_order,
    problem_of,
    read_manifest,
    readable,
    state_hash,
)
from worker.checkpoint.names import Location, file_name, is_ours, of_kind, offset_of
from worker.checkpoint.segments import Model, Source
from worker.errors import CorruptCheckpoint, NotFound, WorkerError
from worker.failpoints import failpoint
from worker.ports import ObjectStore

_log = logging.getLogger(__name__)


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
        self._contents: dict[str, collection.Content] = {}
        """Of the manifests that the last garbage collection kept: files never change, so they are read once."""

    def offsets(self) -> list[int]:
        """Offsets that have a manifest, ascending; whether it can be read is not looked at."""
        return sorted({offset_of(name) for name in self._manifests()})

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

    def restorable(self, at_most: int | None = None) -> Iterator[tuple[Manifest, Iterator[tuple[str, Model]]]]:
        """Checkpoints with all their models, newest first: take the first whose models are whole and can be used.

        Models come one by one, one segment in memory at a time, so it is only while they are taken that damage shows,
        as CorruptCheckpoint: `pass_over` that checkpoint then. Yields nothing if there is no manifest at all. Running
        out of checkpoints raises CorruptCheckpoint, so that "none was good enough" is never "there was none".
        """
        names = self._manifests(at_most)
        for manifest in self._readable(names):
            yield manifest, self._models_of(manifest)
        if names:
            raise self._nothing_left(names)

    def pass_over(self, problem: str) -> None:
        """A checkpoint is damaged: note it in `skipped`."""
        _log.warning("damaged checkpoint passed over: %s", problem)
        self.skipped.append(problem)

    def load(self, manifest: Manifest, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """Models of a checkpoint, all if no keys are given; reads each segment once. Raises CorruptCheckpoint."""
        wanted = manifest.models if keys is None else {key: manifest.models[key] for key in keys}
        return dict(segments.read_models(self._store, self._folder, wanted))

    def load_one(self, manifest: Manifest, key: str) -> bytes:
        """One model by a ranged read, for any thread. Raises NotFound if there is no such model, CorruptCheckpoint."""
        entry = manifest.models.get(key)
        if entry is None:
            raise NotFound(f"the checkpoint at offset {manifest.offset} has no model {key!r}")
        return segments.read_one(self._store, self._folder, key, entry)

    def write(
        self,
        *,
        offset: int,
        start_offset: int,
        engine: str,
        created_ms: int,
        dirty: Mapping[str, Source],
        removed: Collection[str] = (),
        previous: Manifest | None = None,
        revision: int = 0,
        origin: str | None = None,
        partitions: int | None = None,
        intake: dict[str, str] | None = None,
    ) -> Manifest:
        """Write the state at `offset`: the `previous` checkpoint less `removed`, with `dirty` on top.

        Models that did not change are not written again, except to reclaim space. Each source is asked once, when the
        models before it are on their way. Raises CorruptCheckpoint if models of `previous` are damaged: write all
        models without it then.
        """
        if previous is not None and (previous.location, previous.start_offset) != (self.location, start_offset):
            raise ValueError("the previous checkpoint belongs to another history")
        before = {} if previous is None else previous.models
        models = {key: entry for key, entry in before.items() if key not in dirty and key not in removed}
        sizes = {} if previous is None else previous.segments
        written, new_sizes = self.write_models(offset, self._to_write(dirty, models, sizes))
        models |= written
        sizes = sizes | new_sizes
        return self.write_manifest(
            Manifest(
                format=FORMAT,
                engine=engine,
                location=self.location,
                start_offset=start_offset,
                offset=offset,
                revision=revision,
                created_ms=created_ms,
                segments={entry.segment: sizes[entry.segment] for entry in models.values()},
                models=models,
                state_hash=state_hash(models),
                origin=origin,
                partitions=partitions,
                intake=intake,
            )
        )

    def write_models(
        self, offset: int, models: Iterable[tuple[str, Model]]
    ) -> tuple[dict[str, ModelEntry], dict[str, int]]:
        """Write models of a checkpoint at `offset` that will have its manifest later: their entries, segment sizes."""
        entries: dict[str, ModelEntry] = {}
        sizes: dict[str, int] = {}
        for batch in segments.packed(models):
            data = segments.joined(batch)
            name = file_name(offset, data, "segment")
            self._store.create(self._path(name), data)
            failpoint("segment-written")
            sizes[name] = len(data)
            entries.update(segments.entries(name, batch))
        return entries, sizes

    def write_manifest(self, manifest: Manifest) -> Manifest:
        """Write the manifest of models that are written; returns it, its models in the order of their keys."""
        if problem := problem_of(manifest, self._folder, manifest.offset):
            raise ValueError(f"refused to write a checkpoint that nobody could read: {problem}")
        manifest = in_order(manifest)
        data = msgspec.json.encode(manifest, order="sorted")
        self._store.create(self._path(file_name(manifest.offset, data, "manifest")), data)
        failpoint("manifest-written")
        return manifest

    def _to_write(
        self, dirty: Mapping[str, Source], carried: Mapping[str, ModelEntry], sizes: Mapping[str, int]
    ) -> Iterator[tuple[str, Model]]:
        """The models that changed, then those that move because their segments are hardly used any more."""
        carried, sizes = dict(carried), dict(sizes)
        written = 0
        for key, source in sorted(dirty.items()):
            model = source()
            written += len(model.data)
            yield key, model
        moving = segments.to_rewrite(sizes, carried, written)
        moved = {key: entry for key, entry in carried.items() if entry.segment in moving}
        for key, data in segments.read_models(self._store, self._folder, moved):
            yield key, Model(carried[key].spec, data, carried[key].summary)

    def collect_garbage(self, now_ms: int, current: Manifest | None = None) -> list[str]:
        """Delete the manifests that collection.py does not keep, then segments nobody needs; returns their names.

        `current` is what the next `write` builds on; its segments stay whatever its age. Segments newer than the newest
        manifest stay too: their own may be on its way. A manifest that cannot be read may be of a newer version: it
        stays, and so does every segment it could point into.
        """
        names = self._names()
        kept: dict[str, collection.Content] = {}
        unreadable = -1
        for name in of_kind("manifest", names):
            try:
                known = self._contents.get(name)
                kept[name] = known or collection.Content.of(read_manifest(self._store, self._folder, name))
            except NotFound:
                continue  # Another collector was faster.
            except CorruptCheckpoint as error:
                self.pass_over(str(error))
                unreadable = max(unreadable, offset_of(name))
        expired = collection.expired(kept, now_ms)
        for name in expired:
            del kept[name]
        self._contents = kept
        if not kept:
            return []

        needed = set(current.segments if current is not None else ()).union(*(each.segments for each in kept.values()))
        newest = offset_of(next(iter(kept)))
        expired += collection.unneeded(of_kind("segment", names), needed, above=unreadable, below=newest)
        for name in expired:
            failpoint("collecting")
            self._store.delete(self._path(name))
        return expired

    def diverged(self, offset: int) -> list[str]:
        """Keys of models on which the checkpoints at this offset do not agree. None is what determinism promises."""
        names = [name for name in self._manifests() if offset_of(name) == offset]
        # Nearly always there is one, which was written a moment ago; of 100,000 models it takes a while to be read.
        return differing(self._readable(names)) if len(names) > 1 else []

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _names(self) -> list[str]:
        """Names of all checkpoint files, newest first."""
        names = [path.removeprefix(f"{self._folder}/") for path in self._store.list(self._folder)]
        return sorted(filter(is_ours, names), reverse=True)

    def _manifests(self, at_most: int | None = None) -> list[str]:
        names = of_kind("manifest", self._names())
        return [name for name in names if at_most is None or offset_of(name) <= at_most]

    def _readable(self, names: Iterable[str]) -> Iterator[Manifest]:
        return readable(self._store, self._folder, names, self.pass_over)

    def _models_of(self, manifest: Manifest) -> Iterator[tuple[str, Model]]:
        for key, data in segments.read_models(self._store, self._folder, manifest.models):
            entry = manifest.models[key]
            yield key, Model(entry.spec, data, entry.summary)

    def _nothing_left(self, names: Sequence[str]) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"none of the {len(names)} checkpoints in {self._folder} from offset {offset_of(names[-1])} to "
            f"{offset_of(names[0])} can be used: restore the files, or learn anew under another checkpoint.lineage"
        )


def history(store: ObjectStore, lineage: str | None = None) -> list[Manifest]:
    """The newest checkpoint of each partition of the one lineage below a store's URL, or of the one of this name.

    Raises WorkerError unless there is just one, whole, with all its partitions and no model in two of them.
    """
    histories: dict[tuple[str, str, str, str], list[Manifest]] = defaultdict(list)
    for listing in describe(store):
        if listing.problems or listing.newest is None:
            raise WorkerError(
                "\n".join(["there are damaged checkpoints, which must not be left out:", *listing.problems])
            )
        where = listing.newest.location
        if where.prefix != listing.folder:
            raise WorkerError(
                f"the URL of the store must be the one that {where.group}/ lies in, not a folder below it"
            )
        if lineage in (None, where.lineage):
            histories[where.group, where.lineage, where.topic, where.topic_id].append(listing.newest)
    if len(histories) != 1:
        found = ", ".join(f"{topic} of group {group}, lineage {of}" for group, of, topic, _ in sorted(histories))
        raise WorkerError(f"expected the checkpoints of one topic and one lineage, found {found or 'none'}")
    (manifests,) = histories.values()
    manifests.sort(key=lambda manifest: manifest.location.partition)
    numbers = [manifest.location.partition for manifest in manifests]
    if numbers != list(range(len(numbers))):
        raise WorkerError(f"some partitions have no checkpoint: found those of {numbers}")
    return manifests


class Listing(msgspec.Struct, frozen=True):
    """The checkpoints of one folder, for people."""

    folder: str
    manifests: int
    newest: Manifest | None
    """The newest that can be read."""
    problems: list[str]


def describe(store: ObjectStore) -> Iterator[Listing]:
    """What lies in each folder of checkpoints below the store's URL, which may itself be such a folder."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in store.list(""):
        folder, _, name = path.rpartition("/")
        if is_ours(name):
            files[folder].append(name)
    for folder, names in sorted(files.items()):
        manifests = of_kind("manifest", sorted(names, reverse=True))
        problems: list[str] = []
        newest = next(readable(store, folder, manifests, problems.append), None)
        if newest is not None:
            problems += [f"{folder}/{name} is missing" for name in sorted(newest.segments.keys() - set(names))]
        yield Listing(folder, len(manifests), newest, problems)
