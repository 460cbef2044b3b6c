"""A command that runs Python as on aarch64, in a folder that tests/processors/aarch64.sh makes when first asked."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.availability import Unavailable

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "aarch64"
NEEDED = ("numpy", "numba", "llvmlite")


_WHICH = "from numba.core.registry import cpu_target as t; print(*t.target_context.codegen().magic_tuple(), sep='\\n')"


class Emulated(NamedTuple):
    """How to run Python there: the command, the folder of its packages, and its version."""

    command: list[str]
    packages: Path
    python: tuple[int, int] = 3, 11

    def processor(self) -> tuple[str, str, str]:
        """What numba compiles for there, as LLVM calls it: the kind of processor, its name, and what it can do."""
        environment = {**os.environ, "PYTHONPATH": str(self.packages)}
        said = subprocess.check_output([*self.command, "-c", _WHICH], env=environment, text=True)
        kind, name, features = said.splitlines()
        return kind, name, features


def aarch64() -> Emulated:
    """Python 3.11 with the very numpy and numba that are installed here; raises Unavailable."""
    versions = [f"{name}=={version(name)}" for name in NEEDED]
    home = CACHE / "-".join(versions).replace("==", "-")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one prepares it, and the others wait
        if not home.is_dir():
            print(f"preparing {home}: some minutes, once", file=sys.stderr, flush=True)
            _prepare([str(HERE / "aarch64.sh"), str(home), sys.executable, *versions])
    root = home / "root"
    return Emulated(["qemu-aarch64-static", "-L", str(root), str(root / "usr/bin/python3.11")], home / "packages")


def _prepare(script: list[str]) -> None:
    """Run the script and show what it says; raises Unavailable with the last of it."""
    said = "it said nothing"
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout or ():
            said = line.strip()
            print(f"  {said}", file=sys.stderr, flush=True)
    if running.returncode:
        raise Unavailable(f"{script[0]} failed: {said}")
