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

import numpy as np

from amf.learner import Learner
from amf.registry import SYSTEMS, loads

_ROWS = 64


def compile_kernels(systems: Iterable[type[Learner]] | None = None, *, threads: bool = False) -> None:
    """Compile what forests of these systems need, or load it from disk; all systems where none are given.

    Afterwards nothing is compiled any more, whatever the parameters and the types of arrays are; `threads` says whether
    that is to hold of `n_threads` beyond 1, too. Takes some seconds a system where nothing is on disk, else a moment.
    """
    x = np.random.default_rng(0).random((_ROWS, 2)) * 1e-3
    x[0] = 1.0  # far from the others, so that origins move
    y = [row % 2 for row in range(_ROWS)]
    for system in SYSTEMS.values() if systems is None else systems:
        forest = system.preset("default", n_estimators=1).partial_fit(x, y)
        forest.prequential(x, y)
        loads(forest.dumps()).describe()
        forest.attribute(x)
        if threads:
            system.preset("default", n_estimators=2, n_threads=2).partial_fit(x, y).predict(x)
