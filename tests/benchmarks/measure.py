"""Speed and memory of a piece of work. It also runs in the peers' environments: only the standard library."""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESS = Path("/proc/self")


def seconds(work: Callable[[], Any]) -> float:
    """Time that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def settle() -> None:
    """Give back what is free: memory that was freed but kept would hide what comes next."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return


def held_bytes() -> float:
    """Resident memory that belongs to no file, once what is free is given back; NaN anywhere but on Linux."""
    settle()
    return _resident_bytes("RssAnon")


def peak_mb(work: Callable[[], Any]) -> float:
    """Resident memory at its highest during the work above that before, in 10^6 bytes; NaN anywhere but on Linux."""
    settle()
    try:
        (PROCESS / "clear_refs").write_text("5")  # the kernel's record of the peak starts again
    except OSError:
        return float("nan")
    before = _resident_bytes("VmRSS")
    work()
    return (_resident_bytes("VmHWM") - before) / 1e6


def _resident_bytes(field: str) -> float:
    try:
        status = (PROCESS / "status").read_text()
    except OSError:
        return float("nan")
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024.0 if found else float("nan")
