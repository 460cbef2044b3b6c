"""Models move to where their keys go, and learn on there as if nothing had happened."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worker.support.bench import Bench, of_input, run_into_stop
from tests.worker.support.checkpoints import write
from tests.worker.support.configurations import document
from tests.worker.support.fake_broker import Log
from tests.worker.support.fake_clients import FakeInput
from tests.worker.support.fakes import config
from tests.worker.support.keyed import KEYS, drained_bench, feed_keys, models_of
from tests.worker.support.manifests import loaded
from tests.worker.support.stores import DictStore, Fault, FaultyStore
from tests.worker.support.tasks import restore
from worker.adapters.kafka import KafkaGroup
from worker.adapters.store import FileStore
from worker.base.errors import Transient, WorkerError
from worker.base.partitioner import partition_of
from worker.checkpoint import Checkpoints, Location, Manifest, SavedModel, history, segments
from worker.cli import drained as drained_
from worker.cli import reshard as resharding
from worker.config import loads
from worker.task.task import Task
from worker.task.warm_start import WarmStart


def reshard(
    source: DictStore, target: DictStore, partitions: int, *, under: str = "", **options: Any
) -> list[Manifest]:
    return resharding.reshard(history(source, under), source, target, partitions, **options)


@pytest.fixture
def drained() -> Bench:
    """Two partitions, worked off; the worker has stopped in order."""
    return drained_bench()


def add_partition(bench: Bench, lineage: str = "main~3") -> None:
    bench.broker.logs[2], bench.broker.furthest[2] = Log(), 0
    bench.setting = replace(bench.setting, partitions=3)
    bench.config = replace(bench.config, checkpoint=replace(bench.config.checkpoint, lineage=lineage))


def test_models_learn_on_in_their_new_partitions_as_if_they_had_not_moved(drained: Bench) -> None:
    before = models_of(drained, "main")
    written = reshard(drained.store, drained.store, 3)
    assert [manifest.offset for manifest in written] == [drained.broker.logs[0].high, drained.broker.logs[1].high, 0]
    assert all(partition_of(key.encode(), 3) == each.location.partition for each in written for key in each.models)
    add_partition(drained)
    assert models_of(drained, "main~3") == before

    feed_keys(drained, "bbac")
    worker = drained.worker().join().turns(3)
    worker.close()
    assert (worker.stops(), worker.replayed()) == ({}, 0)
    assert models_of(drained, "main~3") == never_moved(drained, written)


def never_moved(bench: Bench, first: list[Manifest]) -> dict[str, bytes]:
    """The models of one partition that takes all records: those from before the move, then those from after it."""
    every = Task(0, config(), 1_000_000)
    restore(every, (), 0, 0)
    logs = [(bench.broker.logs[each.location.partition].records, each.offset) for each in first]
    for log, moved in logs:
        every.process([record for record in log if record.offset < moved])
    for log, moved in logs:
        every.process([record for record in log if record.offset >= moved])
    return {model.key: model.forest.dumps() for model in every.models}


def test_a_restart_before_the_next_checkpoint_replays(drained: Bench) -> None:
    written = reshard(drained.store, drained.store, 3)
    add_partition(drained)
    worker = drained.worker("one").join().turns(2)
    feed_keys(drained, "bc")
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


def test_models_that_were_moved_for_other_partitions_than_there_are_do_not_start(drained: Bench) -> None:
    reshard(drained.store, drained.store, 4, into="main~3")
    add_partition(drained)
    before = dict(drained.store.objects)
    assert run_into_stop(drained.worker()) == {"partitions-added": 3}
    assert drained.store.objects == before


def test_to_do_it_again_is_harmless_until_a_worker_has_started(drained: Bench) -> None:
    target = DictStore()
    assert reshard(drained.store, target, 3) == reshard(drained.store, target, 3)
    assert len([name for name in target.objects if name.endswith("manifest")]) == 3
    reshard(drained.store, drained.store, 3)
    add_partition(drained)
    feed_keys(drained, "b")
    drained.worker().join().turns(2).close()
    before = dict(drained.store.objects)
    with pytest.raises(WorkerError, match=r"has other checkpoints already.*--into"):
        reshard(drained.store, drained.store, 3, under="group/main")
    assert drained.store.objects == before


@pytest.mark.parametrize("manifests", [1, 2])
def test_where_it_was_interrupted_none_starts_before_it_is_done_once_more(drained: Bench, manifests: int) -> None:
    """Else the new partition, which has no checkpoint and no offset either, would begin with no models."""
    before, old = models_of(drained, "main"), history(drained.store)
    interrupted = FaultyStore(drained.store, {6 + manifests: Fault.BEFORE})
    with pytest.raises(Transient):
        resharding.reshard(old, drained.store, interrupted, 3)
    assert len([name for _, name in interrupted.log if name.endswith("manifest")]) == manifests + 1
    add_partition(drained)
    left = dict(drained.store.objects)
    assert run_into_stop(drained.worker()) == {"no-checkpoint": 3}
    assert drained.store.objects == left
    resharding.reshard(old, drained.store, drained.store, 3)
    worker = drained.worker().join().turns(2)
    worker.close()
    assert (worker.stops(), models_of(drained, "main~3")) == ({}, before)


@pytest.mark.parametrize("lineage", ["main", "another"])
def test_models_that_have_learned_since_are_not_written_beside_the_earlier_ones(drained: Bench, lineage: str) -> None:
    """For a new topic both would stand at offset 0, and a worker would take either."""
    reshard(drained.store, drained.store, 3, topic=("new", "new-id"), into="moved")
    drained.config = replace(drained.config, checkpoint=replace(drained.config.checkpoint, lineage=lineage))
    if lineage == "another":
        drained.broker.committed.clear()
    feed_keys(drained, "bbac")
    drained.worker().join().turns(4).close()
    before = dict(drained.store.objects)
    with pytest.raises(WorkerError, match=r"has other checkpoints already.*--into"):
        reshard(drained.store, drained.store, 3, under=f"group/{lineage}", topic=("new", "new-id"), into="moved")
    assert drained.store.objects == before


def test_a_new_topic_starts_at_its_beginning_and_may_be_smaller(drained: Bench) -> None:
    (manifest,) = reshard(drained.store, drained.store, 1, topic=("other", "other-id"))
    assert (manifest.location.prefix, manifest.offset) == ("group/main~1/other-other-id/0", 0)
    assert loaded(Checkpoints(drained.store, manifest.location), manifest) == models_of(drained, "main")


def large_history(n_models: int, n_bytes: int) -> DictStore:
    """The checkpoint of one partition, in many segments."""
    store = DictStore()
    models = {f"{i}": partial(SavedModel, "spec", i.to_bytes(2) * (n_bytes // 2), {}) for i in range(n_models)}
    location = Location("group", "main", "events", "topic-id", 0)
    write(Checkpoints(store, location), 1, dirty=models)
    return store


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_history_is_moved_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2**20)
    monkeypatch.setattr(resharding, "HELD_BYTES", 2**22)
    source, target = large_history(64, 2**19), FileStore(tmp_path / "moved")
    (old,) = history(source)
    assert len(old.segments) == 32
    assert peak_bytes(lambda: resharding.reshard([old], source, target, 3)) < 12 * 2**20
    moved = [found for found in history(target) if found.models]
    assert sum(len(found.models) for found in moved) == 64
    assert sum(len(found.segments) for found in moved) < 48, "not a file for each, once there is no more memory"
    everything = loaded(Checkpoints(source, old.location), old)
    for found in moved:
        for key, data in loaded(Checkpoints(target, found.location), found).items():
            assert data == everything[key]

    warm, begun = WarmStart(source, 1), Checkpoints(FileStore(tmp_path / "warm"), old.location)

    def begin() -> Manifest:
        models = warm.models_of(0)[1]
        return write(begun, 0, dirty=models)

    assert peak_bytes(begin) < 8 * 2**20
    assert loaded(begun, begin()) == everything


def test_what_was_taken_in_is_on_record_where_all_partitions_agree_on_it(drained: Bench) -> None:
    intakes = [drained.newest(number).intake for number in range(2)]
    assert intakes[0] == intakes[1]
    assert intakes[0]
    assert [each.intake for each in reshard(drained.store, DictStore(), 3)] == [intakes[0]] * 3
    # The worker goes over one partition with another configuration, and never comes to the other one.
    drained.config = of_input(drained.config, tombstones="reset")
    drained.worker("two").join(0).turns(2).close()
    assert drained.newest(0).intake != drained.newest(1).intake
    assert [each.intake for each in reshard(drained.store, DictStore(), 3)] == [None] * 3


def refused(bench: Bench, partitions: int, **more: Any) -> str:
    before = dict(bench.store.objects)
    with pytest.raises(WorkerError) as caught:
        reshard(bench.store, bench.store, partitions, **more)
    assert bench.store.objects == before
    return str(caught.value)


def test_what_cannot_be_divided_is_refused(drained: Bench) -> None:
    assert "can only add" in refused(drained, 1)
    assert "can only add" in refused(drained, 2)
    assert "found none" in refused(drained, 3, under="group/other")


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
    assert len(reshard(drained.store, drained.store, 4, under="group/main")) == 4


def test_models_do_not_move_to_where_they_are(drained: Bench) -> None:
    with pytest.raises(WorkerError, match="are in lineage main already"):
        reshard(drained.store, drained.store, 3, under="group/main", into="main")


@pytest.mark.parametrize("into", ["../x", "a b", "x" * 201])
def test_a_lineage_that_no_configuration_can_name_is_refused_before_anything_is_written(
    drained: Bench, into: str
) -> None:
    before = drained.store.list("")
    with pytest.raises(WorkerError, match=r"checkpoint\.lineage cannot name these models: .*--into"):
        reshard(drained.store, drained.store, 3, under="group/main", into=into)
    assert drained.store.list("") == before


def test_another_attempt_goes_into_a_lineage_of_another_name(drained: Bench) -> None:
    reshard(drained.store, drained.store, 3)
    add_partition(drained)
    feed_keys(drained, "b")
    drained.worker().join().turns(2).close()
    written = reshard(drained.store, drained.store, 3, under="group/main", into="again")
    assert {manifest.location.lineage for manifest in written} == {"again"}


def test_models_that_were_left_behind_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions were added before, and keys that moved started anew: they have two models, one of which is dead."""
    bench = Bench(partitions=3, interval_s=60.0)
    feed_keys(bench, "ab")
    moved = next(key for key in KEYS if partition_of(key.encode(), 3) != partition_of(key.encode(), 2))
    bench.feed("a", partition=partition_of(moved.encode(), 2), key=moved)
    bench.worker().join().turns(3).close()
    assert f"{moved!r} among them" in refused(bench, 4)
    written = reshard(bench.store, bench.store, 4, drop_astray=True)
    number = partition_of(moved.encode(), 2)
    assert f"partition {number}: 1 model left out, of keys that do not belong there" in caplog.messages
    samples = {key: entry.summary["samples"] for manifest in written for key, entry in manifest.models.items()}
    assert samples == dict.fromkeys(KEYS, 2)


def test_damage_of_another_history_is_none_of_this_one(drained: Bench) -> None:
    reshard(drained.store, drained.store, 3)
    for name in drained.store.objects:
        if "main~3" in name:
            drained.store.objects[name] += b"?"
    assert len(history(drained.store, "group/main")) == 2


# What is asked of the broker


class Reader(FakeInput):
    """A consumer that takes partitions without being in the group."""

    def _serve(self) -> None:
        """There is no group that could have a say."""


class Group:
    """The group of a fake broker."""

    name = "group"

    def __init__(self, *, has_members: bool = False) -> None:
        self._has_members = has_members

    def has_members(self) -> bool:
        return self._has_members


def missing_step(check: Any, *arguments: Any) -> str:
    """The number of the step that is missing, and why; the steps follow in their order."""
    with pytest.raises(WorkerError) as caught:
        check(*arguments)
    fact, _, steps = str(caught.value).partition("Nothing was written. ")
    assert re.findall(r"^  (\d)\.", steps, re.MULTILINE) == ["1", "2", "3", "4", "5", "6", "7"]
    return fact


def drain(bench: Bench) -> tuple[list[Manifest], int, Any, Any]:
    return history(bench.store, "group/main"), 3, Reader(bench.broker), bench.clock


def test_the_runbook_has_the_steps() -> None:
    runbook = (Path(__file__).parents[2] / "deploy/RUNBOOK.md").read_text().replace("`", "")
    chapter = runbook.partition("## Add partitions")[2].partition("## ")[0]
    assert re.findall(r"^(\d\. .*)$", chapter, re.MULTILINE) == re.findall(
        r"^  (\d\. .*)$", drained_.STEPS, re.MULTILINE
    )


def test_live_members_are_refused() -> None:
    drained_.require_nobody_at_work(Group())
    assert missing_step(drained_.require_nobody_at_work, Group(has_members=True)).startswith(
        "step 3 is not done: group group has live members"
    )


def test_partitions_that_are_not_there_yet_are_refused() -> None:
    drained_.require_added("events", 2, 3)
    for found in (1, 2):
        told = missing_step(drained_.require_added, "events", 2, found)
        assert told.startswith(f"step 4 is not done: topic events has {found} partitions, and the models were learned")


def test_a_topic_that_is_worked_off_may_be_resharded(drained: Bench) -> None:
    add_partition(drained, "main")
    # Those wait in the new partition.
    feed_keys(drained, "a", [key for key in KEYS if partition_of(key.encode(), 3) == 2])
    drained_.require_drained(*drain(drained))


def test_markers_of_transactions_are_no_records(drained: Bench) -> None:
    add_partition(drained, "main")
    drained.broker.logs[0].high += 3
    drained_.require_drained(*drain(drained))


def test_records_that_no_model_has_learned_are_refused(drained: Bench) -> None:
    add_partition(drained, "main")
    first = drained.broker.logs[1].high
    drained.feed("a", partition=1)
    told = missing_step(drained_.require_drained, *drain(drained))
    assert told.startswith(
        f"step 2 is not done: there are records that no model has learned: events[1] from offset {first}"
    )


def test_a_group_that_is_ahead_of_its_checkpoints_is_refused(drained: Bench) -> None:
    add_partition(drained, "main")
    drained.broker.committed[0] += 1
    told = missing_step(drained_.require_drained, *drain(drained))
    assert told.startswith("step 2 is not done: events[0]: the newest checkpoint is at offset")


@pytest.mark.parametrize("offset", [1, 4])
def test_a_new_partition_that_was_worked_on_is_refused(drained: Bench, offset: int) -> None:
    add_partition(drained, "main")
    drained.broker.committed[2] = offset
    with pytest.raises(
        WorkerError, match=rf"events\[2\]: the group is at offset {offset} of a partition .* know nothing"
    ):
        drained_.require_drained(*drain(drained))


def test_it_tells_how_far_it_is(drained: Bench) -> None:
    told: list[tuple[float, int]] = []
    reshard(drained.store, drained.store, 3, advance=lambda share, models: told.append((share, models)))
    assert told == sorted(told)
    assert told[-1] == (1.0, len(models_of(drained, "main")))


def test_a_broker_that_does_not_answer_is_named() -> None:
    group = KafkaGroup(loads(document(kafka='{bootstrap.servers: "localhost:1", group.id: payments}'), {}))
    with pytest.raises(WorkerError, match="group payments cannot be looked at"):
        group.has_members()
