"""Calls on a forest take turns, from whichever threads they come: kernels hold no lock of the interpreter.

While a forest learns its memory grows and moves, so another thread that touches it would read what is no longer
there. A lock for each forest costs a call less than a hundredth of what a single row does. Locks are no part of the
state: copies and bytes come without.

A process that is forked has none of its parent's other threads. What one of them was in the middle of will never be
finished there: whatever it was at work on is given up in the child, and everything else goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint
from typing import Any, Protocol
from weakref import WeakSet

Turn = Any
"""A `threading.RLock`: calls are made of others, and the thread that has the turn keeps it through them."""


class TakesTurns(Protocol):
    """What calls take turns on."""

    _turn: Turn

    def _lose(self, error: BaseException) -> None:
        """Go on without what a call that will never end was in the middle of."""


_acquire, _release = (getattr(type(threading.RLock()), name) for name in ("acquire", "release"))
_takers: WeakSet[TakesTurns] = WeakSet()
_gathering = threading.Lock()


def take_turns(taker: TakesTurns) -> None:
    """Give something that calls take turns on its `_turn`."""
    taker._turn = threading.RLock()
    _takers.add(taker)


@contextmanager
def together(turns: Sequence[Turn]) -> Iterator[None]:
    """Have all of these turns at once. There may be thousands, and so the loops are those of `map`."""
    waiting = iter(turns)
    with _gathering:  # one at a time: two that wait for each other's turns would wait for ever
        try:
            list(map(_acquire, waiting))
        except BaseException:  # an interrupt, during one of them
            list(map(_release, turns[: len(turns) - length_hint(waiting) - 1]))
            raise
    try:
        yield
    finally:
        list(map(_release, turns))


def _begin_anew() -> None:
    """In a process that has just been forked."""
    global _gathering
    _gathering = threading.Lock()
    for taker in list(_takers):
        if taker._turn.acquire(blocking=False):
            taker._turn.release()
        else:
            taker._turn = threading.RLock()
            taker._lose(RuntimeError("a fork of the process, in which the thread that was at work on it is not"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
