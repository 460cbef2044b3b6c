"""A store that is away, full, slow, wrong or rotten."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from tests.chaos.arena import PROGRESS_WITHIN_S, Arena
from tests.chaos.cluster import Setup
from tests.chaos.faults.registry import fault
from tests.chaos.proxy import REPLY, Rule

NOTICED_WITHIN_S = 120.0
"""A write to a store that is away is tried again for a minute before it counts as failed."""
LOOK_EVERY_S = 1.0


def in_s3(setup: Setup) -> bool:
    return setup.store == "s3"


def in_files(setup: Setup) -> bool:
    return setup.store == "file"


@fault(weight=1, suits=in_s3)
def store_outage(arena: Arena) -> str:
    """No worker reaches the store, and one starts meanwhile."""
    seconds, victim = arena.rng.uniform(2, 20), arena.victim()
    with arena.cluster.storage.outage():
        arena.fleet.kill(victim)
        arena.fleet.start(victim)
        time.sleep(seconds)
    return f"{seconds:.1f} s, {victim} killed"


@fault(weight=1, suits=in_s3)
def store_slow(arena: Arena) -> str:
    with arena.cluster.storage.rule(Rule("delay", seconds=0.5)):
        time.sleep(10)
    return "0.5 s for each answer and request"


@fault(weight=1, suits=in_s3)
def store_errors(arena: Arena) -> str:
    """Requests that are carried out and answered by an error, or by half an answer."""
    answers = [arena.rng.choice([500, 503, 409, -1]) for _ in range(arena.rng.randint(3, 30))]
    arena.cluster.s3.scripted.extend(answers)
    time.sleep(5)
    left = len(arena.cluster.s3.scripted)
    arena.cluster.s3.scripted.clear()
    return f"{len(answers) - left} answers"


@fault(weight=1, suits=in_s3)
def store_damage(arena: Arena) -> str:
    """A file of the newest checkpoint rots while no worker runs: the one before must do, so there has to be one."""
    objects = arena.cluster.s3.objects

    def with_one_before() -> set[str]:
        folders = Counter(path.rpartition("/")[0] for path in list(objects) if path.endswith(".manifest"))
        return {folder for folder, n in folders.items() if n > 1}

    arena.wait(lambda: bool(with_one_before()), 60, lambda: "no partition has two checkpoints")
    names = arena.fleet.names
    for name in names:
        arena.fleet.kill(name)
    kind = arena.rng.choice([".manifest", ".segment"])
    with arena.cluster.s3.lock:
        folders = with_one_before()
        files = (path for path in objects if path.endswith(kind) and path.rpartition("/")[0] in folders)
        path = max(files, key=lambda path: path.rpartition("/")[2])
        place = arena.rng.randrange(len(objects[path]))
        data = bytearray(objects[path])
        data[place] ^= 1 << arena.rng.randrange(8)
        objects[path] = bytes(data)
    for name in names:
        arena.fleet.start(name)
    return f"byte {place} of {path}"


@fault(weight=1, suits=in_s3)
def store_answers_lost(arena: Arena) -> str:
    with arena.cluster.storage.rule(Rule("drop", REPLY)) as rule:
        time.sleep(3)
    arena.cluster.storage.cut()
    return f"{rule.caught} answers"


@fault(weight=0, suits=in_s3)
def store_dead(arena: Arena) -> str:
    """No worker reaches the store for `arena.outage_s`."""
    return _without_checkpoints(arena, arena.cluster.storage.outage())


@fault(weight=0, suits=in_files)
def disk_full(arena: Arena) -> str:
    """No worker can write to any file for `arena.outage_s`, its log included."""
    return _without_checkpoints(arena, _full_disk(arena))


@contextlib.contextmanager
def _full_disk(arena: Arena) -> Iterator[None]:
    for name in arena.fleet.names:
        arena.fleet.limit_files(name, 0)
    yield
    for name in arena.fleet.names:
        arena.fleet.limit_files(name, None)


def _without_checkpoints(arena: Arena, outage: contextlib.AbstractContextManager[None]) -> str:
    """While no checkpoint can be written predictions go on and the metrics tell; afterwards checkpoints come again."""
    # A partition that changes hands has to wait for the store; here none does.
    arena.await_settled()
    failed_before, began = _failures(arena), time.monotonic()
    with outage:
        began_wall_s = time.time()
        while time.monotonic() < began + arena.outage_s or _failures(arena) == failed_before:
            if time.monotonic() > began + arena.outage_s + NOTICED_WITHIN_S:
                raise TimeoutError("no checkpoint has failed, says amf_checkpoint_failures_total")
            arena.await_progress()
            time.sleep(LOOK_EVERY_S)
        failed = _failures(arena) - failed_before
        newest_s = max(_saved_s(arena).values())
        assert newest_s <= began_wall_s, f"a checkpoint {newest_s - began_wall_s:.1f} s after the store was gone"
        lasted_s = time.monotonic() - began
    healed_s = time.time()
    arena.wait(
        lambda: min(_saved_s(arena).values()) > healed_s,
        NOTICED_WITHIN_S + PROGRESS_WITHIN_S,
        lambda: f"no checkpoints again: {healed_s:.0f}, {_saved_s(arena)}",
    )
    return (
        f"{lasted_s:.0f} s, {failed:.0f} checkpoints failed, all partitions saved {time.time() - healed_s:.0f} s later"
    )


def _failures(arena: Arena) -> float:
    return sum(value for _, value in arena.fleet.metric("amf_checkpoint_failures_total"))


def _saved_s(arena: Arena) -> dict[str, float]:
    """When the newest checkpoint of each partition was written, in seconds since the epoch."""
    found = arena.fleet.metric("amf_checkpoint_last_timestamp_seconds")
    return {labels["partition"]: value for labels, value in found}
