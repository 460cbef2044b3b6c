"""Python's search for garbage in cycles, kept away from where it costs much and finds nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """For imports: all that they make stays, and looking through it again and again took a fifth of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def calm() -> None:
    """For the work: a batch makes tens of thousands of objects and no cycle, and looking took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
