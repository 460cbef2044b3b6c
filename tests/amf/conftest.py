"""The systems under test: a new system joins the contract suite by one line in SYSTEMS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

    kind: the class of its forests.
    labels: (signal (n,), generator) -> n labels that depend on the signal.
    examples: two labels that it learns.
    questions: methods that forecast; the first one gives what `predict_learn` gives.
    parameters: keyword arguments of its own -> values to try.
    in_unit_cube: whether features have to be numbers from 0 to 1, all there from the start.
    branches_off: whether a forecast is always the mean over the places where the sample could branch off.
    whole: parameters with which trees part all samples, and forecasts see all of it.
    fixed: parameters that make it a system of its own to these tests.
    """

    name: str
    kind: Any
    labels: Callable[[NDArray[np.float64], np.random.Generator], list[Any]]
    examples: tuple[Any, Any]
    questions: tuple[str, ...]
    parameters: dict[str, list[Any]]
    in_unit_cube: bool = False
    branches_off: bool = False
    whole: dict[str, Any] = field(default_factory=lambda: {"split_pure": True})
    fixed: dict[str, Any] = field(default_factory=dict)

    def new(self, **parameters: Any) -> Any:
        """A forest that has learned nothing."""
        return self.kind(**self.fixed, **parameters)

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


_OF_CLASSES = class_labels, ("no", 7), ("predict_proba", "predict", "weighted_depth")
_OF_NUMBERS = real_labels, (0.5, -7), ("predict", "predict_std", "predict_quantiles", "weighted_depth")
_SCALING = {"scaling": ["auto", "none"], "calibration": [True, False]}
_BRANCHING = {"split_pure": [True, False], "mode": ["existing", "existing", "sampled", "expected"]}
_AGGREGATION = {"charge_first": [True, False], "calibration": [True, False]}
_AMF = {**_SCALING, **_BRANCHING, **_AGGREGATION, "purity": [16.0, 0.0, 1e9]}
_MONDRIAN = {**_SCALING, "split_pure": [True, False], "lifetime": [None, 0.5, 5.0], "min_samples_split": [2, 5]}
_UNENDING = {"lifetime": 1e30}
_INCREASING = {**_SCALING, "lifetime": [1.0, 4.0], "lifetime_exponent": [None, 0.0, 0.7]}
_ADAPTIVE: dict[str, list[Any]] = {"background": [0.2, 0.5, 0.9], "review_every": [3, 8, 64]}
_ALL_CUTS = {"lifetime": 1e30, "min_samples_split": 1}
_BSP = {**_SCALING, "lifetime_exponent": [None, 0.0], "rate_scale": [0.5, 4.0], "min_samples_split": [4, 2]}

SYSTEMS = [
    System("amf-classifier", amf.AMFClassifier, *_OF_CLASSES, {**_AMF, "prior": ["parent", "dirichlet"]}),
    System("amf-regressor", amf.AMFRegressor, *_OF_NUMBERS, _AMF),
    System(
        "unrestricted-amf-classifier",
        amf.UnrestrictedAMFClassifier,
        *_OF_CLASSES,
        {**_AGGREGATION, "prior": ["parent", "dirichlet"]},
        in_unit_cube=True,
    ),
    System(
        "mondrian-classifier",
        amf.MondrianForestClassifier,
        *_OF_CLASSES,
        {**_MONDRIAN, "smoothing": ["ikn", "ikn", "path_mean"]},
        branches_off=True,
    ),
    System("mondrian-regressor", amf.MondrianForestRegressor, *_OF_NUMBERS, _MONDRIAN, branches_off=True),
    System(
        "increasing-lifetime-classifier",
        amf.IncreasingLifetimeForestClassifier,
        *_OF_CLASSES,
        {**_INCREASING, "combine": ["average", "vote"]},
        whole=_UNENDING,
    ),
    System(
        "increasing-lifetime-classifier on the cube",
        amf.IncreasingLifetimeForestClassifier,
        *_OF_CLASSES,
        {**_INCREASING, "combine": ["average", "vote"], "empty_cells": ["parent", "zero"]},
        in_unit_cube=True,
        whole=_UNENDING,
        fixed={"domain": "cube"},
    ),
    System(
        "increasing-lifetime-regressor",
        amf.IncreasingLifetimeForestRegressor,
        *_OF_NUMBERS,
        _INCREASING,
        whole=_UNENDING,
    ),
    System(
        "increasing-lifetime-regressor on the cube",
        amf.IncreasingLifetimeForestRegressor,
        *_OF_NUMBERS,
        {**_INCREASING, "empty_cells": ["parent", "zero"]},
        in_unit_cube=True,
        whole=_UNENDING,
        fixed={"domain": "cube"},
    ),
    System(
        "adaptive-classifier",
        amf.AdaptiveAMFClassifier,
        *_OF_CLASSES,
        {**_AMF, **_ADAPTIVE, "prior": ["parent", "dirichlet"]},
    ),
    System("adaptive-regressor", amf.AdaptiveAMFRegressor, *_OF_NUMBERS, {**_AMF, **_ADAPTIVE}),
    System(
        "bsp-classifier",
        amf.BSPForestClassifier,
        *_OF_CLASSES,
        {**_BSP, "combine": ["average", "vote"]},
        whole=_ALL_CUTS,
    ),
    System("bsp-regressor", amf.BSPForestRegressor, *_OF_NUMBERS, _BSP, whole=_ALL_CUTS),
]


@pytest.fixture(scope="session", params=SYSTEMS, ids=lambda system: system.name)
def system(request: pytest.FixtureRequest) -> System:
    """Each system in turn."""
    return request.param
