"""Waiting for what does not answer yet: within a deadline, or at a start for as long as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from worker.base.aside import Aside
from worker.base.errors import Denied, Transient, Unanswered
from worker.base.log import Log
from worker.base.ports import Clock, Deadline

_log = Log(__name__)

T = TypeVar("T")
ASKING = "asking"
"""Name of the threads that put the questions of a start. They are left behind where it is stopped."""
_RETRY_S = 0.5
_LOOK_EVERY_S = 0.1
_SILENT_S = 10.0
"""After so long without any answer the log says who has not given one: a deadline may be minutes away."""
_MOST_DOUBLINGS = 60
"""Beyond them every pause is the longest one."""


def retry(clock: Clock, deadline: Deadline, what: str, call: Callable[[], T]) -> T:
    """Call until it does not raise Transient; the last one passes through when the deadline does."""
    while True:
        try:
            return call()
        except Transient as error:
            if deadline.remaining() <= _RETRY_S:
                raise
            _log.warning("trying-again", f"{what}: not there yet, trying again", detail=error)
            clock.sleep(_RETRY_S)


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """Pause before the next attempt after so many failures in a row: none, then doubled from `first_s` on."""
    # Without a bound the 1,025th failure in a row would raise OverflowError.
    return min(math.ldexp(first_s, min(failures - 1, _MOST_DOUBLINGS)), longest_s) if failures else 0.0


START_S = 60.0
"""Longest time that a start waits for a better answer, or for a store that gives none."""


class Stopped(Exception):
    """A start was stopped while it waited for an answer. Nothing has begun, so that nothing is left to do."""


class Retry:
    """Asks what a start needs until it answers.

    Each attempt has a deadline of its own, the row of them has none while nobody answers (Unanswered): who comes up
    again finds the worker waiting, and to start it anew would help nobody. An answer that is no good (any other
    Transient) is waited for `limit_s` at most. `beat` is called before each attempt.
    """

    def __init__(
        self,
        clock: Clock,
        should_stop: Callable[[], bool],
        limit_s: float,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._should_stop = should_stop
        self._limit_s = limit_s
        self._beat = beat

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Call until there is an answer, and return it. Logs what it waits for.

        While nobody answers (Unanswered) this goes on for as long as it takes; another Transient is tried again for
        `limit_s`; Denied and every other error pass at once. Raises Stopped as soon as `should_stop` says so, and
        without a call where it says so before: a start has many questions, each of which may be answered at once.
        """
        deadline: Deadline | None = None
        waited = False
        while True:
            if self._should_stop():
                raise Stopped
            self._beat()
            try:
                answer = self._aside(what, call)
            except Denied:
                raise
            except Transient as error:
                deadline = None if isinstance(error, Unanswered) else deadline or self._deadline()
                if deadline is not None and deadline.remaining() <= _RETRY_S:
                    raise
                how_long = "for as long as it takes" if deadline is None else f"for {self._limit_s:g} s"
                _log.warning("waiting", f"{what}: not there yet, trying again {how_long}", detail=error)
            else:
                if waited:
                    _log.info("answered", f"{what}: there is an answer")
                return answer
            waited = True
            self._clock.sleep(_RETRY_S)

    def _aside(self, what: str, call: Callable[[], T]) -> T:
        """The outcome of a call in a thread of its own: a client that waits for its broker hears of no signal."""
        attempt, silence, is_named = Aside(ASKING, call), Deadline.after(self._clock, _SILENT_S), False
        while not attempt.ends_within(_LOOK_EVERY_S):
            if self._should_stop():
                raise Stopped
            if not is_named and silence.passed():
                _log.warning("no-answer-yet", f"{what}: no answer for {_SILENT_S:g} s, waiting on")
                is_named = True
        return attempt.answer()

    def _deadline(self) -> Deadline:
        return Deadline.after(self._clock, self._limit_s)
