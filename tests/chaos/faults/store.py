"""A store that is away, slow, wrong or rotten."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.faults.registry import fault
from tests.chaos.proxy import REPLY, Rule


@fault(weight=1)
def store_outage(arena: Arena) -> str:
    """Nobody reaches the store, and a worker starts meanwhile."""
    seconds, victim = arena.rng.uniform(2, 20), arena.victim()
    with arena.cluster.storage.outage():
        arena.fleet.kill(victim)
        arena.fleet.start(victim)
        time.sleep(seconds)
    return f"{seconds:.1f} s, {victim} killed"


@fault(weight=1)
def store_slow(arena: Arena) -> str:
    with arena.cluster.storage.rule(Rule("delay", seconds=0.5)):
        time.sleep(10)
    return "0.5 s for each answer and request"


@fault(weight=1)
def store_errors(arena: Arena) -> str:
    """Requests that are carried out and answered by an error, or by half an answer."""
    answers = [arena.rng.choice([500, 503, 409, -1]) for _ in range(arena.rng.randint(3, 30))]
    arena.cluster.s3.scripted.extend(answers)
    time.sleep(5)
    left = len(arena.cluster.s3.scripted)
    arena.cluster.s3.scripted.clear()
    return f"{len(answers) - left} answers"


@fault(weight=1)
def store_damage(arena: Arena) -> str:
    """A file of the newest checkpoint rots while nobody runs: the one before must do."""
    names = arena.fleet.names
    for name in names:
        arena.fleet.kill(name)
    kind = arena.rng.choice([".manifest", ".segment"])
    with arena.cluster.s3.lock:
        objects = arena.cluster.s3.objects
        path = max((path for path in objects if path.endswith(kind)), key=lambda path: path.rpartition("/")[2])
        place = arena.rng.randrange(len(objects[path]))
        data = bytearray(objects[path])
        data[place] ^= 1 << arena.rng.randrange(8)
        objects[path] = bytes(data)
    for name in names:
        arena.fleet.start(name)
    return f"byte {place} of {path}"


@fault(weight=1)
def store_answers_lost(arena: Arena) -> str:
    with arena.cluster.storage.rule(Rule("drop", REPLY)) as rule:
        time.sleep(3)
    arena.cluster.storage.cut()
    return f"{rule.caught} answers"
