"""This library behind the pipe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import amf
from tests.benchmarks.peers.scripts.serve import serve


class _Learner:
    one_pass = True
    _forest: amf.AMFClassifier | amf.AMFRegressor

    @staticmethod
    def rows(x: NDArray[Any]) -> NDArray[Any]:
        return x

    def fit(self, rows: NDArray[Any], y: NDArray[Any]) -> None:
        self._forest.partial_fit(rows, y)


class Classifier(_Learner):
    def __init__(self, seed: int, n_classes: int, **settings: Any) -> None:
        self._forest: amf.AMFClassifier = amf.AMFClassifier(seed=seed, classes=range(n_classes), **settings)

    def predict(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return self._forest.predict_proba(rows)

    def prequential(self, rows: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        return self._forest.predict_learn(rows, y)


class Regressor(_Learner):
    def __init__(self, seed: int, adaptive: bool = False) -> None:
        self._forest: amf.AMFRegressor = (amf.AdaptiveAMFRegressor if adaptive else amf.AMFRegressor)(seed=seed)

    def predict(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return self._forest.predict(rows)

    def prequential(self, rows: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        forecasts = self._forest.prequential(rows, y)
        return np.column_stack((forecasts.mean, forecasts.quantiles[:, [0, 2]]))


if __name__ == "__main__":
    serve(Classifier, Regressor)
