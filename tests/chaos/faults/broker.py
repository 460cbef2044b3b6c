"""Kafka, or a node of it, goes away and comes back."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.chaos.arena import PROGRESS_WITHIN_S, Arena
from tests.chaos.cluster import EVENTS, PREDICTIONS
from tests.chaos.faults.registry import fault

COORDINATORS = ["__consumer_offsets", "__transaction_state"]
"""Whoever leads the only partition of one of these coordinates all groups, or all transactions."""


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

    Kafka 4.1 may answer, and take commits, before it has read its log of offsets to the end: a broker that is alone is
    elected a second time while it starts, and the end of the first reading passes for that of the second. A commit in
    this moment ends the reading, and the offsets stay in the past. A worker can but stop then (group-rewound).
    """
    with arena.cluster.network.outage():
        arena.cluster.broker.restart()
        arena.wait(
            lambda: arena.has_committed(known),
            PROGRESS_WITHIN_S,
            lambda: f"the broker has lost commits: {known}, then {arena.committed(settled=False)}",
        )


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
