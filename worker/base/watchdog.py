"""Ends the process, with the stacks of its threads, where something takes longer than it may; nothing is lost by that.

What hangs may be a call into a library in C, which keeps the interpreter. A timer that works all the same is that of
faulthandler, of which a process has one: all deadlines come together here, and the timer is set to the earliest.
"""

from __future__ import annotations

import faulthandler
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST_S = 1e-3
"""The timer takes no time that is over, and says in its first line what it was set to: no finer than this."""


class _Timer:
    """The one of the process, under the deadlines of all guards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[Guard, float] = {}
        self._set_to_s = math.inf

    def set(self, guard: Guard, seconds: float) -> None:
        """The deadline of a guard, from now on; an infinite one is none."""
        with self._lock:
            self._deadlines.pop(guard, None)
            if seconds < math.inf:
                self._deadlines[guard] = time.monotonic() + seconds
            earliest_s = min(self._deadlines.values(), default=math.inf)
            # To set it takes a thread of C each time, and of what passes on behind the earliest it need not know.
            if earliest_s != self._set_to_s:
                self._set_to_s = earliest_s
                self._start()

    def _start(self) -> None:
        if self._set_to_s == math.inf:
            faulthandler.cancel_dump_traceback_later()
            return
        left_s = round((self._set_to_s - time.monotonic()) / _LEAST_S) * _LEAST_S
        faulthandler.dump_traceback_later(max(_LEAST_S, left_s), exit=True, file=sys.__stderr__ or sys.stderr)


_timer = _Timer()


class Guard:
    """A deadline of the process, none at first. Any thread may call."""

    def renew(self, seconds: float) -> None:
        """The process ends in so many seconds, unless this is called again before, or `lift`."""
        _timer.set(self, seconds)

    def lift(self) -> None:
        """There is no deadline any more."""
        _timer.set(self, math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends the process where what is done meanwhile takes longer."""
    guard = Guard()
    guard.renew(seconds)
    try:
        yield
    finally:
        guard.lift()
