"""Partitions with a model for each of a dozen keys, as producers that place records by their key make them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests.worker.support.bench import Bench
from tests.worker.support.manifests import loaded
from worker.base.partitioner import partition_of
from worker.checkpoint import Checkpoints

KEYS = [f"key-{number}" for number in range(12)]


def feed_keys(bench: Bench, labels: Sequence[str], keys: Sequence[str] = KEYS) -> None:
    """Events of every key, where a producer would send them."""
    for key in keys:
        bench.feed(*labels, partition=partition_of(key.encode(), len(bench.broker.logs)), key=key)


def drained_bench() -> Bench:
    """Two partitions, worked off; the worker has stopped in order."""
    bench = Bench(partitions=2, interval_s=60.0)
    feed_keys(bench, "abcab")
    bench.worker().join().turns(3).close()
    return bench


def models_of(bench: Bench, lineage: str) -> dict[str, bytes]:
    """All models as the newest checkpoints of a lineage have them."""
    models: dict[str, bytes] = {}
    for number in bench.broker.logs:
        location = msgspec.structs.replace(bench.checkpoints(number).location, lineage=lineage)
        checkpoints = Checkpoints(bench.store, location)
        manifest = checkpoints.newest()
        assert manifest is not None
        models |= loaded(checkpoints, manifest)
    return models
