"""Rare positives: 10, 3, 1 and 0.3 % of them, ours beside batch learners that are refitted and river's forests.

    python -m tests.benchmarks imbalance [--rows 10000] [--seeds 2] [--trees 10] [--peers boosting,logistic,...]

Tables (tables.py), for each seed 0, 1, ...: clusters of make_classification in 5 and in 20 features, a disc in two
features, and payments with texts and missing values at 1.2 % positives. Every row is forecast before its label; the
first 1,000 rows are warm-up and not scored. Columns, means over seeds:

    AUC, AP     area under the ROC curve; average precision, which the share of positives bounds from below
    log-loss    of all rows; a label that is given nothing is charged log(rows learned + 2)
    ECE         expected calibration error of the positives' probability, 15 bins of equal mass
    s           wall time of one table
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.learners.baselines import PEERS, Said, ask, forests
from tests.benchmarks.learners.tables import FRAUD_SHARE, Table, clusters, disc, fraud
from tests.benchmarks.peers.scripts.serve import loss_of_labels
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

SHARES = (0.10, 0.03, 0.01, 0.003)
WARM_UP = 1000
BINS = 15
HEADS = {"AUC": 4, "AP": 4, "log-loss": 5, "ECE": 5, "s": 1}
"""Columns and their digits."""


def groups(rows: int, seeds: int) -> Iterator[tuple[str, list[Table]]]:
    """(name, tables of all seeds)."""
    for share in SHARES:
        for d in (5, 20):
            yield f"{share:.1%}, clusters in {d}", [clusters(share, d, seed, rows) for seed in range(seeds)]
        yield f"{share:.1%}, disc", [disc(share, seed, rows) for seed in range(seeds)]
    yield f"{FRAUD_SHARE:.1%}, fraud", [fraud(seed, rows) for seed in range(seeds)]


def calibration_error(probability: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Mean distance between forecast and frequency over BINS bins of as many rows each, sorted by forecast."""
    order = np.argsort(probability, kind="stable")
    parts = np.array_split(order, BINS)
    return float(sum(abs(probability[part].sum() - y[part].sum()) for part in parts) / len(y))


def scores(said: Said, y: NDArray[np.int64]) -> dict[str, float]:
    """The columns of HEADS."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    probability, labels = said.probabilities[WARM_UP:, 1], y[WARM_UP:]
    return {
        "AUC": float(roc_auc_score(labels, probability)),
        "AP": float(average_precision_score(labels, probability)),
        "log-loss": float(loss_of_labels(said.probabilities, y)[WARM_UP:].mean()),
        "ECE": calibration_error(probability, labels),
        "s": said.seconds,
    }


def main(options: Options) -> None:
    learners = {**forests(options.trees or [10]), **{name: PEERS[name] for name in options.peers}}
    rows, seeds = options.rows or 10_000, options.seeds or 2
    print(f"\nRare positives: {rows:,} rows, seeds 0 to {seeds - 1}, warm-up {WARM_UP:,}")
    print(f"{'':<45}", *(f"{head:>9}" for head in HEADS))
    for group, tables in groups(rows, seeds):
        for name, learner in learners.items():
            own = [scores(ask(learner, table, seed), table.y) for seed, table in enumerate(tables)]
            cells = (f"{number(mean(score[head] for score in own), digits):>9}" for head, digits in HEADS.items())
            print(f"{group:<26} {name:<18}", *cells, flush=True)
