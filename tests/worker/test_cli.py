"""The command line as its user sees it: what is printed where, and with which exit code it ends."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import amf
from tests.availability import give_up
from tests.worker.conftest import Main
from tests.worker.support.stores import DictStore
from worker import __version__, service
from worker.adapters.store import open_store
from worker.base.errors import ConfigError, Transient, WorkerError
from worker.base.ports import TopicState
from worker.checkpoint import Checkpoints, Location, SavedModel
from worker.cli import check, commands, terminal
from worker.cli.files import replacing, require_place
from worker.config import Config, effective, load
from worker.preflight import Finding

COMMANDS = ("init", "run", "check", "produce", "evaluate", "inspect", "reset", "reshard", "demo", "completion")
HOUR_MS = 3_600_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "worker.yaml"
    path.write_text(f"""
input: {{topic: events}}
output: {{topic: predictions}}
dead_letter: {{topic: dead-letters}}
kafka: {{bootstrap.servers: "127.0.0.1:1", sasl.password: "hunter2"}}
checkpoint: {{url: "file://{tmp_path}/checkpoints"}}
""")
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    np.savez(path, X=rng.normal(y[:, None], 1.0, (200, 3)), y=y)
    return path


def figures(out: str) -> dict[str, str]:
    """The lines of a table with two columns."""
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in out.splitlines() if "  " in line)  # type: ignore[misc]


# Help, usage, errors


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(main: Main, command: str) -> None:
    code, out, err = main(command, "--help")
    assert (code, err) == (0, "")
    assert f"example:\n  amf-worker {command}" in out
    assert "exit codes: 0 done, 1 failed, 2 unusable configuration or command line" in out


def test_the_help_names_every_command(main: Main) -> None:
    code, out, _ = main("--help")
    assert code == 0
    assert re.findall(r"^    (\w+)(?: |$)", out, re.MULTILINE) == list(COMMANDS)


def test_the_version(main: Main) -> None:
    assert main("--version") == (0, f"amf-worker {__version__}\n", "")


def test_help_imports_no_library() -> None:
    program = """
import sys
import threading
from worker.cli import main
try:
    main(["evaluate", "--help"])
except SystemExit:
    print({"numpy", "numba", "msgspec", "confluent_kafka", "yaml", "rich", "obstore"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("fly",),
        ("run",),
        ("evaluate", "rows.csv", "--keys", "0"),
        ("evaluate", "rows.csv", "--keys", "2", "--key", "a"),
        ("produce", "rows.csv"),
        ("produce", "rows.csv", "--config", "worker.yaml", "--rate", "-1"),
    ],
)
def test_wrong_usage_is_exit_code_2(main: Main, argv: Sequence[str]) -> None:
    code, out, err = main(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("usage: amf-worker")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("worker.yaml:3: expected this\nworker.yaml:4: expected that"), 2, "worker.yaml:3: expected this"),
        (WorkerError("the broker is gone"), 1, "the broker is gone"),
        (
            ZeroDivisionError("by zero"),
            1,
            "unexpected ZeroDivisionError: by zero (--debug shows where)",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_a_message_and_an_exit_code(
    main: Main, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "check", fail)
    found, out, err = main("check", "worker.yaml")
    assert (found, out) == (code, "")
    assert err.splitlines()[0] == f"amf-worker: {line}"
    assert all(line.startswith("amf-worker: ") for line in err.splitlines())
    found, out, err = main("check", "worker.yaml", "--debug")
    assert (found, out) == (code, "")
    assert "Traceback (most recent call last)" in err
    assert type(error).__name__ in err


def test_exit_codes_of_the_program(config: Path, tmp_path: Path) -> None:
    def run(*argv: object) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "worker", *map(str, argv)], capture_output=True, text=True)
        return done.returncode, done.stderr

    assert run("check", config) == (0, "")
    assert run("inspect", f"file://{tmp_path}/none") == (1, "amf-worker: there are no checkpoints under this URL\n")
    code, err = run("run", tmp_path / "none.yaml")
    assert (code, err) == (2, f"amf-worker: {tmp_path}/none.yaml: cannot be read: No such file or directory\n")


def test_a_reader_that_goes_away_is_no_crash(config: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "check", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said_of_stdout(config: Path, unbuffered: str) -> None:
    """Buffered it shows at the end of the command, else at the first line."""
    if not Path("/dev/full").exists():
        give_up("there is no device that is always full")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "worker", "check", str(config)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "amf-worker: stdout: cannot be written: No space left on device\n",
    )


def test_the_log_has_time_level_and_logger(main: Main, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(f"{config.read_text()}\nlogging: {{format: human}}\n")
    for level, expected in (("info", 1), ("error", 0)):
        main("check", config, "--log-level", level)
        logging.getLogger("worker.somewhere").warning("look here")
        _, err = capsys.readouterr()
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING worker\.somewhere: look here\n"
        assert len(re.findall(pattern, err)) == expected


@pytest.mark.parametrize("command", ["run", "check", "produce", "evaluate", "reset", "reshard"])
def test_every_command_with_a_configuration_takes_settings_above_it(
    main: Main, config: Path, rows: Path, command: str
) -> None:
    given = [rows, "--config", config] if command in ("produce", "evaluate") else [config]
    code, _, err = main(command, *given, "--set", "output.explain=1", "--set", "input.topic=a/b")
    assert code == 2
    assert re.fullmatch(r"amf-worker: --set: input\.topic: expected a topic name: .*, found 'a/b'\n", err)


def test_reshard_names_the_broker_that_does_not_answer(
    main: Main, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    code, out, err = main("reshard", config)
    assert (code, out) == (1, "")
    assert err.startswith("amf-worker: no broker answers at kafka.bootstrap.servers=127.0.0.1:1: ")


# run, demo


def test_run_hands_the_configuration_to_the_service(main: Main, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def run(config: Config, path: str, should_stop: Callable[[], bool], **options: object) -> None:
        given.append((config, path, should_stop(), options))

    monkeypatch.setattr(service, "run", run)
    for options in ((), ("--until", "end"), ("--until", "0:1000,12:0", "--workers-at", "9464,9465")):
        code, out, err = main("run", config, *options)
        [line] = err.splitlines()
        assert (code, out, json.loads(line)["event"]) == (0, "", "starting")
    assert given == [
        (load(config, {}), str(config), False, {"until": None, "workers": ()}),
        (load(config, {}), str(config), False, {"until": "end", "workers": ()}),
        (load(config, {}), str(config), False, {"until": {0: 1000, 12: 0}, "workers": (9464, 9465)}),
    ]


@pytest.mark.parametrize("end", ["", "start", "5", "0:", ":5", "0:-1", "0:1,", "0:1,0:2", "0:1 1:2", "٣:1"])
def test_run_refuses_what_is_no_end(main: Main, config: Path, end: str) -> None:
    code, _, err = main("run", config, f"--until={end}")
    assert code == 2
    assert f"expected `end`, or PARTITION:OFFSET,... with each partition once, found {end!r}" in err


def test_demo_gets_its_options_and_gives_its_exit_code(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setitem(sys.modules, "worker.demo", SimpleNamespace(demo=lambda *options: given.extend(options) or 1))
    code, _, _ = main("demo", "--seconds", "5", "--models", "3", "--rate", "70", "--input", "rows.csv")
    assert (code, given) == (1, [5.0, 3, 70.0, "rows.csv"])


# check


def test_check_prints_what_is_in_effect_without_secrets(main: Main, config: Path) -> None:
    code, out, err = main("check", config, "--verbose")
    assert (code, err) == (0, "")
    assert out == f"{effective(load(config, {}))}\nok      {config}: can be used\n"
    assert "hunter2" not in out


def test_check_is_one_line_where_nothing_is_wrong(main: Main, config: Path) -> None:
    expected = f"ok      {config}: can be used; --verbose prints it as it is in effect\n"
    assert main("check", config) == (0, expected, "")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("chek.crcs: true", 'No such configuration property: "chek.crcs"'),
        ("socket.timeout.ms: soon", 'Invalid value for configuration property "socket.timeout.ms"'),
        ("security.protocol: ssl, ssl.ca.location: /no/ca.pem", "ssl.ca.location failed"),
        ("security.protocol: hunter2", 'Invalid value *** for configuration property "security.protocol"'),
        ("security.protocol: sasl_ssl, sasl.mechanism: hunter2", "Unsupported SASL mechanism: ***"),
    ],
)
def test_check_names_a_property_that_the_client_does_not_take(
    main: Main, config: Path, properties: str, said: str
) -> None:
    text = config.read_text()
    assert text.count("kafka: {") == 1
    config.write_text(text.replace("kafka: {", f"kafka: {{{properties}, "))
    for command in (("check",), ("reset", "key", "--set", "input.tombstones=reset"), ("reshard",)):
        code, out, err = main(command[0], config, *command[1:])
        assert (code, out) == (2, "")
        assert err.startswith(f"amf-worker: {config}:5: kafka: librdkafka refuses the properties: ")
        assert said in err
        assert "hunter2" not in err


def test_run_names_the_line_of_a_property_that_the_client_does_not_take(main: Main, config: Path) -> None:
    config.write_text(config.read_text().replace("kafka: {", "kafka: {\n  chek.crcs: true,\n  "))
    code, _, err = main("run", config)
    assert code == 2
    assert f"{config}:6: kafka: librdkafka refuses the properties: No such configuration property" in err
    code, _, err = main("check", config, "--set", "kafka.chek.crcs=false")
    assert err.startswith("amf-worker: --set: kafka: ")


def test_what_is_kept_out_of_the_file_is_not_shown(
    main: Main, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A secret may be given to a property whose name does not say so; what logs name all the same is shown."""
    (tmp_path / "secret").write_text("hunter3")
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("GROUP", "fraud")
    kept = f'client.rack: "a ${{SECRET}}", sasl.username: "${{file:{tmp_path}/secret}}", group.id: "${{GROUP}}"'
    config.write_text(config.read_text().replace("kafka: {", f"kafka: {{{kept}, ssl.cipher.suites: AES, "))
    code, out, err = main("check", config, "--verbose")
    assert code == 0
    shown = yaml.safe_load(out.partition("\nok ")[0])["kafka"]
    names = ("client.rack", "sasl.username", "group.id", "ssl.cipher.suites")
    assert [shown[name] for name in names] == ["***", "***", "fraud", "AES"]
    assert "hunter" not in out + err


def test_check_keeps_back_what_the_client_says_of_itself(
    main: Main, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)

    def told(*options: str) -> bool:
        code, out, err = main("check", config, "--connect", *options)
        assert [line.split()[0] for line in out.splitlines() if line[:2] in ("ok", "fa")] == ["ok", "failed", "ok"]
        assert code == 1
        return "kafka-client" in err

    assert not told()
    assert told("--verbose")
    assert told("--log-level", "debug")


def test_check_names_every_mistake(main: Main, config: Path) -> None:
    config.write_text(config.read_text() + "models: {default: {n_estimators: 0}}\ndelivry: at-least-once\n")
    code, out, err = main("check", config)
    assert (code, out) == (2, "")
    assert re.findall(r"^amf-worker: .*worker\.yaml:(\d): (\S+):", err, re.MULTILINE) == [
        ("7", "models.default.n_estimators"),
        ("8", "delivry"),
    ]


def test_connect_says_what_works_and_what_does_not(
    main: Main, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    code, out, err = main("check", config, "--connect", "--log-level", "error")
    assert code == 1
    assert re.search(r"^failed  no broker answers at kafka\.bootstrap\.servers=127\.0\.0\.1:1", out, re.MULTILINE)
    assert f"ok      store file://{tmp_path}/checkpoints: objects can be created, are never overwritten" in out
    assert not [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert "hunter2" not in out + err


class Overwriting(DictStore):
    def create(self, name: str, data: bytes) -> None:
        self.objects[name] = data


class Forgetful(DictStore):
    def list(self, prefix: str) -> list[str]:
        return []


class Closed(DictStore):
    def create(self, name: str, data: bytes) -> None:
        raise WorkerError("cannot write: permission denied")


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Overwriting(), "it overwrites objects"),
        (Forgetful(), "an object that was created is not listed"),
        (Closed(), "cannot write: permission denied"),
    ],
)
def test_connect_finds_a_store_that_checkpoints_cannot_rely_on(
    config: Path, monkeypatch: pytest.MonkeyPatch, store: DictStore, complaint: str
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    monkeypatch.setattr(check, "open_store", lambda _: store)
    *_, finding = check.connect(load(config, {}))
    assert finding.level == "failed"
    assert complaint in finding.sentence
    assert not store.objects


def test_of_a_store_that_fails_it_is_said_once(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the topics are looked at all the same, and no start is tried."""

    class Topic:
        is_mock = False

        def __init__(self, _: Config, name: str) -> None:
            self.name = name

        def beside(self, name: str) -> Topic:
            return Topic(load(config, {}), name)

        def ask(self, partitions: int) -> Future[TopicState]:
            answer: Future[TopicState] = Future()
            answer.set_result(TopicState("topic-id", 4, {}))
            return answer

        def settings(self) -> dict[str, str]:
            return {"retention.ms": "-1"}

        def replicas(self) -> int:
            return 1

    class Silent(DictStore):
        def list(self, prefix: str) -> list[str]:
            raise Transient("no answer")

    monkeypatch.setattr(check, "_try_broker", lambda _: [Finding("ok", "broker: answers")])
    monkeypatch.setattr(check, "KafkaTopic", Topic)
    monkeypatch.setattr(check, "open_store", lambda _: Silent())
    found = list(check.connect(load(config, {})))
    assert [finding.level for finding in found] == ["ok", "failed", "ok", "ok", "ok"]
    assert [finding.sentence for finding in found if "no answer" in finding.sentence] == [found[1].sentence]


# evaluate


def test_evaluate_shows_its_figures_and_writes_its_predictions(main: Main, rows: Path, tmp_path: Path) -> None:
    out_path = tmp_path / "predictions.csv"
    code, out, err = main("evaluate", rows, "--keys", 2, "--out", out_path)
    assert (code, err) == (0, "")
    shown = figures(out)
    with out_path.open(newline="") as file:
        predictions = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in predictions]
    assert (shown["rows"], shown["labelled"], shown["refused"], shown["models"]) == ("200", "200", "0", "2")
    assert shown["log-loss"].split()[0] == f"{sum(losses) / 200:.4f}"
    assert shown["accuracy"].split()[0] == f"{sum(row['prediction'] == row['label'] for row in predictions) / 200:.4f}"
    rarer = min("01", key=lambda label: sum(row["label"] == label for row in predictions))
    assert {f"AUC (class {rarer})", "depth", "weighted depth", "nodes", "events/s"} <= shown.keys()
    assert out.endswith(f"predictions in {out_path}\n")
    assert list(predictions[0]) == ["row", "model", "label", "prediction", "learned", "loss", "p:0", "p:1"] or list(
        predictions[0]
    ) == ["row", "model", "label", "prediction", "learned", "loss", "p:1", "p:0"]


def test_evaluate_takes_the_parameters_of_a_configuration(main: Main, rows: Path, config: Path) -> None:
    config.write_text(config.read_text() + "models: {default: {max_classes: 2, classes: ['0', '2']}}\n")
    code, out, _ = main("evaluate", rows, "--config", config)
    refused = int(figures(out)["refused"])
    assert code == 0
    assert 50 < refused < 150
    assert re.search(rf"^{refused} rows were refused as unknown-class, first row \d+: label '1' is none of", out, re.M)


def test_evaluate_estimates_numbers_where_the_configuration_says_so(main: Main, config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text() + "models: {default: {algorithm: amf-regressor}}\n")
    rows = tmp_path / "prices.csv"
    rows.write_text("rooms,price\n" + "".join(f"{i % 7},{100.5 * (i % 7)}\n" for i in range(200)))
    code, out, err = main("evaluate", rows, "--label", "price", "--config", config, "--out", tmp_path / "out.csv")
    assert (code, err) == (0, "")
    shown = figures(out)
    assert (shown["labelled"], shown["refused"]) == ("200", "0")
    rmse, of_mean = map(float, shown["RMSE"].split())
    assert 0 < float(shown["MAE"]) < rmse < 200.0 < of_mean < 202.0
    assert float(shown["std"]) > 0
    assert 0.5 < float(shown["coverage of 90 %"]) <= 1.0
    with (tmp_path / "out.csv").open(newline="") as file:
        assert next(csv.reader(file)) == [
            "row", "model", "label", "prediction", "learned", "loss", "std", "q:0.05", "q:0.5", "q:0.95",
        ]  # fmt: skip


def test_evaluate_needs_labels(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    code, out, err = main("evaluate", path)
    assert (code, out) == (2, "")
    assert err == f"amf-worker: {path}: --label must name the column of the labels: a, b\n"


def test_progress_is_plain_lines_where_there_is_no_terminal(
    main: Main, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_PLAIN_LINE_S", 0.0)
    _, out, err = main("evaluate", rows)
    assert re.fullmatch(r"evaluating: 100%, 200 rows, [\d,]+/s\n", err)
    assert "evaluating" not in out


def test_a_terminal_gets_a_bar_and_a_drawn_table(main: Main, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(terminal, "_REDRAW_S", 0.0)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    code, out, err = main("evaluate", rows)
    assert code == 0
    assert re.search(r"evaluating .*100%.* 200 rows", err)
    assert re.search(r"^ +log-loss +0\.\d{4} +0\.\d{4} *$", out, re.MULTILINE)


# inspect


@pytest.fixture
def checkpoints(tmp_path: Path) -> str:
    """URL of a store with two partitions, one hour old; returns it."""
    url = f"file://{tmp_path}/store"
    forest = amf.AMFClassifier(3, seed=7)
    forest.partial_fit([[0.0], [1.0], [2.0]], ["no", "yes", "no"])
    data = forest.dumps()
    summary = {"samples": 3, "nodes": forest.n_nodes, "depth": 2, "bytes": len(data)}
    for partition, keys in ((2, ["a", "[red]\x1b[31m"]), (10, ["b"])):
        location = Location("amf", "main", "events", "topic-id", partition)
        Checkpoints(open_store(url), location).write(
            offset=1000 + partition,
            start_offset=0,
            engine="amf-1",
            created_ms=0,
            dirty={key: lambda: SavedModel("spec", data, summary) for key in keys},
        )
    return url


def table_rows(out: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line[:1] == " "]


def test_inspect_lists_each_partition(main: Main, checkpoints: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.cli.commands.time.time_ns", lambda: 3 * HOUR_MS * 1_000_000)
    code, out, err = main("inspect", checkpoints)
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
def test_inspect_shows_one_model_from_any_folder(main: Main, checkpoints: str, below: str) -> None:
    code, out, err = main("inspect", checkpoints + below, "--model", "a")
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
    Checkpoints(open_store(url), location).write(
        offset=3, start_offset=0, engine="amf-1", created_ms=0, dirty={"a": lambda: SavedModel("spec", data, {})}
    )
    code, out, err = main("inspect", url, "--model", "a")
    assert (code, err) == (0, "")
    shown = figures(out)
    assert (shown["algorithm"], shown["loss"], shown["calibration"]) == ("amf-regressor", "student", "True")
    assert "classes" not in shown


def test_a_model_key_cannot_command_the_terminal(main: Main, checkpoints: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for on_terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda on=on_terminal: on)
        code, out, _ = main("inspect", checkpoints, "--model", "[red]\x1b[31m")
        assert code == 0
        assert "model [red]\\x1b[31m in partition 2" in out.replace("\n", " ")
        assert "\x1b[31m" not in out


def test_a_drawn_table_takes_its_cells_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal.table(("name", "value"), [("[red]x[/red]", "1"), ("y", "[/]")])
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert "[/]" in out


def test_inspect_finds_nothing(main: Main, checkpoints: str, tmp_path: Path) -> None:
    assert main("inspect", f"file://{tmp_path}/none") == (
        1,
        "",
        "amf-worker: there are no checkpoints under this URL\n",
    )
    code, out, err = main("inspect", checkpoints, "--model", "c")
    assert (code, out, err) == (1, "", "amf-worker: no checkpoint under this URL has a model 'c'\n")
    code, _, err = main("inspect", str(tmp_path))
    assert code == 2
    assert "expected file://" in err


def test_inspect_names_what_is_damaged(main: Main, checkpoints: str, tmp_path: Path) -> None:
    [segment] = (tmp_path / "store").glob("amf/main/*/10/*.segment")
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    code, out, err = main("inspect", checkpoints, "--model", "b")
    assert code == 1
    assert "samples" in out
    assert re.search(r"^amf-worker: amf/main/events-topic-id/10: model 'b': ", err)
    [manifest] = (tmp_path / "store").glob("amf/main/*/10/*.manifest")
    manifest.write_bytes(b"{}")
    code, out, err = main("inspect", checkpoints)
    assert code == 1
    assert [row[0] for row in table_rows(out)] == ["2", "10"]
    assert table_rows(out)[1][1:8] == ["?"] * 7
    assert "is damaged" in err


# Files that are written


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as file:
        file.write("through")
    reader.join(10)
    assert (read, pipe.is_fifo()) == (["through"], True)


def test_what_can_be_written_is_not_refused_before(tmp_path: Path) -> None:
    pipe, link, away = tmp_path / "pipe", tmp_path / "link", tmp_path / "away" / "file"
    os.mkfifo(pipe)
    link.symlink_to(away)
    away.parent.mkdir()
    for path in (pipe, link, away, Path(os.devnull)):
        require_place(path)
    assert list(away.parent.iterdir()) == []


def test_what_cannot_be_written_is_refused_before(tmp_path: Path) -> None:
    nowhere, ring = tmp_path / "nowhere", tmp_path / "ring"
    nowhere.symlink_to(tmp_path / "none" / "file")
    ring.symlink_to(ring)
    for path in (nowhere, ring, tmp_path, tmp_path / ("n" * 253), tmp_path / "none" / "file"):
        with pytest.raises(ConfigError, match="cannot be written"):
            require_place(path)


def test_the_file_behind_a_link_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    with replacing(link) as written:
        written.write("after")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    assert sorted(tmp_path.iterdir()) == [file, link]
