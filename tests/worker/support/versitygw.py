"""A real S3 server: versitygw over a folder, on a port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.go_programs import GoProgram
from tests.kafka.servers import die_with_parent, free_ports

VERSITYGW = GoProgram("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
BUCKET = "bucket"
READY_WITHIN_S = 30.0


class S3Server:
    """A server with one bucket. `kill` and `start` keep its address and its data.

    What it knows of an object lies in extended attributes of its file. Its option --sidecar keeps that beside the files
    instead, where a SIGKILL can leave a name that is taken and has no object.

    folder: is made, and holds the bucket: an object is a file there. Raises Unavailable where there is no server.
    """

    def __init__(self, folder: Path) -> None:
        self._program = VERSITYGW.find()
        self._folder = folder
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.bucket.mkdir(parents=True)

    @property
    def bucket(self) -> Path:
        """The folder of the bucket."""
        return self._folder / "buckets" / BUCKET

    @property
    def url(self) -> str:
        """The bucket as a store URL."""
        return f"s3://{BUCKET}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point S3 clients here, with leave to do all."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "the-access-key",
            "AWS_SECRET_ACCESS_KEY": "the-secret-key",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Launch it and wait until it takes connections."""
        command = [str(self._program), "--quiet", "--port", f"127.0.0.1:{self._port}"]
        credentials = {
            "ROOT_ACCESS_KEY": self.environment["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": self.environment["AWS_SECRET_ACCESS_KEY"],
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "posix", str(self.bucket.parent)],
                env={**os.environ, **credentials},
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        self._await_ready()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def _log(self) -> Path:
        return self._folder / "versitygw.log"

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        self.kill()
        raise RuntimeError(f"versitygw did not start:\n{self._log.read_text(errors='replace')}")
