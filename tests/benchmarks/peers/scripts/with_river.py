"""river 0.26 behind the pipe, in its defaults; for numbers behind the scalers that its documentation has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import forest, preprocessing

from tests.benchmarks.peers.scripts.serve import serve


class _Rows:
    """river takes a row as a dict, and one at a time."""

    one_pass = True
    _model: Any

    @staticmethod
    def rows(x: NDArray[Any]) -> list[dict[int, float]]:
        return [dict(enumerate(row)) for row in x.astype(float).tolist()]

    def fit(self, rows: list[dict[int, float]], y: NDArray[Any]) -> None:
        for row, label in zip(rows, y.tolist(), strict=True):
            self._model.learn_one(row, label)


class Classifier(_Rows):
    def __init__(self, seed: int, n_classes: int) -> None:
        self._n_classes = n_classes
        self._model = forest.AMFClassifier(n_estimators=10, seed=seed)

    def predict(self, rows: list[dict[int, float]]) -> list[dict[int, float]]:
        return [self._model.predict_proba_one(row) for row in rows]

    def prequential(self, rows: list[dict[int, float]], y: NDArray[Any]) -> NDArray[np.float64]:
        forecasts = np.zeros((len(y), self._n_classes))  # a class that river has not met has no probability
        for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
            for known, probability in self._model.predict_proba_one(row).items():
                forecasts[i, known] = probability
            self._model.learn_one(row, label)
        return forecasts


class Regressor(_Rows):
    def __init__(self, seed: int, adaptive: bool = False) -> None:
        if adaptive:
            self._model = preprocessing.StandardScaler() | forest.ARFRegressor(n_models=10, seed=seed)
        else:
            self._model = preprocessing.MinMaxScaler() | forest.AMFRegressor(n_estimators=10, seed=seed)

    def predict(self, rows: list[dict[int, float]]) -> list[float]:
        return [self._model.predict_one(row) for row in rows]

    def prequential(self, rows: list[dict[int, float]], y: NDArray[Any]) -> NDArray[np.float64]:
        forecasts = np.full((len(y), 3), np.nan)  # it has no quantiles
        for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
            if i:
                forecasts[i, 0] = self._model.predict_one(row)
            self._model.learn_one(row, label)
        return forecasts


if __name__ == "__main__":
    serve(Classifier, Regressor)
