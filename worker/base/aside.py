"""A call that may never return, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """A call, begun. Its thread is left behind where nobody waits for it any more, and does not hold up the process."""

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ends_within(self, seconds: float) -> bool:
        """Whether the call has returned or raised, or does so in this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def answer(self) -> T:
        """What the call returned, once it has ended; raises what it raised. To be asked for once."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._answer  # type: ignore[return-value]
        finally:
            # It refers to this frame and those of the call: all would live on, and a client of librdkafka with its
            # threads among them, until garbage is collected.
            del error

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error
