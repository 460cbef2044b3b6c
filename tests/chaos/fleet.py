"""The worker processes of a run, and the supervisor that starts them again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.cluster import Cluster
from tests.kafka.workers import WorkerProcess

STOP_WITHIN_S = 25.0
POLL_S = 0.05


class Fleet:
    """Workers by name. An exit that nobody asked for is written down in `exits` and made good by `supervise`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._processes: dict[str, WorkerProcess] = {}
        self._starts: dict[str, int] = {}
        """Where in its log the present life of a worker begins."""
        self.exits: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.kill(name)

    @property
    def names(self) -> list[str]:
        """Of those that are wanted, running or not."""
        return sorted(self._processes)

    def start(self, name: str, failpoint: str = "", identity: str | None = None) -> None:
        """Start a worker, with an order for a fail point perhaps, or under the identity of another one."""
        environment = {**self._cluster.environment(identity or name), "AMF_FAILPOINT": failpoint}
        path = self.log_path(name)
        self._starts[name] = path.stat().st_size if path.exists() else 0
        self._processes[name] = WorkerProcess(self._cluster.config_path, self.log_path(name), **environment)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name).process
        process.kill()
        process.wait()

    def terminate(self, name: str) -> float:
        """SIGTERM; it must end in order and in time. Returns the seconds that it took."""
        process, started = self._processes[name].process, time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_WITHIN_S)
        del self._processes[name]
        # Before its first words it has not set up its signals, and nothing else either: SIGTERM ends it at once.
        if code != 0 and not (code == -signal.SIGTERM and not self._written(name)):
            self._write_down(name, code)
        return time.monotonic() - started

    def freeze(self, name: str) -> None:
        """SIGSTOP: it neither works nor knows that time passes."""
        self._processes[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].process.send_signal(signal.SIGCONT)

    def ask_to_stop(self, name: str) -> None:
        """SIGTERM, without waiting for what comes of it."""
        self._processes[name].process.send_signal(signal.SIGTERM)

    def await_live(self, name: str, timeout_s: float) -> bool:
        """Wait until a worker predicts in some partition; False if it does not come to it."""
        return self._await(lambda: b" is live at " in self._written(name), timeout_s)

    def await_frozen(self, name: str, timeout_s: float) -> bool:
        """Wait for a worker to be stopped by its fail point; False if it was not."""
        stat = Path(f"/proc/{self._processes[name].process.pid}/stat")
        return self._await(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", timeout_s)

    def await_death(self, name: str, timeout_s: float, code: int = -signal.SIGKILL) -> bool:
        """Wait for a worker to end, with this exit code, by what was done to it; False if it is alive."""
        process = self._processes[name].process
        if not self._await(lambda: process.poll() is not None, timeout_s):
            return False
        del self._processes[name]
        if process.returncode != code:
            self._write_down(name, process.returncode)
        return True

    def supervise(self) -> None:
        """Start again who ended unasked."""
        for name, worker in list(self._processes.items()):
            code = worker.process.poll()
            if code is not None:
                self._write_down(name, code)
                self.start(name)

    def log_path(self, name: str) -> Path:
        return self._cluster.folder / f"{name}.log"

    def _written(self, name: str) -> bytes:
        return self.log_path(name).read_bytes()[self._starts[name] :]

    def _write_down(self, name: str, code: int) -> None:
        lines = self._written(name).decode(errors="replace").strip().splitlines()
        self.exits.append(f"{name} exited with {code}: {lines[-1] if lines else ''}")

    @staticmethod
    def _await(condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True
