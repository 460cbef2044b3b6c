"""Fixtures of the tests of the worker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.availability import Unavailable, give_up
from tests.worker.support.checkpoints import HERE
from tests.worker.support.stores import DictStore
from tests.worker.support.versitygw import S3Server
from worker import cli
from worker.checkpoint import Checkpoints
from worker.cli import terminal

Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Main]:
    """Run a command line: exit code, stdout, stderr. However slow the machine is, nothing is said of work under way.

    What signals do, which `run` sets for its process, is restored.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(terminal, "_PATIENCE_S", 3600.0)
    monkeypatch.setattr(terminal, "_PLAIN_LINE_S", 3600.0)

    def run(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = cli.main([str(argument) for argument in argv])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def store() -> DictStore:
    """An empty store in memory."""
    return DictStore()


@pytest.fixture
def checkpoints(store: DictStore) -> Checkpoints:
    """Those of one partition in the store."""
    return Checkpoints(store, HERE)


@pytest.fixture
def s3_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A real S3 server, to which S3 clients are pointed."""
    try:
        server = S3Server(tmp_path / "s3")
    except Unavailable as reason:
        give_up(str(reason))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with server:
        yield server
