"""Kafka, or a node of it, goes away and comes back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from tests.chaos.arena import Arena
from tests.chaos.cluster import EVENTS, PREDICTIONS
from tests.chaos.faults.registry import fault

COORDINATORS = ["__consumer_offsets", "__transaction_state"]
"""Whoever leads the only partition of one of these coordinates all groups, or all transactions."""
READINGS = 3
READ_WITHIN_S = 45.0
"""How long a broker that has started may take to know what was committed."""


@fault(weight=1)
def broker_kill(arena: Arena) -> str:
    known = arena.committed(settled=False)
    arena.cluster.broker.kill()
    _bring_back(arena, known)
    return "SIGKILL"


@fault(weight=1, suits=lambda setup: setup.nodes == 1)
def broker_bounce(arena: Arena) -> str:
    seconds = arena.rng.choice([0.0, 5.0, 20.0])
    known = arena.committed(settled=False)
    arena.cluster.broker.stop()
    time.sleep(seconds)
    _bring_back(arena, known)
    return f"down for {seconds:g} s"


def _bring_back(arena: Arena, known: Mapping[int, int]) -> None:
    """Start the broker again; the workers reach it once it knows of these commits.

    Kafka 4.1 may answer, and take commits, before it has read its log of offsets to the end: a leader is elected a
    second time while brokers start, and the end of the first reading passes for that of the second. A commit or a
    transaction's end in this moment ends the reading, and the offsets stay in the past until the log is read anew, at
    the next start. A worker can but stop then (group-rewound). Offsets that are behind after every start are lost.
    """
    with arena.cluster.network.outage():
        for still_behind in range(READINGS):
            if still_behind:
                arena.cluster.broker.kill()
            arena.cluster.broker.restart()
            with suppress(TimeoutError):
                arena.wait(lambda: arena.has_committed(known), READ_WITHIN_S, lambda: "offsets are in the past")
                return
        raise TimeoutError(f"the broker has lost commits: {known}, then {arena.committed(settled=False)}")


@fault(weight=4, suits=lambda setup: setup.nodes > 1)
def leader_moves(arena: Arena) -> str:
    """The node that leads a partition of input or output, or coordinates group or transactions, goes for a while."""
    rng, broker = arena.rng, arena.cluster.broker
    topic = rng.choice([EVENTS, PREDICTIONS, *COORDINATORS])
    partition = 0 if topic in COORDINATORS else rng.randrange(arena.cluster.setup.partitions)
    hard, seconds = rng.random() < 0.5, rng.choice([0.0, 5.0, 20.0])
    node = broker.leader(topic, partition)
    if hard:
        node.kill()
    else:
        node.stop()
    time.sleep(seconds)
    node.start()
    broker.await_in_sync()
    return f"node {node.number}, of {topic}[{partition}], {'killed' if hard else 'stopped'}, down for {seconds:g} s"
