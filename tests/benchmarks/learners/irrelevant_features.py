"""Features that tell nothing: what a learner loses by a hundred of them beside those that it needs.

    python -m tests.benchmarks irrelevant [--rows 8000] [--seeds 5] [--trees 10,20] [--peers boosting,...]

Of the shared sets (AMF_DATA) the two smallest, and a table of clusters with 30 % positives, each as it is and with
normal numbers in so many further columns. Log-loss as in quality.py, means over seeds, for the peers of the first one;
and the ratio of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from tests.benchmarks.learners.baselines import PEERS, ask, forests
from tests.benchmarks.learners.tables import Table, clusters, shared
from tests.benchmarks.peers.scripts.serve import score_classes
from tests.benchmarks.report import at_most, number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

ROWS, SEEDS = 8000, 5
IRRELEVANT = 100
NAMES = ("car", "cardio")


def tables(rows: int) -> Iterator[Table]:
    """Those that columns are added to."""
    yield from (table for table in shared(rows) if table.name in NAMES)
    yield clusters(0.3, 10, 0, rows)


def with_irrelevant(table: Table, seed: int, n_columns: int = IRRELEVANT) -> Table:
    """The table with so many columns more, which are of no use."""
    numbers = np.random.default_rng(seed).normal(size=(len(table.y), n_columns))
    return replace(table, x=np.column_stack((table.x, numbers)))


def main(options: Options) -> None:
    rows, seeds = options.rows or ROWS, options.seeds or SEEDS
    learners = {name: (learner, seeds) for name, learner in forests(options.trees or [10]).items()}
    learners |= {name: (PEERS[name], 1) for name in options.peers}
    print(f"\n{IRRELEVANT} irrelevant features, {rows:,} rows at most")
    print(f"{'':<40} {'without':>9} {'with':>9} {'ratio':>9}")
    for table in tables(rows):
        for name, (learner, passes) in learners.items():
            own, noisy = (
                mean(score_classes(ask(learner, one, seed).probabilities, one.y)["log_loss"] for seed, one in pairs)
                for pairs in (
                    [(seed, table) for seed in range(passes)],
                    [(seed, with_irrelevant(table, seed)) for seed in range(passes)],
                )
            )
            cells = f"{number(own, 4):>9} {number(noisy, 4):>9} {noisy / own:>9.3f}"
            verdict = f"   {at_most(1.1).verdict(noisy / own)}" if name.startswith("adaptive") else ""
            print(f"{table.name:<21} {name:<18} {cells}{verdict}", flush=True)
