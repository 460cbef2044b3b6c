"""How every kernel is compiled: lazily, cached on disk, without the interpreter lock, with IEEE arithmetic as written.

No fastmath flag is ever set: a reassociated or contracted float sum would follow the vector width of the CPU, and
a cut decided by it would differ between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit as _njit

from amf._cache import KernelCache
from amf._parts import PartCompiler

njit: Any = _njit  # its annotations do not name all of its options

index = np.uint64
"""Type of everything that indexes in kernels: of a signed index the compiled code asks whether it counts from the end.

An index meets only its own kind: numba, as numpy, makes a float of the sum of a signed and an unsigned integer.
"""


_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, or load it (_cache.py)."""
    compiled = njit(**_COMMON)(function)
    if compiled is not function:  # as it is under NUMBA_DISABLE_JIT=1
        # What `cache=True` does, with another cache.
        compiled._cache = KernelCache(function)
    return compiled


def inlined(function: Callable[..., Any]) -> Any:
    """A part of kernels that is compiled into each of them: passing an array costs a dozen machine words a call.

    It makes no array, and so needs not count the references to those that it is given: two atomic operations each.
    """
    return njit(forceinline=True, _nrt=False, pipeline_class=PartCompiler, **_COMMON)(function)


def called(function: Callable[..., Any]) -> Any:
    """A part of kernels that they call now and then: inlining it would only make them longer to compile."""
    return njit(_nrt=True, pipeline_class=PartCompiler, **_COMMON)(function)
