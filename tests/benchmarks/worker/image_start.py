"""From the start of a worker's process to its first poll, as the user of the image and with the image's kernels.

    python -m tests.benchmarks image

The steps of deploy/Dockerfile are done in a folder, which takes some minutes; then a worker is started from there, with
a broker on the same machine, as often as RUNS says.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.report import at_most, show
from tests.deployment.image import CONFIG, Image
from tests.kafka.broker import Broker
from tests.kafka.servers import free_ports

RUNS = 7
GIVE_UP_S = 120.0
TURNED = re.compile(r"^amf_loop_last_timestamp_seconds \d", re.MULTILINE)


class Start(NamedTuple):
    """How long a start took."""

    wall_s: float
    """Until the first turn of the loop was over, which polls."""
    cpu_s: float


def first_poll(command: list[str], folder: Path, port: int) -> Start:
    """Start a worker, wait for the first turn of its loop, and stop it."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            while not _has_turned(port):
                if process.poll() is not None or time.perf_counter() - began > GIVE_UP_S:
                    raise RuntimeError("the worker did not start")
                time.sleep(0.01)
            return Start(time.perf_counter() - began, _cpu_s(process.pid))
        finally:
            process.terminate()


def _has_turned(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return TURNED.search(answer.read().decode()) is not None
    except OSError:
        return False


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="amf-image-") as name, Broker() as broker:
        folder = Path(name)
        folder.chmod(0o755)
        image = Image(folder)
        for topic in ("events", "predictions", "dead-letters"):
            broker.create_topic(topic, partitions=4)
        config = folder / "worker.yaml"
        config.write_text(CONFIG.format(bootstrap=broker.bootstrap, port=port))
        command = image.command("amf-worker", "run", str(config))
        starts = [first_poll(command, folder, port) for _ in range(RUNS)]
    print(f"\nStart of the image: an unprivileged user, nothing that it may write, {RUNS} starts")
    show("s from the start of the process to its first poll", median(start.wall_s for start in starts), at_most(2), 2)
    print(f"  of CPU time {median(start.cpu_s for start in starts):.2f} s")
