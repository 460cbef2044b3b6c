"""A learner in a process of its own, behind a pipe: a line with a question, a line with the answer."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache"


class PeerMissingError(Exception):
    """The peer cannot run here; the message says why."""


class Peer:
    """A process whose first line says that it is ready; close it, or use it as a context.

    Raises PeerMissingError where it ends instead.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._answer()
        except RuntimeError as error:
            raise PeerMissingError(f"{error} before it was ready; the reason is above") from None

    def ask(self, question: str, **details: Any) -> dict[str, float]:
        """The answer of scripts/serve.py, see there. Raises RuntimeError where the process has died."""
        return self.exchange(json.dumps({"question": question, **details}))

    def exchange(self, line: str) -> dict[str, float]:
        """The answer to a line. Raises RuntimeError where the process has died."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def require_alive(self) -> None:
        """Raises RuntimeError where the process has ended."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self.name} ended with exit code {code}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)


def environment(name: str, *installs: list[str], newest_python: tuple[int, int] | None = None) -> Path:
    """Python of the virtual environment .cache/<name>, made anew when `installs`, arguments of pip, have changed.

    Raises PeerMissingError where it cannot be made.
    """
    folder = CACHE / name
    python, installed, wanted = folder / "bin" / "python", folder / "installed", json.dumps(installs)
    if installed.exists() and installed.read_text() == wanted:
        return python
    if newest_python and sys.version_info[:2] > newest_python:
        newest = ".".join(map(str, newest_python))
        raise PeerMissingError(f"{name} needs Python {newest} or older, this is {sys.version.split()[0]}")
    print(f"installing {name} into .cache/{name} ...", file=sys.stderr, flush=True)
    venv.create(folder, clear=True, with_pip=True)
    for arguments in installs:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerMissingError(f"{name} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    installed.write_text(wanted)
    return python
