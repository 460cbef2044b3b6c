"""The checkpoints of one location: choose, load, write, collect, compare."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import msgspec

from worker.base.errors import AlreadyExists, CorruptCheckpoint, NotFound
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.ports import ObjectStore
from worker.checkpoint import retention, segments
from worker.checkpoint.catalogue import Catalogue, ModelEntry
from worker.checkpoint.manifest import About, Manifest, Reader, differing, encoded, problem_of, readable, ready_to_write
from worker.checkpoint.names import Location, file_name, is_ours, of_kind, offset_of, sha256
from worker.checkpoint.pointer import Pointer
from worker.checkpoint.segments import SavedModel, Source
from worker.checkpoint.siblings import other_lineages

_log = Log(__name__)

_FEW_BYTES = 2**20
_WIDEST_STEP = 2**31
"""Between revisions: two that are drawn at once are hardly ever the same."""


class _Written(msgspec.Struct):
    """What was written here since the last garbage collection."""

    files: int = 0
    bytes: int = 0
    """Of segments."""
    offsets: set[int] = msgspec.field(default_factory=set)
    """Those of the checkpoints."""


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
        self._contents: dict[str, retention.Content] = {}
        """Of manifests that were written here, or left by the last garbage collection.

        Files never change, so they are read once at most.
        """
        self._known: set[str] = set()
        """Names of the files that were there when they were listed last, and of those that were written here since."""
        self._since = _Written()
        self._kept_files: int | None = None
        """How many files the last garbage collection has left."""
        self._lost_base: str | None = None
        """A base that was not there any more: the next manifest is one itself."""
        self._lost_segments: list[str] = []
        """Those of the checkpoint that was the current one when the files were listed last: none may build on them."""

    def offsets(self) -> list[int]:
        """Offsets that have a manifest, ascending; whether it can be read is not looked at."""
        return sorted({offset_of(name) for name in self._manifests()})

    def committed_beyond(self, offset: int) -> Iterator[int]:
        """Offsets beyond this one that were committed, as far as checkpoints prove it, the last one first.

        That with which a history begins proves nothing yet. Each is read when it is asked for.
        """
        reader = Reader(self._store, self._folder)
        beyond = [name for name in self._manifests() if offset_of(name) > offset]
        return (offset_of(name) for name in beyond if not reader.begins(name))

    def newest(self, at_most: int | None = None, pointer: Pointer | None = None) -> Manifest | None:
        """The newest readable manifest at or before an offset that the `pointer` committed there admits.

        None if there is none at all, or none that it admits. Of several at one offset everybody takes the same one.
        Raises CorruptCheckpoint if some cannot be read, and none of the others will do.
        """
        names, n_readable = self._manifests(at_most), 0
        for manifest in self._readable(names):
            if pointer is None or pointer.admits(manifest):
                return manifest
            n_readable += 1
        if n_readable < len(names):
            raise self._nothing_left(names)
        return None

    def unused_revision(self, offset: int, revision: int) -> int:
        """The revision of a state that is changed out of band after the checkpoint of this offset and revision.

        It is above that of every checkpoint from there on: somebody may have made another change there that was never
        committed, or the group has been set back, and the two would be taken for one history. How far above is drawn
        at random, since somebody may make another change at this moment.
        """
        names = [name for name in self._manifests() if offset_of(name) >= offset]
        highest = max([revision, *(manifest.revision for manifest in self._readable(names))])
        return highest + random.randint(1, _WIDEST_STEP)

    def revision_of_beginning(self, offset: int, state_hash: str) -> int:
        """The revision under which a history begins at an offset with the models of this hash.

        Whoever begins there with others has another one, be it at this moment: what each of them replays from there is
        not what the other one has learned. What is begun last has the highest one.
        """
        before = self.newest(offset)
        if before is not None and before.state_hash == state_hash:
            return before.revision
        least = 0 if before is None else before.revision + 1
        return least + int(state_hash, 16) % _WIDEST_STEP

    def restorable(
        self, at_most: int | None = None, pointer: Pointer | None = None
    ) -> Iterator[tuple[Manifest, Iterator[tuple[str, SavedModel]]]]:
        """Checkpoints with all their models, newest first: take the first whose models are whole and can be used.

        Those that the `pointer` does not admit are left out, and those of which a segment is not in the list of files.
        Models come one by one, one segment in memory at a time, so it is only while they are taken that other damage
        shows, as CorruptCheckpoint: `pass_over` that checkpoint then.
        Yields nothing if there is no manifest at all. Running out of checkpoints raises CorruptCheckpoint, so that
        "none was good enough" is never "there was none".
        """
        names = self._manifests(at_most)
        for manifest in self._readable(names):
            if pointer is not None and not pointer.admits(manifest):
                continue
            if gone := self._gone(manifest):
                self.pass_over(f"{self._path(gone[0])} is missing" + (f", and {len(gone) - 1} more" * (len(gone) > 1)))
            else:
                yield manifest, self._models_of(manifest)
        if names:
            raise self._nothing_left(names)

    def pass_over(self, problem: str) -> None:
        """A checkpoint is damaged: note it in `skipped`, once, however often it is met."""
        if problem in self.skipped:
            return
        _log.warning(
            "checkpoint-damaged",
            f"{self.location.title}: damaged checkpoint passed over",
            detail=problem,
            partition=self.location.partition,
        )
        self.skipped.append(problem)

    def sources(self, manifest: Manifest, keys: Iterable[str]) -> dict[str, Source]:
        """Models of a checkpoint that are to be written elsewhere. They raise CorruptCheckpoint.

        To be asked once each, in this order: so each segment is read once, and one at a time is in memory.
        """
        wanted = {key: manifest.models[key] for key in keys}
        reading = segments.read_models(self._store, self._folder, wanted)

        def read(key: str) -> SavedModel:
            found, data = next(reading)
            assert found == key, "asked in another order"
            return segments.saved(wanted[key], data)

        return {key: partial(read, key) for key in segments.in_order(wanted)}

    def load_one(self, manifest: Manifest, key: str) -> bytes:
        """One model by a ranged read, for any thread. Raises NotFound if there is no such model, CorruptCheckpoint."""
        entry = manifest.models.get(key)
        if entry is None:
            raise NotFound(f"the checkpoint at offset {manifest.offset} has no model {key!r}")
        return segments.read_one(self._store, self._folder, key, entry)

    def write(
        self,
        about: About,
        dirty: Mapping[str, Source],
        removed: Collection[str] = (),
        previous: Manifest | None = None,
    ) -> Manifest:
        """Write the state that `about` says: the `previous` checkpoint less `removed`, with `dirty` on top.

        Models that did not change are not written again, except to reclaim space. Each source is asked once, in their
        order, when the models before it are on their way. Raises CorruptCheckpoint if models of `previous` are damaged:
        write all models without it then.
        """
        if previous is not None and (previous.location, previous.start_offset) != (about.location, about.start_offset):
            raise ValueError("the previous checkpoint belongs to another history")
        before = Catalogue() if previous is None else previous.models
        carried = before.less({*dirty, *removed})
        if not carried.usage.keys().isdisjoint(self._lost_segments):
            raise self._lost()
        written, sizes = self.write_models(about.offset, self._to_write(dirty, carried))
        self._since.offsets.add(about.offset)
        return self.write_manifest(Manifest.of(about, carried.plus(written, sizes)))

    def write_models(
        self, offset: int, models: Iterable[tuple[str, SavedModel]]
    ) -> tuple[dict[str, ModelEntry], dict[str, int]]:
        """Write models of a checkpoint at `offset` that will have its manifest later: their entries, segment sizes."""
        entries: dict[str, ModelEntry] = {}
        sizes: dict[str, int] = {}
        for segment in segments.packed(models):
            name, other = segment.names(offset)
            try:
                self._create(name, segment.data)
            except AlreadyExists as error:
                self.pass_over(str(error))
                self._create(name := other, segment.data)
            self._since.bytes += len(segment.data)
            failpoint("segment-written")
            sizes[name] = len(segment.data)
            entries.update(segment.entries(name))
            del segment  # which else would be in memory beside the next one
        return entries, sizes

    def write_manifest(self, manifest: Manifest) -> Manifest:
        """Write the manifest of models that are written, as a base or as a delta; returns it as it is in the store."""
        if problem := problem_of(manifest, manifest.models.usage, self._folder, manifest.offset):
            raise ValueError(f"refused to write a checkpoint that nobody could read: {problem}")
        if manifest.models.base_name is not None and manifest.models.base_name == self._lost_base:
            manifest = msgspec.structs.replace(manifest, models=manifest.models.whole())
        manifest = ready_to_write(manifest)
        header, data = encoded(manifest)
        name = file_name(manifest.offset, sha256(data), "manifest")
        self._create(name, data)
        failpoint("manifest-written")
        self._contents[name] = retention.Content.of(header)
        models = manifest.models.saved(name if header.base is None else None, header.deltas)
        return msgspec.structs.replace(manifest, models=models)

    def _create(self, name: str, data: bytes) -> None:
        self._store.create(self._path(name), data)
        self._known.add(name)
        self._since.files += 1

    def _to_write(self, dirty: Mapping[str, Source], carried: Catalogue) -> Iterator[tuple[str, SavedModel]]:
        """The models that changed, then those that move because their segments are hardly used any more."""
        written = 0
        for key, source in dirty.items():
            model = source()
            written += len(model.data)
            yield key, model
            del model  # see packed
        moved = carried.lying_in(segments.to_rewrite(carried.usage, written))
        for key, data in segments.read_models(self._store, self._folder, moved):
            yield key, segments.saved(carried[key], data)

    def is_untidy(self, current: Manifest) -> bool:
        """Whether it is time to list the files again, and to collect garbage.

        That is so at first, and then where what was written since would double the files, or the bytes of the models
        of the `current` checkpoint, few bytes aside. So whatever a checkpoint costs, listing adds little to it.
        """
        since, most_bytes = self._since, max(_FEW_BYTES, current.models.alive_bytes)
        return self._kept_files is None or since.files >= self._kept_files or since.bytes > most_bytes

    def tidy(self, current: Manifest, committed: int | None) -> dict[int, list[str]]:
        """List the files once: compare what was written here since the last time with what others have, then collect.

        Returns offset -> keys on which checkpoints there do not agree, see `diverged`. Where there are any nothing is
        deleted. `committed` is the revision that is committed. What others have written since the last listing stays:
        who cleans up may have lost the partition, and where the next owner works below, the manifest may be on its way.
        Raises CorruptCheckpoint, and deletes nothing, where segments of the `current` checkpoint are gone: what others
        took for needless, or an earlier checkpoint alone, may be all there is to recover from.
        """
        known, names = self._known, self._names()
        differing = {offset: self.diverged(offset) for offset in sorted(self._since.offsets)}
        differing = {offset: keys for offset, keys in differing.items() if keys}
        self._lost_segments = self._gone(current)
        if differing:
            return differing
        self._since.offsets.clear()  # Once is enough, also where nothing can be deleted.
        if self._lost_segments:
            raise self._lost()
        self._collect(names, current.created_ms, current, committed, known)
        return {}

    def collect_garbage(self, now_ms: int, current: Manifest | None = None) -> list[str]:
        """Delete the manifests that retention.py does not keep, then segments nobody needs; returns their names.

        `current` is what the next `write` builds on; its segments stay whatever its age. Segments newer than the newest
        manifest stay too: their own may be on its way. A manifest that cannot be read may be of a newer version: it
        stays, and so does every segment it could point into. So do those of one that is gone since it was listed. A
        delta without its base is of no use to any version.
        """
        names = self._names()
        return self._collect(names, now_ms, current, None, set(names))

    def _collect(
        self, names: Sequence[str], now_ms: int, current: Manifest | None, committed: int | None, known: set[str]
    ) -> list[str]:
        found, orphans, unreadable = self._contents_of(of_kind("manifest", names))
        self._contents = found  # All of it, until it is gone: a store that lets nobody delete is not read each time.
        bases = {current.models.base_name} if current is not None else set()
        self._lost_base = next(iter(bases - {*names}), None)
        reached = None if current is None else current.offset
        expired = retention.expired(found, now_ms, committed, {*bases, *(found.keys() - known)}, reached)
        outlived = set(chain.from_iterable(expired))
        kept = {name: content for name, content in found.items() if name not in outlived}
        if not kept:
            return []

        needed = set(current.segments if current is not None else ()).union(*(each.segments for each in kept.values()))
        newest = offset_of(next(iter(kept)))
        # After the group was set back others may write below the newest one.
        below = newest if current is None else min(newest, current.offset)
        expired.insert(0, [name for name in orphans if offset_of(name) < newest])
        # An orphan that stays has what it could point into: somebody may restore its base.
        unreadable = max([unreadable, *(offset_of(name) for name in orphans if offset_of(name) >= newest)])
        long_there = [name for name in of_kind("segment", names) if name in known]
        expired.append(retention.unneeded(long_there, needed, above=unreadable, below=below))
        for together in filter(None, expired):
            failpoint("collecting")
            self._store.delete(*map(self._path, together))
        self._contents, deleted = kept, list(chain.from_iterable(expired))
        self._kept_files, self._since = len(names) - len(deleted), _Written()
        return deleted

    def _contents_of(self, names: Sequence[str]) -> tuple[dict[str, retention.Content], list[str], int]:
        """What stands in manifests that can be read, the newest first; deltas whose base is gone; the highest offset of
        a manifest that cannot be read, or -1."""
        found: dict[str, retention.Content] = {}
        unreadable = {-1}
        reader = Reader(self._store, self._folder)
        for name in names:
            try:
                found[name] = self._contents.get(name) or retention.Content.of(reader.header(name))
            except NotFound:
                # Another collector was faster: what was written since the listing may build on the one that is gone.
                unreadable.add(offset_of(name))
            except CorruptCheckpoint as error:
                self.pass_over(str(error))
                unreadable.add(offset_of(name))
        orphans, there = list[str](), {*names}
        for name in [name for name, each in found.items() if each.base is not None and each.base not in found]:
            base = found.pop(name).base
            self.pass_over(f"{self._path(name)} needs {base}, which cannot be read")
            if base in there:
                unreadable.add(offset_of(name))
            else:
                orphans.append(name)
        # Names say which offset is newer; of those at one offset the later revision is, or what covers more.
        newest_first = sorted(found, key=lambda name: (offset_of(name), *found[name].rank), reverse=True)
        return {name: found[name] for name in newest_first}, orphans, max(unreadable)

    def other_lineages(self) -> list[str]:
        """Those of which the group has checkpoints of this topic as well."""
        return other_lineages(self._store, self.location)

    def diverged(self, offset: int) -> list[str]:
        """Keys of models on which the checkpoints at this offset do not agree. None is what determinism promises.

        What counts is what was there when the files were listed last, and what was written here since. Two workers may
        have made two changes out of band there, of which one at most will be committed: these are two revisions, which
        are not compared.
        """
        names = [name for name in of_kind("manifest", self._known) if offset_of(name) == offset]
        # Nearly always there is one, which was written a moment ago; of 100,000 models it takes a while to be read.
        if len(names) < 2:
            return []
        return differing(self._readable(sorted(names)))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _names(self) -> list[str]:
        """Names of all checkpoint files, newest first."""
        names = [path.removeprefix(f"{self._folder}/") for path in self._store.list(self._folder)]
        self._known = set(filter(is_ours, names))
        return sorted(self._known, reverse=True)

    def _manifests(self, at_most: int | None = None) -> list[str]:
        names = of_kind("manifest", self._names())
        return [name for name in names if at_most is None or offset_of(name) <= at_most]

    def _gone(self, manifest: Manifest) -> list[str]:
        """Segments of a manifest that was listed, which are not in the store."""
        if manifest.segments.keys() - self._known:
            # A listing of many pages is not of one moment: a segment may have come after the page where it would be.
            self._names()
        return sorted(manifest.segments.keys() - self._known)

    def _readable(self, names: Iterable[str]) -> Iterator[Manifest]:
        return readable(self._store, self._folder, names, self.pass_over)

    def _models_of(self, manifest: Manifest) -> Iterator[tuple[str, SavedModel]]:
        for key, data in segments.read_models(self._store, self._folder, manifest.models):
            yield key, segments.saved(manifest.models[key], data)

    def _lost(self) -> CorruptCheckpoint:
        return CorruptCheckpoint(f"{self._path(self._lost_segments[0])} is missing")

    def _nothing_left(self, names: Sequence[str]) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"none of the {len(names)} checkpoints in {self._folder} from offset {offset_of(names[-1])} to "
            f"{offset_of(names[0])} can be used: restore the files, or begin anew under another "
            "checkpoint.lineage, once the group's offsets are deleted (kafka-consumer-groups --delete-offsets)"
        )
