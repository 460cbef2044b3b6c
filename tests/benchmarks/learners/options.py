"""How much of the benchmarks of quality is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """What the command line asks for; None: as the benchmark itself has it."""

    rows: int | None = None
    seeds: int | None = None
    trees: list[int] | None = None
    """Sizes of our forests; 0 is none."""
    peers: tuple[str, ...] = ()
