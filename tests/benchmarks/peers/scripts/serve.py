"""The far end of a peer: a process that has one learner imported and compiled, and answers questions about it.

It runs in the peer's environment: numpy and the standard library beside the learner. Each question is answered by a
fork of the process, in which nothing has happened yet but a warm-up: no answer meets memory that another left behind.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.measure import held_bytes, peak_mb, seconds

ROWS_WARM_UP = 200


class Learner(Protocol):
    """A learner in the conventions of the benchmark: Learner(seed=..., **settings) has learned nothing yet."""

    one_pass: bool
    """Whether `prequential` is the learner's fast way to predict and learn; else that is a fit, then a predict."""

    @staticmethod
    def rows(x: NDArray[Any]) -> Any:
        """x (n, d) in the form that the learner takes; it can be sliced, and making it counts nowhere."""

    def fit(self, rows: Any, y: NDArray[Any]) -> None: ...

    def predict(self, rows: Any) -> Any: ...

    def prequential(self, rows: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Forecasts from before each row was learned: (n, K) probabilities, or (n, 3) mean, 5 % and 95 % quantile."""


class Work:
    """A learner and the rows that it is measured on."""

    def __init__(self, learner: type[Learner], x: NDArray[Any], y: NDArray[Any], seed: int, settings: dict[str, Any]):
        self._learner, self._seed, self._settings = learner, seed, settings
        self._rows, self._y = learner.rows(x), y

    def new(self) -> Learner:
        return self._learner(seed=self._seed, **self._settings)

    def practise(self) -> None:
        """Everything once, on a few rows: compiling and loading are no part of the figures."""
        learner, rows, y = self.new(), self._rows[:ROWS_WARM_UP], self._y[:ROWS_WARM_UP]
        learner.fit(rows, y)
        learner.predict(rows)
        self.new().prequential(rows, y)

    def fitted(self) -> Learner:
        learner = self.new()
        learner.fit(self._rows, self._y)
        return learner

    def speed(self, at_least: int) -> dict[str, float]:
        """Samples/s of fit, predict and prequential, over passes that make `at_least` samples."""
        passes = -(-at_least // len(self._y))
        spent_s = {
            "fit": _repeated_s(self.fitted, passes),
            "predict": _repeated_s(partial(self.fitted().predict, self._rows), passes),
        }
        if self._learner.one_pass:
            spent_s["prequential"] = _repeated_s(self._predict_and_learn, passes)
        else:
            spent_s["prequential"] = spent_s["fit"] + spent_s["predict"]
        return {name: passes * len(self._y) / s for name, s in spent_s.items()}

    def memory(self) -> dict[str, float]:
        """What a learner that has learned the rows adds to the process, a row; peak of predicting and learning them."""
        before = held_bytes()
        learner = self.fitted()
        held = held_bytes() - before
        del learner
        return {"bytes_per_sample": held / len(self._y), "peak_mb": peak_mb(self._predict_and_learn)}

    def classes(self) -> dict[str, float]:
        return score_classes(self.new().prequential(self._rows, self._y), self._y)

    def numbers(self) -> dict[str, float]:
        start = time.perf_counter()
        forecasts = self.new().prequential(self._rows, self._y)
        return {"prequential": len(self._y) / (time.perf_counter() - start), **score_numbers(forecasts, self._y)}

    def _predict_and_learn(self) -> None:
        if self._learner.one_pass:
            self.new().prequential(self._rows, self._y)
        else:
            self.fitted().predict(self._rows)


def _repeated_s(work: Callable[[], Any], times: int) -> float:
    return sum(seconds(work) for _ in range(times))


def score_classes(probabilities: NDArray[np.float64], y: NDArray[Any]) -> dict[str, float]:
    """Log-loss and accuracy over all rows but the first, for which nobody can know anything."""
    loss = loss_of_labels(probabilities, y)[1:]
    return {"log_loss": float(loss.mean()), "accuracy": float((probabilities[1:].argmax(axis=1) == y[1:]).mean())}


def loss_of_labels(probabilities: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
    """-log of what each row's label was given (n,).

    A label of which the forecast did not know is charged log(rows learned + 2), as the worker does.
    """
    learned = np.arange(len(y))
    of_label = probabilities[learned, y]
    return -np.log(np.where(of_label > 0, of_label, 1 / (learned + 2)))


def score_numbers(forecasts: NDArray[np.float64], y: NDArray[Any]) -> dict[str, float]:
    """RMSE over all rows but the first, and the share of labels between the quantiles; NaN where there are none."""
    mean, low, high = forecasts[1:].T
    inside = np.where(np.isnan(low) | np.isnan(high), np.nan, (low <= y[1:]) & (y[1:] <= high))
    return {"rmse": float(np.sqrt(((mean - y[1:]) ** 2).mean())), "coverage": float(inside.mean())}


def answer(
    learner: type[Learner], question: str, path: str, rows: int, seed: int, settings: dict[str, Any]
) -> dict[str, float]:
    """`speed`, `memory`, `classes` or `numbers`, see `Work`, on the first rows of the arrays X and y of a file."""
    with np.load(path) as file:
        work = Work(learner, file["X"][:rows], file["y"][:rows], seed, settings)
    work.practise()
    return work.speed(rows) if question == "speed" else getattr(work, question)()


def serve(classifier: type[Learner], regressor: type[Learner] | None = None) -> None:
    """Say that the process is ready, then answer the questions on stdin."""
    rng = np.random.default_rng(0)
    x, y = rng.random((ROWS_WARM_UP, 3), np.float32), rng.integers(2, size=ROWS_WARM_UP, dtype=np.int32)
    Work(classifier, x, y, 0, {"n_classes": 2}).practise()
    print("{}", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _answer_and_exit(classifier, regressor, json.loads(line))
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(os.waitstatus_to_exitcode(status))


def _answer_and_exit(classifier: type[Learner], regressor: type[Learner] | None, asked: dict[str, Any]) -> None:
    try:
        learner = regressor if asked["question"] == "numbers" else classifier
        assert learner is not None, "this peer has no regressor"
        print(json.dumps(answer(learner, **asked)), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
