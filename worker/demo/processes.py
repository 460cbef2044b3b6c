"""The processes of the demo: the embedded broker, and the worker as `amf-worker run` starts it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import worker
from worker.base.errors import Fatal

BROKER_READY_S = 20.0
USUAL_METRICS_PORT = 9464


class Process:
    """A Python module of ours in a process of its own; killed where the `with` block ends, if it still lives.

    It has a process group of its own, so that Ctrl-C reaches the demo alone, which then ends it.
    """

    def __init__(self, arguments: Sequence[str], log: Path, *, environ: Mapping[str, str], pipes: bool = False) -> None:
        self.log = log
        with log.open("ab") as file:
            self._child = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=dict(environ),
                # Where this very package lies: no other one of its name can get in the way.
                cwd=Path(worker.__file__).parents[1],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else file,
                stderr=file,
                process_group=0,
            )
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()

    @property
    def exit_code(self) -> int | None:
        """Exit code, minus the signal's number where one ended it; None while it lives."""
        return self._child.poll()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._child.kill()
        self._child.wait()

    def terminate(self) -> None:
        """SIGTERM: ask for an orderly end."""
        self._child.send_signal(signal.SIGTERM)

    @property
    def output(self) -> IO[bytes]:
        assert self._child.stdout is not None, "only a process with pipes has an output"
        return self._child.stdout


def start_broker(topics: Sequence[str], folder: Path) -> tuple[Process, str]:
    """The embedded broker and its bootstrap servers. Raises WorkerError."""
    process = Process(["worker.demo.broker", *topics], folder / "broker.log", environ=os.environ, pipes=True)
    try:
        ready, _, _ = select.select([process.output], [], [], BROKER_READY_S)
        servers = process.output.readline().decode().strip() if ready else ""
        if not servers:
            raise Fatal(f"the embedded broker did not start within {BROKER_READY_S:g} s; its log is {process.log}")
    except BaseException:
        process.kill()
        raise
    return process, servers


def start_worker(config: Path, folder: Path, environ: Mapping[str, str]) -> Process:
    """`amf-worker run CONFIG`."""
    return Process(["worker", "run", str(config)], folder / "worker.log", environ=environ)


def free_port() -> int:
    """The usual port of the metrics, or any other one where that is taken."""
    for port in (USUAL_METRICS_PORT, 0):
        with closing(socket.socket()) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise Fatal("no port of 127.0.0.1 is free for the metrics")
