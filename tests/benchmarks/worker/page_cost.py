"""What those who look cost a worker at full speed: 20 requests a second, and as many as a few clients can make.

    python -m tests.benchmarks page

A worker takes in a backlog. Short windows follow each other: nobody asks, 20 requests a second for what the page shows,
nobody asks, a flood from eight clients that never pause. What is told is the median, over the windows with requests, of
the events taken beside those of the two quiet windows around them; and of the worker's CPU time per event likewise.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.report import at_most, show
from tests.benchmarks.worker.testbed import EVENTS_TAKEN, Testbed, Worker
from tests.benchmarks.worker.throughput import NEVER
from tests.benchmarks.worker.workload import load
from tests.kafka.broker import Broker
from tests.kafka.workers import published

EVENTS = 3_000_000
WARM_UP = 0.05
WINDOW_S = 3.0
MOST_ROUNDS = 20
"""A minute of windows with 20 requests a second."""
ASKED_PER_S = 20
CLIENTS = 8
"""Connections at a time: an answer may take longer than a 20th of a second where both cores are busy."""
KINDS = ("quiet", "asked", "quiet", "flooded")
CLIENT = """
import http.client, sys, threading, time
host, rate, n_threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
paths = ["/status"] * 14 + ["/", "/history", "/models", "/models/model-1", "/models/model-2", "/page.js"]
def ask(first):
    began, i = time.monotonic(), first
    while True:
        if rate:
            time.sleep(max(0.0, began + (i - first) / rate - time.monotonic()))
        connection = http.client.HTTPConnection(host, timeout=10)
        try:
            connection.request("GET", paths[i % len(paths)])
            answer = connection.getresponse()
            answer.read()
            told = answer.status
        except OSError:
            told = "reset"
        connection.close()
        i += 1
        sys.stdout.write(f"{told}\\n")
        sys.stdout.flush()
for n in range(n_threads):
    threading.Thread(target=ask, args=(7 * n,)).start()
"""
"""A process of its own, so that its work is not the worker's. It ends when it is killed."""


class Window(NamedTuple):
    """What a worker did in some seconds."""

    kind: str
    events_per_s: float
    cpu_us: float
    """Of an event."""
    answers: Counter[str]


class Progress(NamedTuple):
    """How many events have been answered by a moment. The broker is asked, for a flood may keep the worker from it."""

    at_s: float
    events: int

    @classmethod
    def of(cls, bed: Testbed) -> Progress:
        n = published(bed.bootstrap, bed.sink(), bed.partitions)
        return cls(time.monotonic(), n)


def main(scale: float = 1.0) -> None:
    n = int(EVENTS * scale)
    with Broker() as broker, Testbed(broker) as bed:
        load(bed.bootstrap, bed.source, n)
        with bed.worker(checkpoint=NEVER) as worker:
            worker.await_metric(EVENTS_TAKEN, WARM_UP * n)
            windows = list(_windows(worker, lambda: Progress.of(bed), n))
            worker.terminate()
    for kind in ("asked", "flooded"):
        _tell(kind, windows)


def _tell(kind: str, windows: list[Window]) -> None:
    triples = zip(windows[:-2], windows[1:-1], windows[2:], strict=True)
    taken = [(before, now, after) for before, now, after in triples if now.kind == kind]
    if not taken:
        print(f"{kind}: too few events for a window; give a larger --scale")
        return
    answers = sum((now.answers for _, now, _ in taken), Counter[str]())
    told = ", ".join(f"{count / (WINDOW_S * len(taken)):.0f}/s {status}" for status, count in answers.most_common())
    print(f"{kind} ({len(taken)} windows of {WINDOW_S:g} s): {told}")
    lost = statistics.median(1 - 2 * now.events_per_s / (a.events_per_s + b.events_per_s) for a, now, b in taken)
    cpu = statistics.median(2 * now.cpu_us / (a.cpu_us + b.cpu_us) - 1 for a, now, b in taken)
    if kind == "asked":
        show("  throughput lost, %", 100 * lost, at_most(3))
        show("  CPU time per event more, %", 100 * cpu, at_most(3))
    else:
        print(f"  throughput lost {lost:.1%}, CPU time per event more {cpu:.1%}")


def _windows(worker: Worker, progress: Callable[[], Progress], n: int) -> Iterator[Window]:
    """Windows until the backlog is nearly gone."""
    for i in range(len(KINDS) * MOST_ROUNDS + 1):
        with _clients(worker, KINDS[i % len(KINDS)]) as answers:
            before, cpu_s = progress(), _cpu_s(worker.process.pid)
            time.sleep(WINDOW_S)
            then, cpu_then_s = progress(), _cpu_s(worker.process.pid)
        taken = max(then.events - before.events, 1)
        if then.events + 2 * taken > n:
            return
        rate = taken / (then.at_s - before.at_s)
        yield Window(KINDS[i % len(KINDS)], rate, (cpu_then_s - cpu_s) / taken * 1e6, answers)


def _cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _clients(worker: Worker, kind: str) -> Iterator[Counter[str]]:
    """Those who ask while the block runs; what they were answered, once it has ended."""
    answers: Counter[str] = Counter()
    if kind == "quiet":
        yield answers
        return
    how = (str(ASKED_PER_S / CLIENTS) if kind == "asked" else "0", str(CLIENTS))
    command = [sys.executable, "-c", CLIENT, worker.address, *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # the first answer: from now on they are at it
            yield answers
        finally:
            process.kill()
            answers.update(process.communicate()[0].split("\n")[:-1])
