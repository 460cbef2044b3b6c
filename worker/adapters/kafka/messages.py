"""Messages of the client: some at a time, by the memory that they take, and as records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

from worker.base.records import Headers, Record

READ_BYTES = 32 * 2**20
"""Values after which no more are read at a time; the last piece may go beyond."""
_MOST_AT_ONCE = 256
"""Messages of a piece at most: so many may be much larger than those before."""
_NAME_SHOWN_BYTES = 40
_headers_of = methodcaller("headers")
"""`message.headers()`, by a call whose outcome is checked.

Where a name is not UTF-8, confluent-kafka 2.16 returns a list with holes in it and an exception beside it. A loop that
the interpreter has specialised takes the list, whose holes must not be touched, and meets the exception anywhere later.
"""


class Pieces:
    """Reads as one call of the client does, but no more than some megabytes.

    A call gives as many messages as it was asked for, whatever they take, and goes on beyond its timeout while more of
    them come: 6,000 of 900 kB were 5 GB, after four seconds.
    """

    def __init__(self) -> None:
        self._largest = READ_BYTES
        """Bytes of the largest message of the last piece."""

    def of(self, consume: Callable[[int, float], list[Any]], most: int, timeout_s: float) -> Iterator[Any]:
        """At most so many messages, fewer after READ_BYTES or where they are not there within the timeout."""
        deadline, n_bytes = time.monotonic() + timeout_s, 0
        while most > 0 and n_bytes < READ_BYTES:
            n = max(1, min(most, _MOST_AT_ONCE, (READ_BYTES - n_bytes) // self._largest))
            messages = consume(n, max(0.0, deadline - time.monotonic()))
            yield from messages
            if messages:
                sizes = [len(message) for message in messages]
                self._largest, n_bytes = max(1, *sizes), n_bytes + sum(sizes)
            if len(messages) < n:
                return
            most -= n


def record_of(message: Any) -> Record:
    """The record in a message, whatever its headers are: what one record does must not stop the others."""
    headers: Headers = []
    fault = None
    try:
        headers = _headers_of(message) or []
    except (SystemError, UnicodeDecodeError) as error:
        fault = _fault_of(error)
    return Record(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
        fault,
        message.leader_epoch(),
    )


def _fault_of(error: BaseException) -> str:
    """What the bytes of the headers have to do with it, the first of their names that is not UTF-8; else it goes on."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnicodeDecodeError):
        cause = cause.__cause__
    if cause is None:
        raise error
    name: bytes = cause.object
    shown = repr(name[:_NAME_SHOWN_BYTES])
    size = f"... ({len(name)} bytes)" if len(name) > _NAME_SHOWN_BYTES else ""
    return f"the name of a header is not UTF-8: {shown}{size}"
