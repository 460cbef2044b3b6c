"""How figures are printed: beside their target, and saying whether it is met."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    bound: float
    at_least: bool

    def met(self, figure: float) -> bool:
        """False for NaN, which is a figure that was not measured."""
        return figure >= self.bound if self.at_least else figure <= self.bound

    def halved(self) -> Target:
        """What no single data set may fall short of: half of the speed, twice the size."""
        return Target(self.bound / 2 if self.at_least else self.bound * 2, self.at_least)

    def verdict(self, figure: float) -> str:
        word = "not measured" if math.isnan(figure) else "met" if self.met(figure) else "MISSED"
        return f"target {self}: {word}"

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:,.10g}"


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def at_most(bound: float) -> Target:
    return Target(bound, at_least=False)


def number(figure: float, digits: int = 0) -> str:
    """The figure as text, a dash where there is none."""
    return "-" if math.isnan(figure) else f"{figure:,.{digits}f}"


def show(what: str, figure: float, target: Target, digits: int = 1) -> None:
    """Print a figure beside its target."""
    print(f"{what:<58} {number(figure, digits):>10}   {target.verdict(figure)}", flush=True)
