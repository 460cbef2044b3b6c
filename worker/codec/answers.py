"""What the value of an output record holds, however it is written."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from worker.base.records import QUANTILES, Answer, Explanation, Label, Prediction


class PredictionValue(msgspec.Struct, gc=False):
    """The value of an output record of classes, its fields in the published order."""

    id: str | None
    model: str
    prediction: Label | None
    probabilities: dict[str, float]
    label: Label | UnsetType
    loss: float | UnsetType
    learned: int
    explanation: Explanation | UnsetType
    unexplained: float | UnsetType


class EstimateValue(msgspec.Struct, gc=False):
    """The value of an output record of numbers, its fields in the published order."""

    id: str | None
    model: str
    prediction: float | None
    std: float | None
    quantiles: dict[str, float] | None
    label: float | UnsetType
    loss: float | UnsetType | None
    learned: int
    explanation: Explanation | UnsetType
    unexplained: float | UnsetType


def fitting(label: Label | None, integers: range) -> Label | None:
    """A label as a codec with only these integers can write it: any other as its text, which is the same class."""
    return str(label) if type(label) is int and label not in integers else label


def value_of(model: str, answer: Answer) -> PredictionValue | EstimateValue:
    """What is written of what a model said.

    `label` and `loss` are left out where the event had no label, `explanation` and `unexplained` where nobody asked for
    them, and the latter before the first label; `id` is null where the event had none, `prediction` and what follows
    from it before the first label.
    """
    if isinstance(answer, Prediction):
        return PredictionValue(
            answer.id,
            model,
            answer.prediction,
            # The model may know more classes by now than this forecast did.
            dict(zip(answer.classes, answer.probabilities)),  # noqa: B905 (to say so by `strict` takes as long again)
            UNSET if answer.label is None else answer.label,
            UNSET if answer.loss is None else answer.loss,
            answer.learned,
            UNSET if answer.explanation is None else answer.explanation,
            UNSET if answer.unexplained is None else answer.unexplained,
        )
    quantiles = answer.quantiles
    return EstimateValue(
        answer.id,
        model,
        answer.prediction,
        answer.std,
        None if quantiles is None else dict(zip(QUANTILES, quantiles, strict=True)),
        UNSET if answer.label is None else answer.label,
        UNSET if answer.label is None else answer.loss,
        answer.learned,
        UNSET if answer.explanation is None else answer.explanation,
        UNSET if answer.unexplained is None else answer.unexplained,
    )
