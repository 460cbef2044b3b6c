"""How well the forecasts of one model rank: area under the ROC curve over its last labels. For the metrics alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worker.base.metrics import RANKED_CLASSES, RANKED_LABELS

_BINS = 96
_BINS_A_UNIT = 4
"""Bins are a quarter of a unit of log-odds wide, so that forecasts of rare classes do not all fall into the first."""
_SMALLEST, _LARGEST = 1.0 / (1.0 + np.exp(np.array([1, -1]) * (_BINS - 1) / 2 / _BINS_A_UNIT))
"""Probabilities in the middle of the first bin, and of the last."""
_CLASSES = np.arange(RANKED_CLASSES)


class BinnedAuc:
    """Counts of forecasts by class, bin and whether the label was that class: 12 kB in all."""

    __slots__ = ("_before", "_n", "_now")

    def __init__(self) -> None:
        self._now, self._before = np.zeros((2, 2, RANKED_CLASSES, _BINS), dtype=np.int64)
        self._n = 0

    def add(self, probabilities: NDArray[np.float64], codes: ArrayLike) -> None:
        """Count forecasts (n, n_classes) with the numbers (n,) of their labels; below 0 where there is none.

        Most calls bring one forecast or two, of each of the models that have series of their own: what a call costs
        is the number of its steps.
        """
        labels = np.array(codes)
        labelled = labels >= 0
        labels, shares = labels[labelled, None], probabilities[labelled, :RANKED_CLASSES]
        shares = np.minimum(np.maximum(shares, _SMALLEST), _LARGEST)
        bins = np.log(shares / (1.0 - shares)) * _BINS_A_UNIT + _BINS // 2
        classes = _CLASSES[: shares.shape[1]]
        places = ((labels == classes) * RANKED_CLASSES + classes) * _BINS + bins.astype(np.int64)
        np.add.at(self._now.reshape(-1), places, 1)
        self._n += len(labels)
        if self._n >= RANKED_LABELS:
            self._before, self._now, self._n = self._now, np.zeros_like(self._now), 0

    @property
    def auc(self) -> float:
        """Mean over the classes of the probability that a label of the class got a higher forecast than another label.

        Forecasts in one bin count as equal. NaN while there are no labels of two classes.
        """
        counts = self._now + self._before
        others, own = counts
        # Twice the labels below, of which those in the same bin count half: all is in whole numbers, and few calls.
        below = 2 * np.cumsum(others, axis=1) - others
        wins = np.einsum("ij,ij->i", own, below).tolist()
        n_others, n_own = counts.sum(axis=2).tolist()
        known = [won / (2 * n * m) for won, n, m in zip(wins, n_others, n_own, strict=True) if n and m]
        return sum(known) / len(known) if known else math.nan
