"""The catalogue of a state's models: where each of them lies, and how much of each segment is alive.

A catalogue is a base and what has changed since, so that the next one costs what changes and not what there is: hardly
anything here looks at all models. How much that saves, manifest.py says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0)]


class ModelEntry(msgspec.Struct, frozen=True, gc=False):
    """Where a model lies and what it is. `sha256` is of the model's own bytes, `start` and `length` are in bytes."""

    spec: str
    segment: str
    start: int
    length: int
    sha256: str
    summary: dict[str, int]


class Usage(NamedTuple):
    """What of a segment is in use."""

    size: int
    models: int
    alive: int
    """Bytes that models lie in."""


class Catalogue(Mapping[str, ModelEntry]):
    """Model key -> entry, and the usage of the segments. It does not change: `less` and `plus` make another one."""

    __slots__ = ("_base", "_changed", "_hash", "_length", "_removed", "alive_bytes", "base_name", "deltas", "usage")

    def __init__(self, base: dict[str, ModelEntry] | None = None, base_name: str | None = None) -> None:
        self._base = base or {}
        self._changed: dict[str, ModelEntry] = {}
        self._removed: set[str] = set()
        self._length = len(self._base)
        self._hash = 0
        self.base_name = base_name
        """The manifest in the store that holds the base; None where none does."""
        self.deltas = 0
        """How many entries were written, all in all, as differences to that base."""
        self.usage: dict[str, Usage] = {}
        """Of each segment that models lie in."""
        self.alive_bytes = 0
        """Of all models."""

    @classmethod
    def of(cls, models: dict[str, ModelEntry], sizes: Mapping[str, int], base_name: str | None = None) -> Catalogue:
        """A catalogue that is all base. Raises ValueError where a model does not lie in these segments."""
        catalogue = cls(models, base_name)
        catalogue._enter(models, sizes)
        return catalogue

    def __getitem__(self, key: str) -> ModelEntry:
        found = self._changed.get(key)
        if found is not None:
            return found
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._base and key not in self._removed)

    def __iter__(self) -> Iterator[str]:
        changed, removed = self._changed, self._removed
        yield from (key for key in self._base if key not in changed and key not in removed)
        yield from changed

    def __len__(self) -> int:
        return self._length

    @property
    def state_hash(self) -> str:
        """Hash of the models, which follows from what changes."""
        return _text(self._hash)

    @property
    def segments(self) -> dict[str, int]:
        """Bytes of each segment that models lie in."""
        return {name: usage.size for name, usage in self.usage.items()}

    @property
    def changed(self) -> Mapping[str, ModelEntry]:
        """The models that are not in the base, or not as they are there."""
        return self._changed

    @property
    def removed(self) -> Collection[str]:
        """Keys of models that are in the base only."""
        return self._removed

    @property
    def delta_length(self) -> int:
        """How many entries a delta has."""
        return len(self._changed) + len(self._removed)

    @property
    def base_length(self) -> int:
        """How many models the base has."""
        return len(self._base)

    def lying_in(self, segments: Collection[str]) -> dict[str, ModelEntry]:
        """The models that lie in these segments.

        Those that came last have changed since the base, so that all models are looked at only where some are not
        among these.
        """
        found = {key: entry for key, entry in self._changed.items() if entry.segment in segments}
        if len(found) < sum(self.usage[name].models for name in segments):
            found |= {key: entry for key, entry in self.items() if entry.segment in segments}
        return found

    def less(self, keys: Iterable[str]) -> Catalogue:
        """Without these models, as far as they are there."""
        catalogue = self._copy()
        for key in keys:
            if key in catalogue:
                catalogue._leave(key)
                catalogue._changed.pop(key, None)
                catalogue._length -= 1
                if key in catalogue._base:
                    catalogue._removed.add(key)
        return catalogue

    def plus(self, models: Mapping[str, ModelEntry], sizes: Mapping[str, int]) -> Catalogue:
        """With these models, which lie in segments of these sizes, or of this catalogue. Raises ValueError."""
        catalogue = self._copy()
        for key, entry in models.items():
            if key in catalogue:
                catalogue._leave(key)
            else:
                catalogue._length += 1
            catalogue._changed[key] = entry
            catalogue._removed.discard(key)
        catalogue._enter(models, sizes)
        return catalogue

    def whole(self) -> Catalogue:
        """A catalogue of these models that is all base, one that no manifest holds yet."""
        models = {key: entry for key, entry in self._base.items() if key not in self._removed}
        models.update(self._changed)
        catalogue = Catalogue(models)
        catalogue.usage, catalogue.alive_bytes, catalogue._hash = self.usage, self.alive_bytes, self._hash
        return catalogue

    def saved(self, base_name: str | None, deltas: int) -> Catalogue:
        """It once it is in the store: as a base of this name, or, without one, as a difference to its base."""
        catalogue = self._copy()
        catalogue.base_name, catalogue.deltas = base_name or self.base_name, deltas
        return catalogue

    def _copy(self) -> Catalogue:
        twin = Catalogue(self._base, self.base_name)
        twin._changed, twin._removed, twin._length = dict(self._changed), set(self._removed), self._length
        twin.deltas, twin.usage = self.deltas, dict(self.usage)
        twin.alive_bytes, twin._hash = self.alive_bytes, self._hash
        return twin

    def _enter(self, models: Mapping[str, ModelEntry], sizes: Mapping[str, int]) -> None:
        nobody = Usage(-1, 0, 0)
        for key, entry in models.items():
            was = self.usage.get(entry.segment, nobody)
            size = sizes.get(entry.segment, was.size)
            if size < entry.start + entry.length or was.size not in (-1, size):
                raise ValueError("points past the end of a segment, or into one that it does not list")
            self.usage[entry.segment] = Usage(size, was.models + 1, was.alive + entry.length)
            self.alive_bytes += entry.length
            self._hash += _hash_of(key, entry)

    def _leave(self, key: str) -> None:
        entry = self[key]
        size, models, alive = self.usage[entry.segment]
        self.alive_bytes -= entry.length
        self._hash -= _hash_of(key, entry)
        if models == 1:
            del self.usage[entry.segment]
        else:
            self.usage[entry.segment] = Usage(size, models - 1, alive - entry.length)


def state_hash(models: Mapping[str, ModelEntry]) -> str:
    """Hash of a set of models: the sum of a hash of each, by its key and its own bytes, modulo 2**256.

    It depends on nothing else, such as the order or how checkpoints grouped them.
    """
    return _text(sum(_hash_of(key, entry) for key, entry in models.items()))


def _text(total: int) -> str:
    return f"{total % 2**256:064x}"


def _hash_of(key: str, entry: ModelEntry) -> int:
    # The hash of the bytes has one length, so that no two pairs are one text.
    return int.from_bytes(hashlib.sha256(f"{entry.sha256}{key}".encode()).digest(), "big")
