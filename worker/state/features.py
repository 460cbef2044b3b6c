"""The columns of a forest by the features that they belong to: each category of a feature has a column of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from amf import Column


def features_of(names: Sequence[str] | None, columns: Iterable[int]) -> list[str]:
    """The feature of each of these columns of a forest; where its columns have no `names` it goes by its number."""
    return [str(column) if names is None else Column.parse(names[column]).feature for column in columns]


class FeaturesOfColumns:
    """Figures of columns become figures of features. A forest only ever gets further columns, which are followed."""

    __slots__ = ("_owners", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        """The features, in the order in which they came."""
        self._owners = np.empty(0, np.intp)
        """Of each column, the place of its feature."""

    def follow(self, names: Sequence[str] | None, n: int) -> None:
        """Take in the columns up to the n-th; `names` are those of the columns, None where they have none."""
        new = features_of(names, range(len(self._owners), n))
        if not new:
            return
        known = {feature: place for place, feature in enumerate(self.names)}
        owners = [known.setdefault(feature, len(known)) for feature in new]
        self.names += list(known)[len(self.names) :]
        self._owners = np.append(self._owners, owners)

    def sums(self, by_column: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the figures of the first columns the sum for each feature."""
        owners = self._owners[: len(by_column)]
        return np.bincount(owners, by_column, len(self.names)).astype(np.float64, copy=False)

    def means(self, by_column: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the figures of the first columns the mean for each feature, over those that are not 0."""
        return self.sums(by_column) / np.maximum(self.sums((by_column != 0.0).astype(np.float64)), 1.0)

    def largest(self, by_feature: NDArray[np.float64], most: int) -> dict[str, float]:
        """The features of the figures that are furthest from 0, at most so many and none of 0, the largest first."""
        sizes, n = np.abs(by_feature), len(by_feature)
        # Most are not among them, and need no order: there may be thousands.
        least = np.partition(sizes, n - most)[n - most] if most < n else 0.0
        places = np.flatnonzero((sizes >= least) & (sizes > 0.0))
        first = places[np.argsort(-sizes[places], kind="stable")][:most].tolist()
        return {self.names[place]: float(by_feature[place]) for place in first}
