"""Workers that die, leave, come, freeze, or are there twice."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.cluster import MAX_POLL_S, SESSION_S
from tests.chaos.faults.registry import OUT_OF_SESSION_S, REACHED_WITHIN_S, fault


@fault(weight=4)
def sigkill(arena: Arena) -> str:
    victim = arena.victim()
    arena.fleet.kill(victim)
    arena.fleet.start(victim)
    return victim


@fault(weight=2)
def kill_all(arena: Arena) -> str:
    names = arena.fleet.names
    for name in names:
        arena.fleet.kill(name)
    for name in names:
        arena.fleet.start(name)
    return ", ".join(names)


@fault(weight=4)
def sigterm(arena: Arena) -> str:
    victim = arena.victim()
    seconds = arena.fleet.terminate(victim)
    arena.fleet.start(victim)
    return f"{victim} stopped in {seconds:.1f} s"


@fault(weight=3)
def storm(arena: Arena) -> str:
    """Members come and go while the last change is being worked off."""
    extra = [f"x{n}" for n in range(3)]
    done = []
    for _ in range(6):
        name = arena.rng.choice(extra)
        if name not in arena.fleet.names:
            arena.fleet.start(name)
            done.append(f"+{name}")
        elif arena.rng.random() < 0.5:
            arena.fleet.terminate(name)
            done.append(f"-{name}")
        else:
            arena.fleet.kill(name)
            done.append(f"!{name}")
        time.sleep(arena.rng.uniform(0.0, 4.0))
    for name in extra:
        if name in arena.fleet.names:
            arena.fleet.terminate(name)
    return " ".join(done)


@fault(weight=2)
def zombie(arena: Arena) -> str:
    """Frozen past its session: others take its partitions over, then it goes on where it was."""
    victim = arena.victim()
    arena.fleet.freeze(victim)
    time.sleep(OUT_OF_SESSION_S)
    arena.fleet.thaw(victim)
    return victim


@fault(weight=2)
def hiccup(arena: Arena) -> str:
    """Frozen for less than its session."""
    victim, seconds = arena.victim(), arena.rng.uniform(0.1, SESSION_S / 2)
    arena.fleet.freeze(victim)
    time.sleep(seconds)
    arena.fleet.thaw(victim)
    return f"{victim} for {seconds:.1f} s"


@fault(weight=0.5)
def oversleep(arena: Arena) -> str:
    """Longer at work than max.poll.interval.ms allows: it is put out of the group while it holds a learned batch."""
    victim, order = arena.victim(), f"learned:{arena.rng.randint(1, 20)}:sleep={MAX_POLL_S + 5:g}"
    arena.fleet.kill(victim)
    arena.fleet.start(victim, order)
    time.sleep(MAX_POLL_S + 15)
    return f"{victim} {order}"


@fault(weight=0.5)
def twin(arena: Arena) -> str:
    """Two processes with one identity: with a group.instance.id one of them has to give way, under its name."""
    fleet, victim = arena.fleet, arena.victim()
    other = f"{victim}-twin"
    fleet.start(other, identity=victim)
    gave_way = next((name for name in (other, victim) if fleet.await_death(name, REACHED_WITHIN_S / 2, code=1)), None)
    if arena.cluster.setup.static:
        assert gave_way is not None, f"{victim} and its twin both live"
    if other in fleet.names:
        fleet.kill(other)
    if victim not in fleet.names:
        fleet.start(victim)
    return f"{gave_way or 'nobody'} gave way"
