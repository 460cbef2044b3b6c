"""Kernels for another kind of processor, compiled on this one: where that one is emulated it takes seven times as long.

    python compiled.py note USED DATA.npz FAMILY ...   learn streams here; note which kernels that took, for which types
    python compiled.py compile USED TRIPLE             compile them for processors of this kind, to NUMBA_CACHE_DIR

NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say which one of its kind it is. numba and LLVM are the same there: they make the
same machine code, instruction for instruction, of which only the names depend on where the packages lie.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba.core.dispatcher

COMPILED_THERE = {"amf.geometry.scaling.first_infinite"}
"""So small that it takes seconds there, too: one is to show that kernels are compiled there at all."""


def kernels() -> Iterator[tuple[str, Any]]:
    """Each kernel of the library, by its name in the cache."""
    from amf.jit.cache import KernelCache

    for each in gc.get_objects():
        if isinstance(each, numba.core.dispatcher.Dispatcher) and isinstance(each._cache, KernelCache):
            yield each._cache._name, each


def note(used: str, data: str, *families: str) -> None:
    """Learn the streams, and write down which kernels were called, and for which types."""
    from tests.processors import streams

    streams.main("learn", data, *families)
    found = {name: list(kernel.overloads) for name, kernel in kernels() if kernel.overloads}
    Path(used).write_bytes(pickle.dumps({name: types for name, types in found.items() if name not in COMPILED_THERE}))


def compile_for(used: str, triple: str) -> None:
    """Compile what is written there for processors of this kind."""
    target = llvm.Target.from_triple
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Whom numba asks which processor this is.
    llvm.get_process_triple = lambda: triple
    llvm.Target.from_default_triple = lambda: target(triple)
    import amf  # noqa: F401  # its kernels

    known = dict(kernels())
    for name, types in pickle.loads(Path(used).read_bytes()).items():
        for each in types:
            known[name].compile(each)


if __name__ == "__main__":
    {"note": note, "compile": compile_for}[sys.argv[1]](*sys.argv[2:])
