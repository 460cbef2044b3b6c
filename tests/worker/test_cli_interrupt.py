"""Ctrl-C at any time, and a reader who goes away: what was done is kept, and a second Ctrl-C ends at once."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.support.printed import Main
from worker.cli import evaluate, terminal


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


def test_who_does_not_read_the_figures_finds_the_files_all_the_same(tmp_path: Path) -> None:
    """As with `| head -1`, after hours maybe."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(50, 2)), y=rng.integers(2, size=50))
    page, out, saved = tmp_path / "page.html", tmp_path / "out.csv", tmp_path / "saved"
    command = ["evaluate", tmp_path / "rows.npz", "--report", page, "--out", out, "--save", saved.as_uri()]
    with subprocess.Popen(
        [sys.executable, "-m", "worker", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)
    assert page.exists()
    assert len(out.read_text().splitlines()) == 51
    assert list(saved.rglob("*.manifest"))


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
