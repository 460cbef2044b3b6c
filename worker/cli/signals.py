"""The signals by which a worker is ended."""

from __future__ import annotations

import os
import signal
from types import FrameType

from worker.base.log import Log

_log = Log(__name__)


class Signals:
    """SIGTERM or SIGINT asks for an orderly end; a second one ends the process at once, which loses nothing."""

    def __init__(self) -> None:
        self._stop = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def should_stop(self) -> bool:
        return self._stop

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._stop:
            os._exit(128 + number)
        self._stop = True
        _log.info("stopping", f"{signal.Signals(number).name}: finishing; a second signal ends at once")
