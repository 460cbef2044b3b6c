"""Kafka, or a node of it, goes away and comes back."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.cluster import EVENTS, PREDICTIONS
from tests.chaos.faults.registry import fault

COORDINATORS = ["__consumer_offsets", "__transaction_state"]
"""Whoever leads the only partition of one of these coordinates all groups, or all transactions."""


@fault(weight=1)
def broker_kill(arena: Arena) -> str:
    arena.cluster.broker.kill()
    arena.cluster.broker.restart()
    return "SIGKILL"


@fault(weight=1, suits=lambda setup: setup.nodes == 1)
def broker_bounce(arena: Arena) -> str:
    seconds = arena.rng.choice([0.0, 5.0, 20.0])
    arena.cluster.broker.stop()
    time.sleep(seconds)
    arena.cluster.broker.restart()
    return f"down for {seconds:g} s"


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
