"""What the C library does with memory that is given back: many models come and go, and the process must not grow by it.

Where the C library is not glibc nothing happens.
"""

from __future__ import annotations

import ctypes
from typing import Any

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_LARGE_BYTES = 128 * 2**10


def give_back_early() -> None:
    """Have large blocks go back to the system once they are free. To be called before any other thread is started."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        # The limit is glibc's own, but by itself it rises with each larger block that is freed, up to 32 MB. Segments
        # and large models would lie among the small ones then, and leave holes there.
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        # Models are made by any thread and leave in that of the loop: in as many arenas there would be as many holes.
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Have all whole pages go back to the system that lie free among the memory in use. Other threads wait for it."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
