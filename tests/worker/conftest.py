"""Fixtures of the tests of the worker."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.availability import Unavailable, give_up
from tests.worker.support.checkpoints import HERE
from tests.worker.support.configurations import document
from tests.worker.support.printed import Main
from tests.worker.support.registry import StubRegistry
from tests.worker.support.rows import CsvFile, NpzFile
from tests.worker.support.stores import DictStore
from tests.worker.support.versitygw import S3Server
from worker import cli
from worker.checkpoint import Checkpoints
from worker.cli import terminal


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
def quiet() -> Iterator[None]:
    """No log of schedules of faults: to format a warning of each would take longer than to run them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def worker_yaml(tmp_path: Path) -> Path:
    """A configuration with a secret, and with a broker that does not answer."""
    path = tmp_path / "worker.yaml"
    kafka = '{bootstrap.servers: "127.0.0.1:1", sasl.password: "hunter2"}'
    path.write_text(document(kafka=kafka, checkpoint=f'{{url: "file://{tmp_path}/checkpoints"}}'))
    return path


@pytest.fixture
def rows_npz(tmp_path: Path) -> Path:
    """200 rows of three features and two classes."""
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    np.savez(path, X=rng.normal(y[:, None], 1.0, (200, 3)), y=y)
    return path


@pytest.fixture
def churn_csv(tmp_path: Path) -> Path:
    """300 rows with an identifier, a time, a text, a number, and the label `churned`."""
    rng = np.random.default_rng(0)
    lines = ["id,when,city,age,churned"]
    for i in range(300):
        age = rng.normal(40, 10)
        lines.append(f"tx-{i},{1715949000 + i},{'Rome' if i % 3 else 'Oslo'},{age:.1f},{'yes' if age > 50 else 'no'}")
    (tmp_path / "churn.csv").write_text("\n".join(lines))
    return tmp_path / "churn.csv"


@pytest.fixture
def prices_csv(tmp_path: Path) -> Path:
    """300 rows with the numeric label `price`."""
    lines = ["rooms,price", *(f"{i % 7},{100.5 * (i % 7) + i / 64}" for i in range(300))]
    (tmp_path / "prices.csv").write_text("\n".join(lines))
    return tmp_path / "prices.csv"


@pytest.fixture
def csv_file(tmp_path: Path) -> CsvFile:
    """Makes a file of a text, or of bytes that should be one."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def npz_file(tmp_path: Path) -> NpzFile:
    """Makes a file of named arrays."""

    def write(**columns: Any) -> Path:
        path = tmp_path / "rows.npz"
        np.savez(path, **columns)
        return path

    return write


@pytest.fixture
def store() -> DictStore:
    """An empty store in memory."""
    return DictStore()


@pytest.fixture
def checkpoints(store: DictStore) -> Checkpoints:
    """Those of one partition in the store."""
    return Checkpoints(store, HERE)


@pytest.fixture
def stub_registry() -> Iterator[StubRegistry]:
    """A schema registry that is empty and does not fail."""
    with StubRegistry() as stub:
        yield stub


@pytest.fixture
def asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that failed is asked again at once."""
    monkeypatch.setattr("worker.adapters.kafka.registry.REST_S", 0.0)


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
