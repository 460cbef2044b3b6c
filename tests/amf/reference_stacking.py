"""A slow, readable linear model on the features of a sample and on what a forest says of it.

A feature enters as its distance from its mean in mean absolute deviations, three at most, as the square of that less
3/2, or as a linear spline of twelve knots, from -3 to 3; a missing one as 0. The n-th value moves mean and deviation by
3 / n, at least by 1 / 500, and counts 8 deviations at most once there were three; the deviation only where it differs
from the value before. Weights take steps of AdaGrad, with one sum of squared gradients for all weights of an output,
none further than one over the largest curvature of the loss along the features. A model of classes that is solved for
keeps all rows instead, each with the response of its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

KEPT = 1 - 1 / 5000
NO_FEATURES = np.empty(0)
Shape = Literal["line", "square", "spline"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
"""What features enter as, of the models from the lowest one on."""


@dataclass
class Scale:
    """Mean, less the first value, and mean absolute deviation of a feature. n: values, before it moves one."""

    first: float = 0.0
    mean: float = 0.0
    deviation: float = 0.0
    n: int = 0
    last: float = 0.0

    def off(self, value: float) -> float:
        return value - self.first - self.mean

    def of(self, value: float) -> float:
        """What a value enters as."""
        if np.isnan(value) or self.deviation == 0:
            return 0.0
        return float(np.clip(self.off(value) / self.deviation, -3, 3))

    def learn(self, value: float) -> None:
        if np.isnan(value):
            return
        moves, self.last = value != self.last, value
        if self.n == 0:
            self.first, self.n = value, 1
            return
        off = self.off(value)
        if self.n == 1 and off == 0:
            return
        self.n = min(self.n + 1, 1500)
        if self.n > 3 and self.deviation > 2**-150 * abs(off):
            off = float(np.clip(off, -8 * self.deviation, 8 * self.deviation))
        rate = min(3 / self.n, 1)
        self.mean += rate * off
        if moves:
            self.deviation += rate * (abs(off) - self.deviation)


@dataclass
class LinearModel:
    """Of so many outputs and features: trust * what the forest says + intercept + weights * features."""

    n_outputs: int
    n_features: int = 0
    shape: Shape = "line"
    trust: float = 1.0
    trust_squares: float = 0.0
    scales: list[Scale] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scales = [Scale() for _ in range(self.n_features)]
        self.squares = np.zeros(self.n_outputs)
        n_of_each = 12 if self.shape == "spline" else 1
        self.weights = np.zeros((self.n_outputs, n_of_each * self.n_features + 1))  # the last one is the intercept's

    def add_output(self) -> None:
        self.n_outputs += 1
        self.squares = np.append(self.squares, 0.0)
        self.weights = np.vstack((self.weights, np.zeros(self.weights.shape[1])))

    def entered(self, x: np.ndarray) -> np.ndarray:
        pairs = [(scale, float(value)) for scale, value in zip(self.scales, x, strict=True)]
        off = np.array([scale.of(value) for scale, value in pairs])
        known = np.array([scale.deviation > 0 and not np.isnan(value) for scale, value in pairs], bool)
        if self.shape == "square":
            off = np.where(known, off**2 - 1.5, 0.0)
        if self.shape == "spline":
            places = (off[:, None] + 3) * 11 / 6
            off = np.where(known[:, None], np.maximum(1 - np.abs(places - np.arange(12)), 0), 0.0).ravel()
        return np.append(off, 1.0)

    def response(self, x: np.ndarray) -> np.ndarray:
        """What the features add up to, (K,)."""
        return self.weights @ self.entered(x)

    def learn(
        self, x: np.ndarray, errors: np.ndarray, gradient: float, *, unit: float = 1.0, curvature: float = 1.0
    ) -> None:
        """errors (K,): by how many units each output was too small. gradient: of the loss by `trust`."""
        gradient = float(np.clip(gradient, -1000, 1000))
        self.trust_squares = KEPT * self.trust_squares + gradient**2
        self.trust = float(np.clip(self.trust - 0.3 * gradient / np.sqrt(1 + self.trust_squares), 0, 2))
        entered = self.entered(x)
        gradients = np.outer(errors, entered)
        self.squares = KEPT * self.squares + (gradients**2).sum(axis=1)
        rates = np.minimum(0.6 / np.sqrt(2 + self.squares), 1 / (curvature * (entered**2).sum()))
        self.weights += unit * gradients * rates[:, None]

    def note(self, x: np.ndarray) -> None:
        for scale, value in zip(self.scales, x, strict=True):
            scale.learn(float(value))


@dataclass
class Solved(LinearModel):
    """Logistic regression of classes on the first 64 features, by least squares on the responses of all labels so far,
    of which each leaves .999 of the weights. Weights of features are penalised as by 4 rows, intercepts by 1 / 1000."""

    trust: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows: list[np.ndarray] = []
        self.factors: list[float] = []
        """Of the rows, how much they weigh."""
        self.responses: list[np.ndarray] = []
        self.curvatures = np.zeros(self.n_outputs)
        self.total, self.due = 0.0, 0
        self.weights = np.zeros((self.n_outputs, min(self.n_features, 64) + 1))

    def add_output(self) -> None:
        super().add_output()
        self.weights = self.weights[:, : min(self.n_features, 64) + 1]
        self.curvatures = np.append(self.curvatures, 0.0)
        self.responses = [np.append(each, 0.0) for each in self.responses]

    def entered(self, x: np.ndarray) -> np.ndarray:
        return np.append(super().entered(x)[: min(self.n_features, 64)], 1.0)

    def solve(self, x: np.ndarray, label: int, said: np.ndarray, counted: np.ndarray) -> None:
        """Take in one label, of which the model had said these probabilities of the classes that were counted."""
        row, of_classes = self.entered(x), np.where(counted, np.maximum(said * (1 - said), 1e-4), 0.0)
        curvature = max(of_classes.sum(), 1 - said[label])
        self.curvatures = np.where(counted, 0.999 * self.curvatures + of_classes, self.curvatures)
        self.total = 0.999 * self.total + curvature
        n = counted.sum()
        rarity = [min(self.total / each * (n - 1) / n, 8.0) if each else 0.0 for each in self.curvatures]
        errors = (np.arange(len(said)) == label) - said
        self.factors = [*(0.999 * factor for factor in self.factors), curvature]
        self.rows.append(row)
        self.responses.append(np.where(counted, self.weights @ row + np.array(rarity) * errors / curvature, 0.0))
        if len(self.rows) >= self.due:
            self.due = len(self.rows) + min(max(len(self.rows) // 16, 1), 64)
            rows, factors = np.array(self.rows), np.array(self.factors)
            penalty = np.diag([*(4.0 for _ in row[:-1]), 1e-3])
            moments = (rows.T * factors) @ rows + penalty
            self.weights = np.linalg.solve(moments, (rows.T * factors) @ np.array(self.responses)).T
