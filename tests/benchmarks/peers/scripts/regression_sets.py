"""Write the regression sets that come with river and scikit-learn as X (n, d) float64 and y (n,) in .npz files.

    python -m tests.benchmarks.peers.scripts.regression_sets FOLDER

Of river's bundled sets all that have one number as their target; a date becomes its number of days. Friedman is a
generator: `friedman-0` to `friedman-4` are its first 8,000 rows for each seed; `friedman_drift` has twice as many, and
another function from the middle on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from river import datasets
from sklearn.datasets import load_diabetes

BUNDLED = [
    datasets.TrumpApproval(),
    datasets.ChickWeights(),
    datasets.SP500Stocks(),
    datasets.AirlinePassengers(),
    datasets.WaterFlow(),
]
FRIEDMAN_SEEDS = range(5)
FRIEDMAN_ROWS = 8000
DAY_S = 86_400


def number(value: Any) -> float:
    if not isinstance(value, datetime):
        return float(value)
    return value.replace(tzinfo=value.tzinfo or UTC).timestamp() / DAY_S  # else it would depend on where this runs


def as_arrays(events: Iterable[tuple[dict[Any, Any], float]]) -> dict[str, np.ndarray]:
    rows, labels = zip(*events, strict=True)
    return {"X": np.array([[number(value) for value in row.values()] for row in rows]), "y": np.array(labels, float)}


def sets() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    x, y = load_diabetes(return_X_y=True)
    yield "diabetes", {"X": x, "y": y}
    for bundled in BUNDLED:
        yield type(bundled).__name__, as_arrays(bundled)
    for seed in FRIEDMAN_SEEDS:
        yield f"friedman-{seed}", as_arrays(datasets.synth.Friedman(seed=seed).take(FRIEDMAN_ROWS))
        drift = datasets.synth.FriedmanDrift("gra", (FRIEDMAN_ROWS, 2 * FRIEDMAN_ROWS), seed=seed)
        yield f"friedman_drift-{seed}", as_arrays(drift.take(2 * FRIEDMAN_ROWS))


if __name__ == "__main__":
    for name, arrays in sets():
        np.savez(Path(sys.argv[1]) / f"{name}.npz", **arrays)
