"""What a fault is, the list of all, and the waits they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.arena import Arena
from tests.chaos.cluster import Setup

Inject = Callable[[Arena], str]

REACHED_WITHIN_S = 40.0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    weight: float
    """How often it is drawn, beside the others; one of weight 0 is injected where it is asked for."""
    inject: Inject
    """Returns what was done, for people. Raises Missed; anything else where the system broke a promise of its own."""
    suits: Callable[[Setup], bool]
    """Whether there is in a run what it harms."""


class Missed(Exception):
    """The fault came about, but the moment that it is about did not."""


FAULTS: dict[str, Fault] = {}


def fault(
    weight: float = 1.0, *, name: str | None = None, suits: Callable[[Setup], bool] = lambda _: True
) -> Callable[[Inject], Inject]:
    """Enter a function into FAULTS, under its own name where no other is given."""

    def enter(inject: Inject) -> Inject:
        entered = name or inject.__name__.replace("_", "-")
        FAULTS[entered] = Fault(entered, weight, inject, suits)
        return inject

    return enter


def hit(happened: object, what: str) -> str:
    """What was done. Raises Missed where the moment did not come."""
    if not happened:
        raise Missed(what)
    return what
