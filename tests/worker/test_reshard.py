"""Models move to where their keys go, and learn on there as if nothing had happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.worker.fake_broker import Log
from tests.worker.fakes import config
from tests.worker.stores import DictStore
from tests.worker.test_runtime import Bench
from worker.checkpoint import Checkpoints, Manifest
from worker.cli import main
from worker.cli.reshard import reshard
from worker.errors import WorkerError
from worker.partition import Partition
from worker.partitioner import partition_of
from worker.store import open_store

KEYS = [f"key-{number}" for number in range(12)]


def feed(bench: Bench, labels: Sequence[str], keys: Sequence[str] = KEYS) -> None:
    """Events of every key, where a producer would send them."""
    for key in keys:
        bench.feed(*labels, partition=partition_of(key.encode(), len(bench.broker.logs)), key=key)


@pytest.fixture
def drained() -> Bench:
    """Two partitions, worked off; the worker has stopped in order."""
    bench = Bench(partitions=2, interval_s=60.0)
    feed(bench, "abcab")
    bench.worker().join().turns(3).close()
    return bench


def add_partition(bench: Bench, lineage: str = "main~3") -> None:
    bench.broker.logs[2], bench.broker.furthest[2] = Log(), 0
    bench.setting = replace(bench.setting, partitions=3)
    bench.config = replace(bench.config, checkpoint=replace(bench.config.checkpoint, lineage=lineage))


def models_of(bench: Bench, lineage: str) -> dict[str, bytes]:
    """All models as the newest checkpoints of a lineage have them."""
    models: dict[str, bytes] = {}
    for number in bench.broker.logs:
        location = msgspec.structs.replace(bench.checkpoints(number).location, lineage=lineage)
        checkpoints = Checkpoints(bench.store, location)
        manifest = checkpoints.newest()
        assert manifest is not None
        models |= checkpoints.load(manifest)
    return models


def test_models_learn_on_in_their_new_partitions_as_if_they_had_not_moved(drained: Bench) -> None:
    before = models_of(drained, "main")
    written = reshard(drained.store, drained.store, 3)
    assert [manifest.offset for manifest in written] == [drained.broker.logs[0].high, drained.broker.logs[1].high, 0]
    assert all(partition_of(key.encode(), 3) == each.location.partition for each in written for key in each.models)
    add_partition(drained)
    assert models_of(drained, "main~3") == before

    feed(drained, "bbac")
    worker = drained.worker().join().turns(3)
    worker.close()
    assert (worker.stops(), worker.replayed()) == ({}, 0)
    assert models_of(drained, "main~3") == never_moved(drained, written)


def never_moved(bench: Bench, first: list[Manifest]) -> dict[str, bytes]:
    """The models of one partition that takes all records: those from before the move, then those from after it."""
    every = Partition(0, config(), 1_000_000)
    every.restore({}, 0, 0)
    logs = [(bench.broker.logs[each.location.partition].records, each.offset) for each in first]
    for log, moved in logs:
        every.replay([record for record in log if record.offset < moved])
    for log, moved in logs:
        every.replay([record for record in log if record.offset >= moved])
    return {model.key: model.forest.dumps() for model in every.models}


def test_a_restart_before_the_next_checkpoint_replays(drained: Bench) -> None:
    written = reshard(drained.store, drained.store, 3)
    add_partition(drained)
    worker = drained.worker("one").join().turns(2)
    feed(drained, "bc")
    worker.turns(2)
    worker.kill()
    again = drained.worker("two").join().turns(3)
    again.close()
    assert (again.stops(), again.replayed()) == ({}, 2 * len(KEYS))
    assert models_of(drained, "main~3") == never_moved(drained, written)


def test_a_topic_that_was_not_drained_is_not_started(drained: Bench) -> None:
    reshard(drained.store, drained.store, 3)
    add_partition(drained)
    drained.broker.committed[1] = drained.broker.logs[1].high + 1
    worker = drained.worker().join().turns(2)
    assert worker.stops() == {"not-drained": 1}


def test_to_do_it_again_is_harmless_until_a_worker_has_started(drained: Bench) -> None:
    target = DictStore()
    assert reshard(drained.store, target, 3) == reshard(drained.store, target, 3)
    assert len([name for name in target.objects if name.endswith("manifest")]) == 3
    reshard(drained.store, drained.store, 3)
    add_partition(drained)
    feed(drained, "b")
    drained.worker().join().turns(2).close()
    before = dict(drained.store.objects)
    with pytest.raises(WorkerError, match="workers have used"):
        reshard(drained.store, drained.store, 3, lineage="main")
    assert drained.store.objects == before


def test_a_new_topic_starts_at_its_beginning_and_may_be_smaller(drained: Bench) -> None:
    (manifest,) = reshard(drained.store, drained.store, 1, topic=("other", "other-id"))
    assert (manifest.location.prefix, manifest.offset) == ("group/main~1/other-other-id/0", 0)
    assert Checkpoints(drained.store, manifest.location).load(manifest) == models_of(drained, "main")


def refused(bench: Bench, partitions: int, **more: Any) -> str:
    before = dict(bench.store.objects)
    with pytest.raises(WorkerError) as caught:
        reshard(bench.store, bench.store, partitions, **more)
    assert bench.store.objects == before
    return str(caught.value)


def test_what_cannot_be_divided_is_refused(drained: Bench) -> None:
    assert "can only add" in refused(drained, 1)
    assert "can only add" in refused(drained, 2)
    assert "found none" in refused(drained, 3, lineage="other")


def test_a_partition_without_checkpoints_is_refused(drained: Bench) -> None:
    for name in [name for name in drained.store.objects if "topic-id/0/" in name]:
        del drained.store.objects[name]
    assert "found those of [1]" in refused(drained, 3)


def test_models_that_are_not_where_their_key_goes_are_refused() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", partition=1 - partition_of(b"astray", 2), key="astray")
    bench.worker().join().turns(2).close()
    assert "'astray' among them" in refused(bench, 3)


def test_damage_is_not_left_behind(drained: Bench) -> None:
    drained.damage("manifest")
    assert "damaged" in refused(drained, 3)


def test_two_lineages_must_be_told_apart(drained: Bench) -> None:
    reshard(drained.store, drained.store, 3)
    assert "lineage main~3" in refused(drained, 4)
    assert len(reshard(drained.store, drained.store, 4, lineage="main")) == 4


def test_the_command(drained: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store("memory://test-reshard")
    for name, data in drained.store.objects.items():
        store.create(name, data)
    assert main(["reshard", "memory://test-reshard", "--partitions", "3"]) == 0
    assert "checkpoint.lineage to main~3" in capsys.readouterr().out
    reshard(drained.store, drained.store, 3)
    assert set(store.list("group/main~3")) == set(drained.store.list("group/main~3"))
    assert main(["reshard", "memory://test-reshard", "--partitions", "3", "--topic", "new"]) == 2
    assert "go together" in capsys.readouterr().err
