"""What people see: progress and tables. Drawn by rich on a terminal; plain lines that grep and logs can take elsewhere.

Progress goes to stderr and tables to stdout, so that a result can be piped while the progress stays on screen.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from worker.base.log import printable

Advance = Callable[[float, int], None]
"""Told of the share of the work that is done, 0 to 1, and of how many so far; cheap enough for every row."""

_REDRAW_S = 0.1
_PLAIN_LINE_S = 10.0
_PATIENCE_S = 2.0


@contextmanager
def progress(label: str, of: str = "rows") -> Iterator[Advance]:
    """Show how far work on so many things has come; nothing else is printed meanwhile. A share of 0: nobody knows."""
    if not sys.stderr.isatty():
        yield _Throttled(_PLAIN_LINE_S, lambda share, n, rate: _say(f"{label}: {_done(share)}{_speed(n, of, rate)}"))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0, speed="")
        yield _Throttled(_REDRAW_S, lambda share, n, rate: bar.update(task, completed=share, speed=_speed(n, of, rate)))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", left: int = 1) -> None:
    """Print rows under headers; the first `left` columns are text, the others figures and flush right."""
    headers, *cells = [[printable(cell) for cell in row] for row in (headers, *rows)]
    if sys.stdout.isatty():
        _draw(headers, cells, printable(title), left)
        return
    if title:
        print(printable(title))
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for row in [headers, *cells] if any(headers) else cells:
        padded = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(padded).rstrip())


@contextmanager
def status(label: str) -> Iterator[None]:
    """Show that something is under way of which nobody knows how far it is, if it takes longer than a moment."""
    if not sys.stderr.isatty():
        timer = threading.Timer(_PATIENCE_S, _say, [f"{label} ..."])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


class Interrupt:
    """Ctrl-C, for work that ends in order."""

    def __init__(self) -> None:
        self.pressed = False
        self._at_once = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Only note it in here; a second one raises KeyboardInterrupt."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Where it is noted, have the first one end what is in here, too: it may wait for long, and changes nothing."""
        self._at_once = True
        try:
            yield
        except KeyboardInterrupt:
            self.pressed = True
        finally:
            self._at_once = False

    def _press(self, *_: object) -> None:
        again, self.pressed = self.pressed, True
        if again or self._at_once:
            raise KeyboardInterrupt


def say(sentence: str, colour: str = "") -> None:
    """Print a sentence of the result, whatever texts of the data are in it; the colour is for terminals."""
    if not sys.stdout.isatty():
        print(printable(sentence))
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(printable(sentence), colour))


def remark(sentence: str) -> None:
    """Say something on stderr that the user should know, and that is no failure."""
    _say(f"note: {printable(sentence)}")


def count(n: int) -> str:
    return f"{n:,}"


def size(n_bytes: int) -> str:
    """Bytes in the unit that people would choose."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} B"


def age(seconds: float) -> str:
    """A time span in the unit that people would choose."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


class _Throttled:
    """Passes on one call in `every_s` seconds, with how many a second there were since the start."""

    def __init__(self, every_s: float, show: Callable[[float, int, float], None]) -> None:
        self._every_s, self._show = every_s, show
        self._start_s = self._shown_s = time.monotonic()

    def __call__(self, share: float, n: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            self._show(share, n, n / (now_s - self._start_s))


def _done(share: float) -> str:
    return f"{share:.0%}, " if share else ""  # of a pipe nobody knows


def _speed(n: int, of: str, rate: float) -> str:
    return f"{n:,} {of}, {rate:,.0f}/s"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _draw(headers: Sequence[str], cells: Sequence[Sequence[str]], title: str, left: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text takes the cells as they are: a model key such as [red] is no markup.
    drawn = Table(box=box.SIMPLE_HEAD if any(headers) else None, show_header=any(headers), show_edge=False)
    for column, header in enumerate(headers):
        drawn.add_column(Text(header), justify="left" if column < left else "right")
    for row in cells:
        drawn.add_row(*map(Text, row))
    # A title of the table's own would be as narrow as the table.
    Console().print(*([Text(title, "bold")] if title else []), drawn, sep="\n")
