"""The systems under test: a new system joins the contract suite by one line in SYSTEMS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import amf

CLASSES = ["no", 7, True, "zwölf", 2.5, 10**20]
"""Labels of every type. A stream brings them roughly in this order."""


def class_labels(signal: NDArray[np.float64], rng: np.random.Generator) -> list[Any]:
    """Noisy classes of a signal; later rows may bring classes that earlier ones did not have."""
    n = signal.shape[0]
    known = 1 + np.arange(n) * len(CLASSES) // max(n, 1)
    codes = np.where(rng.random(n) < 0.2, rng.integers(0, known), np.abs(signal * 2).astype(int) % known)
    return [CLASSES[code] for code in codes]


def real_labels(signal: NDArray[np.float64], rng: np.random.Generator) -> list[Any]:
    """Noisy numbers far from zero, some of them equal."""
    noisy = 1e6 + 3.0 * signal + rng.normal(size=signal.shape[0])
    return np.where(rng.random(signal.shape[0]) < 0.3, np.round(noisy), noisy).tolist()


@dataclass(frozen=True)
class System:
    """What the contract suite needs to know of a system.

    new: keyword arguments -> a forest that has learned nothing.
    labels: (signal (n,), generator) -> n labels that depend on the signal.
    examples: two labels that it learns.
    questions: methods that forecast; the first one gives what `predict_learn` gives.
    parameters: keyword arguments of its own -> values to try.
    in_unit_cube: whether features have to be numbers from 0 to 1, all there from the start; then there is nothing to
        choose for `scaling`, `split_pure` and `mode` either.
    """

    name: str
    new: Callable[..., Any]
    labels: Callable[[NDArray[np.float64], np.random.Generator], list[Any]]
    examples: tuple[Any, Any]
    questions: tuple[str, ...]
    parameters: dict[str, list[Any]]
    in_unit_cube: bool = False

    def ask(self, forest: Any, x: Any) -> NDArray[np.float64]:
        """What `predict_learn` would give, without learning."""
        forecast: NDArray[np.float64] = getattr(forest, self.questions[0])(x)
        return forecast

    def stream(
        self, n: int, d: int, *, seed: int = 0, missing: float = 0.0, unlabelled: float = 0.0
    ) -> tuple[NDArray[np.float64], list[Any]]:
        """Samples (n, d), features on different scales and every third one with ties, and labels that depend on them.

        missing, unlabelled: share of the values that are NaN and of the labels that are None.
        """
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, d))
        labels = self.labels(x[:, 0], rng)
        x[:, 1::3] = np.round(x[:, 1::3])
        if self.in_unit_cube:
            x = 1.0 / (1.0 + np.exp(-x))
        else:
            x *= 10.0 ** rng.integers(-3, 4, d)
            x[rng.random((n, d)) < missing] = np.nan
        hidden = rng.random(n) < unlabelled
        return x, [None if hide else label for hide, label in zip(hidden, labels, strict=True)]

    def learned(self, n: int = 40, d: int = 5, **parameters: Any) -> tuple[Any, NDArray[np.float64], list[Any]]:
        """A small forest that has learned, and the stream it learned from."""
        x, y = self.stream(n, d, seed=1, missing=0.1)
        return self.new(n_estimators=3, seed=5, **parameters).partial_fit(x, y), x, y


SYSTEMS = [
    System(
        "amf-classifier",
        amf.AMFClassifier,
        class_labels,
        ("no", 7),
        ("predict_proba", "predict", "weighted_depth"),
        {"prior": ["parent", "dirichlet"], "calibration": [True, False], "purity": [16.0, 0.0, 1e9]},
    ),
    System(
        "amf-regressor",
        amf.AMFRegressor,
        real_labels,
        (0.5, -7),
        ("predict", "predict_std", "predict_quantiles", "weighted_depth"),
        {"calibration": [True, False], "purity": [16.0, 0.0, 1e9]},
    ),
    System(
        "unrestricted-amf-classifier",
        amf.UnrestrictedAMFClassifier,
        class_labels,
        ("no", 7),
        ("predict_proba", "predict", "weighted_depth"),
        {"prior": ["parent", "dirichlet"], "calibration": [True, False]},
        in_unit_cube=True,
    ),
]


@pytest.fixture(scope="session", params=SYSTEMS, ids=lambda system: system.name)
def system(request: pytest.FixtureRequest) -> System:
    """Each system in turn."""
    return request.param
