"""Waiting for what a thread, a process or a broker does by itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until it is so. Raises AssertionError where that takes longer."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"it did not come true in {within_s:g} s"
        time.sleep(0.01)
