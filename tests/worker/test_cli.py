"""The command line as its user sees it: help, usage, errors, streams, and with which exit code it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.availability import give_up
from tests.worker.support.printed import Main
from worker import __version__, service
from worker.base.errors import ConfigError, WorkerError
from worker.cli import commands
from worker.config import Config, load

COMMANDS = ("init", "run", "check", "produce", "evaluate", "inspect", "reset", "reshard", "demo", "completion")


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


def test_the_version_is_printed(main: Main) -> None:
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
        (WorkerError("the registry says \x1b[31mred\u202e"), 1, r"the registry says \x1b[31mred\u202e"),
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


def test_exit_codes_of_the_program(worker_yaml: Path, tmp_path: Path) -> None:
    def run(*argv: object) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "worker", *map(str, argv)], capture_output=True, text=True)
        return done.returncode, done.stderr

    assert run("check", worker_yaml) == (0, "")
    code, err = run("inspect", f"file://{tmp_path}/none")
    assert (code, err[:51]) == (1, "amf-worker: there are no checkpoints under this URL")
    code, err = run("run", tmp_path / "none.yaml")
    assert (code, err) == (2, f"amf-worker: {tmp_path}/none.yaml: cannot be read: No such file or directory\n")


def test_a_reader_that_goes_away_is_no_crash(worker_yaml: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "check", str(worker_yaml)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said_of_stdout(worker_yaml: Path, unbuffered: str) -> None:
    """Buffered it shows at the end of the command, else at the first line."""
    if not Path("/dev/full").exists():
        give_up("there is no device that is always full")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "worker", "check", str(worker_yaml)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "amf-worker: stdout: cannot be written: No space left on device\n",
    )


def test_the_exit_code_is_right_where_nobody_can_be_told(tmp_path: Path) -> None:
    """`run --processes` goes by it: what it would start again and again is not started again."""
    if not Path("/dev/full").exists():
        give_up("there is no device that is always full")
    with open("/dev/full", "wb") as full:
        assert (
            subprocess.run([sys.executable, "-m", "worker", "run", tmp_path / "none.yaml"], stderr=full).returncode == 2
        )


def test_the_log_has_time_level_and_logger(main: Main, worker_yaml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker_yaml.write_text(f"{worker_yaml.read_text()}\nlogging: {{format: human}}\n")
    for level, expected in (("info", 1), ("error", 0)):
        main("check", worker_yaml, "--log-level", level)
        logging.getLogger("worker.somewhere").warning("look here")
        _, err = capsys.readouterr()
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING worker\.somewhere: look here\n"
        assert len(re.findall(pattern, err)) == expected


def test_reshard_names_the_broker_that_does_not_answer(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    code, out, err = main("reshard", worker_yaml)
    assert (code, out) == (1, "")
    assert err.startswith("amf-worker: no broker answers at kafka.bootstrap.servers=127.0.0.1:1: ")


def test_reshard_writes_to_nothing_that_is_gone_when_it_ends(main: Main, worker_yaml: Path) -> None:
    code, out, err = main("reshard", worker_yaml, "--to", "memory://models")
    assert (code, out) == (2, "")
    assert err.startswith("amf-worker: --to: what is in memory://models is gone when this command ends")


def test_run_hands_the_configuration_to_the_service(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def run(config: Config, path: str, should_stop: Callable[[], bool], **options: object) -> None:
        given.append((config, path, should_stop(), options))

    monkeypatch.setattr(service, "run", run)
    for options in ((), ("--until", "end"), ("--until", "0:1000,12:0", "--workers-at", "9464,9465")):
        code, out, err = main("run", worker_yaml, *options)
        [line] = err.splitlines()
        assert (code, out, json.loads(line)["event"]) == (0, "", "starting")
    assert given == [
        (load(worker_yaml, {}), str(worker_yaml), False, {"until": None, "workers": ()}),
        (load(worker_yaml, {}), str(worker_yaml), False, {"until": "end", "workers": ()}),
        (load(worker_yaml, {}), str(worker_yaml), False, {"until": {0: 1000, 12: 0}, "workers": (9464, 9465)}),
    ]


@pytest.mark.parametrize("end", ["", "start", "5", "0:", ":5", "0:-1", "0:1,", "0:1,0:2", "0:1 1:2", "٣:1"])
def test_run_refuses_what_is_no_end(main: Main, worker_yaml: Path, end: str) -> None:
    code, _, err = main("run", worker_yaml, f"--until={end}")
    assert code == 2
    assert f"expected `end`, or PARTITION:OFFSET,... with each partition once, found {end!r}" in err


def test_demo_gets_its_options_and_gives_its_exit_code(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setitem(sys.modules, "worker.demo", SimpleNamespace(demo=lambda *options: given.extend(options) or 1))
    code, _, _ = main("demo", "--seconds", "5", "--models", "3", "--rate", "70", "--input", "rows.csv")
    assert (code, given) == (1, [5.0, 3, 70.0, "rows.csv"])


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
    found = tmp_path / "found"
    command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program, str(found)]
    assert subprocess.run(command).returncode == 0
    assert found.read_text() == "2 True"


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


def test_numbers_that_nobody_can_mean_are_refused_by_their_place(main: Main, worker_yaml: Path) -> None:
    for option, command in (("--partitions", "check"), ("--processes", "run")):
        code, _, err = main(command, worker_yaml, option, "99999999999")
        assert code == 2
        assert f"argument {option}: expected a whole number between 1 and 1" in err
    code, _, err = main("evaluate", "rows.csv", "--keys", "2.5")
    assert (code, "argument --keys: expected a whole number above 0, found '2.5'" in err) == (2, True)
