"""What all forests have in common whose labels are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.calibration.number_calibration import (
    LOWER,
    MEAN,
    MEDIAN,
    N_OUTPUTS,
    STD,
    TAIL_QUANTILE,
    UPPER,
    fresh_state,
    is_sound,
    losses_of,
    with_features,
)
from amf.calibration.number_stacking import n_of_features
from amf.forests.forest import Forest
from amf.inputs.batch import BatchForecasts, Labels
from amf.inputs.labels import Label, numbers
from amf.jit.elementary import normal_quantile
from amf.kernels.attributions import Attributions
from amf.state.system import Params
from amf.statistics.number_means import STATS_ROOM, are_sound

QUANTILES = (0.05, 0.5, 0.95)
"""Those that `prequential` gives."""
_OF_QUANTILES = [LOWER, MEDIAN, UPPER]
"""Outputs of the kernels that are these."""


class RegressionForecasts(NamedTuple):
    """What `prequential` returns; row i belongs to sample i, before its label was learned; NaN before the first one."""

    mean: NDArray[np.float64]
    """(n,)"""
    raw_mean: NDArray[np.float64]
    """(n,), the same before calibration: the aggregate over prunings, mean over trees."""
    std: NDArray[np.float64]
    """(n,), standard deviation of the label."""
    quantiles: NDArray[np.float64]
    """(n, 3), at 5 %, 50 % and 95 %."""
    depth: NDArray[np.float64]
    """(n,), depth at which the sample ends (root: 0), mean over trees."""
    weighted_depth: NDArray[np.float64]
    """(n,), posterior mean of the depth of the pruning's leaf ([AMF] Sec. 5.1), mean over trees."""


class ForestRegressor(Forest[Params]):
    """A forest whose labels are numbers."""

    _code = np.float64

    def predict_learn(self, X: ArrayLike, y: Any) -> NDArray[np.float64]:  # noqa: N803
        """Predict each row, then learn it: means (n,) as `prequential`; arguments as `partial_fit`."""
        return self._learn(X, y, asked=True).outputs[:, MEAN]

    def prequential(self, X: ArrayLike, y: Any) -> RegressionForecasts:  # noqa: N803
        """Predict each row, then learn it, and also tell how sure the forecast was and how deep the trees were."""
        return self._published(self._learn(X, y, asked=True))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Mean (n,) of the label at each row. Changes nothing."""
        return self._ask(X).outputs[:, MEAN]

    def predict_std(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Standard deviation (n,) of the label at each row. Changes nothing."""
        return self._ask(X).outputs[:, STD]

    def predict_quantiles(self, X: ArrayLike, probabilities: Iterable[float] = QUANTILES) -> NDArray[np.float64]:  # noqa: N803
        """Quantiles (n, len(probabilities)) of the label at each row, each probability in (0, 1). Changes nothing.

        Those of 0.05, 0.5 and 0.95 are calibrated. The others follow from half of a normal distribution on each side of
        the median.
        """
        probabilities = list(probabilities) if isinstance(probabilities, Iterable) else [probabilities]
        if not all(isinstance(probability, Real) for probability in probabilities):
            raise TypeError(f"probabilities must be numbers between 0 and 1, got {probabilities}")
        if not all(0.0 < probability < 1.0 for probability in probabilities):
            raise ValueError(f"probabilities must lie between 0 and 1, got {probabilities}")
        return _quantiles(self._ask(X), probabilities)

    def attribute(self, X: ArrayLike) -> Attributions:  # noqa: N803
        """How much each feature moved the mean of each row, as Forest.attribute says: (n,), (n,), (n, d) and (n,)."""
        return Attributions(*(array[..., 0] for array in super().attribute(X)))

    def add_classes(self, labels: Iterable[Label]) -> None:
        """Labels are numbers: raises ValueError."""
        raise ValueError(f"the labels of {type(self).__name__} are numbers: it has no classes")

    def _published(self, forecasts: BatchForecasts) -> RegressionForecasts:
        said, (depth, weighted_depth) = forecasts.outputs, forecasts.depths.T
        raw_mean = forecasts.raw[:, MEAN]
        return RegressionForecasts(said[:, MEAN], raw_mean, said[:, STD], said[:, _OF_QUANTILES], depth, weighted_depth)

    def _encode(self, y: Any, n: int) -> Labels:
        values, labelled = self._given(y)
        if len(values) != n:
            raise ValueError(f"y has {len(values)} labels for {n} rows of X")
        return Labels(values, labelled, {}, N_OUTPUTS)

    def _given(self, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        values = numbers(labels)
        return values, ~np.isnan(values)

    def _fresh_calibration(self) -> NDArray[np.float64]:
        return fresh_state()

    def _n_calibrated(self, n_features: int) -> int:
        return n_of_features(n_features, self.params.max_bytes)

    def _calibration_with(self, known: int, like: Sequence[int | None]) -> NDArray[np.float64]:
        return with_features(self._calibration, known, like, self.params.max_bytes)

    @property
    def _losses(self) -> NDArray[np.float64]:
        return losses_of(self._calibration)

    @property
    def _stats_room(self) -> int:
        return STATS_ROOM

    @property
    def _n_outputs(self) -> int:
        return N_OUTPUTS

    @property
    def _n_said(self) -> int:
        return 1

    @property
    def _knows_nothing(self) -> bool:
        return self.n_samples == 0

    def _recall(self, classes: Any) -> None:
        if classes is not None:
            raise ValueError(f"labels are numbers, and yet there are classes: {classes}")
        if self.params.calibration:
            self._calibration = self._fresh_calibration()

    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        return are_sound(heads) and is_sound(self._calibration, self.n_features)


def _quantiles(forecasts: BatchForecasts, probabilities: list[float]) -> NDArray[np.float64]:
    lower, median, upper = forecasts.outputs[:, _OF_QUANTILES].T
    quantiles = np.empty((len(median), len(probabilities)))
    for place, probability in enumerate(probabilities):
        if probability in QUANTILES:
            quantiles[:, place] = forecasts.outputs[:, _OF_QUANTILES[QUANTILES.index(probability)]]
            continue
        step = float(normal_quantile(float(probability))) / TAIL_QUANTILE
        quantiles[:, place] = median + step * (median - lower if step < 0.0 else upper - median)
    return quantiles
