"""What is shown of a model, be it in memory or away: nothing is loaded for it, and nothing counts as a use of it."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

import amf
from worker.base.records import ClassScores, NumberScores, RecentLosses, Scores
from worker.base.status import (
    MOST_FEATURES,
    MOST_TREES,
    Adaptation,
    Attribution,
    Feature,
    FeatureWeight,
    Loss,
    ModelDetail,
    ModelRow,
    Tree,
    short,
)
from worker.state.entry import Entry
from worker.state.model import Model
from worker.state.slots import UNKNOWN_MS

MOST_CLASSES = 50
_NAME_CHARS = 80


def row(partition: int, entry: Entry, depth: float | None = None) -> ModelRow:
    """The model in a line; costs the same however large it is."""
    recent = entry.losses
    losses = None if recent is None else _loss(recent)
    in_memory = entry.model is not None
    return ModelRow(_key(entry), partition, entry.samples, entry.nodes, entry.nbytes, in_memory, losses, depth)


def detail(partition: int, entry: Entry) -> ModelDetail:
    """All that is shown of a model. Looks at every node of one that is in memory."""
    figures = entry.figures()
    common = ModelDetail(
        key=_key(entry),
        partition=partition,
        spec=entry.spec,
        samples=figures.samples,
        nodes=figures.nodes,
        bytes=figures.memory_bytes,
        depth=figures.depth,
        in_memory=entry.model is not None,
        last_ms=None if entry.last_ms == UNKNOWN_MS else entry.last_ms,
        loss=None if figures.losses is None else _loss(figures.losses),
        scores=_means(figures.scores) | ({} if math.isnan(figures.auc) else {"auc": figures.auc}),
    )
    if entry.model is None:
        return common
    forest = entry.model.forest
    usage = forest.feature_usage()
    adaptation = forest.adaptation
    labels = forest.class_labels
    return msgspec.structs.replace(
        common,
        algorithm=forest.family,
        trees=forest.params.n_estimators,
        n_features=len(entry.model.features.names),
        features=_features(entry.model, usage),
        weighted_depth=float(usage.sum()),
        adaptation=None if adaptation is None else _adaptation(entry.model, adaptation),
        attributions=_attributions(entry.model),
        n_classes=None if labels is None else len(labels),
        classes=None
        if labels is None
        else [short(amf.class_text(each), _NAME_CHARS) for each in labels[:MOST_CLASSES]],
    )


def _key(entry: Entry) -> str:
    return short(entry.key, len(entry.key) * 6)


def _loss(losses: RecentLosses) -> Loss:
    return Loss(*(None if math.isnan(loss) else loss for loss in losses))


def _features(model: Model, usage: NDArray[np.float64]) -> list[Feature]:
    """The features used most; the categories of one are one feature."""
    features, total = model.features, float(usage.sum())
    shares = features.largest(features.sums(usage), MOST_FEATURES)
    return [Feature(short(name, _NAME_CHARS), used / total) for name, used in shares.items()]


def _adaptation(model: Model, found: amf.Adaptation) -> Adaptation:
    weights = model.features.largest(model.feature_weights(found), MOST_FEATURES)
    return Adaptation(
        found.n_forecasting,
        found.n_swaps,
        [FeatureWeight(short(name, _NAME_CHARS), weight) for name, weight in weights.items()],
        [Tree(*tree) for tree in found.trees[:MOST_TREES]],
    )


def _attributions(model: Model) -> list[Attribution] | None:
    if model.explainer is None:
        return None
    moved = model.features.largest(model.explainer.mean_moves, MOST_FEATURES)
    return [Attribution(short(name, _NAME_CHARS), mean) for name, mean in moved.items()]


def _means(scores: Scores) -> dict[str, float]:
    n = max(scores.count, 1)
    match scores:
        case ClassScores():
            means = {"log_loss": scores.log_loss / n, "accuracy": scores.correct / n}
        case NumberScores():
            rmse, mae = math.sqrt(scores.squared_error / n), scores.absolute_error / n
            means = {"rmse": rmse, "mae": mae, "coverage_90": scores.covered / n}
        case _:
            means = {}
    return {"count": scores.count, **(means if scores.count else {})}
