"""What a reader of the predictions notices when a worker dies, is stopped, or is exchanged.

    python -m tests.benchmarks recovery

Under full load, that is with more input waiting than it can take: kill -9 at the worst moment, just before the first
checkpoint, when nearly the whole recovery budget must be replayed; with a `group.instance.id`, with which the restarted
worker has its partitions at once, and without one, when the group waits for the session of the dead one to end. Then
SIGTERM, and what the next owner must replay. At last a rolling restart, see rolling_restart.py.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from confluent_kafka import Message

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker import rolling_restart
from tests.benchmarks.worker.output_reader import Tail, source_of
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, REPLAYED, Testbed, Worker, wait_for
from tests.benchmarks.worker.workload import load
from tests.kafka.broker import Broker

EVENTS = 2_500_000
BUDGET_S = 10.0
SESSION_S = 10.0
STOP_S = 25.0
COST = "amf_checkpoint_replay_cost_seconds"
RATE_OVER_S = 2.0


class Recovery(NamedTuple):
    """Seconds of each part of a recovery, one after the other, from the kill to the first new prediction."""

    start: float
    """The process, its imports, and the first look at the topics."""
    kernels: float
    join: float
    """The group, the committed offsets, the checkpoints, and the first batch of the replay."""
    replay: float
    """Until the first new prediction is read."""
    all_live: float
    """From the kill until the last partition is live; the other parts are up to the first prediction."""

    @property
    def total(self) -> float:
        return self.start + self.kernels + self.join + self.replay


class Stop(NamedTuple):
    """A SIGTERM under load."""

    seconds: float
    exit_code: int
    replayed: float
    """Records that the next owner learned again."""
    rate: float
    """Records/s before."""


class Sightings:
    """The last output of each chunk that came, by source partition."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int, int]] = []
        """(moment, source partition, source offset)"""

    def take(self, now: float, records: list[Message]) -> None:
        last = {record.partition(): record for record in records}
        self.seen += [(now, *source_of(record)) for record in last.values()]

    def first_after(self, offsets: dict[int, int]) -> float | None:
        """Moment of the first output of a record at or after these offsets by partition."""
        return min((now for now, partition, offset in self.seen if offset >= offsets[partition]), default=None)


def membership(name: str | None) -> dict[str, str | int]:
    """Properties of a member of the group: static under a name, dynamic without one."""
    session = {"session.timeout.ms": int(SESSION_S * 1000)}
    return session if name is None else {**session, "group.instance.id": name}


def crash(bed: Testbed, worker: Worker, n: int, budget_s: float) -> Recovery:
    """Kill a worker when nearly the whole budget is to be replayed, and start it again."""
    worker.await_metric(COST, 0.9 * budget_s)
    require_load(worker, n)
    killed_s, sightings = time.time(), Sightings()
    worker.kill()
    worker.start()
    with Tail(bed.bootstrap, bed.sink(worker.side), sightings.take, from_end=True):
        replaying_s, _ = worker.await_metric(REPLAYED, 1)
        worker.await_live(bed.partitions)
        starts = live_offsets(worker.said())
        wait_for("a new prediction", lambda: sightings.first_after(starts) is not None)
    first_s = sightings.first_after(starts)
    assert first_s is not None
    [up_s], [ready_s] = worker.moments(" metrics at "), worker.moments("kernels ready")
    live_s = max(worker.moments(" is live at "))
    return Recovery(up_s - killed_s, ready_s - up_s, replaying_s - ready_s, first_s - replaying_s, live_s - killed_s)


def stop(bed: Testbed, worker: Worker, n: int, budget_s: float) -> Stop:
    """Stop a worker in order when half of the budget would have to be replayed, and start it again."""
    worker.await_metric(COST, budget_s / 2)
    before_s, before = time.time(), worker.metric(EVENTS_TAKEN)
    time.sleep(RATE_OVER_S)
    rate = (worker.metric(EVENTS_TAKEN) - before) / (time.time() - before_s)
    require_load(worker, n)
    stopped_s = time.time()
    code = worker.terminate()
    seconds = time.time() - stopped_s
    worker.start()
    worker.await_live(bed.partitions)
    return Stop(seconds, code, worker.metric(REPLAYED), rate)


def require_load(worker: Worker, n: int) -> None:
    """Raises RuntimeError where the worker has nothing left to do of n events."""
    if sum(live_offsets(worker.said()).values()) + worker.metric(EVENTS_TAKEN) >= n:
        raise RuntimeError(f"the worker has taken all {n} events: more of them are needed for full load")


def live_offsets(log: str) -> dict[int, int]:
    """Partition -> offset from which on it predicts, as the worker says."""
    return {int(number): int(offset) for number, offset in re.findall(r"partition (\d+) is live at offset (\d+)", log)}


def show_recovery(what: str, found: Recovery, bound_s: float) -> None:
    show(f"s from kill -9 to the first prediction, {what}", found.total, at_most(bound_s))
    print(
        f"  start {found.start:.1f}, kernels {found.kernels:.1f}, join {found.join:.1f}, replay {found.replay:.1f};"
        f" all partitions live after {found.all_live:.1f} s"
    )


def main(scale: float = 1.0) -> None:
    n, budget_s = int(EVENTS * scale), BUDGET_S * scale
    checkpoint = {"recovery_budget": f"{int(budget_s * 1000)}ms"}
    print(f"\nRecovery: full load, {n:,} events over 64 keys, recovery budget {budget_s:g} s, session {SESSION_S:g} s")
    with Broker() as broker:
        with Testbed(broker) as bed:
            load(bed.bootstrap, bed.source, n)
            with bed.worker(side="static", kafka=membership("worker-0"), checkpoint=checkpoint) as worker:
                show_recovery("same instance id", crash(bed, worker, n, budget_s), budget_s + 3)
                stopped = stop(bed, worker, n, budget_s)
            show("s from SIGTERM to the exit", stopped.seconds, at_most(STOP_S))
            show("  exit codes other than 0", stopped.exit_code != 0, at_most(0), digits=0)
            show("  s of records that the next owner replays", stopped.replayed / stopped.rate, at_most(1), digits=2)
            with bed.worker(side="dynamic", kafka=membership(None), checkpoint=checkpoint) as worker:
                show_recovery("no instance id", crash(bed, worker, n, budget_s), budget_s + SESSION_S + 3)
        rolling_restart.main(broker, scale)
