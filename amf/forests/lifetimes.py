"""Forests whose trees forecasts see up to a lifetime, which may increase with the samples (leaf_forecasts.py)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.forests.forest import Forest
from amf.state.system import Params


class LifetimeForest(Forest[Params]):
    """What they have in common."""

    @property
    def lifetimes(self) -> NDArray[np.float64]:
        """Lifetime (n_trees,) of the partition that forecasts see of each tree; 0 before the first sample.

        It is the same in all trees, as long as none has forgotten one of the sides of its root for lack of memory.
        """
        with self._turn:
            return self._survey(np.zeros(self.params.n_estimators, np.bool_)).lifetimes

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
