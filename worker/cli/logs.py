"""How the log is written: to stderr, for people or as JSON, and the same line at most once a minute.

Warnings and errors are the same line where event, partition and fact are, but for numbers in the fact: what goes wrong
again and again does so at other offsets. What is told as information is the same line where its text is. Of those that
are left out the last one is written when the minute is over, or at the exit, and says how many they were.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from worker.base.errors import WorkerError
from worker.base.log import LONGEST, Log, LogEvent, printable

_log = Log(__name__)

Format = Literal["auto", "human", "json"]
EVERY_S = 60.0
MOST_LINES = 1000
"""Different lines that are remembered, and so written in a minute; of all others those of one event go together."""

_NUMBER = re.compile(r"(?<![\w.:-])\d+(?!\w|[.:-]\w)")
"""Not one that is part of a name, an address or a version: those tell things apart."""
_WRITTEN = ("worker", "asyncio")
"""Our own log, and what asyncio has to say of the server of metrics and page: it has no other way to tell."""
_TIME = "%Y-%m-%dT%H:%M:%S"
_Key = tuple[object, ...]


def write_to_stderr(level: str) -> None:
    """Our own log, and warnings of asyncio: libraries that log their inner life at debug level would drown it."""
    handler = RateLimited(_StderrHandler())
    for name, least in zip(_WRITTEN, (level.upper(), "WARNING"), strict=True):
        log = logging.getLogger(name)
        for former in log.handlers:
            former.close()
        log.handlers = [handler]
        log.setLevel(least)
    use_format("human")


def use_format(chosen: Format, worker: str | None = None) -> None:
    """Write all lines from now on like this; `auto` is human on a terminal, JSON elsewhere.

    `worker` is who writes them, where that is known: the lines of several may come together.
    """
    is_human = sys.stderr.isatty() if chosen == "auto" else chosen == "human"
    for handler in logging.getLogger("worker").handlers:
        handler.setFormatter(Human(worker) if is_human else Json(worker))


def say_at_the_end(why: object) -> None:
    """Why the program ends, or what it leaves behind: an error of the log where that is JSON, else plain lines."""
    if any(isinstance(handler.formatter, Json) for handler in logging.getLogger("worker").handlers):
        fact, hint = (why.fact, why.hint) if isinstance(why, WorkerError) else (str(why), None)
        _log.error("ended", fact, hint=hint)
    else:
        for line in str(why).splitlines():
            # What a registry or a file says is in it; and where nobody can read it the exit code still tells.
            with suppress(OSError):
                print(f"amf-worker: {printable(line)}", file=sys.stderr, flush=True)


def say_what_was_left_out() -> None:
    """At the end of the process."""
    for handler in logging.getLogger("worker").handlers:
        handler.flush()


# --- lines ------------------------------------------------------------------------------------------------------------


class _Formatter(logging.Formatter):
    """Formats the lines of a worker, where it is known of which."""

    def __init__(self, worker: str | None = None) -> None:
        super().__init__()
        self.worker = worker


class Human(_Formatter):
    """A line for people: time, level, who, name of the event, a sentence. No text can begin a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record)
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}: {self.formatException(record.exc_info)}"
        name = record.name if event is None else event.name
        who = "" if self.worker is None else f"[{printable(self.worker)}] "
        return f"{_time_of(record)} {record.levelname} {who}{name}: {printable(text)}{self._left_out(record, event)}"

    @staticmethod
    def _left_out(record: logging.LogRecord, event: LogEvent | None) -> str:
        lines = getattr(record, "lines", 1)
        if lines == 1:
            return ""
        count = event.fields.get("count") if event is not None else None
        return f" [one of {lines:,} such lines{f', {count:,} in all' if isinstance(count, int) else ''}]"


class Json(_Formatter):
    """A JSON object: time, level, worker, logger, event, fact, detail, hint, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record) or LogEvent("log", record.getMessage(), None, None, {})
        line: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "worker": self.worker,
            "logger": record.name,
            "event": event.name,
            "fact": event.fact,
            "detail": event.detail,
            "hint": event.hint,
            **event.fields,
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
            "lines": getattr(record, "lines", None),
        }
        return json.dumps({name: value for name, value in line.items() if value is not None})


def _event_of(record: logging.LogRecord) -> LogEvent | None:
    event = getattr(record, "event", None)
    return event if isinstance(event, LogEvent) else None


def _time_of(record: logging.LogRecord) -> str:
    return f"{time.strftime(_TIME, time.gmtime(record.created))}.{int(record.msecs):03d}Z"


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the moment: a progress bar puts itself in its place while it is on screen."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


# --- how often --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Window:
    """A line that was written, and those like it that were not."""

    began_s: float
    left_out: int = 0
    counted: int = 0
    """Sum of their fields `count`."""
    last: logging.LogRecord | None = None

    def leave_out(self, record: logging.LogRecord) -> None:
        event = _event_of(record)
        count = event.fields.get("count") if event is not None else None
        self.left_out += 1
        self.counted += count if isinstance(count, int) else 0
        self.last = record

    def summary(self) -> logging.LogRecord | None:
        """The last line that was left out, which stands for all of them; None where there is none."""
        record, event = self.last, None if self.last is None else _event_of(self.last)
        if record is not None:
            record.lines = self.left_out
            if event is not None and self.counted:
                record.event = replace(event, fields={**event.fields, "count": self.counted})
        return record


class RateLimited(logging.Handler):
    """Hands lines on, but the same one at most once in EVERY_S. Any thread may log."""

    def __init__(self, target: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._clock = clock
        self._windows: dict[_Key, _Window] = {}
        """In the order in which they began."""
        self._timer: threading.Timer | None = None

    def setFormatter(self, formatter: logging.Formatter | None) -> None:  # noqa: N802 (logging's own name)
        super().setFormatter(formatter)
        self._target.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.INFO:
            self._target.handle(record)  # Who asks for these wants them all.
            return
        now_s = self._clock()
        self.write_due(now_s)
        key = _key_of(record)
        if key not in self._windows and len(self._windows) >= MOST_LINES:
            # An error is not lost among a thousand partitions that began, nor a stop among other errors.
            key = key[:2]
        window = self._windows.get(key)
        if window is None:
            self._windows[key] = _Window(now_s)
            self._target.handle(record)
        else:
            window.leave_out(record)
            self._be_woken()

    def write_due(self, now_s: float) -> None:
        """Write what was left out in the minutes that are over by now."""
        for key, window in list(self._windows.items()):
            if now_s - window.began_s < EVERY_S:
                break
            self._windows.pop(key, None)
            self._write(key, window, now_s)

    def flush(self) -> None:
        """Write what was left out so far."""
        self.acquire()
        try:
            for key, window in list(self._windows.items()):
                if window.last is not None:
                    self._windows.pop(key, None)
                    self._write(key, window, self._clock())
        finally:
            self.release()

    def close(self) -> None:
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        super().close()

    def _write(self, key: _Key, window: _Window, now_s: float) -> None:
        summary = window.summary()
        if summary is not None:
            self._windows[key] = _Window(now_s)
            self._target.handle(summary)

    def _be_woken(self) -> None:
        """Once the minute is over, though nobody logs anything then."""
        if self._timer is None:
            self._timer = threading.Timer(EVERY_S, self._wake)
            self._timer.daemon = True
            self._timer.start()

    def _wake(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self.write_due(self._clock())
            if any(window.last is not None for window in self._windows.values()):
                self._be_woken()
        finally:
            self.release()


def _key_of(record: logging.LogRecord) -> _Key:
    """What makes a line the same as another one."""
    event = _event_of(record)
    if event is None:
        return record.levelno, record.name, record.getMessage()[:LONGEST]
    if record.levelno < logging.WARNING:
        return record.levelno, event.name, record.getMessage()
    return record.levelno, event.name, event.fields.get("partition"), _NUMBER.sub("#", event.fact)
