"""Workers that die, freeze or fail at a point of `worker.base.failpoints`."""

from __future__ import annotations

import contextlib
import signal
import time
from functools import partial

from tests.chaos.arena import Arena
from tests.chaos.faults.registry import REACHED_WITHIN_S, fault, hit
from tests.chaos.fleet import Fleet
from tests.chaos.proxy import END_TXN, REPLY, Rule
from worker.base.failpoints import FAIL_POINTS

PASSAGES = {
    "producing": 1000,
    "consumed": 100,
    "learned": 50,
    "offsets-sent": 50,
    "committed": 50,
    "settled": 50,
    "segment-written": 5,
    "manifest-written": 5,
}
"""How often a worker passes a point within some seconds, where that is more than once."""


def at_point(point: str, action: str, arena: Arena) -> str:
    """A worker passes a point at random and is killed, frozen past its session, or hit by an exception there."""
    fleet, victim = arena.fleet, arena.victim()
    order = f"{point}:{arena.rng.randint(1, PASSAGES.get(point, 1))}:{action}"
    fleet.kill(victim)
    killed = _prepare(arena, point, victim)
    fleet.start(victim, order)
    with contextlib.ExitStack() as provoking:
        if point == "reopened":
            provoking.enter_context(arena.cluster.network.rule(Rule("drop", REPLY, END_TXN, victim, first=1)))
        elif point in ("revoked", "lost") and fleet.await_live(victim, REACHED_WITHIN_S):
            fleet.ask_to_stop(victim)
        reached = _reached(fleet, victim, action)
    for name in killed:
        fleet.start(name)
    if action == "stop" and reached:
        time.sleep(arena.out_of_session_s)
        fleet.thaw(victim)
    else:
        if not reached:
            fleet.kill(victim)
        fleet.start(victim)
    return hit(reached, f"{victim} {order}")


def _prepare(arena: Arena, point: str, victim: str) -> list[str]:
    """Leave behind what the victim must find on its way to a point; returns whom that cost their lives."""
    fleet = arena.fleet
    if point == "collecting":
        # The segment of a checkpoint that was never finished.
        fleet.start(victim, "segment-written:1")
        fleet.await_death(victim, REACHED_WITHIN_S)
    elif point == "replayed":
        # Checkpoints that are behind the group: no worker is left that would save partitions as it gives them up.
        killed = fleet.names
        for name in killed:
            fleet.kill(name)
        return killed
    return []


def _reached(fleet: Fleet, victim: str, action: str) -> bool:
    if action == "stop":
        return fleet.await_frozen(victim, REACHED_WITHIN_S)
    return fleet.await_death(victim, REACHED_WITHIN_S, code=1 if action == "raise" else -signal.SIGKILL)


for _action, _weight, _points in (
    ("kill", 0.7, list(FAIL_POINTS)),
    ("stop", 0.4, ["consumed", "learned", "producing", "offsets-sent", "committed", "segment-written", "assigned"]),
    ("raise", 0.4, ["assigned", "revoked", "lost"]),
):
    for _point in _points:
        fault(_weight, name=f"{_action}@{_point}")(partial(at_point, _point, _action))
