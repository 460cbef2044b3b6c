"""Speed and peak memory of a piece of work. It also runs in the peer's environment: only the standard library."""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESS = Path("/proc/self")


def samples_per_s(work: Callable[[], Any], rows: int, at_least: int) -> float:
    """Speed of a pass over `rows` rows, passed as often as makes `at_least` of them."""
    passes = -(-at_least // rows)
    start = time.perf_counter()
    for _ in range(passes):
        work()
    return passes * rows / (time.perf_counter() - start)


def peak_mb(work: Callable[[], Any]) -> float:
    """Resident memory at its highest during the work above that before, in 10^6 bytes; NaN anywhere but on Linux."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what the work needs
        (PROCESS / "clear_refs").write_text("5")  # the kernel's record of the peak starts again
    except (AttributeError, OSError):
        return float("nan")
    before = _resident("VmRSS")
    work()
    return (_resident("VmHWM") - before) / 1e6


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", (PROCESS / "status").read_text(), re.MULTILINE)
    assert found, field
    return int(found[1]) * 1024
