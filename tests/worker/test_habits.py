"""What people expect of a program: answers on the first try, settings by hand, Ctrl-C at any time, files kept whole."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import amf
from tests.worker.conftest import Main
from worker.adapters.store import open_store
from worker.base.errors import ConfigError
from worker.checkpoint import Checkpoints, Location, SavedModel
from worker.cli import commands, evaluate, terminal
from worker.cli.init import QUESTIONS, init
from worker.config import load, loads

REQUIRED = """
input: {topic: events}
output: {topic: predictions}
dead_letter: {topic: dead-letters}
kafka: {bootstrap.servers: "127.0.0.1:1", sasl.password: hunter2}
checkpoint: {url: "memory://"}
"""
ANSWERS = {"bootstrap-servers": "broker:9092", "topic": "payments", "checkpoint-url": "s3://bucket/amf"}
FLAGS = [part for option, answer in ANSWERS.items() for part in (f"--{option}", answer)]


@pytest.fixture
def churn(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["id,when,city,age,churned"]
    for i in range(300):
        age = rng.normal(40, 10)
        lines.append(f"tx-{i},{1715949000 + i},{'Rome' if i % 3 else 'Oslo'},{age:.1f},{'yes' if age > 50 else 'no'}")
    (tmp_path / "churn.csv").write_text("\n".join(lines))
    return tmp_path / "churn.csv"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    lines = ["rooms,price", *(f"{i % 7},{100.5 * (i % 7) + i / 64}" for i in range(300))]
    (tmp_path / "prices.csv").write_text("\n".join(lines))
    return tmp_path / "prices.csv"


def without_speed(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines() if not line.startswith("events/s")]


# evaluate


def test_evaluate_warns_of_columns_that_teach_nothing(main: Main, churn: Path) -> None:
    code, _, err = main("evaluate", churn, "--label", "churned")
    assert code == 0
    assert re.match(r"note: column 'id' has 300 different texts in 300 rows: as good as unique, ", err)
    code, _, err = main("evaluate", churn, "--label", "churned", "--id", "id", "--time", "when")
    assert (code, err) == (0, "")
    code, _, err = main("evaluate", churn, "--label", "churned", "--drop", "id", "--drop", "when")
    assert (code, err) == (0, "")


def test_ids_come_back_in_the_predictions(main: Main, churn: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert main("evaluate", churn, "--label", "churned", "--id", "id", "--out", out)[0] == 0
    header, first, *_ = out.read_text().splitlines()
    assert header.startswith("row,id,model,label,")
    assert first.startswith("0,tx-0,model-0,")


def test_a_numeric_label_is_estimated_and_evaluate_says_so(main: Main, prices: Path) -> None:
    code, out, err = main("evaluate", prices, "--label", "price")
    assert code == 0
    assert re.match(r"note: the labels are numbers, 300 different ones in the first 300: they are estimated\.", err)
    assert "RMSE" in out
    assert "log-loss" not in out
    guessed = without_speed(out)
    for decided in (["--regression"], ["--set", "algorithm=amf-regressor"]):
        code, out, err = main("evaluate", prices, "--label", "price", *decided)
        assert (code, without_speed(out), err) == (0, guessed, "")


def test_a_configuration_that_takes_quantities_for_classes_is_questioned(
    main: Main, prices: Path, tmp_path: Path
) -> None:
    (tmp_path / "worker.yaml").write_text(REQUIRED)
    code, out, err = main("evaluate", prices, "--label", "price", "--config", tmp_path / "worker.yaml")
    assert code == 0
    assert "log-loss" in out
    assert err.endswith("and the configuration takes them for classes: --regression estimates them\n")


def test_what_is_said_of_the_labels_counts(main: Main, prices: Path) -> None:
    for decided in (["--classification"], ["--set", "algorithm=amf-classifier"]):
        code, out, err = main("evaluate", prices, "--label", "price", *decided)
        assert (code, err) == (0, "")
        assert "log-loss" in out
    code, _, err = main("evaluate", prices, "--label", "price", "--regression", "--classification")
    assert code == 2
    assert "not allowed with" in err


def test_an_algorithm_that_is_named_counts_beside_what_is_said_of_the_labels(main: Main, prices: Path) -> None:
    few = ["evaluate", prices, "--label", "price", "--set", "algorithm=adaptive-regressor"]
    code, out, _ = main(*few, "--regression")
    assert code == 0
    assert "trees replaced" in out
    code, _, err = main(*few, "--classification")
    assert code == 2
    assert "--classification: the labels of the algorithm adaptive-regressor are numbers; leave one of them out" in err


def test_settings_need_no_file(main: Main, churn: Path, tmp_path: Path) -> None:
    few = ["evaluate", churn, "--label", "churned", "--drop", "id", "--drop", "when"]
    _, plain, _ = main(*few)
    code, out, err = main(*few, "--set", "split_pure=true", "--set", "models.default.n_estimators=3")
    assert (code, err) == (0, "")
    (tmp_path / "worker.yaml").write_text(REQUIRED + "models: {default: {split_pure: true, n_estimators: 3}}\n")
    _, same, _ = main(*few, "--config", tmp_path / "worker.yaml")
    assert without_speed(out) == without_speed(same) != without_speed(plain)
    _, above, _ = main(*few, "--config", tmp_path / "worker.yaml", "--set", "n_estimators=10", "--set", "split_pure=")
    assert main(*few, "--set", "split_pure=")[0] == 2
    assert above == ""


def test_a_setting_stands_above_the_file() -> None:
    text = REQUIRED + "models: {default: {n_estimators: 3, seed: 7}, max_models: 5}\n"
    settings = {"n_estimators": "20", "models.max_models": "6", "kafka.group.id": "g.1", "classes": "[a, 'no']"}
    found = loads(text, {}, settings=settings)
    assert (found.models.default.n_estimators, found.models.default.seed, found.models.max_models) == (20, 7, 6)
    assert (found.kafka["group.id"], found.kafka["sasl.password"]) == ("g.1", "hunter2")
    assert found.models.default.classes == ("a", "no")
    assert loads(text, {}).models.max_models == 5


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("n_estimators=0", "--set: models.default.n_estimators: expected "),
        ("trees=5", "--set: trees: unknown key, expected one of "),
        ("n_estimator=5", "; did you mean n_estimators?"),
        ("delivry=x", "; did you mean delivery?"),
        ("models.default.trees=5", "--set: models.default.trees: unknown key, expected one of "),
        ("n_estimators=[", "--set n_estimators: expected YAML, found a syntax error"),
        ("kafka.isolation.level=x", "--set: kafka.isolation.level: reserved: "),
        ("models=5", "--set: models: expected a mapping, found a single value"),
        ("n_estimators", "expected KEY=VALUE such as n_estimators=20, found 'n_estimators'"),
        ("a b=1", "expected KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_named(main: Main, churn: Path, setting: str, complaint: str) -> None:
    code, out, err = main("evaluate", churn, "--label", "churned", "--drop", "id", "--drop", "when", "--set", setting)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("y,a\n", [], "there are no rows"),
        ("y,a\nred,1\nblue,2\n", ["--regression"], "every row was refused"),
        ("y,a\n,1\n,2\n", [], "no row that was taken has a label"),
        ("y,a\n2,1\n", ["--regression"], "nothing to forecast"),
    ],
)
def test_a_pass_that_scores_nothing_has_failed_and_says_why(
    main: Main, tmp_path: Path, text: str, options: list[str], why: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    code, out, _ = main("evaluate", path, "--label", "y", *options)
    assert code == 1
    assert "No forecast was scored: " in out
    assert why in out


def test_evaluate_writes_a_page(main: Main, churn: Path, tmp_path: Path) -> None:
    page = tmp_path / "churn.html"
    few = ["evaluate", churn, "--label", "churned", "--key", "city", "--drop", "id", "--drop", "when", "--report"]
    code, out, err = main(*few, page)
    assert (code, err) == (0, "")
    assert f"report in {page}\n" in out
    assert page.read_text().startswith("<!doctype html>")
    assert "<th>Rome</th>" in page.read_text()
    code, out, err = main(*few, tmp_path / "none" / "churn.html")
    assert (code, out) == (2, "")  # before the pass
    assert "cannot be written" in err


def test_ctrl_c_keeps_what_was_done(main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(6000, 2)), y=rng.integers(2, size=6000))
    take = evaluate._Evaluation.take

    def take_and_press(self: Any, chunk: Any) -> None:
        take(self, chunk)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(evaluate._Evaluation, "take", take_and_press)
    out_path, page = tmp_path / "out.csv", tmp_path / "page.html"
    saved = f"file://{tmp_path}/saved"
    code, out, err = main("evaluate", tmp_path / "rows.npz", "--out", out_path, "--report", page, "--save", saved)
    assert (code, err) == (130, "")
    assert "Interrupted: the figures are those of the first 2,048 rows." in out
    assert len(out_path.read_text().splitlines()) == 2049
    assert "Interrupted" in page.read_text()
    code, listed, _ = main("inspect", saved)
    assert (code, "2,048" in listed) == (0, True)


class SilentPipe(io.RawIOBase):
    """Gives what it has; who then waits for more presses Ctrl-C."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        if not self.data:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        given, self.data = self.data[: len(room)], self.data[len(room) :]
        room[: len(given)] = given
        return len(given)


@pytest.mark.parametrize("n", [50, 3000])
def test_ctrl_c_ends_the_wait_for_a_silent_pipe(
    main: Main, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first thousand rows are waited for, which are looked at together."""
    rows = b"".join(b"%d,%s\n" % (i % 7, b"ab"[i % 2 :][:1]) for i in range(n))
    stdin = io.TextIOWrapper(io.BufferedReader(SilentPipe(b"x,y\n" + rows + b"3,")))
    monkeypatch.setattr(sys, "stdin", stdin)
    out_path = tmp_path / "out.csv"
    code, out, err = main("evaluate", "-", "--label", "y", "--out", out_path)
    assert (code, err) == (130, "")
    assert f"Interrupted: the figures are those of the first {n:,} rows." in out
    assert len(out_path.read_text().splitlines()) == n + 1


def test_a_second_ctrl_c_ends_at_once() -> None:
    def press_twice() -> None:
        interrupt = terminal.Interrupt()
        with interrupt.noted():
            assert not interrupt.pressed
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupt.pressed
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_modules_are_imported_is_no_traceback() -> None:
    program = """
import sys
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "worker.cli.arguments":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from worker.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program, "check", "x"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "amf-worker: interrupted\n")


def test_a_program_that_was_started_without_streams_has_some(tmp_path: Path) -> None:
    """Else the watchdog would fail, and what is opened first would get the complaints of libraries in C."""
    program = """
import faulthandler, os, pathlib, sys
from worker import __main__, cli
def main():
    faulthandler.dump_traceback_later(1000)
    print("to stdout"), print("to stderr", file=sys.stderr), sys.stdin.read()
    opened = os.open(os.devnull, os.O_RDONLY)
    pathlib.Path(sys.argv[1]).write_text(f"{sys.stderr.fileno()} {opened > 2}")
    return 0
cli.main = main
sys.exit(__main__.main())
"""
    told = tmp_path / "told"
    command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program, str(told)]
    assert subprocess.run(command).returncode == 0
    assert told.read_text() == "2 True"


def test_rows_come_through_a_pipe(main: Main, churn: Path) -> None:
    few = ["--label", "churned", "--drop", "id", "--drop", "when"]
    _, expected, _ = main("evaluate", churn, *few)
    piped = subprocess.run(
        [sys.executable, "-m", "worker", "evaluate", "-", *few],
        input=gzip.compress(churn.read_bytes()),
        capture_output=True,
    )
    assert (piped.returncode, without_speed(piped.stdout.decode())) == (0, without_speed(expected))


# The configuration


def test_hostname_is_known_where_the_shell_does_not_pass_it_on(
    main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text(REQUIRED.replace("kafka: {", "kafka: {group.instance.id: '${HOSTNAME}', "))
    monkeypatch.setattr(commands, "gethostname", lambda: "box-7")
    monkeypatch.delenv("HOSTNAME", raising=False)
    code, out, err = main("check", path, "--verbose")
    assert (code, err) == (0, "")
    assert "group.instance.id: box-7" in out
    monkeypatch.setenv("HOSTNAME", "given")
    assert "group.instance.id: given" in main("check", path, "--verbose")[1]


def test_init_writes_a_configuration_that_passes_check(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    code, out, err = main("init", path, *FLAGS)
    assert (code, err) == (0, "")
    assert f"`amf-worker run {path}` starts a worker" in out
    assert main("check", path)[0] == 0
    found = load(path, {})
    assert (found.input.topic, found.output.topic) == ("payments", "payments-predictions")
    assert (found.dead_letter.topic, found.checkpoint.url) == ("payments-dead-letters", "s3://bucket/amf")
    assert (found.kafka["bootstrap.servers"], found.kafka["group.id"]) == ("broker:9092", "amf-payments")
    assert path.read_text().count("#") > 60  # every key is still explained


def test_what_init_writes_has_a_name_for_the_worker_to_be_taken_in(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    assert main("init", path, *FLAGS)[0] == 0
    assert "group.instance.id" not in load(path, {}).kafka
    text = path.read_text()
    assert text.count("\n  # group.instance.id: ") == 1
    path.write_text(text.replace("  # group.instance.id: ", "  group.instance.id: "))
    assert load(path, {"HOSTNAME": "box-7"}).kafka["group.instance.id"] == "box-7"


def test_init_overwrites_nothing_unasked(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("mine")
    code, out, err = main("init", path, *FLAGS)
    assert (code, out, path.read_text()) == (2, "", "mine")
    assert err == f"amf-worker: {path} is there already: name another file, or overwrite it with --force\n"
    assert main("init", path, *FLAGS, "--force")[0] == 0
    assert load(path, {}).input.topic == "payments"


def test_init_asks_for_what_was_not_given_until_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    answers = iter(["two words", "payments", ""])
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return next(answers)

    init(tmp_path / "new.yaml", {"bootstrap-servers": "${KAFKA:-broker:9092}"}, ask=ask)
    assert asked == [
        "Which topic has the events? [events] ",
        "Which topic has the events? [events] ",
        f"Where do checkpoints go (file://, s3://, gs://, az://)? [file://{tmp_path}/checkpoints] ",
    ]
    [complaint] = re.findall(r"^.*expected.*$", capsys.readouterr().out, re.MULTILINE)
    assert complaint.startswith("input.topic: expected a topic name")
    found = load(tmp_path / "new.yaml", {})
    assert (found.input.topic, found.checkpoint.url) == ("payments", f"file://{tmp_path}/checkpoints")
    assert found.kafka["bootstrap.servers"] == "broker:9092"


def test_init_without_a_terminal_names_its_flags(main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())
    code, out, err = main("init", tmp_path / "new.yaml", "--topic", "payments")
    assert (code, out) == (2, "")
    assert err == "amf-worker: there is no terminal to ask questions on: give --bootstrap-servers, --checkpoint-url\n"


@pytest.mark.parametrize("option", [question.option for question in QUESTIONS])
@pytest.mark.parametrize("answer", ["", "a: b", "x # y", '"', "'", "\\", "[", "null", "12", "a\nlineage: evil"])
def test_an_answer_is_a_value_and_nothing_else(tmp_path: Path, option: str, answer: str) -> None:
    path = tmp_path / "new.yaml"
    try:
        init(path, {**ANSWERS, option: answer})
    except ConfigError:
        assert list(tmp_path.iterdir()) == []
        return
    found = load(path, {})
    values = {
        "bootstrap-servers": found.kafka["bootstrap.servers"],
        "topic": found.input.topic,
        "checkpoint-url": found.checkpoint.url,
    }
    assert values == {**ANSWERS, option: answer}
    assert found.checkpoint.lineage == "main"


# The shell and the terminal


def test_completion_is_a_script_that_knows_the_commands(main: Main) -> None:
    code, out, err = main("completion", "bash")
    assert (code, err) == (0, "")
    program = f"{out}\nCOMP_WORDS=(amf-worker ev); COMP_CWORD=1; _shtab_amf_worker; echo ${{COMPREPLY[@]}}"
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-c", program], capture_output=True, text=True).stdout == "evaluate\n"
    for shell in ("zsh", "tcsh"):
        code, out, _ = main("completion", shell)
        assert code == 0
        assert "evaluate" in out
    assert main("completion", "fish")[0] == 2


def test_colours_are_for_terminals_without_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_REDRAW_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = []
    for on_terminal, no_color in ((True, ""), (True, "1"), (False, "")):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr(sys.stderr, "isatty", lambda on=on_terminal: on)
        with terminal.progress("evaluating") as advance:
            advance(0.5, 10)
        shown.append(re.findall(r"\x1b\[[0-9;]*3[0-9;]*m", capsys.readouterr().err))
    assert shown[0]
    assert shown[1:] == [[], []]


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "_PATIENCE_S", 0.01)
    with terminal.status("compiling"):
        deadline = time.monotonic() + 60
        err = ""
        while not err and time.monotonic() < deadline:
            time.sleep(0.01)
            err = capsys.readouterr().err
    assert err == "compiling ...\n"
    monkeypatch.setattr(terminal, "_PATIENCE_S", 60.0)
    with terminal.status("compiling"):
        pass
    assert capsys.readouterr().err == ""


# inspect


@pytest.fixture
def store(tmp_path: Path) -> str:
    """URL of a store with three models of one partition."""
    url = f"file://{tmp_path}/store"
    saved = {}
    for number, key in enumerate(["a-1", "a-2", "b-1"]):
        x = np.random.default_rng(number).normal(size=(20 * (number + 1), 2))
        data = amf.AMFClassifier(3, seed=number).partial_fit(x, x[:, 0] > 0).dumps()
        summary = {"samples": len(x), "nodes": 10 - number, "last_ms": 1000 * number}
        saved[key] = SavedModel("spec", data, summary)
    Checkpoints(open_store(url), Location("amf", "main", "events", "id", 0)).write(
        offset=60,
        start_offset=0,
        engine="amf-1",
        created_ms=0,
        dirty={key: lambda model=model: model for key, model in saved.items()},
    )
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
def test_inspect_lists_models(main: Main, store: str, options: list[str], title: str, keys: list[str]) -> None:
    code, out, err = main("inspect", store, *options)
    assert (code, err) == (0, "")
    listed = out.partition(f"\n{title}\n")[2].splitlines()
    assert [line.split()[0] for line in listed[1:]] == keys


def test_a_model_that_is_taken_out_forecasts_bit_for_bit_the_same(main: Main, store: str, tmp_path: Path) -> None:
    path = tmp_path / "a-2.amf"
    code, out, err = main("inspect", store, "--export", "a-2", path)
    assert (code, out, err) == (0, f"amf-classifier of 40 samples in {path}: amf.loads takes its bytes\n", "")
    x = np.random.default_rng(1).normal(size=(40, 2))
    original = amf.AMFClassifier(3, seed=1).partial_fit(x, x[:, 0] > 0)
    taken = amf.loads(path.read_bytes())
    questions = np.random.default_rng(9).normal(size=(50, 2))
    np.testing.assert_array_equal(taken.predict_proba(questions), original.predict_proba(questions))
    assert taken.partial_fit(x, x[:, 0] > 0).dumps() == original.partial_fit(x, x[:, 0] > 0).dumps()


def test_a_model_that_cannot_be_taken_out_leaves_no_file(main: Main, store: str, tmp_path: Path) -> None:
    path = tmp_path / "model.amf"
    code, out, err = main("inspect", store, "--export", "c", path)
    assert (code, out, err) == (1, "", "amf-worker: no checkpoint under this URL has a model 'c'\n")
    [segment] = (tmp_path / "store").glob("amf/main/*/0/*.segment")
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    code, _, err = main("inspect", store, "--export", "b-1", path)
    assert code == 1
    assert "model 'b-1': " in err
    Checkpoints(open_store(store), Location("amf", "other", "events", "id", 0)).write(
        offset=0, start_offset=0, engine="amf-1", created_ms=0, dirty={"b-1": lambda: SavedModel("spec", b"", {})}
    )
    code, _, err = main("inspect", store, "--export", "b-1", path)
    assert code == 2
    assert "is in several folders: add one of them to the URL: amf/main/events-id/0, amf/other/events-id/0" in err
    assert not path.exists()
