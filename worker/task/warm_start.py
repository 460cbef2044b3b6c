"""Models that a new history begins with: those that another lineage, or `evaluate --save`, has learned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from worker.base.ports import ObjectStore
from worker.checkpoint import Checkpoints, Manifest, SavedModel, Source, history
from worker.repartition.partitioner import partition_of


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

    def models_of(self, partition: int) -> tuple[str, Mapping[str, Source]]:
        """Where they are from, and the models of this partition. Raises WorkerError if there is no telling."""
        manifests = history(self._store, but=self._begun)
        sources: dict[str, Source] = {}
        for manifest in manifests:
            keys = [key for key in manifest.models if partition_of(key.encode(), self._partitions) == partition]
            for key, data in Checkpoints(self._store, manifest.location).load(manifest, keys).items():
                entry = manifest.models[key]
                sources[key] = partial(SavedModel, entry.spec, data, entry.summary)
        return self._origin(manifests), sources

    @staticmethod
    def _origin(manifests: list[Manifest]) -> str:
        places = ", ".join(f"{each.location.prefix} at offset {each.offset} ({each.state_hash})" for each in manifests)
        return f"warm start from {places}"
