"""A history that begins with models: they learn on, and nothing that happens to their source later changes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.worker.support.bench import Bench, add_partitions, of_input
from tests.worker.support.fakes import config
from tests.worker.support.keyed import KEYS, drained_bench, feed_keys, models_of
from tests.worker.support.stores import DictStore, PassingStore
from tests.worker.support.tasks import restore
from worker.adapters.store import open_store
from worker.base.errors import ConfigError, WorkerError
from worker.base.partitioner import partition_of
from worker.base.ports import TopicState
from worker.base.records import Record
from worker.checkpoint import history
from worker.cli import files, main, saving
from worker.cli.check import dry_runs
from worker.cli.dataset import open_rows
from worker.cli.evaluate import evaluate
from worker.cli.predictions import PredictionsFile
from worker.task import warm_start
from worker.task.task import Task
from worker.task.warm_start import WarmStart


@pytest.fixture
def source() -> Bench:
    """Two partitions with a model for each key."""
    return drained_bench()


@pytest.fixture
def bench(source: Bench) -> Bench:
    """Three partitions that begin with the models of the source."""
    bench = Bench(partitions=3, interval_s=60.0)
    bench.setting = replace(bench.setting, warm_start=WarmStart(source.store, 3))
    return bench


def in_one_go(*benches: Bench) -> dict[str, bytes]:
    """The models of one partition that takes all records."""
    every = Task(0, config(), 1_000_000)
    restore(every)
    for bench in benches:
        for log in bench.broker.logs.values():
            every.process(log.records)
    return {model.key: model.forest.dumps() for model in every.models}


def test_models_learn_on_from_where_they_were(source: Bench, bench: Bench) -> None:
    feed_keys(bench, "bca", [*KEYS[:6], "new"])
    worker = bench.worker().join().turns(3)
    worker.close()
    assert worker.stops() == {}
    assert models_of(bench, "main") == in_one_go(source, bench)
    for number in range(3):
        assert {partition_of(key.encode(), 3) for key in bench.newest(number).models} == {number}


def test_the_first_checkpoint_holds_the_models_and_says_where_they_are_from(source: Bench, bench: Bench) -> None:
    one = bench.worker("one").join().turns(1)
    assert bench.checkpoints().offsets() == [0]
    origin = bench.newest().origin
    for number in (0, 1):
        manifest = source.newest(number)
        assert f"{manifest.location.prefix} at offset {manifest.offset} ({manifest.state_hash})" in str(origin)
    feed_keys(bench, "a")
    one.turns(2).close()
    assert bench.newest().offset > 0
    assert bench.newest().origin == origin


def test_what_happens_to_the_source_later_changes_nothing(source: Bench, bench: Bench) -> None:
    feed_keys(bench, "bca")
    bench.worker("one").join().turns(2).kill()
    expected = in_one_go(source, bench)
    source.store.objects.clear()
    two = bench.worker("two").join().turns(3)
    two.close()
    assert two.replayed() == 3 * len(KEYS)
    assert models_of(bench, "main") == expected


def test_a_first_checkpoint_of_which_there_are_only_damaged_bytes_is_made_all_the_same(bench: Bench) -> None:
    feed_keys(bench, "bca")
    bench.worker("one").join().turns(2).close()
    expected = models_of(bench, "main")
    for name in [name for name in bench.store.objects if name.endswith("manifest")]:
        del bench.store.objects[name]
    bench.damage("segment", newest=100)
    bench.broker.committed.clear()
    bench.worker("two").join().turns(3).close()
    assert models_of(bench, "main") == expected


def test_a_history_that_has_begun_takes_nothing(source: Bench, bench: Bench) -> None:
    warm = bench.setting
    bench.setting = replace(warm, warm_start=None)
    feed_keys(bench, "ab", KEYS[:3])
    bench.worker().join().turns(3).close()
    bench.setting = warm
    bench.worker().join().turns(3).close()
    assert models_of(bench, "main") == in_one_go(bench)


def test_a_partition_that_is_added_later_takes_nothing(source: Bench, bench: Bench) -> None:
    """The models of its keys began in other partitions, and the records from then on are there."""
    feed_keys(bench, "ab")
    bench.worker("one").join().turns(3).close()
    bench.config = of_input(bench.config, on_repartition="new-models")
    add_partitions(bench, 4)
    warm = WarmStart(source.store, 4)
    bench.setting = replace(bench.setting, warm_start=warm)
    assert warm.models_of(3)[1] != {}
    worker = bench.worker("two").join().turns(2)
    added = bench.newest(3)
    assert (worker.stops(), added.offset, added.origin, added.models) == ({}, 0, None, {})


def test_without_anything_to_start_from_there_is_no_start(source: Bench, bench: Bench) -> None:
    source.store.objects.clear()
    with pytest.raises(WorkerError, match=r"checkpoint\.warm_start: expected the checkpoints of one .*, found none"):
        bench.worker().join().turns(1)
    assert bench.store.objects == {}


def test_a_key_is_placed_once_however_many_partitions_there_are(
    source: Bench, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes some microseconds, of ten million keys a minute."""
    placed: list[bytes] = []

    def place(key: bytes, partitions: int) -> int:
        placed.append(key)
        return partition_of(key, partitions)

    monkeypatch.setattr(warm_start, "partition_of", place)
    with ThreadPoolExecutor(3) as askers:
        found = list(askers.map(WarmStart(source.store, 3).models_of, range(3)))
    assert sorted(placed) == sorted(key.encode() for key in KEYS)
    assert sorted(key for _, models in found for key in models) == sorted(KEYS)
    placed.clear()
    state, asking = TopicState(bench.setting.topic_id, 3, {}), bench.worker("asking").input
    settings = replace(bench.config, checkpoint=replace(bench.config.checkpoint, lineage="anew"))
    [finding] = dry_runs(settings, state, DictStore(), asking, bench.clock, source.store)
    assert (finding.level, len(placed)) == ("ok", len(KEYS))


def test_models_that_the_source_has_by_now_are_placed_anew(source: Bench) -> None:
    warm = WarmStart(source.store, 3)
    before = [set(warm.models_of(number)[1]) for number in range(3)]
    feed_keys(source, "a", ["new"])
    source.worker("two").join().turns(3).close()
    after = [set(warm.models_of(number)[1]) for number in range(3)]
    added = {number: {"new"} if number == partition_of(b"new", 3) else set() for number in range(3)}
    assert [after[number] - before[number] for number in range(3)] == [*added.values()]


class Going(PassingStore):
    """The source's, whose workers go on at these moments: after a listing, or before a segment is read."""

    def __init__(self, source: Bench, *moments: str) -> None:
        super().__init__(source.store)
        self._source = source
        self._moments = list(moments)

    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any:
        if method.__name__ == "list":
            listed = method(name, *arguments)
            self._reach("list")
            return listed
        if name.endswith("segment"):
            self._reach("segment")
        return method(name, *arguments)

    def _reach(self, moment: str) -> None:
        if moment not in self._moments:
            return
        self._moments.remove(moment)
        before = set(self._source.store.objects)
        feed_keys(self._source, "abc")
        self._source.worker("goes on").join().turns(3).close()
        newest = [self._source.newest(number) for number in range(2)]
        needed = {name for each in newest for name in (*each.segments, each.models.base_name)}
        self._source.store.delete(*(path for path in before if path.rpartition("/")[2] not in needed))


@pytest.mark.parametrize("moments", [("list",), ("segment",), ("list", "segment")], ids="-".join)
def test_beside_workers_that_go_on_the_newest_models_are_taken(
    source: Bench, bench: Bench, moments: tuple[str, ...]
) -> None:
    """What was listed may be garbage before it is read."""
    bench.setting = replace(bench.setting, warm_start=WarmStart(Going(source, *moments), 3))
    worker = bench.worker().join().turns(1)
    bench.clock.now_s += 60.0
    worker.turns(3).close()
    assert worker.stops() == {}
    assert models_of(bench, "main") == models_of(source, "main")


def test_a_segment_that_is_damaged_is_not_waited_for(source: Bench, bench: Bench) -> None:
    source.damage("segment", newest=100)
    stops = bench.worker().join().turns(3).stops()
    assert stops.keys() == {"corrupt-checkpoint"}


# evaluate --save


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "some rows.csv"
    path.write_text("x,y\n" + "".join(f"{i % 5}.0,{'ab'[i % 2]}\n" for i in range(40)))
    return path


def test_the_models_of_a_file_are_saved_as_a_worker_would_have_them(rows: Path) -> None:
    store, bench = DictStore(), Bench(partitions=1, interval_s=60.0)
    settings = config()
    report, _, models = evaluate(open_rows(rows, label="y", n_keys=2), settings)
    saving.save(store, rows.name, report.rows, models, settings)
    (manifest,) = history(store)
    assert (manifest.offset, manifest.location.topic, manifest.models.keys()) == (
        40,
        "some-rows.csv",
        {"model-0", "model-1"},
    )
    bench.setting = replace(bench.setting, warm_start=WarmStart(store, 1))
    bench.worker().join().turns(2).close()

    reference = Task(0, settings, 1_000_000)
    restore(reference)
    values = [b'{"features":{"x":%d.0},"label":"%s"}' % (i % 5, b"ab"[i % 2 : i % 2 + 1]) for i in range(40)]
    reference.process([Record(i, 0, b"model-%d" % (i % 2), value, []) for i, value in enumerate(values)])
    assert models_of(bench, "main") == {model.key: model.forest.dumps() for model in reference.models}
    assert {entry.spec for entry in bench.newest().models.values()} == {model.spec for model in reference.models}


def test_a_folder_with_something_in_it_is_refused_before_the_work(rows: Path) -> None:
    store = DictStore()
    store.objects["a/file"] = b"?"
    with pytest.raises(ConfigError, match="empty folder"):
        saving.require_place(store, "memory://some")
    assert store.objects == {"a/file": b"?"}


def test_a_store_that_takes_nothing_is_refused_before_the_work() -> None:
    class Full(DictStore):
        def create(self, name: str, data: bytes) -> None:
            raise WorkerError("no space")

    with pytest.raises(WorkerError, match="store memory://full: no space"):
        saving.require_place(Full(), "memory://full")


@pytest.mark.parametrize("fails", ["page", "predictions", "models"])
def test_what_cannot_be_written_takes_nothing_else_along(
    rows: Path, fails: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each target was good when the pass began."""

    def fail(*_: object) -> None:
        raise ConfigError(f"no place for {fails}")

    target = {"page": (files, "write"), "predictions": (PredictionsFile, "finish"), "models": (saving, "save")}[fails]
    monkeypatch.setattr(*target, fail)
    page, predictions, store = rows.with_name("page.html"), rows.with_name("p.csv"), rows.with_name("store")
    targets = ["--report", str(page), "--out", str(predictions), "--save", store.as_uri()]
    assert main(["evaluate", str(rows), "--label", "y", *targets]) == 1
    said = capsys.readouterr()
    assert "log-loss" in said.out
    assert f"no place for {fails}" in said.err
    models = bool(open_store(store.as_uri()).list(""))
    assert {"page": page.exists(), "predictions": predictions.exists(), "models": models} == {
        name: name != fails for name in ("page", "predictions", "models")
    }


def test_evaluate_save_writes_models_once(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = rows.with_name("store").as_uri()
    assert main(["evaluate", str(rows), "--label", "y", "--save", store]) == 0
    assert "checkpoint.warm_start" in capsys.readouterr().out
    assert [len(manifest.models) for manifest in history(open_store(store))] == [1]
    assert main(["evaluate", str(rows), "--label", "y", "--save", store]) == 2


@pytest.mark.parametrize("url", ["memory://models", "MEMORY://models"])
def test_models_are_not_saved_where_they_would_be_gone_with_the_command(
    rows: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(rows), "--label", "y", "--save", url]) == 2
    assert f"--save: what is in {url} is gone when this command ends" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "problem"), [("--save", "cannot use the store"), ("--config", "cannot be read")])
def test_an_option_without_a_value_is_not_passed_over(
    rows: Path, option: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As shells make one of a variable that is not set."""
    assert main(["evaluate", str(rows), "--label", "y", option, ""]) == 2
    assert problem in capsys.readouterr().err
