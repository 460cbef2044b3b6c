"""The original Mondrian Forest, of classes and of numbers."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from amf.forests.classifier import ForestClassifier
from amf.forests.forest import Forest
from amf.forests.regressor import ForestRegressor
from amf.partition_params import MondrianForestClassifierParams, MondrianForestRegressorParams, MondrianParams
from amf.systems import mondrian_forest

Params = TypeVar("Params", bound=MondrianParams)


class _MondrianForest(Forest[Params]):
    """What both have in common."""

    @property
    def _mode(self) -> str:
        return "expected"

    @property
    def _lifetime(self) -> float:
        return math.inf if self.params.lifetime is None else float(self.params.lifetime)


class MondrianForestClassifier(
    _MondrianForest[MondrianForestClassifierParams], ForestClassifier[MondrianForestClassifierParams]
):
    """The original Mondrian Forest for classification ([MF]), learning one sample at a time.

    A forecast is smoothed along the path of the sample, in the mean over all the places where it could branch off; mean
    over trees.

    Parameters are the fields of MondrianForestClassifierParams, and `n_threads`: threads that share the trees; results
    do not depend on it.
    """

    Parameters = MondrianForestClassifierParams
    family = "mondrian-classifier"
    _kernels = mondrian_forest.CLASSIFIER

    @property
    def _rules(self) -> tuple[Any, ...]:
        params = self.params
        smooths, discount = params.smoothing == "ikn", params.discount or 0.0
        return len(self._classes), params.min_samples_split, params.split_pure, smooths, discount


class MondrianForestRegressor(
    _MondrianForest[MondrianForestRegressorParams], ForestRegressor[MondrianForestRegressorParams]
):
    """A Mondrian Forest for numbers, learning one sample at a time: the simple variant of the classifier.

    A forecast is the mean of the node from which the sample branches off, in the mean over all the places where it
    could; mean over trees, with a standard deviation and quantiles as AMFRegressor's.

    Parameters are the fields of MondrianForestRegressorParams, and `n_threads`: threads that share the trees; results
    do not depend on it.
    """

    Parameters = MondrianForestRegressorParams
    family = "mondrian-regressor"
    _kernels = mondrian_forest.REGRESSOR

    @property
    def _rules(self) -> tuple[Any, ...]:
        return 0.0, self.params.min_samples_split, self.params.split_pure, False, 0.0
