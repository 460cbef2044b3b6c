"""`inspect`: checkpoints, their models, one of them, and its bytes in a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amf
from tests.worker.support.checkpoints import write
from tests.worker.support.printed import Main, figures, table_rows
from tests.worker.support.stores import DictStore, PassingStore
from worker.adapters.store import open_store
from worker.checkpoint import Checkpoints, Location, SavedModel

HOUR_MS = 3_600_000


@pytest.fixture
def two_partitions(tmp_path: Path) -> str:
    """URL of a store with two partitions, one hour old; returns it."""
    url = f"file://{tmp_path}/store"
    forest = amf.AMFClassifier(3, seed=7)
    forest.partial_fit([[0.0], [1.0], [2.0]], ["no", "yes", "no"])
    data = forest.dumps()
    summary = {"samples": 3, "nodes": forest.n_nodes, "depth": 2, "bytes": len(data)}
    for partition, keys in ((2, ["a", "[red]\x1b[31m"]), (10, ["b"])):
        location = Location("amf", "main", "events", "topic-id", partition)
        models = dict.fromkeys(keys, lambda: SavedModel("spec", data, summary))
        write(Checkpoints(open_store(url), location), 1000 + partition, dirty=models, created_ms=0, engine="amf-1")
    return url


def test_inspect_lists_each_partition(main: Main, two_partitions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.cli.commands.time.time_ns", lambda: 3 * HOUR_MS * 1_000_000)
    code, out, err = main("inspect", two_partitions)
    assert (code, err) == (0, "")
    title, header, *_ = out.splitlines()
    assert title == "group amf, lineage main, topic events (topic-id)"
    assert header.split() == "partition offset models samples nodes depth bytes age checkpoints".split()  # noqa: SIM905
    forest = amf.AMFClassifier(3, seed=7).partial_fit([[0.0], [1.0], [2.0]], ["no", "yes", "no"])
    size = len(forest.dumps())
    assert table_rows(out) == [
        ["2", "1,002", "2", "6", str(2 * forest.n_nodes), "2.0", f"{2 * size / 1000:.1f} kB", "3 h", "1"],
        ["10", "1,010", "1", "3", str(forest.n_nodes), "2.0", f"{size / 1000:.1f} kB", "3 h", "1"],
    ]


@pytest.mark.parametrize("below", ["", "/amf", "/amf/main/events-topic-id", "/amf/main/events-topic-id/2"])
def test_inspect_shows_one_model_from_any_folder(main: Main, two_partitions: str, below: str) -> None:
    code, out, err = main("inspect", two_partitions + below, "--model", "a")
    assert (code, err) == (0, "")
    assert out.startswith("model a in partition 2, group amf, lineage main, topic events (topic-id)\n")
    shown = figures(out)
    assert (shown["offset"], shown["samples"], shown["spec"], shown["engine"]) == ("1,002", "3", "spec", "amf-1")
    assert (shown["n_estimators"], shown["seed"], shown["classes"]) == ("3", "7", "no, yes")
    described = amf.AMFClassifier(3, seed=7).partial_fit([[0.0], [1.0], [2.0]], ["no", "yes", "no"]).describe()
    assert (shown["algorithm"], shown["leaves"]) == ("amf-classifier", str(described.n_leaves))
    depths = described.mean_depth, described.mean_weighted_depth, described.max_depth
    assert (shown["mean depth"], shown["weighted depth"]) == tuple(f"{depth:.1f}" for depth in depths[:2])
    assert shown["largest depth"] == str(depths[2])


def test_inspect_shows_a_model_of_numbers(main: Main, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    data = amf.AMFRegressor(3).partial_fit([[0.0], [1.0], [2.0]], [1.5, 2.5, 3.5]).dumps()
    location = Location("amf", "main", "events", "topic-id", 0)
    write(Checkpoints(open_store(url), location), 3, {"a": data})
    code, out, err = main("inspect", url, "--model", "a")
    assert (code, err) == (0, "")
    shown = figures(out)
    assert (shown["algorithm"], shown["loss"], shown["calibration"]) == ("amf-regressor", "student", "True")
    assert "classes" not in shown


def test_a_model_key_cannot_command_the_terminal(
    main: Main, two_partitions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for on_terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda on=on_terminal: on)
        code, out, _ = main("inspect", two_partitions, "--model", "[red]\x1b[31m")
        assert code == 0
        assert "model [red]\\x1b[31m in partition 2" in out.replace("\n", " ")
        assert "\x1b[31m" not in out


def test_inspect_finds_nothing(main: Main, two_partitions: str, tmp_path: Path) -> None:
    assert main("inspect", f"file://{tmp_path}/none") == (
        1,
        "",
        "amf-worker: there are no checkpoints under this URL, which is that of checkpoint.url or of a folder in it\n",
    )
    code, out, err = main("inspect", two_partitions, "--model", "c")
    assert (code, out, err) == (1, "", "amf-worker: no checkpoint under this URL has a model 'c'\n")
    code, _, err = main("inspect", str(tmp_path))
    assert code == 2
    assert "expected file://" in err


def test_inspect_names_what_is_damaged(main: Main, two_partitions: str, tmp_path: Path) -> None:
    [segment] = (tmp_path / "store").glob("amf/main/*/10/*.segment")
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    code, out, err = main("inspect", two_partitions, "--model", "b")
    assert code == 1
    assert "samples" in out
    assert re.search(r"^amf-worker: amf/main/events-topic-id/10: model 'b': ", err)
    [manifest] = (tmp_path / "store").glob("amf/main/*/10/*.manifest")
    manifest.write_bytes(b"{}")
    code, out, err = main("inspect", two_partitions)
    assert code == 1
    assert [row[0] for row in table_rows(out)] == ["2", "10"]
    assert table_rows(out)[1][1:8] == ["?"] * 7
    assert "is damaged" in err


@pytest.fixture
def three_models(tmp_path: Path) -> str:
    """URL of a store with three models of one partition."""
    url = f"file://{tmp_path}/store"
    saved = {}
    for number, key in enumerate(["a-1", "a-2", "b-1"]):
        x = np.random.default_rng(number).normal(size=(20 * (number + 1), 2))
        data = amf.AMFClassifier(3, seed=number).partial_fit(x, x[:, 0] > 0).dumps()
        summary = {"samples": len(x), "nodes": 10 - number, "last_ms": 1000 * number}
        saved[key] = SavedModel("spec", data, summary)
    checkpoints = Checkpoints(open_store(url), Location("amf", "main", "events", "id", 0))
    write(checkpoints, 60, dirty={key: lambda model=model: model for key, model in saved.items()}, created_ms=0)
    return url


@pytest.mark.parametrize(
    ("options", "title", "keys"),
    [
        ([], "models", ["b-1", "a-2", "a-1"]),
        (["--limit", "2"], "models: 2 of 3 by samples", ["b-1", "a-2"]),
        (["--sort", "nodes", "--limit", "1"], "models: 1 of 3 by nodes", ["a-1"]),
        (["--sort", "key"], "models", ["a-1", "a-2", "b-1"]),
        (["--sort", "idle"], "models", ["a-1", "a-2", "b-1"]),
        (["--match", "a-*"], "models", ["a-2", "a-1"]),
    ],
)
def test_inspect_lists_models(main: Main, three_models: str, options: list[str], title: str, keys: list[str]) -> None:
    code, out, err = main("inspect", three_models, *options)
    assert (code, err) == (0, "")
    listed = out.partition(f"\n{title}\n")[2].splitlines()
    assert [line.split()[0] for line in listed[1:]] == keys


def test_a_model_that_is_taken_out_forecasts_bit_for_bit_the_same(
    main: Main, three_models: str, tmp_path: Path
) -> None:
    path = tmp_path / "a-2.amf"
    code, out, err = main("inspect", three_models, "--export", "a-2", path)
    assert (code, out, err) == (0, f"amf-classifier of 40 samples in {path}: amf.loads takes its bytes\n", "")
    x = np.random.default_rng(1).normal(size=(40, 2))
    original = amf.AMFClassifier(3, seed=1).partial_fit(x, x[:, 0] > 0)
    taken = amf.loads(path.read_bytes())
    questions = np.random.default_rng(9).normal(size=(50, 2))
    np.testing.assert_array_equal(taken.predict_proba(questions), original.predict_proba(questions))
    assert taken.partial_fit(x, x[:, 0] > 0).dumps() == original.partial_fit(x, x[:, 0] > 0).dumps()


def test_a_model_that_cannot_be_taken_out_leaves_no_file(main: Main, three_models: str, tmp_path: Path) -> None:
    path = tmp_path / "model.amf"
    code, out, err = main("inspect", three_models, "--export", "c", path)
    assert (code, out, err) == (1, "", "amf-worker: no checkpoint under this URL has a model 'c'\n")
    [segment] = (tmp_path / "store").glob("amf/main/*/0/*.segment")
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    code, _, err = main("inspect", three_models, "--export", "b-1", path)
    assert code == 1
    assert "model 'b-1': " in err
    write(Checkpoints(open_store(three_models), Location("amf", "other", "events", "id", 0)), 0, {"b-1": b""})
    code, _, err = main("inspect", three_models, "--export", "b-1", path)
    assert code == 2
    assert "is in several folders: add one of them to the URL: amf/main/events-id/0, amf/other/events-id/0" in err
    assert not path.exists()


class GoingOn(PassingStore):
    """A store in which a worker writes its next checkpoint, and collects the one before, when a name of the kind that
    is given is asked for, once."""

    def __init__(self, kind: str) -> None:
        super().__init__(DictStore())
        self._kind = kind
        self._checkpoints = Checkpoints(self.inner, Location("amf", "main", "events", "id", 0))
        self._go_on(1)

    def _go_on(self, n: int) -> None:
        before = self.inner.list("")
        data = amf.AMFClassifier(3, seed=7).partial_fit([[0.0], [1.0]] * n, ["no", "yes"] * n).dumps()
        saved = SavedModel("spec", data, {"samples": 2 * n, "last_ms": 0})
        write(self._checkpoints, 2 * n, dirty={"a": lambda: saved})
        self.inner.delete(*before)

    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any:
        if name.endswith(self._kind):
            self._kind = "never"
            self._go_on(2)
        return method(name, *arguments)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("manifest", []),
        ("manifest", ["--model", "a"]),
        ("manifest", ["--idle", "1d"]),
        ("manifest", ["--export", "a"]),
        ("segment", ["--model", "a"]),
        ("segment", ["--export", "a"]),
    ],
)
def test_what_workers_collect_meanwhile_is_not_damaged(
    main: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, options: list[str]
) -> None:
    monkeypatch.setattr("worker.adapters.store.open_store", lambda _: GoingOn(kind))
    path = [tmp_path / "a.amf"] if "--export" in options else []
    code, out, err = main("inspect", "memory://any", *options, *path)
    assert (code, "missing" in err, "cannot" in err) == (0, False, False)
    if path:
        assert amf.loads(path[0].read_bytes()).n_samples == 4
    elif "--model" in options:
        assert figures(out)["samples"] == "4"
        assert figures(out)["offset"] == "4"
    else:
        assert "1 model" in err if options else table_rows(out)[0][1] == "4"
