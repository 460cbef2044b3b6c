"""Learners that forecast every row of a table before its label: ours, river's, and batch learners that are refitted.

Each is a function of a table and a seed, and gives probabilities (n, K), zero for a class that it does not know yet.
Ours and river's learn after each row. The others are fitted anew every REFIT rows on all rows so far, and know the
frequencies of the labels alone before the first time. Everybody has one core.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.learners.tables import Table

REFIT = 500
Probabilities = NDArray[np.float64]
Learner = Callable[[Table, int], Probabilities]


class Said(NamedTuple):
    """What a learner said of a table, and how long it took."""

    probabilities: Probabilities
    seconds: float


def ask(learner: Learner, table: Table, seed: int) -> Said:
    """All forecasts. Raises AssertionError for numbers that are no probabilities: no score is to hide them."""
    start = time.perf_counter()
    said = learner(table, seed)
    seconds = time.perf_counter() - start
    assert np.all(np.isfinite(said)), f"{np.sum(~np.isfinite(said).all(axis=1))} forecasts are not finite"
    assert np.all(np.abs(said[1:].sum(axis=1) - 1.0) < 1e-6), "probabilities do not add up to 1"
    return Said(said, seconds)


def ours(
    table: Table, seed: int, kind: type[amf.AMFClassifier] = amf.AMFClassifier, **parameters: Any
) -> Probabilities:
    """This library, classes given; texts, and what is missing, become columns as they come."""
    forest = kind(classes=range(table.n_classes), seed=seed, **parameters)
    if not table.categories and not np.isnan(table.x).any():
        return forest.predict_learn(table.x, table.y)
    columns = amf.Columns(forest)
    said = np.empty((len(table.y), table.n_classes))
    for row, features in enumerate(table.objects()):
        one = slice(row, row + 1)
        if row:
            said[one] = forest.predict_proba(columns.matrix([features]))
        if new := columns.new(features):
            columns.add(new)
        forest.partial_fit(columns.matrix([features]), table.y[one])
    said[0] = 1.0 / table.n_classes
    return said


def _row_by_row(make: Callable[[int], Any], table: Table, seed: int) -> Probabilities:
    """A model of river, which takes rows as dicts; classes are those it has met."""
    model = make(seed)
    said = np.zeros((len(table.y), table.n_classes))
    rows = table.numbers().tolist()
    for i, (row, label) in enumerate(zip(rows, table.y.tolist(), strict=True)):
        features = dict(enumerate(row))
        for known, probability in model.predict_proba_one(features).items():
            said[i, known] = probability
        if not said[i].any():
            said[i] = 1.0 / table.n_classes  # nothing is known yet
        model.learn_one(features, label)
    return said


def river_amf(table: Table, seed: int) -> Probabilities:
    """river's Aggregated Mondrian Forest, ten trees."""
    from river import forest

    return _row_by_row(lambda seed: forest.AMFClassifier(n_estimators=10, seed=seed), table, seed)


def river_arf(table: Table, seed: int) -> Probabilities:
    """river's Adaptive Random Forest, ten trees."""
    from river import forest

    return _row_by_row(lambda seed: forest.ARFClassifier(n_models=10, seed=seed), table, seed)


def _refitted(make: Callable[[Table, int], Any], rows: NDArray[np.float64], table: Table, seed: int) -> Probabilities:
    """A model of scikit-learn, fitted anew every REFIT rows."""
    from threadpoolctl import threadpool_limits

    said = np.zeros((len(table.y), table.n_classes))
    for start in range(0, len(table.y), REFIT):
        part = slice(start, start + REFIT)
        counts = np.bincount(table.y[:start], minlength=table.n_classes)
        if np.count_nonzero(counts) < 2:
            said[part] = (counts + 0.5) / (start + 0.5 * table.n_classes)
            continue
        model = make(table, seed)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of rare classes, and of a fit that stops early
            model.fit(rows[:start], table.y[:start])
            said[part, model.classes_] = model.predict_proba(rows[part])
    return said


def boosting(table: Table, seed: int) -> Probabilities:
    """scikit-learn's HistGradientBoosting in its defaults, told which columns are texts."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def make(table: Table, seed: int) -> Any:
        # Its own share of rows that decide when to stop needs two rows of each class.
        texts = list(table.categories) or None
        return HistGradientBoostingClassifier(categorical_features=texts, random_state=seed, early_stopping=False)

    return _refitted(make, table.x, table, seed)


def logistic(table: Table, seed: int) -> Probabilities:
    """scikit-learn's logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def make(table: Table, seed: int) -> Any:
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))

    return _refitted(make, table.numbers(), table, seed)


PEERS: dict[str, Learner] = {
    "boosting": boosting,
    "logistic": logistic,
    "river-amf": river_amf,
    "river-arf": river_arf,
}


def forests(trees: list[int]) -> dict[str, Learner]:
    """Ours, plain and adaptive, by number of trees, those in the background counted in."""
    kinds = {"amf": amf.AMFClassifier, "adaptive": amf.AdaptiveAMFClassifier}
    return {
        f"{name}, {n} trees": partial(ours, kind=kind, n_estimators=n)
        for name, kind in kinds.items()
        for n in trees
        if n
    }
