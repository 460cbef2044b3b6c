"""Kernels ahead of time: before a stream begins, or when an image is built.

Processes that may not write compile all kernels anew, half a minute each time. So an image brings them along, compiled
for a CPU that every host has, as that of deploy/Dockerfile does: with

    NUMBA_CPU_NAME=generic

in the environment of the build, which calls `compile_kernels`, and in that of every process. Kernels for another CPU
are not looked at, and a process that asks for its own host's, which is the default, compiles. The bits of forests are
the same for all CPUs. "generic" is the plainest of its architecture; for hosts that are known to be newer there are
names such as "x86-64-v3". The files lie in the package's own __pycache__, with NUMBA_CACHE_DIR in that folder
(cache.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from amf.forests.forest import Forest
from amf.forests.group import Group
from amf.forests.protocol import OnlineForest
from amf.jit.cache import Compilation, tally
from amf.registry import SYSTEMS, loads

_ROWS = 64


class KernelCounts(NamedTuple):
    """How many kernels were made ready, each specialisation being one."""

    loaded: int
    """From disk."""
    compiled: int


def compile_kernels(
    systems: Iterable[type[OnlineForest]] | None = None,
    *,
    threads: bool = False,
    attributions: bool = True,
    announce: Callable[[Compilation], None] | None = None,
) -> KernelCounts:
    """Compile what forests of these systems need, or load it from disk; all systems where none are given.

    Afterwards nothing is compiled any more, whatever the parameters and the types of arrays are; `threads` says whether
    that is to hold of `n_threads` beyond 1, too, `attributions` whether of `attribute`. Takes half a minute of
    processor time a system where nothing is on disk, else a moment. `announce` is called once, before the first one is
    compiled, and not at all where all are on disk.
    """
    asked = SYSTEMS.values() if systems is None else _classes(systems)
    before = KernelCounts(tally.loaded, tally.compiled)
    x = np.random.default_rng(0).random((_ROWS, 2)) * 1e-3
    x[0] = 1.0  # far from the others, so that origins move
    y = [row % 2 for row in range(_ROWS)]
    tally.announce = announce
    try:
        for system in asked:
            for variant in system.VARIANTS:
                forest = system.preset("default", n_estimators=1, **variant).partial_fit(x, y)
                forest.prequential(x, y)
                group = Group()
                group.put(0, forest)
                group.predict_learn(x, np.zeros(_ROWS, np.int64), np.full(_ROWS, -1), predict=False)
                loads(forest.dumps()).describe()
                if attributions:
                    forest.attribute(x)
                if threads:
                    system.preset("default", n_estimators=2, n_threads=2, **variant).partial_fit(x, y).predict(x)
    finally:
        tally.announce = None  # what is compiled later is none of this call's
    return KernelCounts(tally.loaded - before.loaded, tally.compiled - before.compiled)


def _classes(systems: Any) -> list[type[OnlineForest]]:
    """These as a list. Raises TypeError where one is no class of forests, before anything is compiled."""
    is_list = isinstance(systems, Iterable) and not isinstance(systems, str)
    listed = list(systems) if is_list else [systems]
    strange = [each for each in listed if not (is_list and isinstance(each, type) and issubclass(each, Forest))]
    if strange:
        hint = "give [amf.AMFClassifier], say, or by its name [amf.SYSTEMS['amf-classifier']]"
        raise TypeError(f"systems must be a list of classes of forests, got {strange[0]!r:.100}: {hint}")
    return listed
