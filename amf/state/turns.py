"""Calls on a forest take turns, from whichever threads they come: kernels hold no lock of the interpreter.

While a forest learns its memory grows and moves, so another thread that touches it would read what is no longer
there. A lock for each forest costs a call less than a hundredth of what a single row does. Locks are no part of the
state: copies and bytes come without.

In one thread, what interrupts a call, as the handler of a signal does, finds memory that is just being moved. It is
refused: a forest that it would learn would overrun the memory that has been reserved for the call's own rows.

A process that is forked has none of its parent's other threads. What one of them was in the middle of will never be
finished there: whatever it was at work on is given up in the child, and everything else goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import chain, repeat
from operator import length_hint
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

Turn = Any
"""A `threading.RLock`: calls are made of others, and the thread that has the turn keeps it through them."""


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="TakesTurns")


class TakesTurns:
    """What calls take turns on."""

    _lock: Turn
    _at_work: int
    """The thread that is in the middle of a call, 0 where there is none."""

    @property
    def _turn(self) -> Turn:
        """Raises RuntimeError in the middle of a call of the same thread."""
        if self._at_work:
            self._require_idle()
        return self._lock

    def _require_idle(self) -> None:
        if self._at_work == get_ident():
            raise RuntimeError(
                f"this {type(self).__name__} is in the middle of a call, which has been interrupted by another one in "
                "the same thread, as from the handler of a signal: set a flag there, and ask once the call has ended"
            )

    def _lose(self, error: BaseException) -> None:
        """Go on without what a call that will never end was in the middle of."""
        raise NotImplementedError


def one_call(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Have a method wait for its turn, and refuse all that comes in its middle from the same thread."""

    @wraps(method)
    def call(self: T, /, *args: P.args, **options: P.kwargs) -> R:
        with self._turn:
            try:
                self._at_work = get_ident()
                return method(self, *args, **options)
            finally:
                self._at_work = 0

    return call


_acquire, _release = (getattr(type(threading.RLock()), name) for name in ("acquire", "release"))
_takers: WeakSet[TakesTurns] = WeakSet()
_gathering = threading.RLock()


def take_turns(taker: TakesTurns) -> None:
    """Give something that calls take turns on its `_turn`."""
    taker._lock, taker._at_work = threading.RLock(), 0
    _takers.add(taker)


@contextmanager
def together(takers: Sequence[TakesTurns]) -> Iterator[None]:
    """Be in one call on all of these. There may be thousands, and so the loops are those of `map`, which no interrupt
    ends half-way."""
    turns = [taker._turn for taker in takers]
    waiting = iter(turns)
    begin = map(setattr, takers, repeat("_at_work"), repeat(get_ident()))
    end = chain(map(setattr, takers, repeat("_at_work"), repeat(0)), map(_release, turns))
    with _gathering:  # one at a time: two that wait for each other's turns would wait for ever
        try:
            list(map(_acquire, waiting))
        except BaseException:  # an interrupt, during one of them
            list(map(_release, turns[: len(turns) - length_hint(waiting) - 1]))
            raise
    try:
        list(begin)
        yield
    finally:
        list(end)


def _begin_anew() -> None:
    """In a process that has just been forked."""
    global _gathering
    _gathering = threading.RLock()
    for taker in list(_takers):
        if taker._lock.acquire(blocking=False):
            taker._lock.release()
        else:
            taker._lock, taker._at_work = threading.RLock(), 0
            taker._lose(RuntimeError("a fork of the process, in which the thread that was at work on it is not"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
