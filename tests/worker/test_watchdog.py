"""Deadlines of the process: the earliest of them counts, whatever the others do and whoever keeps the interpreter."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from worker.base.watchdog import Guard, within

PROGRAM = """
import ctypes, sys, threading, time
from worker.base.watchdog import Guard, within
loop = Guard()
def moves():
    while True:
        loop.renew(300.0)
        time.sleep(0.02)
def stuck(in_c):
    if in_c:
        ctypes.PyDLL(None).sleep(30)  # and keeps the interpreter
    time.sleep(30)
"""


def ended(program: str) -> tuple[int, str, float]:
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, time.monotonic() - began_s


@pytest.mark.parametrize("in_c", [False, True])
def test_the_earliest_counts_while_another_is_renewed(in_c: bool) -> None:
    code, said, seconds = ended(f"""
threading.Thread(target=moves, daemon=True).start()
time.sleep(0.1)
with within(1.0):
    stuck({in_c})
""")
    assert (code, seconds < 20) == (1, True)
    assert said.startswith("Timeout (0:00:01)!")
    assert "in stuck" in said


def test_the_others_stay_where_one_is_lifted() -> None:
    code, said, seconds = ended("""
loop.renew(1.0)
with within(0.5):
    pass
stuck(False)
""")
    assert (code, seconds < 20) == (1, True)
    assert "in stuck" in said


def test_what_stands_in_for_stderr_need_be_no_file() -> None:
    code, said, _ = ended("import io; sys.stderr = io.StringIO(); loop.renew(0.2); stuck(False)")
    assert code == 1
    assert "in stuck" in said


def test_a_time_that_is_over_ends_it_at_once() -> None:
    code, _, seconds = ended("loop.renew(0.0); stuck(False)")
    assert (code, seconds < 20) == (1, True)


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float | None]]:
    """What the timer was set to, one after the other; None where it was stopped."""
    told: list[float | None] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: told.append(seconds))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: told.append(None))
    yield told
    assert told[-1] is None, "the next test would be ended by it"


def test_the_timer_is_set_where_the_earliest_changes_and_else_left_alone(timer: list[float | None]) -> None:
    loop = Guard()
    loop.renew(300.0)
    with within(45.0):
        assert timer == pytest.approx([300.0, 45.0], abs=5.0)
        loop.renew(200.0)
        with within(60.0):
            pass
        assert timer == pytest.approx([300.0, 45.0], abs=5.0)
        with within(30.0):
            assert timer[2:] == pytest.approx([30.0], abs=5.0)
        assert timer[3:] == pytest.approx([45.0], abs=5.0)
    assert timer[4:] == pytest.approx([200.0], abs=5.0)
    loop.lift()
    loop.lift()
    assert timer[5:] == [None]


def test_a_deadline_ends_with_what_fails_under_it(timer: list[float | None]) -> None:
    with pytest.raises(OSError, match="it failed"), within(45.0):
        raise OSError("it failed")
    assert timer[1:] == [None]


def test_the_timer_is_set_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the later one of two deadlines might be set last."""
    told: list[float] = []
    loop, other = Guard(), Guard()
    thread = threading.Thread(target=other.renew, args=(45.0,))

    def slow(seconds: float, **_: object) -> None:
        if not thread.ident:
            thread.start()
            thread.join(0.2)
        told.append(seconds)

    monkeypatch.setattr(faulthandler, "dump_traceback_later", slow)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: None)
    loop.renew(300.0)
    thread.join(10.0)
    loop.lift()
    other.lift()
    assert told[:2] == pytest.approx([300.0, 45.0], abs=5.0)


@pytest.mark.usefixtures("timer")
def test_a_deadline_that_was_lifted_is_forgotten() -> None:
    """There is one for each call that may hang."""
    guard = Guard()
    known = weakref.ref(guard)
    guard.renew(45.0)
    guard.lift()
    del guard
    assert known() is None
