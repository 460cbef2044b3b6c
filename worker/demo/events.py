"""Events for the demo: card payments of some shops, each shop with a problem of its own, some easy and some hard.

Whether a payment is fraud depends on its features by a rule that is drawn once for each shop. How sharp the rule is
sets how far any model's log-loss can fall, so the forests of the demo end up visibly apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.base.records import Label
from worker.cli.dataset import Row, Rows

_BLOCK_ROWS = 1024
_MISSING_SHARE = 0.05


class _Kind(NamedTuple):
    """What a shop sells, and how plainly fraud shows there."""

    name: str
    sharpness: float
    labels: tuple[str, ...]


_KINDS = (
    _Kind("books", 30.0, ("ok", "fraud")),
    _Kind("games", 6.0, ("ok", "fraud")),
    _Kind("hotels", 2.0, ("ok", "fraud")),
    _Kind("phones", 15.0, ("ok", "review", "fraud")),
    _Kind("shoes", 4.0, ("ok", "review", "fraud")),
    _Kind("tickets", 0.6, ("ok", "fraud")),
)


class _Shop:
    """The rule of one shop: a weighted sum of the features and one product of two, compared with thresholds."""

    def __init__(self, number: int, rng: np.random.Generator) -> None:
        kind = _KINDS[number % len(_KINDS)]
        series = number // len(_KINDS)
        self.key = f"{kind.name}-{series + 1}" if series else kind.name
        self._kind = kind
        self._weights = rng.normal(size=5) * (rng.permutation(5) < 3)
        self._pair = rng.choice(5, size=2, replace=False)

    def labels(self, z: NDArray[np.float64], chance: NDArray[np.float64]) -> list[str]:
        """Labels (n,) of payments with standardised features z (n, 5); `chance` (n,) is uniform."""
        score = z @ self._weights + z[:, self._pair[0]] * z[:, self._pair[1]]
        # A logistic disturbance makes the odds of each class a smooth function of the score.
        score += np.log(chance / (1.0 - chance)) / self._kind.sharpness
        cuts = (0.5,) if len(self._kind.labels) == 2 else (0.0, 1.2)
        return [self._kind.labels[i] for i in np.searchsorted(cuts, score)]


class Payments(Rows):
    """Payments without end, the same each time they are iterated."""

    labelled = True
    total = None

    def __init__(self, n_shops: int) -> None:
        self.path = Path("payments")
        self._n_shops = n_shops

    def __iter__(self) -> Iterator[Row]:
        rng = np.random.default_rng(0)
        shops = [_Shop(number, rng) for number in range(self._n_shops)]
        for start in count(0, _BLOCK_ROWS):
            names, columns, z = _payments(rng, _BLOCK_ROWS)
            whose = rng.integers(len(shops), size=_BLOCK_ROWS)
            chance = rng.uniform(1e-9, 1.0 - 1e-9, _BLOCK_ROWS)
            labels: list[Label] = [""] * _BLOCK_ROWS
            for number, shop in enumerate(shops):
                rows = np.flatnonzero(whose == number)
                for row, label in zip(rows, shop.labels(z[rows], chance[rows]), strict=True):
                    labels[row] = label
            for i, values in enumerate(zip(*columns, strict=True)):
                yield Row(start + i, shops[whose[i]].key, dict(zip(names, values, strict=True)), labels[i])


def _payments(rng: np.random.Generator, n: int) -> tuple[list[str], list[list[Any]], NDArray[np.float64]]:
    """Names and columns of n payments as a shop would report them, and standardised (n, 5) as the rules see them."""
    amount = np.round(rng.lognormal(3.5, 1.0, n), 2)
    hour = np.round(rng.uniform(0.0, 24.0, n), 2)
    card_days = np.round(rng.exponential(400.0, n))
    distance_km = np.round(rng.lognormal(2.0, 1.5, n), 1)
    attempts = 1.0 + rng.poisson(0.6, n)
    z = np.column_stack(
        [
            np.log(amount + 0.01) - 3.5,
            np.cos((hour - 3.0) * (np.pi / 12.0)) * 1.4,
            np.log1p(card_days) - 5.3,
            (np.log(distance_km + 0.1) - 2.0) / 1.5,
            (attempts - 1.6) / 0.77,
        ]
    )
    distances: list[float | None] = distance_km.tolist()
    for row in np.flatnonzero(rng.uniform(size=n) < _MISSING_SHARE):
        distances[row] = None
    columns = [amount.tolist(), hour.tolist(), card_days.tolist(), distances, attempts.tolist()]
    return ["amount", "hour", "card_days", "distance_km", "attempts"], columns, z
