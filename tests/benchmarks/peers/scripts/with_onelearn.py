"""onelearn 0.3.0 behind the pipe."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onelearn import AMFClassifier

from tests.benchmarks.peers.scripts.serve import serve


class Classifier:
    one_pass = False

    def __init__(self, seed: int, n_classes: int) -> None:
        self._n_classes = n_classes
        self._forest = AMFClassifier(n_classes=n_classes, n_estimators=10, random_state=seed)

    @staticmethod
    def rows(x: NDArray[Any]) -> NDArray[Any]:
        return x

    def fit(self, rows: NDArray[Any], y: NDArray[Any]) -> None:
        self._forest.partial_fit(rows, y.astype(np.float32))

    def predict(self, rows: NDArray[Any]) -> NDArray[Any]:
        return self._forest.predict_proba(rows)

    def prequential(self, rows: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        # Given a random state it starts its generator anew at each call: row by row every sample would get the same
        # draws.
        forest = AMFClassifier(n_classes=self._n_classes, n_estimators=10, random_state=None)
        labels = y.astype(np.float32)
        forecasts = np.full((len(y), self._n_classes), 1 / self._n_classes)
        for row in range(len(y)):
            if row:
                forecasts[row] = forest.predict_proba(rows[row : row + 1])[0]
            forest.partial_fit(rows[row : row + 1], labels[row : row + 1])
        return forecasts


if __name__ == "__main__":
    serve(Classifier)
