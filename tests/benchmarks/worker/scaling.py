"""Events/s of one group over its processes, and of one process over its threads, on the cores of one machine.

    python -m tests.benchmarks scaling

24 partitions, 256 keys, otherwise the events of `worker`, exactly-once; broker and workers share the cores, so the
largest number of processes leaves a quarter of them to the broker. Every row takes the same events from their start
with checkpoints and a group of its own, and is read for some seconds once each process has taken events.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

from tests.benchmarks.report import at_least, show
from tests.benchmarks.worker.pass_through import pass_through
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, Testbed, Worker
from tests.benchmarks.worker.throughput import NEVER
from tests.benchmarks.worker.workload import events, publish
from tests.kafka.broker import Broker
from worker.base import cores

EVENTS = 4_000_000
PARTITIONS = 24
KEYS = 256
PRODUCERS = 4
BARE_EVENTS = 500_000
WARM_UP_S, WINDOW_S = 4.0, 8.0
STEPS = 1, 2, 4, 8, 12, 16, 24, 32
THREADS = 2, 4, 8


def fill(bootstrap: str, topic: str, n: int) -> None:
    """Publish n events, a share of them from each of some processes."""
    with ProcessPoolExecutor(PRODUCERS, get_context("spawn")) as pool:
        for done in [pool.submit(_publish, bootstrap, topic, n // PRODUCERS, seed) for seed in range(PRODUCERS)]:
            done.result()


def _publish(bootstrap: str, topic: str, n: int, seed: int) -> None:
    publish(bootstrap, topic, events(n, seed, KEYS))


def rate(bed: Testbed, n: int, processes: int, threads: int = 1) -> float:
    """Events/s of all processes together. Raises RuntimeError where the n events were too few to see it."""
    side = f"{processes}-{threads}"
    models = {"default": {"n_estimators": 10}, "threads": threads}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(bed.worker(f"worker-{number}", side, checkpoint=NEVER, models=models))
            for number in range(processes)
        ]
        for worker in workers:
            worker.await_metric(EVENTS_TAKEN, 1)
        time.sleep(WARM_UP_S)
        started, first = time.perf_counter(), _taken(workers)
        time.sleep(WINDOW_S)
        last, ended = _taken(workers), time.perf_counter()
        if last > 0.95 * n:
            raise RuntimeError(f"{processes} processes took all {n:,} events within the time that was to be measured")
        for worker in workers:
            worker.kill()
    return (last - first) / (ended - started)


def _taken(workers: list[Worker]) -> float:
    return sum(worker.metric(EVENTS_TAKEN) for worker in workers)


def main(scale: float = 1.0) -> None:
    n, usable = int(EVENTS * scale), cores.usable()
    print(f"\nScaling: {KEYS} keys, {PARTITIONS} partitions, {usable} cores, the broker on the same", flush=True)
    with Broker() as broker, Testbed(broker, PARTITIONS) as bed:
        fill(bed.bootstrap, bed.source, n)
        bare = pass_through(bed.bootstrap, bed.source, bed.sink("bare"), int(BARE_EVENTS * scale))
        print(f"bare pass-through {bare:10,.0f} events/s", flush=True)
        alone = rate(bed, n, 1)
        print(f"1 process         {alone:10,.0f} events/s", flush=True)
        for threads in (each for each in THREADS if each <= usable):
            print(f"1, {threads} threads      {rate(bed, n, 1, threads):10,.0f} events/s", flush=True)
        for processes in (each for each in STEPS if 1 < each <= max(2, usable * 3 // 4)):
            together = rate(bed, n, processes)
            print(f"{processes:2} processes      {together:10,.0f} events/s", flush=True)
    show(f"{processes} processes / one", together / alone, at_least(0.6 * processes), digits=1)
