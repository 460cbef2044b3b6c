"""A store that sees to what is kept in it: whatever writes or deletes what must not be fails on the spot."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.worker.support.fake_broker import Broker
from tests.worker.support.stores import DictStore
from worker.base.errors import Transient, WorkerError
from worker.checkpoint import Manifest, Pointer, Reader

KEPT, HOUR_MS = 3, 3600 * 1000
DAY_MS = 24 * HOUR_MS


class Failed(AssertionError):
    """A guarantee is broken."""


class Written(NamedTuple):
    """A manifest, and how far the group was when it was written."""

    name: str
    manifest: Manifest
    committed: int
    furthest: int
    """The highest offset that had ever been committed."""


def rank(manifest: Manifest) -> tuple[int, int, int]:
    """The furthest manifest has the highest one."""
    return manifest.offset, manifest.revision, manifest.covered


class Ledger(DictStore):
    """Remembers every manifest that a worker ever wrote."""

    def __init__(self, broker: Broker, accepts_gaps: Callable[[], bool], *, goes_back: bool) -> None:
        """goes_back: whether the group may be set back by who was put out of it, unknown to who is in it."""
        super().__init__()
        self._accepts_gaps = accepts_gaps
        self._goes_back = goes_back
        self.written: dict[int, list[Written]] = {number: [] for number in broker.logs}
        self.silent = "-"
        """Objects below this folder give no answer."""
        self.tampered: set[str] = set()
        """What others than workers have written, changed or deleted: who met it cannot know what is needed."""
        self._manifests: dict[str, Manifest] = {}
        self._as_written = DictStore()
        """Every manifest, whatever has become of it."""
        self._bases: dict[str, str] = {}
        """Of manifests that are deltas."""
        self._broker = broker

    def create(self, name: str, data: bytes) -> None:
        self._answer(name)
        super().create(name, data)
        if name.endswith("manifest"):
            manifest = self._decoded(name, data)
            number = manifest.location.partition
            committed, furthest = self._broker.committed.get(number, 0), self._broker.furthest[number]
            self.written[number].append(Written(name, manifest, committed, furthest))
            self._manifests[name] = manifest
            if (manifest.origin or "").startswith("gap") and not self._accepts_gaps():
                raise Failed(f"a partition goes on without lost records, and nobody has accepted that: {name}")
            self._check_waste(name, manifest)
            self._check_new(name, manifest, furthest)

    def read(self, name: str) -> bytes:
        self._answer(name)
        return super().read(name)

    def delete(self, *names: str) -> None:
        for name in names:
            self._delete(name)

    def _delete(self, name: str) -> None:
        if not self.tampered and name in self.objects:
            kept = self.manifests_in(name.rpartition("/")[0])
            if name in kept[:KEPT]:
                raise Failed(f"one of the {KEPT} newest checkpoints is deleted: {name}")
            if any(name.rpartition("/")[2] in self._manifests[each].segments for each in kept):
                raise Failed(f"a segment is deleted that a checkpoint needs: {name}")
            if name in self._needed_bases(kept):
                raise Failed(f"a base is deleted that a checkpoint needs: {name}")
            if name == self._with_another_base(kept):
                raise Failed(f"the last checkpoint is deleted that does not need the base of the newest: {name}")
            if name == self._next_start(kept) and not self._goes_back:
                raise Failed(f"the checkpoint is deleted from which the group would go on: {name}")
        super().delete(name)

    def _decoded(self, name: str, data: bytes) -> Manifest:
        folder, _, file = name.rpartition("/")
        self._as_written.create(name, data)
        reader = Reader(self._as_written, folder)
        try:
            manifest, base = reader.read(file), reader.header(file).base
        except WorkerError as error:
            raise Failed(f"nobody can read this checkpoint: {error}") from error
        if base is not None:
            self._bases[name] = f"{folder}/{base}"
        return manifest

    def _needed_bases(self, manifests: Iterable[str]) -> set[str]:
        return {self._bases[name] for name in manifests if name in self._bases}

    def _with_another_base(self, newest_first: Sequence[str]) -> str | None:
        bases = [self._bases.get(name, name) for name in newest_first]
        return next((name for name, base in zip(newest_first, bases, strict=True) if base != bases[0]), None)

    def _next_start(self, newest_first: Sequence[str]) -> str | None:
        """The manifest with which a partition would be opened now."""
        manifests = {name: self._manifests[name] for name in newest_first}
        number = next((manifest.location.partition for manifest in manifests.values()), -1)
        pointer = Pointer.read(self._broker.metadata.get(number, ""))
        committed = self._broker.committed.get(number, 0)
        admitted = (name for name, each in manifests.items() if pointer is None or pointer.admits(each))
        return next((name for name in admitted if manifests[name].offset <= committed), None)

    def manifests_in(self, folder: str) -> list[str]:
        """Names of the manifests there that workers wrote, the newest first."""
        there = [name for name in self._manifests if name in self.objects and name.rpartition("/")[0] == folder]
        manifests = self._manifests
        return sorted(there, key=lambda name: (*rank(manifests[name]), name), reverse=True)

    def newest(self, number: int) -> Manifest | None:
        """The furthest manifest of a partition that is still there."""
        there = [each.manifest for each in self.written[number] if each.name in self.objects]
        return max(there, key=rank, default=None)

    def oldest(self, number: int) -> int | None:
        """Offset of the first manifest of a partition that is still there."""
        return min((each.manifest.offset for each in self.written[number] if each.name in self.objects), default=None)

    def check_kept(self, number: int) -> None:
        """Whether there is no more than is to be kept, and all of it is whole, after a cleaning that nothing disturbed.

        Raises Failed.
        """
        folder = self.written[number][-1].manifest.location.prefix
        there = self.manifests_in(folder)
        kept = {name: self._manifests[name] for name in there if name not in self.tampered}
        newest, hours = next(iter(kept.values())), set()
        others = {self._with_another_base(there), self._with_another_base(list(kept))}
        needed = others | self._needed_bases(there)
        of_revision = Counter(manifest.revision for manifest in kept.values())
        for name, manifest in reversed(list(kept.items())[KEPT:]):
            of_revision[manifest.revision] -= 1
            hour, age_ms = manifest.created_ms // HOUR_MS, newest.created_ms - manifest.created_ms
            if manifest.revision > newest.revision and age_ms < HOUR_MS:
                continue  # It may have been committed since, and is not the one of its hour.
            is_old = age_ms >= DAY_MS
            # The last of a revision may have been the committed one when that was looked at.
            if of_revision[manifest.revision] >= KEPT and (hour in hours or is_old) and name not in needed:
                raise Failed(f"nobody needs this checkpoint any more: {name}")
            if name not in others:  # These stay beside the one of their hour.
                hours.add(hour)
        for name, manifest in kept.items():
            self._check_whole(name, manifest)
        used = {segment for each in there for segment in self._manifests[each].segments}
        for name in self.list(folder):
            segment = name.rpartition("/")[2]
            if name.endswith(".segment") and segment not in used and int(segment[:20]) < newest.offset:
                raise Failed(f"no checkpoint needs this segment any more: {name}")

    def _check_new(self, name: str, manifest: Manifest, furthest: int) -> None:
        try:
            self._check_whole(name, manifest)
        except Failed:
            if furthest <= manifest.offset and not self._began_anew_elsewhere(name, manifest):
                if not self.tampered:
                    raise
                return
            # Others have gone further, or began anew there: who writes this was put out of the group, and what it
            # builds on has been cleaned away meanwhile. Readers pass it over.
            self.tampered.add(name)

    def _began_anew_elsewhere(self, name: str, manifest: Manifest) -> bool:
        """Whether others have saved the partition where this does, since its base was: no record has come since."""
        base = self._manifests.get(self._bases.get(name, ""))
        others = [each.manifest for each in self.written[manifest.location.partition] if each.name != name]
        return base is not None and any(
            each.offset >= manifest.offset and each.revision > base.revision for each in others
        )

    def _check_whole(self, name: str, manifest: Manifest) -> None:
        if self._bases.get(name, name) not in self.objects:
            raise Failed(f"the base of a checkpoint is not there: {name}")
        for key, entry in manifest.models.items():
            data = self.objects.get(f"{name.rpartition('/')[0]}/{entry.segment}", b"")
            if hashlib.sha256(data[entry.start : entry.start + entry.length]).hexdigest() != entry.sha256:
                raise Failed(f"model {key!r} is not where the checkpoint says: {name}")

    @staticmethod
    def _check_waste(name: str, manifest: Manifest) -> None:
        living = sum(entry.length for entry in manifest.models.values())
        if sum(manifest.segments.values()) - living > living // 2:
            raise Failed(f"more than a third of the bytes of its segments are dead: {name}")

    def _answer(self, name: str) -> None:
        if name.startswith(self.silent):
            raise Transient(f"injected: no answer about {name}")
