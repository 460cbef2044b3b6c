"""What a terminal gets, and what goes into a pipe: progress, tables, colours."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.worker.support.printed import Main
from worker.cli import terminal


def test_progress_is_plain_lines_where_there_is_no_terminal(
    main: Main, rows_npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_PLAIN_LINE_S", 0.0)
    _, out, err = main("evaluate", rows_npz)
    assert re.fullmatch(r"evaluating: 100%, 200 rows, [\d,]+/s\n", err)
    assert "evaluating" not in out


def test_a_terminal_gets_a_bar_and_a_drawn_table(main: Main, rows_npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(terminal, "_REDRAW_S", 0.0)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    code, out, err = main("evaluate", rows_npz)
    assert code == 0
    assert re.search(r"evaluating .*100%.* 200 rows", err)
    assert re.search(r"^ +log-loss +0\.\d{4} +0\.\d{4} *$", out, re.MULTILINE)


def test_a_drawn_table_takes_its_cells_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal.table(("name", "value"), [("[red]x[/red]", "1"), ("y", "[/]")])
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert "[/]" in out


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
