"""Forests whose trees forecasts see up to a lifetime, which may increase with the samples (leaf_forecasts.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.forests.description import end_at
from amf.forests.forest import Forest
from amf.memory.arena import COUNT, TIME
from amf.state.system import Params
from amf.statistics import leaf_forecasts


class LifetimeForest(Forest[Params]):
    """What they have in common."""

    @property
    def lifetimes(self) -> NDArray[np.float64]:
        """Lifetime (n_trees,) of the partition that forecasts see of each tree; 0 before the first sample.

        It is the same in all trees, as long as none has forgotten one of the sides of its root for lack of memory.
        """
        found = np.empty(self.params.n_estimators)
        with self._turn:
            leaf_forecasts.lifetimes(self._arena.nodes, *self._schedule, found)
        return found

    @property
    @abstractmethod
    def _schedule(self) -> tuple[float, float]:
        """Lifetime after the first label, and the exponent with which it increases."""

    @property
    def _votes(self) -> bool:
        """Whether a tree says which label its leaf has seen most often; else all that it has seen."""
        return False

    @property
    def _inherits(self) -> bool:
        """Whether an empty cell says what its parent does."""
        return True

    @property
    def _least(self) -> int:
        """Labels below which a node is a leaf."""
        return 1

    @property
    def _rules(self) -> tuple[Any, ...]:
        return len(self.class_labels or ()), *self._schedule, self._votes, self._inherits, self._least

    def _heads(self) -> Iterator[NDArray[np.int32]]:
        for heads, lifetime in zip(super()._heads(), self.lifetimes.tolist(), strict=True):
            end_at(heads, (heads.view(np.float64)[:, TIME] >= lifetime) | (heads[:, COUNT] < self._least))
            yield heads
