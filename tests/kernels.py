"""Compile the kernels of all systems before any test runs, or each process of the tests would do it for itself.

    python -m tests.kernels

Systems are shared out among processes, and each process writes what it has compiled to the cache on disk. Systems that
use another one's kernels stand after it in the registry, and find them there.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import amf

MOST_PROCESSES = 4
"""Each takes up to a gigabyte, and the longest system a fifth of the time of all."""


def compile_kernels_of(family: str) -> amf.KernelCounts:
    """For one thread and for several."""
    return amf.compile_kernels([amf.SYSTEMS[family]], threads=True)


if __name__ == "__main__":
    with ProcessPoolExecutor(min(os.cpu_count() or 1, MOST_PROCESSES)) as pool:
        found = list(pool.map(compile_kernels_of, amf.SYSTEMS))
    print(f"kernels: {sum(each.compiled for each in found)} compiled, {sum(each.loaded for each in found)} from disk")
