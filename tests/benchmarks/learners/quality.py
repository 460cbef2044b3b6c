"""Log-loss and accuracy: ours, onelearn's published log-loss, batch learners that are refitted, river's forests.

    python -m tests.benchmarks quality [--rows 8000] [--seeds 8] [--trees 10,20] [--peers boosting,logistic,...]

The first rows of the shared sets (AMF_DATA), and of sets that ship with scikit-learn and river, on which no default was
chosen. Every row is forecast before its label; the first one is not scored, and a label that is given nothing is
charged log(rows learned + 2). Ours: mean over seeds. The peers: one seed, since they are slow and their seeds hardly
matter. With more rows than there are: whole streams. Below: geometric mean of the ratio to onelearn's log-loss, for the
sets that ship to ours with the fewest trees; wall time of one pass over all sets, on one core.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean, mean
from typing import TYPE_CHECKING

from tests.benchmarks.learners.baselines import PEERS, Learner, ask, forests
from tests.benchmarks.learners.tables import SHARED, Table, bundled, shared
from tests.benchmarks.peers.scripts.serve import score_classes
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

ROWS = 8000
WIDTH = 18


def measure(tables: Iterable[Table], learners: dict[str, tuple[Learner, int]]) -> dict[str, dict[str, float]]:
    """Log-loss by set and learner, printed with accuracy set by set; under "s" wall time of one pass over all sets."""
    losses: dict[str, dict[str, float]] = {}
    spent_s = dict.fromkeys(learners, 0.0)
    for table in tables:
        losses[table.name], cells = {}, []
        for name, (learner, seeds) in learners.items():
            said = [ask(learner, table, seed) for seed in range(seeds)]
            scores = [score_classes(one.probabilities, table.y) for one in said]
            losses[table.name][name] = loss = mean(each["log_loss"] for each in scores)
            spent_s[name] += mean(one.seconds for one in said)
            cells.append(f"{number(loss, 4)} {mean(each['accuracy'] for each in scores):7.2%}".rjust(WIDTH))
        print(f"{table.name:<14} {len(table.y):>6} {table.n_classes:>3}", *cells, flush=True)
    losses["s"] = spent_s
    return losses


def show(title: str, tables: Iterable[Table], learners: dict[str, tuple[Learner, int]], base: dict[str, float]) -> None:
    """Print a table. base: log-loss by set with which those of the learners are compared; none: the first learner's."""
    print(f"\n{title}\n{'':<14} {'rows':>6} {'K':>3}", *(f"{name:>{WIDTH}}" for name in learners))
    losses = measure(tables, learners)
    spent_s = losses.pop("s")
    if not losses:
        return
    first = next(iter(learners))
    base = base or {name: own[first] for name, own in losses.items()}
    means = (geometric_mean(own[name] / base[table] for table, own in losses.items()) for name in learners)
    print(f"{'ratio':<25}", *(f"{number(ratio, 4):>{WIDTH}}" for ratio in means))
    print(f"{'seconds':<25}", *(f"{number(seconds, 1):>{WIDTH}}" for seconds in spent_s.values()))


def main(options: Options) -> None:
    rows, seeds = options.rows or ROWS, options.seeds or 8
    learners = {name: (learner, seeds) for name, learner in forests(options.trees or [10, 20]).items()}
    learners |= {name: (PEERS[name], 1) for name in options.peers}
    if rows == ROWS:
        title, base = "Shared sets; ratio to onelearn's published log-loss", SHARED
    else:
        title, base = "Shared sets; onelearn's figures are of 8,000 rows, so the ratio is to the first column", {}
    show(title, shared(rows), learners, base)
    show("Sets that nobody chose a default on; ratio to the first column", bundled(rows), learners, {})
