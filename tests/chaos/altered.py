"""`python -m tests.chaos.altered [--engine NAME] [--clock-jumps] run CONFIG`: a worker that is not quite the worker."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

import amf
from worker.cli import main

DAY_S = 86_400


def jumping(read: Callable[[], float], unit: float) -> Callable[[], float]:
    """A wall clock, in `unit` to the second, that is a day ahead, a day behind or right, anew each time it is read."""
    return lambda: read() + type(read())(random.choice((-DAY_S, 0, DAY_S)) * unit)


def alter() -> list[str]:
    """Do what the options say; returns the arguments that are left for the worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", help="under this version of the learner, which learns the same all the same")
    parser.add_argument("--clock-jumps", action="store_true", help="with a wall clock that jumps by days")
    altered, left = parser.parse_known_args()
    if altered.engine is not None:
        amf.ENGINE = altered.engine
    if altered.clock_jumps:
        time.time, time.time_ns = jumping(time.time, 1), jumping(time.time_ns, 10**9)  # type: ignore[assignment]
    return left


if __name__ == "__main__":
    sys.exit(main(alter()))
