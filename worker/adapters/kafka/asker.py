"""An admin client that no garbage collection makes end the process."""

from __future__ import annotations

import threading

from confluent_kafka import admin

_kept: list[AdminClient] = []
"""Clients that are left to the end of the process."""


class AdminClient(admin.AdminClient):
    """A client that is not taken down by a thread of librdkafka.

    Its answers arrive in a thread of its own, in Python, and whichever thread runs Python may come to look for garbage.
    If the client itself is garbage by then, librdkafka is asked to end by its own thread, and aborts the process
    (`rd_kafka_destroy_app`). Such a client is kept, which is rare.
    """

    def __del__(self) -> None:
        # Python makes dummies of threads that it has not begun.
        if isinstance(threading.current_thread(), threading._DummyThread):
            _kept.append(self)
