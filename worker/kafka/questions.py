"""Questions that several threads put to a client, which must be over before it is closed: what it is would be gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from worker.errors import Transient


class Questions:
    """How many questions are open, and whether there may be more. Any thread may call."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._open = 0
        self._held_off = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While a question is open. Raises Transient where there may be none now."""
        with self._changed:
            if self._held_off:
                raise Transient("the consumer is being closed")
            self._open += 1
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def hold_off(self) -> None:
        """Take no more questions, and wait for those that are open."""
        with self._changed:
            self._held_off = True
            self._changed.wait_for(lambda: not self._open)

    def go_on(self) -> None:
        """Take questions again."""
        with self._changed:
            self._held_off = False
