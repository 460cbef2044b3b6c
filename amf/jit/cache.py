"""Compiled kernels on disk, so that a process after the first one starts in a moment.

numba's own cache takes a kernel as current while the file of its outermost function is unchanged. It does not look at
what is inlined from other modules, and where it finds no folder to write to it refuses to compile. Here a file belongs
to the sources of the whole package, by content, and to all else that machine code follows from; a file that does not is
as good as none, and so is one that is damaged. What cannot be written is compiled again in the next process.

Files are looked for in, and written to the first of these that takes them:

    1  a folder of this installation in NUMBA_CACHE_DIR, where that is set
    2  the package's own __pycache__: an image brings the kernels of its build along there (precompile.py)
    3  a folder of this installation in the user's cache, $XDG_CACHE_HOME or ~/.cache
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps as _dumps

dumps: Any = _dumps  # its annotations are missing, as those of the next ones are
rebuild: Any = CompileResult._rebuild
runtime: Any = rtsys

PACKAGE = Path(__file__).parents[1]
_VERSIONS = numba.__version__, sys.implementation.cache_tag, getattr(sys, "abiflags", "")
_SETTINGS = "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO"
"""Names in the environment, after NUMBA_, that machine code follows as well: of a kernel compiled without optimisation
no other process is to make use."""
UNKNOWN = "?"
"""Last of the name of a kernel that is not to be kept, since not all that decides on it is known (decorators.py)."""
_STAMP = 32


def _hash_of_sources(package: Path) -> bytes:
    """Digest of the names and contents of all modules of the package; empty where there are no files of them."""
    digest, paths = hashlib.sha256(), sorted(package.rglob("*.py"))
    for path in paths:
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(source)}\0".encode() + source)
    return digest.digest() if paths else b""


# Now, while the modules are being imported: a package that is upgraded under a running process must not lend its name
# to kernels of the old sources.
_SOURCES = _hash_of_sources(PACKAGE)


def folders() -> Iterator[Path]:
    """Where kernels may lie, in order; none of the folders need exist."""
    ours = f"amf_{hashlib.sha256(bytes(PACKAGE)).hexdigest()[:16]}"
    chosen: str = config.CACHE_DIR  # type: ignore[attr-defined]
    if chosen:
        yield Path(chosen) / ours
    yield PACKAGE / "__pycache__"
    users = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if users.is_absolute():  # else there is no home that is known
        yield users / ours


class Compilation(NamedTuple):
    """What a process is about to compile, because no folder has it."""

    cpu: str
    """Name of the CPU that the kernels are for, as LLVM calls it."""
    folder: Path | None
    """Where they will be kept; None where no folder takes files, and each process compiles anew."""


class Tally:
    """The specialisations of kernels that this process has asked for."""

    def __init__(self) -> None:
        self.loaded = self.compiled = 0
        self.announce: Callable[[Compilation], None] | None = None
        """Called once, before the next one is compiled."""

    def miss(self, cpu: str) -> None:
        """One is on no disk, and will be compiled."""
        self.compiled += 1
        announce, self.announce = self.announce, None
        if announce is not None:
            announce(Compilation(cpu, next(filter(_takes_files, folders()), None)))


tally = Tally()


def _takes_files(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return bool(_SOURCES)  # without them nothing is kept anywhere


class KernelCache(_Cache):
    """The compiled specialisations of one kernel, a file each. numba asks it before it compiles, and tells it after."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._enabled = self._is_known = not self._name.endswith(UNKNOWN)

    @property
    def cache_path(self) -> str:
        """The folder that is asked first."""
        return str(next(folders()))

    def enable(self) -> None:
        self._enabled = self._is_known

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Nothing: files of other sources are overwritten, and those of these are right."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for the signature and for this CPU, None where that is nowhere."""
        # What machine code calls while it runs. numba's own cache loads all of numba's declarations here, which took a
        # third of a start; only the compiler needs them, and loads them by itself.
        runtime.initialize(target_context)
        codegen = target_context.codegen()
        content = self._content(self._file(sig, codegen))
        if content is None:
            tally.miss(codegen.magic_tuple()[1])
            return None
        tally.loaded += 1
        return rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for the signature, in the first folder that takes it."""
        if not (self._enabled and _SOURCES) or data.library.has_dynamic_globals:
            return
        content, file = dumps(data._reduce()), self._file(sig, data.codegen)
        for folder in folders():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / file, _stamp(content) + content)
                return

    def _content(self, file: str) -> bytes | None:
        """What the first whole file of that name holds, None where there is none."""
        for folder in folders() if self._enabled and _SOURCES else ():
            with contextlib.suppress(OSError):
                data = (folder / file).read_bytes()
                if data[:_STAMP] == _stamp(data[_STAMP:]):
                    return data[_STAMP:]
        return None

    def _file(self, sig: Any, codegen: Any) -> str:
        """Its name says all that decides on machine code, but for the sources: those of now replace those of before."""
        settings = [(name, value) for name in _SETTINGS if (value := os.environ.get(f"NUMBA_{name}"))]
        decides = repr((_VERSIONS, self._name, str(sig), codegen.magic_tuple(), *settings))
        return f"{self._name}-{hashlib.sha256(decides.encode()).hexdigest()[:16]}.nbc"


def _stamp(content: bytes) -> bytes:
    """What a file begins with: damaged machine code must not run, nor that of other sources."""
    return hashlib.sha256(_SOURCES + content).digest()


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing: several processes may write one file at a time, and others read it."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
