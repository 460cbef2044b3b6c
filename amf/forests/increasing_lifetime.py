"""Mondrian forests whose lifetime increases with the samples, of classes and of numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeVar

from amf.forests.classifier import ForestClassifier
from amf.forests.lifetimes import LifetimeForest
from amf.forests.regressor import ForestRegressor
from amf.forests.unit_cube import CubeForest
from amf.kernels.pipeline import Kernels
from amf.partition_params import (
    IncreasingLifetimeForestClassifierParams,
    IncreasingLifetimeForestRegressorParams,
    IncreasingLifetimeParams,
)
from amf.statistics.leaf_forecasts import BY_FEATURES
from amf.systems import increasing_lifetime

Params = TypeVar("Params", bound=IncreasingLifetimeParams)


class _IncreasingLifetimeForest(LifetimeForest[Params], CubeForest[Params]):
    """What both have in common."""

    VARIANTS: ClassVar[tuple[dict[str, Any], ...]] = ({"domain": "range"}, {"domain": "cube"})

    @property
    def in_unit_cube(self) -> bool:
        return self.params.domain == "cube"

    @property
    def _lifetime(self) -> float:
        # A split that will never be shown is not drawn.
        return float(self.params.lifetime) if self.params.lifetime_exponent == 0.0 else math.inf

    @property
    def _schedule(self) -> tuple[float, float]:
        exponent = self.params.lifetime_exponent
        if exponent is None:
            exponent = 1.0 / (self.n_features + 2.0) if self.in_unit_cube else BY_FEATURES
        return float(self.params.lifetime), float(exponent)

    @property
    def _inherits(self) -> bool:
        return self.params.empty_cells == "parent"


class IncreasingLifetimeForestClassifier(
    _IncreasingLifetimeForest[IncreasingLifetimeForestClassifierParams],
    ForestClassifier[IncreasingLifetimeForestClassifierParams],
):
    """A Mondrian Forest with increasing lifetime for classification ([rates]), learning one sample at a time.

    Each tree is a Mondrian partition that is drawn up to a lifetime which increases with the number of samples: slowly
    enough for its leaves to hold more and more of them, and yet to become as small as one likes. A forecast is what the
    leaves say, mean over trees.

    Parameters are the fields of IncreasingLifetimeForestClassifierParams, and `n_threads`: threads that share the
    trees; results do not depend on it.
    """

    Parameters = IncreasingLifetimeForestClassifierParams
    family = "increasing-lifetime-classifier"

    @property
    def _kernels(self) -> Kernels:
        return increasing_lifetime.CLASSIFIERS[self.params.domain]

    @property
    def _votes(self) -> bool:
        return self.params.combine == "vote"


class IncreasingLifetimeForestRegressor(
    _IncreasingLifetimeForest[IncreasingLifetimeForestRegressorParams],
    ForestRegressor[IncreasingLifetimeForestRegressorParams],
):
    """A Mondrian forest with increasing lifetime for numbers: a forecast is the mean of the leaf, mean over trees.

    It comes with a standard deviation and quantiles as AMFRegressor's.

    Parameters are the fields of IncreasingLifetimeForestRegressorParams, and `n_threads`: threads that share the trees;
    results do not depend on it.
    """

    Parameters = IncreasingLifetimeForestRegressorParams
    family = "increasing-lifetime-regressor"

    @property
    def _kernels(self) -> Kernels:
        return increasing_lifetime.REGRESSORS[self.params.domain]
