"""What a checkpoint costs of which one small model of very many has changed: bytes, CPU, pauses, requests.

    python -m tests.benchmarks cost

The models are written to a folder by a thread, while another one, which stands for the loop, looks at the clock again
and again: the longest time between two looks is the pause. Most checkpoints write a delta; the first one of a process
lists the files as well.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.benchmarks.report import at_most, show
from worker.adapters.store import FileStore
from worker.base import gc_tuning
from worker.checkpoint import About, Checkpoints, Location, Manifest, SavedModel, Source

MODELS = (100_000, 1_000_000)
MODEL_BYTES = 300
CHECKPOINTS = 100
SUMMARY = {"samples": 3, "nodes": 30, "depth": 2, "bytes": MODEL_BYTES, "last_ms": 1_700_000_000_000, "names_given": 1}
PROMISED_BYTES, PROMISED_CPU_MS, PROMISED_PAUSE_MS = 100e3, 50.0, 20.0


class Cost(NamedTuple):
    """Of one checkpoint."""

    written_bytes: int
    cpu_ms: float
    pause_ms: float
    requests: int


class CountingStore(FileStore):
    """Counts requests, and the bytes that are written."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requests: Counter[str] = Counter()
        self.written_bytes = 0

    def create(self, name: str, data: bytes) -> None:
        self.requests["create"] += 1
        self.written_bytes += len(data)
        super().create(name, data)

    def read(self, name: str) -> bytes:
        self.requests["read"] += 1
        return super().read(name)

    def list(self, prefix: str) -> list[str]:
        self.requests["list"] += 1
        return super().list(prefix)

    def delete(self, *names: str) -> None:
        self.requests["delete"] += 1
        super().delete(*names)


class Partition:
    """Checkpoints of one partition, each of which builds on the one before."""

    def __init__(self, folder: Path, n_models: int) -> None:
        self.store = CountingStore(folder)
        self.keys = [f"customer-{i:07d}" for i in range(n_models)]
        self._checkpoints = Checkpoints(self.store, Location("group", "main", "events", "topic", 0))
        self._last: Manifest | None = None

    def save(self, changed: Mapping[str, bytes]) -> None:
        offset = 0 if self._last is None else self._last.offset + 1
        dirty: dict[str, Source] = {
            key: partial(SavedModel, "0123456789abcdef", data, SUMMARY) for key, data in changed.items()
        }
        about = About(
            engine="engine",
            location=self._checkpoints.location,
            start_offset=0,
            offset=offset,
            covered=offset,
            created_ms=offset * 30_000,
        )
        self._last = self._checkpoints.write(about, dirty, previous=self._last)
        assert self._checkpoints.diverged(offset) == []
        if self._checkpoints.is_untidy(self._last):
            self._checkpoints.tidy(self._last, None)

    def cost(self, changed: Mapping[str, bytes]) -> Cost:
        """That of a checkpoint with these changes."""
        requests, written_bytes = self.store.requests.total(), self.store.written_bytes
        cpu_ms, pause_ms = beside_a_loop(lambda: self.save(changed))
        return Cost(self.store.written_bytes - written_bytes, cpu_ms, pause_ms, self.store.requests.total() - requests)


def beside_a_loop(work: Callable[[], Any]) -> tuple[float, float]:
    """The processor time of the work, and the longest pause of a thread beside it, in ms."""
    cpu_s: list[float] = []

    def timed() -> None:
        before = time.thread_time()
        work()
        cpu_s.append(time.thread_time() - before)

    thread = threading.Thread(target=timed)
    longest_s, before = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        time.sleep(0.0001)
        now = time.perf_counter()
        longest_s, before = max(longest_s, now - before), now
    return cpu_s[0] * 1e3, longest_s * 1e3


def costs(n_models: int) -> tuple[list[Cost], float]:
    """Those of checkpoints with one changed model each, and how many requests each took, all in all."""
    with tempfile.TemporaryDirectory() as folder:
        partition = Partition(Path(folder), n_models)
        partition.save({key: b"%d" % i * (MODEL_BYTES // 7) for i, key in enumerate(partition.keys)})
        changes = [{partition.keys[i * 7919 % n_models]: b"%d" % i * 100} for i in range(CHECKPOINTS)]
        found = [partition.cost(changed) for changed in changes]
        return found, sum(each.requests for each in found) / len(found)


def main() -> None:
    gc_tuning.calm()  # as every worker does when it starts
    for n_models in MODELS:
        found, requests = costs(n_models)
        kb = [each.written_bytes / 1e3 for each in found]
        cpu_ms = [each.cpu_ms for each in found]
        print(f"\nOne changed model of {n_models:,}: {CHECKPOINTS} checkpoints, {requests:.2f} requests each")
        print(f"median: {median(kb):.1f} kB, {median(cpu_ms):.1f} ms of CPU", flush=True)
        show("most that is written, kB", max(kb), at_most(PROMISED_BYTES / 1e3))
        show("most CPU, ms", max(cpu_ms), at_most(PROMISED_CPU_MS))
        pauses_ms = [each.pause_ms for each in found]
        idle_ms = [beside_a_loop(partial(time.sleep, median(cpu_ms) / 1e3))[1] for _ in found]
        print(f"pauses: up to {max(pauses_ms):.1f} ms; up to {max(idle_ms):.1f} ms with nothing beside the loop")
        show("pause of another thread, ms, median", median(pauses_ms), at_most(PROMISED_PAUSE_MS))
