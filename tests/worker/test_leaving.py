"""The end of the process: in order whenever it is asked to, and a store that hangs does not hold it up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.worker.support.configurations import document

HANGING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from worker import cli, service
from worker.base.errors import WorkerError

def run(config, path, should_stop, until, workers):
    if {asks}:
        threading.Thread(target=threading.Event().wait, name="asking", daemon=True).start()
    pool, begun = ThreadPoolExecutor(2, thread_name_prefix="checkpoints"), threading.Event()
    def write():
        begun.set()
        if {hangs}:
            threading.Event().wait()
    pool.submit(write)
    begun.wait()
    pool.shutdown(wait=False)
    if {fails}:
        raise WorkerError("it cannot go on")

service.run = run
sys.exit(cli.main(["run", {config!r}]))
"""


CONFIG = document(metrics='{listen: "127.0.0.1:0"}', logging="{format: json}")


def ended(tmp_path: Path, *, hangs: bool, fails: bool, asks: bool = False) -> tuple[int, list[str]]:
    """The exit code, and what was said at which level after the line that says what is started: JSON, as all of the
    log."""
    config = tmp_path / "worker.yaml"
    config.write_text(CONFIG)
    code = HANGING.format(hangs=hangs, fails=fails, asks=asks, config=str(config))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    started, *said = map(json.loads, done.stderr.splitlines())
    assert started["event"] == "starting"
    return done.returncode, [f"{line['level']}, {line['event']}: {line['fact']}" for line in said]


def test_it_ends_though_a_write_hangs(tmp_path: Path) -> None:
    code, said = ended(tmp_path, hangs=True, fails=False)
    assert (code, said) == (0, ["warning, ended: the checkpoint store does not answer, going without it"])


def test_it_ends_with_the_code_of_what_happened(tmp_path: Path) -> None:
    code, said = ended(tmp_path, hangs=True, fails=True)
    assert code == 1
    assert said == [
        "error, ended: it cannot go on",
        "warning, ended: the checkpoint store does not answer, going without it",
    ]


def test_it_ends_though_a_question_of_its_start_is_open(tmp_path: Path) -> None:
    code, said = ended(tmp_path, hangs=False, fails=False, asks=True)
    assert (code, said) == (0, ["info, ended: what it waited for does not answer, going without it"])


def test_what_ends_by_itself_is_waited_for(tmp_path: Path) -> None:
    assert ended(tmp_path, hangs=False, fails=False) == (0, [])


def test_it_ends_in_order_where_it_is_told_to_as_soon_as_it_says_that_it_starts(tmp_path: Path) -> None:
    config = tmp_path / "worker.yaml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "worker", "run", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        first = json.loads(worker.stderr.readline())
        worker.send_signal(signal.SIGTERM)
        _, rest = worker.communicate(timeout=60)
    said = [first, *map(json.loads, rest.splitlines())]
    assert worker.returncode == 0, rest
    assert said[0]["event"] == "starting"
    assert "stopped in order" in [line["fact"] for line in said]
