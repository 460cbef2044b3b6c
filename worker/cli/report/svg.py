"""Charts as SVG within a page: lines, points and bars. Colours and fonts are those of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

NARROW, WIDE = 560, 1160
_HEIGHT = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 14, 12, 42
_MOST_TICKS = 6

Points = Sequence[tuple[float, float]]


class Series(NamedTuple):
    """What is drawn in one colour; `style` is a class of the style sheet."""

    name: str
    points: Points
    style: str
    dots: bool = False
    line: bool = True


class Axis(NamedTuple):
    """An axis, and where it begins and ends; one without length is given some."""

    title: str
    low: float
    high: float


def chart(series: Sequence[Series], across: Axis, up: Axis, width: int = NARROW) -> str:
    """Lines and points over two axes, and a legend where there are several with a name.

    One that is WIDE is drawn NARROW as well, for a page that has no room: its letters would be too small to read.
    """
    widths = {"": width} if width == NARROW else {"roomy": width, "cramped": NARROW}
    drawn = "".join(_drawn(series, across, up, each, style) for style, each in widths.items())
    named = [each for each in series if each.name]
    keys = " ".join(f'<span class="key {each.style}">{escape(each.name)}</span>' for each in named)
    return drawn + (f'<p class="legend">{keys}</p>' if len(named) > 1 else "")


def _drawn(series: Sequence[Series], across: Axis, up: Axis, width: int, style: str) -> str:
    across, up = _of_some_length(across), _of_some_length(up)
    x = _scale(across, _LEFT, width - _RIGHT)
    y = _scale(up, _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(across, up, x, y, width)]
    for each in series:
        # A chart may be cut, as where one early loss dwarfs all others: what lies beyond is drawn at the edge.
        places = [(x(a), y(min(max(b, up.low), up.high))) for a, b in each.points]
        if each.line:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            parts.append(f'<polyline class="line {each.style}" points="{path}"/>')
        if each.dots:
            radius = 4 if each.line else 1.8
            parts += [f'<circle class="dot {each.style}" cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>' for a, b in places]
    title = escape(f"{up.title} over {across.title}")
    known = f'viewBox="0 0 {width} {_HEIGHT}" role="img" aria-label="{title}"'
    return f'<svg class="{style}" {known}>{"".join(parts)}</svg>'


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, at most six."""
    if not (math.isfinite(low) and math.isfinite(high)) or high - low <= 1e-12 * max(abs(low), abs(high)):
        return [low]  # where both are one number but for its last digits, a step is none
    raw = (high - low) / (_MOST_TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * each for each in (1.0, 2.0, 5.0, 10.0) if unit * each >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def texts_of(values: Sequence[float]) -> list[str]:
    """The texts of an axis' ticks: all in thousands, or all in millions, by a letter, where the largest is."""
    largest = max(map(abs, values), default=0.0)
    scale, letter = next(((s, by) for s, by in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= s), (1.0, ""))
    return [f"{value / scale:.3g}{letter if value else ''}" for value in values]


def _grid(across: Axis, up: Axis, x: Callable[[float], float], y: Callable[[float], float], width: int) -> str:
    left, right, bottom = _LEFT, width - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick, text in _labelled(up):
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{text}</text>')
    for tick, text in _labelled(across):
        place = f'x="{x(tick):.1f}"' if x(tick) < right - _RIGHT else f'x="{width - 1}" style="text-anchor: end"'
        parts.append(f'<text class="tick" {place} y="{bottom + 17}" text-anchor="middle">{text}</text>')
    middle = (_TOP + bottom) / 2
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    for title, place in (
        (across.title, f'x="{(left + right) / 2}" y="{_HEIGHT - 6}"'),
        (up.title, f'transform="translate(13 {middle}) rotate(-90)"'),
    ):
        parts.append(f'<text {place} text-anchor="middle">{escape(title)}</text>')
    return "".join(parts)


def _labelled(axis: Axis) -> Iterator[tuple[float, str]]:
    """Ticks and their texts."""
    places = ticks(axis.low, axis.high)
    return zip(places, texts_of(places), strict=True)


def _of_some_length(axis: Axis) -> Axis:
    return axis if axis.high > axis.low else axis._replace(high=axis.low + (abs(axis.low) or 1.0))


def _scale(axis: Axis, first: float, last: float) -> Callable[[float], float]:
    return lambda value: first + (value - axis.low) / (axis.high - axis.low) * (last - first)
