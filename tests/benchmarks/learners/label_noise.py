"""Labels without a signal: what a learner loses by seeing patterns where there are none.

    python -m tests.benchmarks noise [--rows 8000] [--seeds 8] [--trees 10,20] [--peers boosting,logistic,...]

Two classes in equal shares over five normal features, and 26 whose frequencies are 1 / rank. Nobody who does not know
the labels beforehand has a log-loss below their entropy in the mean; the excess is what is lost. Means over seeds, for
the peers of the first one.
"""

from __future__ import annotations

from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from tests.benchmarks.learners.baselines import PEERS, Probabilities, ask, forests, ours
from tests.benchmarks.learners.tables import Table, noise
from tests.benchmarks.peers.scripts.serve import score_classes
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

FEATURES = 5
PAPER = {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True, "scaling": "none", "pause": 1.0}


def frequencies(table: Table, seed: int) -> Probabilities:
    """The best that there is: the frequencies of the labels so far, half a label of each added."""
    counts = np.zeros((len(table.y), table.n_classes))
    counts[np.arange(1, len(table.y)), table.y[:-1]] = 1.0
    counts = np.cumsum(counts, axis=0) + 0.5
    return counts / counts.sum(axis=1, keepdims=True)


def main(options: Options) -> None:
    rows, seeds = options.rows or 8000, options.seeds or 8
    learners = {"frequencies": (frequencies, seeds)}
    learners |= {name: (learner, seeds) for name, learner in forests(options.trees or [10, 20]).items()}
    learners |= {"amf, the paper's": (partial(ours, n_estimators=10, **PAPER), seeds)}
    learners |= {name: (PEERS[name], 1) for name in options.peers}
    print(f"\nLabels without a signal, {rows:,} rows of {FEATURES} features")
    print(f"{'':<30} {'log-loss':>9} {'entropy':>9} {'excess':>9}")
    for n_classes in (2, 26):
        for name, (learner, passes) in learners.items():
            losses = []
            for seed in range(passes):
                table, entropy = noise(n_classes, FEATURES, seed, rows)
                losses.append(score_classes(ask(learner, table, seed).probabilities, table.y)["log_loss"])
            loss = mean(losses)
            cells = (f"{number(figure, 4):>9}" for figure in (loss, entropy, loss - entropy))
            print(f"{f'{n_classes} classes':<11} {name:<18}", *cells, flush=True)
