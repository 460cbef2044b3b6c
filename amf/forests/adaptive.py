"""Aggregated Mondrian Forests that learn which features matter and replace trees that are out of date."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from amf.adaptation.state import ACTIVE, SILENT, STANDING_BY, Terms, most_kept
from amf.forests.amf import AMFClassifier, AMFRegressor
from amf.forests.description import Adaptation, Role, TreeStanding
from amf.forests.forest import Forest
from amf.params import AdaptiveAMFClassifierParams, AdaptiveAMFRegressorParams
from amf.systems import amf_classifier, amf_regressor

Params = TypeVar("Params", bound=AdaptiveAMFClassifierParams | AdaptiveAMFRegressorParams)

_ROLES: dict[float, Role] = {ACTIVE: "active", STANDING_BY: "standing-by", SILENT: "silent"}


class _AdaptiveForest(Forest[Params]):
    """What both have in common."""

    @property
    def feature_weights(self) -> NDArray[np.float64]:
        """How much likelier than in the plain forest a cut is of each feature, (d,): 1 in the mean of those that vary.

        They say what a feature tells of the labels, half by itself and half by what splits on it gained beyond those
        above them (feature_weights.py). Of two features that tell the same each gets its share. A feature of which no
        two values were seen cannot be cut: its weight is 0.
        """
        with self._turn:
            return np.where(self._scaling.moves > 0, self._adapted.weights, 0.0)

    @property
    def adaptation(self) -> Adaptation:
        """How the forest has changed with its samples."""
        with self._turn:
            state, forecasting = self._adapted, int(np.count_nonzero(self._forecasts))
            columns = state.roles, self.n_samples - self._births, state.losses, state.judged
            trees = tuple(
                TreeStanding(_ROLES[role], age, loss / max(judged, 1.0) if judged else None)
                for role, age, loss, judged in zip(*(column.tolist() for column in columns), strict=True)
            )
            return Adaptation(forecasting, int(state.swaps[0]), tuple(self.feature_weights.tolist()), trees)

    @property
    def _forecasts(self) -> NDArray[np.bool_]:
        asked: NDArray[np.bool_] = self._adapted.roles != SILENT
        return asked

    @property
    def _terms(self) -> Terms:
        # 0.29 * 100 is a little less than 29.
        n_background = int(self.params.background * self.params.n_estimators + 1e-9)
        return Terms(n_background, self.params.review_every, most_kept(self.n_features, self.params.max_bytes))

    @property
    def _purity(self) -> float:
        # Trees that rehearse have their first samples on the scale of all of them. Others have split them while the
        # spread that was known was small, into two to three times as many cells, in which rare labels are found.
        return 3.0 * float(self.params.purity)


class AdaptiveAMFClassifier(_AdaptiveForest[AdaptiveAMFClassifierParams], AMFClassifier):
    """AMFClassifier that learns which features matter, and replaces trees that are out of date (adaptation/).

    Parameters are the fields of AdaptiveAMFClassifierParams, and `n_threads`: threads that share the trees; results do
    not depend on it.
    """

    Parameters = AdaptiveAMFClassifierParams
    family = "adaptive-classifier"
    _kernels = amf_classifier.ADAPTING_KERNELS


class AdaptiveAMFRegressor(_AdaptiveForest[AdaptiveAMFRegressorParams], AMFRegressor):
    """AMFRegressor that learns which features matter, and replaces trees that are out of date (adaptation/).

    Parameters are the fields of AdaptiveAMFRegressorParams, and `n_threads`: threads that share the trees; results do
    not depend on it.
    """

    Parameters = AdaptiveAMFRegressorParams
    family = "adaptive-regressor"
    _kernels = amf_regressor.ADAPTING_KERNELS
