"""Workers that die, leave, come, freeze, or are there twice."""

from __future__ import annotations

import time

from tests.chaos.arena import Arena
from tests.chaos.cluster import MAX_POLL_S
from tests.chaos.faults.registry import REACHED_WITHIN_S, fault

NEXT_ENGINE = "amf-next"


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
    """Members come and go while the last change is being worked off, even if the group is empty for a moment."""
    fleet, done = arena.fleet, []
    for _ in range(3 * len(arena.workers)):
        name = arena.victim()
        if name not in fleet.names:
            fleet.start(name)
            done.append(f"+{name}")
        elif arena.rng.random() < 0.5:
            fleet.terminate(name)
            done.append(f"-{name}")
        else:
            fleet.kill(name)
            done.append(f"!{name}")
        time.sleep(arena.rng.uniform(0.0, 4.0))
    for name in set(arena.workers) - set(fleet.names):
        fleet.start(name)
    return " ".join(done)


@fault(weight=2)
def zombie(arena: Arena) -> str:
    """Frozen past its session: others take its partitions over, then it goes on where it was."""
    victim = arena.victim()
    arena.fleet.freeze(victim)
    time.sleep(arena.out_of_session_s)
    arena.fleet.thaw(victim)
    return victim


@fault(weight=2)
def hiccup(arena: Arena) -> str:
    """Frozen for less than its session."""
    victim, seconds = arena.victim(), arena.rng.uniform(0.1, arena.cluster.setup.session_s / 2)
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
    fleet.await_that(lambda: any(fleet.has_ended(name) for name in (victim, other)), 3 * REACHED_WITHIN_S)
    gave_way = [name for name in (victim, other) if fleet.await_death(name, 0.0, code=1)]
    if arena.cluster.setup.is_static(victim):
        assert gave_way, f"{victim} and its twin both live"
    if other in fleet.names:
        fleet.kill(other)
    if victim not in fleet.names:
        fleet.start(victim)
    return f"{' and '.join(gave_way) or 'nobody'} gave way"


@fault(weight=1)
def upgrade(arena: Arena) -> str:
    """One worker after the other is replaced by the next version of the learner, and then by the present one again."""
    roll(arena, ["--engine", NEXT_ENGINE])
    roll(arena, None)
    return f"{', '.join(arena.workers)} to {NEXT_ENGINE} and back"


def roll(arena: Arena, altered: list[str] | None) -> None:
    """Replace one worker after the other by such a one, which must predict before the next one goes.

    Nobody has anything to replay when he goes, for the next version would refuse to.
    """
    arena.cluster.engines.add(NEXT_ENGINE)
    for name in arena.workers:
        arena.await_settled()
        arena.fleet.terminate(name)
        arena.fleet.start(name, altered=altered)
        assert arena.fleet.await_live(name, REACHED_WITHIN_S), f"{name} did not come back"


@fault(weight=1)
def clock_jumps(arena: Arena) -> str:
    """The wall clock of a worker is a day ahead, a day behind or right, anew each time that it looks."""
    victim, seconds = arena.victim(), arena.rng.uniform(5, 15)
    arena.fleet.terminate(victim)
    arena.fleet.start(victim, altered=["--clock-jumps"])
    time.sleep(seconds)
    arena.fleet.terminate(victim)
    arena.fleet.start(victim)
    return f"{victim} for {seconds:.1f} s"


@fault(weight=1)
def offsets_expired(arena: Arena) -> str:
    """The group was empty for so long that its offsets are gone: the newest checkpoints say where it was."""
    arena.await_progress()
    names = arena.stop_workers()
    arena.cluster.forget_group()
    for name in names:
        arena.fleet.start(name)
    return f"those of {', '.join(names)}"
