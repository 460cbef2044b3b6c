"""Area under the ROC curve in a window, against scikit-learn's over the same labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from worker.base.metrics import RANKED_CLASSES, RANKED_LABELS
from worker.state.auc import BinnedAuc


def forecasts(n: int, share: float, signal: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, 2) and labels (n,) of which so many are 1."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < share).astype(np.int64)
    odds = math.log(share / (1 - share)) + signal * (labels - share) + rng.normal(size=n)
    p = 1 / (1 + np.exp(-odds))
    return np.column_stack([1 - p, p]), labels


@pytest.mark.parametrize(("share", "signal"), [(0.5, 1.0), (0.01, 2.0), (0.01, 0.0), (0.9, -1.0)])
def test_the_auc_of_two_classes_is_that_of_scikit_learn(share: float, signal: float) -> None:
    probabilities, labels = forecasts(RANKED_LABELS - 1, share, signal)
    ranking = BinnedAuc()
    for part in np.array_split(np.arange(len(labels)), 7):
        ranking.add(probabilities[part], labels[part].tolist())
    assert ranking.auc == pytest.approx(roc_auc_score(labels, probabilities[:, 1]), abs=0.005)


def test_many_classes_each_against_the_others() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 3000)
    scores = rng.random((3000, 4)) + 0.5 * (labels[:, None] == np.arange(4))
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    ranking = BinnedAuc()
    ranking.add(probabilities, labels.tolist())
    assert ranking.auc == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr"), abs=0.03)


def test_old_labels_are_forgotten() -> None:
    ranking = BinnedAuc()
    probabilities, labels = forecasts(3 * RANKED_LABELS, 0.3, 3.0)
    for start in range(0, 3 * RANKED_LABELS, 500):
        wrong = start >= RANKED_LABELS
        part = probabilities[start : start + 500, ::-1] if wrong else probabilities[start : start + 500]
        ranking.add(part, labels[start : start + 500].tolist())
    assert ranking.auc < 0.1


def test_there_is_no_figure_before_labels_of_two_classes() -> None:
    ranking = BinnedAuc()
    assert math.isnan(ranking.auc)
    ranking.add(np.array([[0.2, 0.8], [0.1, 0.9]]), [1, 1])
    assert math.isnan(ranking.auc)
    ranking.add(np.array([[0.7, 0.3]]), [-1])
    assert math.isnan(ranking.auc)
    ranking.add(np.array([[0.7, 0.3]]), [0])
    assert ranking.auc == 1.0


def test_hostile_forecasts_do_no_harm() -> None:
    ranking = BinnedAuc()
    ranking.add(np.zeros((3, 0)), [0, 1, -1])
    ranking.add(np.array([[0.0, 1.0], [1.0, 0.0]]), [1, 0])
    assert ranking.auc == 1.0
    many = np.full((4, 1000), 0.001)
    ranking.add(many, [0, 999, RANKED_CLASSES, -1])
    assert 0.0 <= ranking.auc <= 1.0
