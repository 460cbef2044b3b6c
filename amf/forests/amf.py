"""The Aggregated Mondrian Forest ([AMF]), for classes and for numbers."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from amf.forests.classifier import ForestClassifier
from amf.forests.forest import Forest
from amf.forests.regressor import ForestRegressor
from amf.params import AMFClassifierParams, AMFRegressorParams
from amf.systems import amf_classifier, amf_regressor

_SCARCE = 0.1
"""`pause` of a tree that is a quarter full."""

Params = TypeVar("Params", bound=AMFClassifierParams | AMFRegressorParams)


class _AMF(Forest[Params]):
    """What both have in common."""

    @property
    def _mode(self) -> str:
        return self.params.mode

    @property
    def _purity(self) -> float:
        return float(self.params.purity)


class AMFClassifier(_AMF[AMFClassifierParams], ForestClassifier[AMFClassifierParams]):
    """Aggregated Mondrian Forest for classification ([AMF] Alg. 4-6), learning one sample at a time.

    Each tree is a random Mondrian partition that grows with the data; a forecast is the exact Bayesian average over all
    prunings of the tree, mean over trees.

    >>> import amf
    >>> forest = amf.AMFClassifier(n_estimators=5, seed=1)
    >>> X, y = [[0.1, 20.0], [0.9, 10.0], [0.2, 30.0], [0.8, 40.0]], ["no", "yes", "no", None]
    >>> forest.predict_learn(X, y).shape  # of each row the forecast before its label was learned
    (4, 2)
    >>> forest.predict([[0.15, 25.0]]).tolist()
    ['no']
    >>> same = amf.loads(forest.dumps())
    >>> bool((same.predict_learn(X, y) == forest.predict_learn(X, y)).all())
    True

    Parameters are the fields of AMFClassifierParams, and `n_threads`: threads that share the trees; results do not
    depend on it.
    """

    Parameters = AMFClassifierParams
    family = "amf-classifier"
    _kernels = amf_classifier.KERNELS

    @property
    def _rules(self) -> tuple[Any, ...]:
        params, n_classes = self.params, len(self._classes)
        inherit = params.prior == "parent"
        return n_classes, params.strength(n_classes), inherit, params.charge_first, params.split_pure

    @property
    def _pauses(self) -> tuple[float, float]:
        pause = math.inf if self.params.split_pure else float(self.params.pause)
        # Where room is scarce, a node goes to the labels that are least expected.
        return pause, min(pause, _SCARCE)


class AMFRegressor(_AMF[AMFRegressorParams], ForestRegressor[AMFRegressorParams]):
    """Aggregated Mondrian Forest for regression ([AMF] Eq. 4), learning one sample at a time.

    Labels may have any unit and any zero. Multiplying them by a power of two, or by -1, does the same to the forecasts;
    another factor, or a constant that is added, does so to those of the trees, up to rounding. Calibration compares
    numbers that nothing but rounding may tell apart, with the first labels above all, so that single forecasts may come
    out otherwise, neither better nor worse in the mean. None of that holds for the preset "paper", whose empty leaves
    say 0. Forecasts come with a standard deviation and quantiles that are calibrated on the stream
    (number_calibration.py).

    >>> import amf
    >>> forest = amf.AMFRegressor(n_estimators=5, seed=1)
    >>> forecasts = forest.prequential([[0.1], [0.9], [0.2], [0.8]], [10.0, 50.0, 15.0, None])
    >>> forecasts.mean.shape, forecasts.std.shape, forecasts.quantiles.shape  # 5, 50 and 95 %
    ((4,), (4,), (4, 3))

    Parameters are the fields of AMFRegressorParams, and `n_threads`: threads that share the trees; results do not
    depend on it.
    """

    Parameters = AMFRegressorParams
    family = "amf-regressor"
    _kernels = amf_regressor.KERNELS

    @property
    def _rules(self) -> tuple[Any, ...]:
        params = self.params
        return params.loss == "student", float(params.bound or 0.0), params.charge_first, params.split_pure
