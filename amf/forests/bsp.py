"""Online BSP-Forests, of classes and of numbers."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.forests.classifier import ForestClassifier
from amf.forests.lifetimes import LifetimeForest
from amf.forests.regressor import ForestRegressor
from amf.geometry.hull_cache import hull_room
from amf.memory.arena import CUT_ROOM, Layout
from amf.partition_params import BSPForestClassifierParams, BSPForestRegressorParams, BSPParams
from amf.statistics.leaf_forecasts import BY_FEATURES
from amf.systems import bsp_forest

Params = TypeVar("Params", bound=BSPParams)


class _BSPForest(LifetimeForest[Params]):
    """What both have in common."""

    @property
    def _schedule(self) -> tuple[float, float]:
        params = self.params
        exponent = BY_FEATURES if params.lifetime_exponent is None else float(params.lifetime_exponent)
        return params.rate_scale * params.lifetime, exponent

    def _layout(self) -> Layout:
        room = hull_room(self.n_features)
        return super()._layout()._replace(cut_room=int(CUT_ROOM), hull_room=room)

    def _rows(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        shape = np.shape(X)
        if len(shape) == 2:
            self._require_few(shape[1])
        return super()._rows(X)

    def _require_room_for_features(self, n_more: int) -> None:
        self._require_few(self.n_features + n_more)
        super()._require_room_for_features(n_more)

    def _require_few(self, n_features: int) -> None:
        if n_features > self.params.MOST_FEATURES:
            raise ValueError(f"{n_features} features: {self.params.WHY_SO_FEW}")

    @property
    def _least(self) -> int:
        return self.params.min_samples_split


class BSPForestClassifier(_BSPForest[BSPForestClassifierParams], ForestClassifier[BSPForestClassifierParams]):
    """Online BSP-Forest for classification ([BSP]), learning one sample at a time.

    Each tree is a partition by oblique cuts, each in a pair of features, which is refined as samples come; a forecast
    is that of the leaves. For at most 20 features.

    Parameters are the fields of BSPForestClassifierParams, and `n_threads`: threads that share the trees; results do
    not depend on it.
    """

    Parameters = BSPForestClassifierParams
    family = "bsp-classifier"
    _kernels = bsp_forest.CLASSIFIER

    @property
    def _votes(self) -> bool:
        return self.params.combine == "vote"

    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        return super()._plausible(np.ascontiguousarray(heads[:, : -int(CUT_ROOM)]))


class BSPForestRegressor(_BSPForest[BSPForestRegressorParams], ForestRegressor[BSPForestRegressorParams]):
    """Online BSP-Forest for numbers ([BSP]): a forecast is the mean of the leaf, mean over trees.

    It comes with a standard deviation and quantiles as AMFRegressor's. For at most 20 features.

    Parameters are the fields of BSPForestRegressorParams, and `n_threads`: threads that share the trees; results do not
    depend on it.
    """

    Parameters = BSPForestRegressorParams
    family = "bsp-regressor"
    _kernels = bsp_forest.REGRESSOR
