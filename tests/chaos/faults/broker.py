"""A broker that goes away and comes back."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.faults.registry import fault


@fault(weight=1)
def broker_kill(arena: Arena) -> str:
    arena.cluster.broker.kill()
    arena.cluster.broker.restart()
    return "SIGKILL"


@fault(weight=1)
def broker_bounce(arena: Arena) -> str:
    seconds = arena.rng.choice([0.0, 5.0, 20.0])
    arena.cluster.broker.stop()
    time.sleep(seconds)
    arena.cluster.broker.restart()
    return f"down for {seconds:g} s"
