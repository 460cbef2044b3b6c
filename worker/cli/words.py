"""Words of the command line as values: what becomes of one and what is said of one that will not do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal, TypeVar

T = TypeVar("T", int, float)


def ends(text: str) -> Literal["end"] | dict[int, int]:
    """`end`, or the end of each partition."""
    if text == "end":
        return "end"
    if re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text, re.ASCII):
        pairs = [each.split(":") for each in text.split(",")]
        ends = {int(partition): int(offset) for partition, offset in pairs}
        if len(ends) == len(pairs):
            return ends
    raise argparse.ArgumentTypeError(
        f"expected `end`, or PARTITION:OFFSET,... with each partition once, found {text!r}"
    )


def setting(text: str) -> tuple[str, str]:
    """A name and a value."""
    name, equals, value = text.partition("=")
    if not (re.fullmatch(r"[\w.]+", name) and equals):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE such as n_estimators=20, found {text!r}")
    return name, value


def by_name(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of settings with one name the last, where it stands: it is above what was said of the same keys before it."""
    found: dict[str, str] = {}
    for name, value in settings:
        found.pop(name, None)
        found[name] = value
    return found


MOST_PROCESSES = 1000
MOST_PARTITIONS = 100_000
"""Of a topic: what librdkafka takes."""


def processes(text: str) -> int | Literal["auto"]:
    """How many processes."""
    return "auto" if text == "auto" else up_to(MOST_PROCESSES)(text)


def ports(text: str) -> tuple[int, ...]:
    """Numbers of ports."""
    return tuple(map(int, text.split(",")))


def above_zero(kind: Callable[[str], T]) -> Callable[[str], T]:
    """What `kind` makes of the text, if that is a number above 0."""

    def parse(text: str) -> T:
        with suppress(ValueError):
            value = kind(text)
            if 0 < value < float("inf"):
                return value
        number = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"expected a {number} above 0, found {text!r}")

    return parse


def up_to(most: int) -> Callable[[str], int]:
    """A whole number from 1 to `most`."""

    def parse(text: str) -> int:
        with suppress(ValueError):
            if 1 <= (value := int(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"expected a whole number between 1 and {most}, found {text!r}")

    return parse


def span(text: str) -> float:
    """A time span in seconds."""
    parsed = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text)
    if parsed is None:
        raise argparse.ArgumentTypeError(
            f"expected a number of days, hours, minutes or seconds as in 30d, found {text!r}"
        )
    return float(parsed[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[parsed[2]]
