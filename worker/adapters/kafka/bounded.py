"""Answers of an HTTP server that come to an end: the client of a schema registry waits for each piece of one, however
many there are, and keeps them all."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

MOST_BYTES = 16 * 2**20


def bound(session: Any, timeout_s: float) -> None:
    """Have the answers that a session of httpx gets raise where they take longer, or more than MOST_BYTES.

    They are asked for without compression, which would make few bytes many.
    """
    # The client decides which httpx it is.
    httpx = sys.modules[type(session).__module__.partition(".")[0]]

    class Bounded(httpx.SyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self._until_s = time.monotonic() + timeout_s

        def __iter__(self) -> Iterator[bytes]:
            n_bytes = 0
            for piece in self._inner:
                n_bytes += len(piece)
                if n_bytes > MOST_BYTES:
                    raise ValueError(f"the answer has more than {MOST_BYTES:,} bytes")
                if time.monotonic() > self._until_s:
                    raise TimeoutError(f"after {timeout_s:g} s the answer has not come to its end")
                yield piece

        def close(self) -> None:
            self._inner.close()

    def begins(response: Any) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ValueError("the answer is compressed, which was not asked for")
        response.stream = Bounded(response.stream)

    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [begins]}
