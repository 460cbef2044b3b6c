"""What `check --connect` says of the checkpoints: it is what a worker then does, and nothing is changed by asking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.worker.support.bench import Bench
from tests.worker.support.fakes import config
from tests.worker.support.keyed import KEYS, drained_bench
from tests.worker.support.stores import DictStore
from worker.base.errors import AlreadyExists, NotFound, Transient
from worker.base.ports import TopicState
from worker.cli import terminal
from worker.cli.check import dry_runs
from worker.config import Config
from worker.preflight import Finding
from worker.task import dry_run
from worker.task.dry_run import OverlayStore


def found(bench: Bench, settings: Config | None = None) -> list[Finding]:
    """What is said of a start under these settings. Raises AssertionError where it has changed something."""
    objects, committed = dict(bench.store.objects), dict(bench.broker.committed)
    state = TopicState(bench.setting.topic_id, bench.setting.partitions, {})
    source = bench.worker().input
    findings = list(dry_runs(settings or bench.config, state, bench.store, source, bench.clock, None))
    assert (bench.store.objects, bench.broker.committed) == (objects, committed)
    return findings


def told(bench: Bench, settings: Config | None = None) -> list[tuple[str, str]]:
    return [(finding.level, finding.sentence) for finding in found(bench, settings)]


@pytest.fixture
def saved() -> Bench:
    """Three models in two partitions, in checkpoints at the group's offsets."""
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"abc", key="x")
    bench.feed(*"ab", key="y", partition=1)
    bench.feed(*"ab", key="fraud-1", partition=1)
    bench.worker().join().turns(2).close()
    return bench


def test_what_one_partition_would_write_is_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of it is looked through for each of them, which takes minutes where there are thousands."""
    looked_through: list[int] = []

    class Counted(OverlayStore):
        def list(self, prefix: str) -> list[str]:
            looked_through.append(len(self._created))
            return super().list(prefix)

    monkeypatch.setattr(dry_run, "OverlayStore", Counted)
    assert [level for level, _ in told(Bench(20))] == ["ok"]
    assert len(looked_through) >= 20
    assert max(looked_through) <= 1


def test_it_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "_PLAIN_LINE_S", 0.0)
    assert [level for level, _ in told(Bench(3))] == ["ok"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" partitions")[0] for line in lines] == [
        f"trying the start: {share}, {n}" for n, share in ((1, "33%"), (2, "67%"), (3, "100%"))
    ]


def with_models(bench: Bench, **changes: Any) -> Config:
    models = bench.config.models
    default = replace(models.default, **{name: v for name, v in changes.items() if name != "on_spec_change"})
    on_spec_change = changes.get("on_spec_change", "fail")
    return replace(bench.config, models=replace(models, default=default, on_spec_change=on_spec_change))


def test_nothing_is_said_against_what_goes_on_as_it_was(saved: Bench) -> None:
    assert told(saved) == [("ok", "3 models saved, all with the parameters that they have here")]


def test_a_topic_without_checkpoints_begins(saved: Bench) -> None:
    assert told(Bench(2)) == [("ok", "0 models saved, all with the parameters that they have here")]


def test_models_that_would_be_refused_are_named_with_what_has_changed(saved: Bench) -> None:
    settings = with_models(saved, n_estimators=20)
    [(level, sentence)] = told(saved, settings)
    assert level == "failed"
    assert sentence.startswith(
        "spec-changed: 3 of 3 saved models have other parameters here and would be refused: models.default: "
        "n_estimators was 2 and is 20 (3 models, 'x' among them). Set the parameters back"
    )
    assert "amf-worker check" not in sentence, "that is who says it"
    # And so it is.
    saved.feed("a", key="x")
    saved.config = settings
    saved.worker().join().turns(2).close()
    assert dict(saved.published()[-1].headers)["error-code"] == b"spec-changed"


def test_what_has_changed_is_said_by_override(saved: Bench) -> None:
    overrides = config(overrides=[{"match": "fraud-*", "n_estimators": 3}]).models.overrides
    settings = replace(saved.config, models=replace(saved.config.models, overrides=overrides))
    [(_, sentence)] = told(saved, settings)
    assert "1 of 3 saved models" in sentence
    assert "models.overrides 'fraud-*': n_estimators was 2 and is 3 (model 'fraud-1')" in sentence


def test_models_that_start_anew_are_a_warning(saved: Bench) -> None:
    [(level, sentence)] = told(saved, with_models(saved, seed=5, on_spec_change="restart"))
    assert (level, sentence[:60]) == ("warning", "3 of 3 saved models have other parameters here and start ane")
    assert "models.default: seed (3 models" in sentence


def test_another_codec_makes_other_models(saved: Bench) -> None:
    settings = replace(saved.config, input=replace(saved.config.input, codec="msgpack"))
    [(level, sentence)] = told(saved, settings)
    assert (level, "features or input.codec (3 models" in sentence) == ("failed", True)


def test_another_intake_is_refused_while_there_is_something_to_be_replayed() -> None:
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"abc")
    bench.worker().join().turns(2).kill()
    settings = replace(bench.config, input=replace(bench.config.input, max_bytes=10))
    (stop, of_models) = told(bench, settings)
    assert stop[0] == "failed"
    assert stop[1].startswith("intake-changed: events[0]: 3 records up to offset 3")
    assert "input.max_bytes was 1000000 and is 10" in stop[1]
    assert of_models[0] == "ok"


def test_another_lineage_is_refused_where_the_group_has_committed(saved: Bench) -> None:
    settings = replace(saved.config, checkpoint=replace(saved.config.checkpoint, lineage="other"))
    (stop, _) = told(saved, settings)
    assert stop[0] == "failed"
    assert stop[1].startswith("no-checkpoint: events[0]: the group is at offset 3")
    assert "checkpoint.lineage (the store has checkpoints of main); or begin anew" in stop[1]
    assert stop[1].endswith("(and so with partitions 1)")


def test_a_group_that_was_set_back_is_refused(saved: Bench) -> None:
    saved.broker.committed[1] = 1
    (stop, _) = told(saved)
    assert (stop[0], stop[1][:14]) == ("failed", "group-rewound:")


def test_records_that_a_start_would_predict_a_second_time_are_a_warning(
    saved: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` warns of them, which is too late: they are published by then."""
    settings = replace(saved.config, input=replace(saved.config.input, on_rewind="accept"))
    saved.broker.committed = {0: 1, 1: 1}
    (rewind, models) = told(saved, settings)
    assert rewind[0] == "warning"
    assert rewind[1].startswith("rewind-accepted: events[0]: the group is at offset 1, but has been at 3: the records ")
    assert rewind[1].endswith("are predicted a second time (and so with partitions 1)")
    assert models == ("ok", "0 models saved, all with the parameters that they have here")
    del saved.broker.committed[1]
    (_, nowhere, _) = told(saved, settings)
    assert nowhere[1].startswith("group-without-offset: events[1]: the group has no offset, going on from the newest ")
    assert not caplog.records


def test_a_worker_that_goes_on_meanwhile_is_not_taken_for_one_that_was_set_back(saved: Bench) -> None:
    settings = replace(saved.config, input=replace(saved.config.input, on_rewind="accept"))
    source, worker = saved.worker("asking").input, saved.worker().join()
    points: list[str] = []

    def go_on(point: str) -> None:
        points.append(point)
        if points.count("bounds") == 1:
            saved.feed(*"ab", key="x")
            worker.turns(2).close()

    source.hook = go_on
    state = TopicState(saved.setting.topic_id, saved.setting.partitions, {})
    found = list(dry_runs(settings, state, saved.store, source, saved.clock, None))
    assert points.count("bounds") > 2
    assert [finding.sentence for finding in found] == ["3 models saved, all with the parameters that they have here"]


def test_a_segment_that_is_gone_is_found_as_by_a_start_and_none_is_read_for_it(saved: Bench) -> None:
    """As where a rule of the bucket deletes what is old: the manifest is new, the segment of an idle model is not."""
    first, _ = (name for name in sorted(saved.store.objects) if "/1/" in name and name.endswith(".manifest"))
    [segment] = (name for name in saved.store.objects if "/1/" in name and name.endswith(".segment"))
    del saved.store.objects[first], saved.store.objects[segment]
    (stop, _) = told(saved)
    assert stop[0] == "failed"
    assert stop[1].startswith("corrupt-checkpoint: events[1]: none of the 1 checkpoints in group/main/")
    # And so it is.
    assert saved.worker().join().turns(2).stops() == {"corrupt-checkpoint": 1}


def test_an_earlier_checkpoint_is_taken_where_a_segment_of_the_newest_is_gone(saved: Bench) -> None:
    [segment] = (name for name in saved.store.objects if "/1/" in name and name.endswith(".segment"))
    del saved.store.objects[segment]
    assert [level for level, _ in told(saved)] == ["ok"]


def test_a_worker_that_goes_on_meanwhile_makes_no_false_alarm(saved: Bench) -> None:
    """It commits and saves after the group was looked at: the checkpoint then lies beyond what was seen."""
    source = saved.worker("asking").input
    worker = saved.worker().join()
    worker.turns(1)
    looks = 0

    def look(point: str) -> None:
        nonlocal looks
        if point == "bounds" and not looks:
            looks += 1
            saved.feed(*"ab", key="x")
            worker.turns(2).close()

    source.hook = look
    state = TopicState(saved.setting.topic_id, saved.setting.partitions, {})
    found = list(dry_runs(saved.config, state, saved.store, source, saved.clock, None))
    assert (looks, [finding.level for finding in found]) == (1, ["ok"])


def test_a_broker_that_has_no_coordinator_of_groups_yet_is_waited_for(saved: Bench) -> None:
    """It makes one when it is first asked."""
    source, asked = saved.worker("asking").input, 0

    def answer(point: str) -> None:
        nonlocal asked
        asked += point == "committed"
        if point == "committed" and asked <= 4:
            raise Transient("Broker: Not coordinator")

    source.hook = answer
    state = TopicState(saved.setting.topic_id, saved.setting.partitions, {})
    found = list(dry_runs(saved.config, state, saved.store, source, saved.clock, None))
    assert [finding.level for finding in found] == ["ok"]
    assert asked > 4


def test_what_fails_alike_for_each_partition_is_said_once(saved: Bench) -> None:
    """And nothing is said of models that could not be seen."""

    class Silent(DictStore):
        def list(self, prefix: str) -> list[str]:
            raise Transient("store: no answer")

    state = TopicState(saved.setting.topic_id, saved.setting.partitions, {})
    found = list(dry_runs(saved.config, state, Silent(), saved.worker("asking").input, saved.clock, None))
    said = "partition 0: store: no answer (and so with partitions 1)"
    assert [(each.level, each.sentence) for each in found] == [("failed", said)]


def test_a_gap_that_is_accepted_is_no_trouble_and_makes_no_lineage() -> None:
    bench = Bench(1, interval_s=60.0, on_gap="accept")
    bench.feed(*"abcdef")
    bench.worker().join().turns(2).kill()
    bench.broker.logs[0].low = 2
    assert [level for level, _ in told(bench)] == ["ok"]
    assert [level for level, _ in told(bench, config(on_gap="fail"))] == ["failed", "ok"]


def test_models_that_go_on_after_a_gap_are_compared_as_well(saved: Bench) -> None:
    saved.feed(*"ab", key="x")
    saved.broker.logs[0].low = 5
    saved.config = replace(saved.config, input=replace(saved.config.input, on_gap="accept"))
    [(level, sentence)] = told(saved, with_models(saved, n_estimators=20))
    assert (level, "3 of 3 saved models" in sentence) == ("failed", True), sentence


def begun_with(warm_store: DictStore, **changes: Any) -> list[tuple[str, str]]:
    """What is said of a start of three partitions, without checkpoints, that begins with the models of this store."""
    bench = Bench(3)
    state = TopicState(bench.setting.topic_id, 3, {})
    settings, source = with_models(bench, **changes), bench.worker().input
    settings = replace(settings, checkpoint=replace(settings.checkpoint, lineage="anew"))
    found = dry_runs(settings, state, bench.store, source, bench.clock, warm_store)
    return [(finding.level, finding.sentence) for finding in found]


def test_models_that_a_history_would_begin_with_are_looked_at_and_not_read() -> None:
    source = drained_bench()
    for name in [each for each in source.store.objects if each.endswith(".segment")]:
        source.store.objects[name] = b""
    said = f"{len(KEYS)} models saved, all with the parameters that they have here"
    assert begun_with(source.store) == [("ok", said)]


def test_models_that_a_history_would_begin_with_and_refuse_are_named() -> None:
    [(level, sentence)] = begun_with(drained_bench().store, n_estimators=20)
    assert level == "failed"
    assert sentence.startswith(f"spec-changed: {len(KEYS)} of {len(KEYS)} saved models have other parameters here")
    assert "n_estimators was 2 and is 20" in sentence


def test_a_folder_from_which_no_history_can_begin_is_said_before_a_worker_meets_it() -> None:
    [(level, sentence)] = begun_with(DictStore())
    assert level == "failed"
    assert sentence.startswith("partition 0: checkpoint.warm_start: expected the checkpoints of one topic")
    assert sentence.endswith("found none (and so with partitions 1, 2)")


def test_a_history_that_has_begun_is_not_compared_with_what_it_would_begin_with(saved: Bench) -> None:
    state = TopicState(saved.setting.topic_id, saved.setting.partitions, {})
    source = saved.worker("asking").input
    [of_models] = dry_runs(saved.config, state, saved.store, source, saved.clock, DictStore())
    assert (of_models.level, of_models.sentence[:14]) == ("ok", "3 models saved")


def test_a_store_that_only_looks_changed() -> None:
    inner = DictStore()
    inner.create("a/1", b"one")
    store = OverlayStore(inner)
    store.create("a/2", b"two")
    store.create("a/2", b"two")
    with pytest.raises(AlreadyExists):
        store.create("a/2", b"other")
    assert (store.list("a"), store.list("b")) == (["a/1", "a/2"], [])
    assert (store.read("a/2"), store.read("a/1"), store.read_range("a/2", 1, 5)) == (b"two", b"one", b"wo")
    store.delete("a/1")
    store.delete("a/2")
    assert (store.list(""), inner.objects) == ([], {"a/1": b"one"})
    with pytest.raises(NotFound):
        store.read("a/2")
