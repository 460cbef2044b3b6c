"""The whole job against a real broker: exactly one prediction per record, equal to the last bit, whatever happens."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer

import amf
from tests.datasets import LARGE, load
from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration
from tests.kafka.workers import (
    WorkerProcess,
    expected,
    require_each_once,
    require_equal,
    source_of,
    wait_for_progress,
)
from tests.waiting import until
from tests.worker.support.malformed import MAX_BYTES, malformed
from tests.worker.support.plan import OTHER_ALGORITHMS

pytestmark = pytest.mark.kafka

PARTITIONS = 4
KEYS = 8
ROWS = int(os.environ.get("AMF_TEST_ROWS", "4000"))
"""Of the data; 30,000 take some minutes."""
SEED = 20261121  # of the moments of the kills; change it to try others


class Job:
    """Topics, a configuration and a data set of one test."""

    def __init__(
        self,
        broker: Broker,
        events: str,
        predictions: str,
        dead: str,
        folder: Path,
        max_bytes: int,
        algorithms: Sequence[str] = (),
    ) -> None:
        """algorithms: those of the models one by one; an amf-classifier where there are none."""
        self.broker, self.events, self.predictions, self.dead = broker, events, predictions, dead
        self.folder, self.algorithms = folder, algorithms or ("amf-classifier",)
        for topic, partitions in ((events, PARTITIONS), (predictions, PARTITIONS), (dead, 1)):
            broker.create_topic(topic, partitions, {"max.message.bytes": "12000000"})
        self.config = folder / "worker.yaml"
        changes = {
            "input": {"topic": events, "max_bytes": max_bytes},
            "output": {"topic": predictions},
            "dead_letter": {"topic": dead, "max_consecutive": 1_000_000},
            "transaction": None,
            "kafka": {"group.id": events, "group.instance.id": "${INSTANCE}"},
            "models": {
                "default": {"n_estimators": None},
                "overrides": [{"match": f"model-{i}", "algorithm": each} for i, each in enumerate(algorithms)],
            },
        }
        self.config.write_text(configuration(broker.bootstrap, folder, changes))

    def worker(self, name: str, *options: str) -> WorkerProcess:
        return WorkerProcess(self.config, self.folder / f"{name}.log", *options, INSTANCE=name)

    def command(self, *arguments: str) -> None:
        """One amf-worker command, to its end."""
        command = [sys.executable, "-m", "worker", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "INSTANCE": "x"})
        assert done.returncode == 0, done.stderr[-4000:]

    def wait_for_progress(self, beyond: int, workers: list[WorkerProcess], while_: Callable[[], bool]) -> int:
        return wait_for_progress(self.broker.bootstrap, self.predictions, PARTITIONS, beyond, workers, while_)

    def input_ends(self) -> dict[int, int]:
        messages = read_all(self.broker.bootstrap, self.events)
        return {n: sum(message.partition == n for message in messages) for n in range(PARTITIONS)}


@pytest.fixture
def job(broker, topics, tmp_path, request) -> Job:
    names = [topics.name(kind) for kind in ("events", "predictions", "dead")]
    return Job(broker, *names, tmp_path, MAX_BYTES, getattr(request, "param", ()))


@pytest.fixture
def data(job, tmp_path) -> Path:
    """ROWS rows of a large set, over and over where it has fewer, of as many features as the algorithms take."""
    x, y = load(LARGE[-1])
    x = x[:, : min(amf.SYSTEMS[each].Parameters.MOST_FEATURES for each in job.algorithms)]
    path = tmp_path / "data.npz"
    np.savez(path, X=np.resize(x, (ROWS, x.shape[1])), y=np.resize(y, ROWS))
    return path


def children(pid: int) -> dict[int, str]:
    """Command lines of the children of a process, by their ids."""
    pids = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return {pid: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids}


def shares(job: Job) -> dict[str, int]:
    """How many partitions each member of the group has, by its `group.instance.id`."""
    admin = job.broker.admin()  # which has to be there until it answers
    group = admin.describe_consumer_groups([job.events])[job.events].result(30)
    return {member.group_instance_id: len(member.assignment.topic_partitions) for member in group.members}


def evaluated(job: Job, data: Path) -> dict[str, dict[str, object]]:
    """What `evaluate` predicts for the rows, by row number."""
    out = job.folder / "expected.csv"
    job.command("evaluate", str(data), "--keys", str(KEYS), "--config", str(job.config), "--out", str(out))
    return expected(out)


def require_exact(job: Job, rows: dict[str, dict[str, object]]) -> None:
    messages = read_all(job.broker.bootstrap, job.predictions, until=len(rows), timeout=300)
    assert len(messages) == len(rows)
    require_each_once(messages, job.input_ends())
    require_equal(messages, rows)


@pytest.mark.parametrize("job", [(), OTHER_ALGORITHMS], indirect=True, ids=["amf-classifier", "others"])
def test_two_workers_publish_what_evaluate_says(job: Job, data: Path):
    rows = evaluated(job, data)
    assert len(rows) == ROWS
    assert len({row["model"] for row in rows.values()}) == KEYS == len(OTHER_ALGORITHMS)
    job.command("produce", str(data), "--config", str(job.config), "--keys", str(KEYS))
    with job.worker("a") as a, job.worker("b") as b:
        require_exact(job, rows)
        assert (a.terminate(), b.terminate()) == (0, 0)


def test_two_processes_of_one_command_publish_it_and_one_that_is_killed_comes_back(job: Job, data: Path):
    rows = evaluated(job, data)
    rate = str(ROWS / 10)
    produce = ("produce", str(data), "--config", str(job.config), "--keys", str(KEYS), "--rate", rate)
    producer = threading.Thread(target=job.command, args=produce)
    with job.worker("a", "--processes", "2") as worker:
        producer.start()
        job.wait_for_progress(100, [worker], while_=lambda: True)
        second = next(pid for pid, command in children(worker.process.pid).items() if '"a-2"' in command)
        until(lambda: shares(job) == {"a-1": PARTITIONS // 2, "a-2": PARTITIONS // 2})
        os.kill(second, signal.SIGKILL)
        producer.join(300)
        assert not producer.is_alive()
        require_exact(job, rows)
        assert worker.terminate() == 0
    assert "process 2 of 2 ended with SIGKILL, to be started again in 1 s" in worker.log()


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.full)])
def test_killed_at_random_moments_it_publishes_the_same(job: Job, data: Path, kills: int):
    rows = evaluated(job, data)
    produce = (
        "produce",
        str(data),
        "--config",
        str(job.config),
        "--keys",
        str(KEYS),
        "--rate",
        str(ROWS / (4.5 * kills)),
    )
    producer = threading.Thread(target=job.command, args=produce)
    moments = random.Random(SEED)
    with job.worker("a") as a, job.worker("b") as b:
        producer.start()
        came = killed = 0
        # On a slow machine all is done before the last kill: only a worker that works can be interrupted at work.
        while killed < kills and producer.is_alive():
            came = job.wait_for_progress(came, [a, b], while_=producer.is_alive)
            came = job.wait_for_progress(came + moments.randrange(100), [a, b], while_=producer.is_alive)
            victim = moments.choice([a, b])
            victim.kill()
            victim.start()
            killed += 1
        assert killed >= kills / 3
        producer.join(300)
        assert not producer.is_alive()
        require_exact(job, rows)


def test_malformed_records_end_as_dead_letters_and_leave_no_trace(job: Job, tmp_path: Path):
    rng = np.random.default_rng(5)
    x = rng.random((1000, 4)).astype(np.float32)
    data = tmp_path / "good.npz"
    np.savez(data, X=x, y=(x[:, 0] > x[:, 1]).astype(np.int32))
    rows = evaluated(job, data)
    bad = list(malformed(SEED, 2000))
    codes = dict[str, str]()
    producer = Producer(
        {
            "bootstrap.servers": job.broker.bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": 12_000_000,
        }
    )
    for i in range(max(len(bad), 2 * len(rows))):
        key = f"model-{i // 2 % KEYS}"
        if i < len(bad):
            value, codes[str(i)] = bad[i]
            producer.produce(job.events, value, key, headers=[("n", str(i).encode())])
        if i % 2 == 0 and i // 2 < len(rows):
            row = i // 2
            features = {f"f{j}": float(v) for j, v in enumerate(x[row])}
            event = {"id": str(row), "features": features, "label": int(x[row, 0] > x[row, 1])}
            producer.produce(job.events, json.dumps(event), key)
        if i % 100 == 0:
            producer.flush()
    assert producer.flush(60) == 0
    with job.worker("a") as worker:
        messages = read_all(job.broker.bootstrap, job.predictions, until=len(rows), timeout=120)
        dead = read_all(job.broker.bootstrap, job.dead, until=len(bad), timeout=120)
        assert worker.terminate() == 0
    assert len(messages) == len(rows)
    require_equal(messages, rows)
    got = {(dict(m.headers)["n"] or b"").decode(): (dict(m.headers)["error-code"] or b"").decode() for m in dead}
    assert len(dead) == len(bad)
    assert got == codes
    assert len({source_of(message) for message in messages + dead}) == len(rows) + len(bad)
    for message in dead:
        headers = dict(message.headers)
        value = bad[int(headers["n"] or b"")][0]
        if "error-truncated" not in headers:
            assert message.value == value
