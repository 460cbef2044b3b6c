"""Every fault by name: a function that does its harm to an arena, heals it, and says what it did.

A fault draws from `arena.rng` alone, so the seed decides what is done; when it happens is up to the machine.
"""

from tests.chaos.faults import broker, network, points, store, workers
from tests.chaos.faults.registry import FAULTS, Missed

__all__ = ["FAULTS", "Missed", "broker", "network", "points", "store", "workers"]
