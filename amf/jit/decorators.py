"""How every kernel is compiled: lazily, cached on disk, without the interpreter lock, with IEEE arithmetic as written.

No fastmath flag is ever set: a reassociated or contracted float sum would follow the vector width of the CPU, and
a cut decided by it would differ between machines.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit as _njit

from amf.jit.cache import UNKNOWN, KernelCache
from amf.jit.compilers import KernelCompiler, PartCompiler

njit: Any = _njit  # its annotations do not name all of its options

index = np.uint64
"""Type of everything that indexes in kernels: of a signed index the compiled code asks whether it counts from the end.

An index meets only its own kind: numba, as numpy, makes a float of the sum of a signed and an unsigned integer.
"""


_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def _named(part: Callable[..., Any]) -> Callable[..., Any]:
    """Name a kernel or a part after all that decides on its code, where its text alone does not: what it closes over.

    Kernels are kept on disk by their names, and what is kept follows the text of this package alone (cache.py). And
    numba tells parts of one name apart by the order in which a process compiles them, but kernels that come from disk
    were compiled by several processes: two parts with one name, types and place in that order are one to the linker,
    which takes the code of the first for both.
    """
    decides = "".join(f"{_identity(cell.cell_contents)}\0" for cell in part.__closure__ or ()) + _text_of(part)
    if decides:
        name = f".{hashlib.sha256(decides.encode()).hexdigest()[:16]}" + UNKNOWN * (UNKNOWN in decides)
        part.__qualname__ = part.__qualname__.removesuffix(name) + name  # it may be a part, and a kernel as well
    return part


def _identity(value: Any) -> str:
    function = getattr(value, "py_func", value)
    return f"{function.__module__}.{function.__qualname__}{_text_of(function)}" if callable(function) else repr(value)


def _text_of(function: Callable[..., Any]) -> str:
    """Digest of the module of a part that is not of this package, with all that stands beside it there.

    A module without a text, as that of a prompt, may be another one in the next process.
    """
    if function.__module__.partition(".")[0] == "amf":
        return ""
    try:
        text = inspect.getsource(sys.modules[function.__module__])
    except (KeyError, OSError, TypeError):
        return UNKNOWN
    return hashlib.sha256(text.encode()).hexdigest()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, or load it (cache.py)."""
    compiled = njit(pipeline_class=KernelCompiler, **_COMMON)(_named(function))
    if compiled is not function:  # as it is under NUMBA_DISABLE_JIT=1
        # What `cache=True` does, with another cache.
        compiled._cache = KernelCache(function)
    return compiled


def exported(part: Any) -> Any:
    """A part of kernels as a kernel of its own, which Python can call."""
    return kernel(getattr(part, "py_func", part))  # under NUMBA_DISABLE_JIT=1 it is the function itself


def inlined(function: Callable[..., Any]) -> Any:
    """A part of kernels that is compiled into each of them: passing an array costs a dozen machine words a call.

    It makes no array, and so needs not count the references to those that it is given: two atomic operations each.
    """
    return njit(forceinline=True, _nrt=False, pipeline_class=PartCompiler, **_COMMON)(_named(function))


def called(function: Callable[..., Any]) -> Any:
    """A part of kernels that they call now and then: inlining it would only make them longer to compile.

    It says so itself: what says nothing is inlined by force wherever an inlined part calls it, with all that it calls.
    """
    return njit(forceinline=False, _nrt=True, pipeline_class=PartCompiler, **_COMMON)(_named(function))
