"""Programs that tests run and Go builds: the one on PATH, else the one that the project's cache folder keeps."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.availability import Unavailable

CACHE = Path(__file__).parents[1] / ".cache"


@dataclass(frozen=True)
class GoProgram:
    """A command of a Go module. Its package may have another last name than the program is to have."""

    name: str
    package: str
    version: str

    def find(self, cache: Path = CACHE) -> Path:
        """Its path; it is built where it is missing, which takes some minutes. Raises Unavailable."""
        if found := shutil.which(self.name):
            return Path(found)
        program = cache / f"{self.name}-{self.version}" / self.name
        program.parent.mkdir(parents=True, exist_ok=True)
        with (program.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one builds it, and the others wait
            if not program.is_file():
                self._build(program)
        return program

    def _build(self, program: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise Unavailable(f"{self.name} is not installed, and neither is Go, which would build it")
        module = f"{self.package}@{self.version}"
        # The program gets its name when it is complete: what an interrupted build leaves is never taken for it.
        with tempfile.TemporaryDirectory(dir=program.parent) as unfinished:
            environment = {**os.environ, "GOBIN": unfinished}
            done = subprocess.run([go, "install", module], env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unavailable(f"Go could not build {module}: {done.stderr.strip()[-500:]}")
            [built] = Path(unfinished).iterdir()
            built.rename(program)
