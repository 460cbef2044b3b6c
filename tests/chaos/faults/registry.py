"""What a fault is, the list of all, and the waits they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.arena import Arena
from tests.chaos.cluster import SESSION_S

REACHED_WITHIN_S = 40.0
OUT_OF_SESSION_S = SESSION_S + 4.0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    weight: float
    inject: Callable[[Arena], str]
    """Returns what was done, for people. Raises Missed; anything else where the system broke a promise of its own."""


class Missed(Exception):
    """The fault came about, but the moment that it is about did not."""


FAULTS: dict[str, Fault] = {}


def fault(weight: float = 1.0) -> Callable[[Callable[[Arena], str]], Callable[[Arena], str]]:
    """Enter a function into FAULTS under its name."""

    def enter(inject: Callable[[Arena], str]) -> Callable[[Arena], str]:
        name = inject.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, weight, inject)
        return inject

    return enter


def hit(happened: object, what: str) -> str:
    """What was done. Raises Missed where the moment did not come."""
    if not happened:
        raise Missed(what)
    return what
