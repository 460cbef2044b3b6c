"""Kernels ahead of time: before a stream begins, or when an image is built.

Whoever runs without leave to write compiles all kernels in every process, half a minute each time. So an image brings
them along, compiled for a CPU that every host has, as in this Dockerfile:

    ENV NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=""
    RUN pip install amf-worker && python -c "import amf; amf.compile_kernels()"
    USER nobody

Both variables have to be set when the image is built and when it runs: kernels for another CPU are not looked at, and
where a process asks for its own host's, which is the default, it compiles. The bits of forests are the same for all
CPUs. "generic" is the plainest of its architecture; hosts that are known to be newer can be told by name, such as
"x86-64-v3". The files lie in the package's own __pycache__, with NUMBA_CACHE_DIR in that folder (_cache.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from amf.forest import Forest
from amf.serialize import FAMILIES, loads

_ROWS = 64


def compile_kernels(systems: Iterable[type[Forest[Any]]] | None = None) -> None:
    """Compile what forests of these systems need, or load it from disk; all systems where none are given.

    Afterwards nothing is compiled any more, whatever the parameters and the types of arrays are. Takes some seconds a
    system where nothing is on disk, else a moment.
    """
    x = np.random.default_rng(0).random((_ROWS, 2))
    y = [row % 2 for row in range(_ROWS)]
    for system in FAMILIES.values() if systems is None else systems:
        # So small that it has to forget leaves on the way.
        forest = system(1, max_bytes=2_000).partial_fit(x, y)
        forest.weighted_depth(x)
        loads(forest.dumps()).describe()
        forest._halve(0)  # as after two thousand million samples
