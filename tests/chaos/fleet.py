"""The worker processes of a run, and the supervisor that starts them again."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.chaos.cluster import Cluster
from tests.kafka.servers import die_with_parent

STOP_WITHIN_S = 25.0
ANSWER_WITHIN_S = 10.0
POLL_S = 0.05


class Fleet:
    """Workers by name. `exits` holds unasked ends, which `supervise` makes good, and those too late."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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

    def start(
        self, name: str, failpoint: str = "", identity: str | None = None, altered: Sequence[str] | None = None
    ) -> None:
        """Start a worker; with an order for a fail point, as a twin, or as `tests.chaos.altered` makes it."""
        module = ["worker"] if altered is None else ["tests.chaos.altered", *altered]
        command = [sys.executable, "-m", *module, "run", str(self._cluster.config_path(identity or name))]
        environment = {**os.environ, **self._cluster.environment, "AMF_FAILPOINT": failpoint}
        with self.log_path(name).open("ab") as log:
            self._starts[name] = log.tell()
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, preexec_fn=die_with_parent
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def terminate(self, name: str) -> float:
        """SIGTERM; it must end in order and in time. Returns the seconds that it took."""
        process, started = self._processes[name], time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.exits.append(f"{name} was still there {STOP_WITHIN_S:g} s after SIGTERM: {self._last_words(name)}")
            self.kill(name)
            return time.monotonic() - started
        del self._processes[name]
        # Before its first words it has set up nothing: SIGTERM ends it at once, by itself or by what `__main__` does.
        if code != 0 and (code not in (-signal.SIGTERM, 128 + signal.SIGTERM) or self._written(name)):
            self._write_down(name, code)
        return time.monotonic() - started

    def freeze(self, name: str) -> None:
        """SIGSTOP: it neither works nor knows that time passes."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def ask_to_stop(self, name: str) -> None:
        """SIGTERM, without waiting for what comes of it."""
        self._processes[name].send_signal(signal.SIGTERM)

    def await_live(self, name: str, timeout_s: float) -> bool:
        """Wait until a worker predicts in some partition; False if it does not come to it."""
        return self.await_that(lambda: b" is live at " in self._written(name), timeout_s)

    def await_frozen(self, name: str, timeout_s: float) -> bool:
        """Wait for a worker to be stopped by its fail point; False if it was not."""
        stat = Path(f"/proc/{self._processes[name].pid}/stat")
        return self.await_that(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", timeout_s)

    def has_ended(self, name: str) -> bool:
        """Whether a worker is at its end."""
        return self._processes[name].poll() is not None

    def await_death(self, name: str, timeout_s: float, code: int = -signal.SIGKILL) -> bool:
        """Wait for a worker to end, with this exit code, by what was done to it; False if it is alive."""
        process = self._processes[name]
        if not self.await_that(lambda: process.poll() is not None, timeout_s):
            return False
        del self._processes[name]
        if process.returncode != code:
            self._write_down(name, process.returncode)
        return True

    def supervise(self) -> None:
        """Start again who ended unasked."""
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                self._write_down(name, code)
                self.start(name)

    def limit_files(self, name: str, size: int | None) -> None:
        """No file of a worker, its log included, grows beyond so many bytes from now on; None lifts that again."""
        pid = self._processes[name].pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))

    def resident_bytes(self, name: str) -> int:
        """Memory that a worker really takes."""
        pages = Path(f"/proc/{self._processes[name].pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def metric(self, sample: str) -> list[tuple[dict[str, str], float]]:
        """Labels, with that of the worker, and value of every series of this name. Raises OSError, TimeoutError."""
        return [
            ({**found.labels, "worker": name}, found.value)
            for name in self.names
            for family in text_string_to_metric_families(self._scrape(name))
            for found in family.samples
            if found.name == sample
        ]

    def log_path(self, name: str) -> Path:
        return self._cluster.folder / f"{name}.log"

    def _written(self, name: str) -> bytes:
        return self.log_path(name).read_bytes()[self._starts[name] :]

    def _scrape(self, name: str) -> str:
        """Its metrics. Raises TimeoutError where it does not say where they are."""
        address = re.compile(rb"metrics at (http://[^/]+/metrics)")
        if not self.await_that(lambda: address.search(self._written(name)) is not None, ANSWER_WITHIN_S):
            raise TimeoutError(f"{name} shows no metrics")
        [url] = address.findall(self._written(name))
        with urllib.request.urlopen(url.decode(), timeout=ANSWER_WITHIN_S) as answer:
            return str(answer.read().decode())

    def _write_down(self, name: str, code: int) -> None:
        self.exits.append(f"{name} exited with {code}: {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        lines = self._written(name).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    @staticmethod
    def await_that(condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True
