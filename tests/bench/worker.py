"""One worker end to end beside the bare pass-through loop, on one broker, in one run.

    python -m tests.bench worker

10-feature JSON events over 64 keys, plain AMF with 10 trees, exactly-once. The worker is a process of its own; its rate
is read off its own counter between 20 % and 90 % of the events.
"""

from __future__ import annotations

import re
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

from tests.bench.passthrough import EVENTS, PARTITIONS, pass_through
from tests.bench.workload import load
from tests.kafka.broker import Broker
from tests.kafka.workers import WorkerProcess

CONFIG = """
input: {{topic: {source}}}
output: {{topic: {sink}}}
dead_letter: {{topic: {dead}}}
kafka: {{bootstrap.servers: "{bootstrap}", group.id: {source}}}
models: {{default: {{n_estimators: 10}}}}
checkpoint: {{url: "file://{folder}/checkpoints", interval: 10s}}
metrics: {{listen: "127.0.0.1:0"}}
"""
GIVE_UP_S = 300.0


def events_total(port: int) -> float:
    """Records that the worker has taken and committed so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = re.search(rb"^amf_events_total (\S+)$", answer.read(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def metrics_port(worker: WorkerProcess, deadline: float) -> int:
    """The port that the worker chose, from its log."""
    while time.monotonic() < deadline:
        worker.require_alive()
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/metrics", worker.log()):
            return int(found[1])
        time.sleep(0.05)
    raise TimeoutError("the worker does not say where its metrics are")


def worker_rate(broker: Broker, source: str, sink: str, dead: str, n: int) -> float:
    """Events/s of one worker over the steady part of `n` events."""
    deadline = time.monotonic() + GIVE_UP_S
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "worker.yaml"
        config.write_text(CONFIG.format(source=source, sink=sink, dead=dead, bootstrap=broker.bootstrap, folder=folder))
        with WorkerProcess(config, folder / "worker.log") as worker:
            port = metrics_port(worker, deadline)
            first: tuple[float, float] | None = None
            while time.monotonic() < deadline:
                worker.require_alive()
                now, done = time.perf_counter(), events_total(port)
                if first is None and done >= 0.2 * n:
                    first = now, done
                if first is not None and done >= 0.9 * n:
                    worker.terminate()
                    return (done - first[1]) / (now - first[0])
                time.sleep(0.05)
    raise TimeoutError(f"the worker did not take {n} events in {GIVE_UP_S:g} s")


def measure(n: int = EVENTS) -> tuple[float, float]:
    """(events/s of the worker, events/s of the pass-through)."""
    with Broker() as broker:
        mark = uuid.uuid4().hex[:8]
        source, sink, dead, bare = (f"{kind}-{mark}" for kind in ("events", "predictions", "dead", "bare"))
        for topic in (source, sink, dead, bare):
            broker.create_topic(topic, PARTITIONS)
        load(broker.bootstrap, source, n)
        yardstick = pass_through(broker.bootstrap, source, bare, n)
        return worker_rate(broker, source, sink, dead, n), yardstick


def main() -> None:
    worker, bare = measure()
    print(f"\nWorker: {EVENTS:,} events over 64 keys, 10 features, 10 trees, exactly-once, one broker beside it")
    print(f"worker {worker:,.0f} events/s, bare pass-through {bare:,.0f} events/s, ratio {worker / bare:.2f}")
