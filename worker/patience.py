"""Waiting for what does not answer yet, within a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from worker.errors import Transient
from worker.ports import Clock, Deadline

_log = logging.getLogger(__name__)

T = TypeVar("T")
_RETRY_S = 0.5


def patiently(clock: Clock, deadline: Deadline, what: str, call: Callable[[], T]) -> T:
    """Call until it does not raise Transient; the last one passes through when the deadline does."""
    while True:
        try:
            return call()
        except Transient as error:
            if deadline.remaining() <= _RETRY_S:
                raise
            _log.warning("%s: %s; trying again", what, error)
            clock.sleep(_RETRY_S)
