"""Models that a new history begins with: those that another lineage, or `evaluate --save`, has learned."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self

from worker.base.errors import CorruptCheckpoint, Fatal, NotFound, Transient
from worker.base.partitioner import partition_of
from worker.base.ports import ObjectStore
from worker.checkpoint import Checkpoints, History, Manifest, SavedModel, Source, history
from worker.config import Config, history_of

_NONE = -1


class WarmStart:
    """The newest models below the URL of a store, for a topic with so many partitions that is keyed by model.

    They become part of the first checkpoint of each partition, and so of the state: what happens to the store later
    changes nothing.
    """

    def __init__(self, store: ObjectStore, partitions: int, begun: str | None = None) -> None:
        """`begun` is the folder of the history that begins, which may lie in the same store."""
        self._store = store
        self._partitions = partitions
        self._begun = begun
        self._lock = threading.Lock()
        self._placed: tuple[Sequence[str], Sequence[array[int]]] = (), ()
        """Of checkpoints, by their states: partitions of the models in the order of keys, _NONE if it is not taken."""

    @classmethod
    def of(cls, store: ObjectStore, config: Config, topic_id: str, partitions: int) -> Self:
        """The models for the input of a configuration."""
        return cls(store, partitions, History(*history_of(config), topic_id).topic_prefix)

    def models_of(self, partition: int) -> tuple[str, Mapping[str, Source]]:
        """Where they are from, and the models of this partition, as `Checkpoints.sources`.

        Raises WorkerError if there is no telling.
        """
        manifests = self.manifests()
        sources: dict[str, Source] = {}
        for manifest, keys in self.keys_of(partition, manifests):
            found = Checkpoints(self._store, manifest.location).sources(manifest, keys)
            sources |= {key: partial(_still_there, source) for key, source in found.items()}
        return self._origin(manifests), sources

    def manifests(self) -> Sequence[Manifest]:
        """The checkpoints whose models are taken. Raises WorkerError if there is no telling."""
        try:
            return history(self._store, but=self._begun)
        except Fatal as error:
            raise Fatal(f"checkpoint.warm_start: {error.fact}", error.hint) from error

    def keys_of(self, partition: int, manifests: Sequence[Manifest]) -> list[tuple[Manifest, list[str]]]:
        """Which models of each checkpoint this partition gets."""
        return [
            (manifest, [key for key, place in zip(sorted(manifest.models), places, strict=True) if place == partition])
            for manifest, places in zip(manifests, self._places(manifests), strict=True)
        ]

    def _places(self, manifests: Sequence[Manifest]) -> Sequence[array[int]]:
        """Found once for all partitions, though each of them may be the first to ask: keys take long to hash.

        There may be ten million of them, so nothing else is kept; checkpoints of one state have the same keys.
        """
        states = [manifest.state_hash for manifest in manifests]
        with self._lock:
            known, placed = self._placed
            if states != known:
                # Of models that are in several partitions, since some were added, the last one counts.
                owners = {key: n for n, manifest in enumerate(manifests) for key in manifest.models}
                placed = [
                    array("i", [self._place(key) if owners[key] == n else _NONE for key in sorted(manifest.models)])
                    for n, manifest in enumerate(manifests)
                ]
                self._placed = states, placed
            return placed

    def _place(self, key: str) -> int:
        return partition_of(key.encode(), self._partitions)

    @staticmethod
    def _origin(manifests: Sequence[Manifest]) -> str:
        places = ", ".join(f"{each.location.prefix} at offset {each.offset} ({each.state_hash})" for each in manifests)
        return f"warm start from {places}"


def _still_there(source: Source) -> SavedModel:
    """The model of a source. Raises Transient where its segment is gone, and CorruptCheckpoint where it is damaged.

    Workers that go on with the models collect what no checkpoint of theirs needs any more. Where the newest one needs
    it, the next look at the store finds it missing.
    """
    try:
        return source()
    except CorruptCheckpoint as error:
        if isinstance(error.__cause__, NotFound):
            hint = "Workers have gone on from there since it was listed: their newest models are taken"
            raise Transient(f"checkpoint.warm_start: {error}", hint) from error
        raise
