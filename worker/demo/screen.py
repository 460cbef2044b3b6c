"""What the demo shows: on a terminal a table that lives below the story, elsewhere plain lines."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from worker.cli.terminal import size

PLAIN_LINE_S = 5.0
_REDRAW_S = 0.25
_INDENT = 9
"""Width of the time before each step."""
_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 16
_WIDE = 100
_PLAIN_ROWS = 20
_PLAIN_WIDTHS = (9, 8, 7, 8, 5, 7, 8)
_LINES_BESIDE_ROWS = 12
"""Lines of the terminal that are not for rows of the table."""


class ModelRow(NamedTuple):
    """One model in the table; what is not known yet is None."""

    model: str
    events: int
    log_loss: float | None
    recent_log_loss: float | None
    accuracy: float | None
    depth: float | None
    nodes: float | None
    memory_bytes: float | None
    curve: Sequence[float]


@dataclass(frozen=True, slots=True)
class View:
    """What there is to see at one moment."""

    elapsed_s: float
    length_s: float
    state: str
    """Of the worker, in a word or two."""
    rate: float
    """Events that came out, a second."""
    waiting: int
    """Events that were published and have not come out yet."""
    checkpoint_age_s: float | None
    rows: Sequence[ModelRow]


def open_screen() -> Screen:
    """The screen that the standard output can take."""
    console = Console(highlight=False)
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen(console)


class Screen(ABC):
    """Tells the story line by line, and shows a view of the moment."""

    def __init__(self, console: Console, every_s: float) -> None:
        self.console = console
        self._start_s = time.monotonic()
        self._every_s = every_s
        self._shown_s = 0.0

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def show(self, view: View) -> None:
        """Show the view; to be called when it is `due`."""

    def due(self) -> bool:
        """Whether the last view has been there for long enough."""
        now_s = time.monotonic()
        if now_s - self._shown_s < self._every_s:
            return False
        self._shown_s = now_s
        return True

    def step(self, text: str, *more: str, style: str = "bold") -> None:
        """One event of the story with the time it happened; further lines explain it."""
        at = f"{time.monotonic() - self._start_s:5.1f} s".ljust(_INDENT)
        self.console.print(Text.assemble((at, "dim"), (text, style)), soft_wrap=True)
        self.note(*more)

    def note(self, *lines: str) -> None:
        """What explains the step before."""
        for line in lines:
            self.console.print(Text(" " * _INDENT + line, "dim"), soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """A line that is no part of the story."""
        self.console.print(Text(text, style), soft_wrap=True)


class PlainScreen(Screen):
    """Lines for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, PLAIN_LINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.console.file.flush()

    def show(self, view: View) -> None:
        self.step(_headline(view), style="")
        for line in _lines(view):
            self.line(f"  {line}", "dim")
        self.console.file.flush()


class LiveScreen(Screen):
    """A table that is redrawn in place; the story scrolls above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, _REDRAW_S)
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        self._live.update(self._draw(view), refresh=True)

    def _draw(self, view: View) -> RenderableType:
        wide = self.console.width >= _WIDE
        table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), header_style="dim")
        table.add_column("model", no_wrap=True, max_width=16)
        for header in _HEADERS:
            table.add_column(header, justify="right", no_wrap=True)
        if wide:
            table.add_column("log-loss over time", no_wrap=True)
        most = max(3, self.console.height - _LINES_BESIDE_ROWS)
        for row in view.rows[:most]:
            cells = [Text(cell) for cell in _cells(row)]
            cells[1].stylize("bold")
            if wide:
                cells.append(Text(_curve(row.curve), "cyan"))
            table.add_row(Text(row.model, "bold"), *cells)
        footer = [Text(line, "dim") for line in _and_more(view.rows, most)]
        return Group(Text(), self._status(view), Text(), *([table] if view.rows else []), *footer)

    def _status(self, view: View) -> Text:
        return Text.assemble(
            ("worker ", "dim"), (view.state, f"bold {_COLOURS.get(view.state, 'red')}"),
            *(part for label, value in _figures(view) for part in ((" · ", "dim"), (value, "bold"), (label, "dim"))),
        )  # fmt: skip


_COLOURS = {"live": "green", "ready": "green", "ended": "default"}
_HEADERS = ("events", "log-loss", "last 1k", "accuracy", "depth", "nodes", "memory")


def _cells(row: ModelRow) -> list[str]:
    return [
        f"{row.events:,}",
        _known(row.log_loss, "{:.3f}"),
        _known(row.recent_log_loss, "{:.3f}"),
        _known(row.accuracy, "{:.1%}"),
        _known(row.depth, "{:.1f}"),
        _known(row.nodes, "{:,.0f}"),
        "-" if row.memory_bytes is None else size(int(row.memory_bytes)),
    ]


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _figures(view: View) -> list[tuple[str, str]]:
    """(label, value) of the figures over all models."""
    figures = [(" events/s", f"{view.rate:,.0f}"), (" waiting", f"{view.waiting:,}")]
    if view.checkpoint_age_s is not None:
        figures.append((" checkpoint age", f"{view.checkpoint_age_s:.0f} s"))
    if view.length_s:
        figures.append((f"/{view.length_s:.0f} s", f"{view.elapsed_s:.0f}"))
    return figures


def _headline(view: View) -> str:
    figures = ", ".join(f"{value}{label}" for label, value in _figures(view))
    return f"{view.state}, {figures}"


def _lines(view: View) -> list[str]:
    """The table as lines."""
    shown = view.rows[:_PLAIN_ROWS]
    table = [("model", *_HEADERS), *((row.model, *_cells(row)) for row in shown)] if shown else []
    lines = [
        " ".join([model[:14].ljust(14), *(cell.rjust(width) for cell, width in zip(cells, _PLAIN_WIDTHS, strict=True))])
        for model, *cells in table
    ]
    return [*lines, *_and_more(view.rows, _PLAIN_ROWS)]


def _and_more(rows: Sequence[ModelRow], shown: int) -> list[str]:
    return [f"... and {len(rows) - shown} more models"] if len(rows) > shown else []


def _curve(points: Sequence[float]) -> str:
    """A curve in block characters, from half of its own highest point up to that."""
    if not points:
        return ""
    width = min(len(points), _CURVE_WIDTH)
    shown = [points[(i + 1) * len(points) // width - 1] for i in range(width)]
    top = max(shown) or 1.0
    heights = (int((2.0 * point / top - 1.0) * len(_BARS)) for point in shown)
    return "".join(_BARS[min(max(height, 0), len(_BARS) - 1)] for height in heights)
