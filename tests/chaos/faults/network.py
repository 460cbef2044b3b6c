"""Connections that break, stall or lose frames."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.faults.registry import REACHED_WITHIN_S, fault, hit
from tests.chaos.proxy import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    PRODUCE,
    REPLY,
    REQUEST,
    TXN_OFFSET_COMMIT,
    Rule,
)

CALL_S = 12.0
"""A little longer than the worker waits for an answer."""


@fault(weight=2)
def cut(arena: Arena) -> str:
    victim = arena.rng.choice([None, arena.victim()])
    return f"{arena.cluster.network.cut(victim)} connections of {victim or 'all'}"


@fault(weight=1)
def half_open(arena: Arena) -> str:
    """Silence in both directions for longer than a session; then all that was held arrives, late."""
    victim = arena.victim()
    with arena.cluster.network.rule(Rule("hold", client=victim)) as rule:
        time.sleep(arena.out_of_session_s)
    return f"{victim}, {rule.caught} frames held"


@fault(weight=1)
def one_way(arena: Arena) -> str:
    """The broker hears the worker, the worker does not hear the broker; what it said is lost."""
    victim = arena.victim()
    with arena.cluster.network.rule(Rule("drop", REPLY, client=victim)) as rule:
        time.sleep(arena.rng.choice([2.0, arena.out_of_session_s]))
    arena.cluster.network.cut(victim)
    return f"{victim}, {rule.caught} replies lost"


@fault(weight=1)
def partition(arena: Arena) -> str:
    """No worker reaches the broker at all."""
    seconds = arena.rng.choice([1.0, arena.out_of_session_s])
    with arena.cluster.network.outage():
        time.sleep(seconds)
    return f"{seconds:g} s"


@fault(weight=1)
def slow_link(arena: Arena) -> str:
    victim, seconds = arena.victim(), arena.rng.uniform(0.02, 0.5)
    with arena.cluster.network.rule(Rule("delay", client=victim, seconds=seconds)):
        time.sleep(10)
    return f"{victim}, {seconds:.2f} s for each frame"


@fault(weight=2)
def commit_answer_lost(arena: Arena) -> str:
    """The broker has committed, and the worker must find out."""
    return _lost(arena, REPLY, END_TXN)


@fault(weight=2)
def commit_lost(arena: Arena) -> str:
    return _lost(arena, REQUEST, END_TXN)


@fault(weight=2)
def lost_frame(arena: Arena) -> str:
    """A request or an answer of any kind that the protocol rests on."""
    kinds = [PRODUCE, FETCH, HEARTBEAT, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT]
    return _lost(arena, arena.rng.choice([REQUEST, REPLY]), arena.rng.choice(kinds))


def _lost(arena: Arena, direction: str, api: int) -> str:
    victim = arena.victim()
    with arena.cluster.network.rule(Rule("drop", direction, api, victim, first=1)) as rule:
        time.sleep(CALL_S)
    return hit(rule.caught, f"{direction} of API {api} of {victim}")


@fault(weight=2)
def late_commit(arena: Arena) -> str:
    """An EndTxn that arrives when its sender has given it up and is in the middle of later transactions."""
    victim = arena.victim()
    with arena.cluster.network.rule(Rule("hold", REQUEST, END_TXN, victim, first=1)) as rule:
        time.sleep(arena.rng.uniform(CALL_S, 2 * CALL_S))
    return hit(rule.caught, victim)


@fault(weight=2)
def kill_during_commit(arena: Arena) -> str:
    """The request was sent, the answer is on its way: SIGKILL."""
    victim, direction = arena.victim(), arena.rng.choice([REQUEST, REPLY])
    with arena.cluster.network.rule(Rule("hold", direction, END_TXN, victim, first=1)) as rule:
        caught = rule.wait(timeout_s=REACHED_WITHIN_S)
        arena.fleet.kill(victim)
        arena.fleet.start(victim)
    return hit(caught, f"{victim}, {direction} held")
