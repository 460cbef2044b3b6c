"""What the worker tells its operator: one line for each event.

It has a stable name, a fact, what is behind it, what to do about it, and fields for machines. How lines look, and how
often the same one is repeated, is decided where they are written (worker.cli.logs).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from worker.base.errors import WorkerError

Field = str | int | float | list[int] | None
LONGEST = 2000
"""Characters of a part: what somebody else has said may be of any length."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """What happened, in parts. It is the attribute `event` of a record of the standard library's logging."""

    name: str
    """Stable: people filter by it."""
    fact: str
    detail: str | None
    """What is behind it, such as the words of a broker: it differs from time to time."""
    hint: str | None
    """What to do about it."""
    fields: dict[str, Field]


class Log:
    """The log of one module, on top of the standard library's."""

    def __init__(self, module: str) -> None:
        self._logger = logging.getLogger(module)

    def info(self, event: str, fact: str, **fields: Field) -> None:
        """Something went as it should."""
        self._say(logging.INFO, event, fact, None, None, fields)

    def warning(
        self, event: str, fact: str, *, detail: object = None, hint: str | None = None, **fields: Field
    ) -> None:
        """Something is not as it should be, and may become a trouble."""
        self._say(logging.WARNING, event, fact, detail, hint, fields)

    def error(self, event: str, fact: str, *, detail: object = None, hint: str | None = None, **fields: Field) -> None:
        """Something is lost, damaged or does not work."""
        self._say(logging.ERROR, event, fact, detail, hint, fields)

    def exception(self, event: str, fact: str, **fields: Field) -> None:
        """A mistake of ours, in an `except` clause: an error with its traceback."""
        self._say(logging.ERROR, event, fact, None, None, fields, with_traceback=True)

    def _say(
        self,
        level: int,
        name: str,
        fact: str,
        detail: object,
        hint: str | None,
        fields: dict[str, Field],
        *,
        with_traceback: bool = False,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        if isinstance(detail, WorkerError):
            hint = hint or detail.hint
            detail = detail.fact
        behind = None if detail is None else str(detail)[:LONGEST]
        event = LogEvent(name, fact[:LONGEST], behind, hint, fields)
        text = ": ".join(filter(None, (event.fact, event.detail)))
        text = f"{text}. {hint}" if hint else text
        self._logger.log(level, "%s", text, exc_info=with_traceback, extra={"event": event}, stacklevel=3)


def printable(text: str) -> str:
    """A text by others, such as a model key: none of it reaches a terminal as a command, or as a line of its own."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
