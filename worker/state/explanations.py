"""Which features moved a forecast most, and how much of it they do not tell, for what is published. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from amf import Attributions
from worker.base.records import Answer, Estimate
from worker.state.features import FeaturesOfColumns
from worker.state.targets import NO_LABEL

WINDOW = 5_000
"""Explained forecasts after which the earlier ones count half."""

MOST_MOVES = 2**20
"""Numbers in what is asked for of a forest at a time, one for each event, column and class, about: 8 MB."""


def between_labels(codes: Sequence[int], moves_each: int) -> Iterator[slice]:
    """Stretches of events that meet the same forest: each ends with the first event that is learned, or the last.

    moves_each: numbers that explain a forecast. A stretch with more than MOST_MOVES of them is cut, between events.
    """
    start, most = 0, max(1, MOST_MOVES // max(moves_each, 1))
    for i, code in enumerate(codes, 1):
        if code != NO_LABEL or i == len(codes) or i - start == most:
            yield slice(start, i)
            start = i


class Explainer:
    """Explains the forecasts of one forest, and remembers how much each feature moved them."""

    __slots__ = ("_features", "_n", "_sums")

    def __init__(self, features: FeaturesOfColumns) -> None:
        """features: those of the forest's columns, kept up to date by the caller."""
        self._features = features
        self._sums = np.zeros(0)
        self._n = 0

    @property
    def mean_moves(self) -> NDArray[np.float64]:
        """How much each feature moved the last forecasts in the mean, without its sign; as long as those knew it."""
        return self._sums / max(self._n, 1)

    def explained(self, found: Attributions | None, answers: Sequence[Answer], most: int) -> list[Answer]:
        """The answers, each with the features that moved it most, at most so many, and with what these do not tell.

        found: what each column added to the forecasts, asked for before the forest learned anything of these events;
        None where it had learned nothing at all.
        """
        if found is None:
            return [msgspec.structs.replace(answer, explanation={}) for answer in answers]
        return [
            self._explained(moved, beyond, answer, most)
            for moved, beyond, answer in zip(found.features, found.unexplained, answers, strict=True)
        ]

    def _explained(self, moved: NDArray[np.float64], beyond: Any, answer: Answer, most: int) -> Answer:
        """moved, beyond: (d, n_classes) and (n_classes,) or, of numbers, (d,) and a number."""
        if not isinstance(answer, Estimate):
            named = int(np.argmax(answer.probabilities))
            moved, beyond = moved[:, named], beyond[named]
        by_feature = self._features.sums(moved)
        self._remember(np.abs(by_feature))
        told = self._features.largest(by_feature, most)
        return msgspec.structs.replace(answer, explanation=told, unexplained=float(beyond))

    def _remember(self, sizes: NDArray[np.float64]) -> None:
        sizes[: len(self._sums)] += self._sums
        self._sums = sizes
        self._n += 1
        if self._n == 2 * WINDOW:
            self._sums /= 2
            self._n = WINDOW
