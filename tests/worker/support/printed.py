"""A command line to call, and what commands print, taken apart."""

from __future__ import annotations

import re
from collections.abc import Callable

Main = Callable[..., tuple[int, str, str]]
"""Called with the words of a command line: exit code, stdout, stderr."""


def figures(out: str) -> dict[str, str]:
    """The lines of a table with two columns."""
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in out.splitlines() if "  " in line)  # type: ignore[misc]


def table_rows(out: str) -> list[list[str]]:
    """The cells of the lines of a table."""
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line[:1] == " "]


def without_speed(out: str) -> list[str]:
    """The lines of what `evaluate` prints that are the same each time."""
    return [" ".join(line.split()) for line in out.splitlines() if not line.startswith("events/s")]
