"""Manifests of very many models: what a checkpoint costs must not depend on which of them have changed."""

from __future__ import annotations

import time
from functools import partial

import msgspec
import pytest

from tests.worker.stores import DictStore
from worker.checkpoint import Checkpoints, Location, Manifest, Model, Source

HERE = Location("group", "main", "events", "topic-id", 0)
MODELS = 100_000
WITHIN_S = 2.0
"""Of the thread's own time; in the order in which they come it would be more than 10 s."""


def write(store: DictStore, offset: int, keys: list[str], previous: Manifest | None = None) -> Manifest:
    dirty: dict[str, Source] = {key: partial(Model, "spec", b"%d" % offset, {"samples": offset}) for key in keys}
    return Checkpoints(store, HERE).write(
        offset=offset, start_offset=0, engine="e", created_ms=offset, dirty=dirty, previous=previous
    )


@pytest.mark.parametrize("changed", [[0], [5, 77], [MODELS // 2]])
def test_a_few_changes_among_very_many_models_are_written_fast(changed: list[int]) -> None:
    store = DictStore()
    keys = [f"model-{i:06d}" for i in range(MODELS)]
    first = write(store, 1, keys)
    started_s = time.thread_time()
    second = write(store, 2, [keys[i] for i in changed], first)
    took_s = time.thread_time() - started_s
    assert took_s < WITHIN_S
    # The time of a sort depends on luck; that there is nothing to sort does not.
    assert list(second.models) == keys
    assert list(second.segments) == sorted(second.segments)
    assert sum(entry.summary["samples"] == 2 for entry in second.models.values()) == len(changed)


def test_the_bytes_are_those_of_a_manifest_in_any_order() -> None:
    store = DictStore()
    first = write(store, 1, ["z", "a", "", "é", "\uffff", "\U0001f600", 'quo"te', "Z"])
    second = write(store, 2, ["é", "new", "a"], first)
    [data] = [data for name, data in store.objects.items() if name.endswith("manifest") and f"{2:020d}" in name]
    backwards = msgspec.structs.replace(
        second,
        models=dict(reversed(second.models.items())),
        segments=dict(reversed(second.segments.items())),
    )
    assert msgspec.json.encode(backwards, order="sorted") == data
    assert msgspec.json.decode(data, type=Manifest) == second
