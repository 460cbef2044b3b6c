"""Value types that travel through the worker: consumed records, decoded events, what is published.

Whether a value is of one of these types is soon known where it is: where it is not, `isinstance` takes five times as
long, since msgspec's types have a metaclass. So what is asked of every record is whether it is what nearly all are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import msgspec

Headers = list[tuple[str, bytes | None]]
Label = str | int | float | bool
Features = dict[str, float | str | None] | list[float | None]


class Membership(NamedTuple):
    """Who a consumer is in its group, as of when it was asked."""

    id: str
    """The id that the group gave it, empty where it has none. One that comes back after it was given up has another."""
    metadata: Any
    """What the client sends along with offsets; its generation may be an earlier one by the time that they arrive."""


class CommittedOffset(NamedTuple):
    """An offset of the group: that of the next record, and what was committed along with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """Leader epoch of the record before the offset, None where it is not known."""


class Bounds(NamedTuple):
    """Where the records of a partition begin and end."""

    low: int
    """First offset that exists."""
    high: int
    """The one after the last record that can be read: what an open transaction has written cannot be."""
    end: int
    """The one after the last record of all."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One consumed record of a partition, undecoded."""

    offset: int
    timestamp_ms: int
    """Timestamp of the record in ms since the epoch, -1 where the broker gave none."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    headers_fault: str | None = None
    """Why the headers cannot be read, none of which are in `headers` then; follows from their bytes alone."""
    leader_epoch: int | None = None
    """Under which leader of the partition it was written: each one that is elected has a greater number than those
    before it. None where the broker does not say."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """A decoded record: what a model predicts from, and learns from where `label` is not None."""

    features: Features
    label: Label | None
    id: str | None


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Why a record is a dead letter: a stable code and a sentence for people."""

    code: str
    reason: str


Explanation = dict[str, float]
"""Feature -> how much it moved the forecast, the largest first; of an array the features are called 0, 1, and so on."""


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """What a model of classes said of one event before it learned the event's label."""

    prediction: Label | None
    """The likeliest class as its label was first seen; None before the model's first label."""
    classes: list[str]
    """Texts of the model's classes; the first `len(probabilities)` of them were known to this forecast."""
    probabilities: list[float]
    label: Label | None
    loss: float | None
    """-log of the probability given to the label, log(learned + 2) where its class was new; None without a label."""
    learned: int
    """Labelled samples the model had learned before this event."""
    id: str | None
    explanation: Explanation | None = None
    """Of the probability of the likeliest class; None where that was not asked for."""
    unexplained: float | None = None
    """What that probability is beyond the explained one; None where that was not asked for, and before any label."""


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """What a model of numbers said of one event before it learned the event's label."""

    prediction: float | None
    """The mean; None before the model's first label, and so are all that follow from it."""
    std: float | None
    quantiles: list[float] | None
    """At QUANTILES."""
    label: float | None
    loss: float | None
    """(label - mean) ** 2; None without a label."""
    learned: int
    """Labelled samples the model had learned before this event."""
    id: str | None
    explanation: Explanation | None = None
    """Of the mean, in the label's unit; None where that was not asked for."""
    unexplained: float | None = None
    """What the mean is beyond the explained one; None where that was not asked for, and before any label."""


QUANTILES = ("0.05", "0.5", "0.95")
"""Those that an estimate has, by their names in the output."""

Answer = Prediction | Estimate
"""What is published of an event."""


@dataclass(slots=True)
class Scores(ABC):
    """How good answers were that came with a label: sums over them."""

    count: int = 0

    @classmethod
    @abstractmethod
    def of(cls, count: float, *sums: float) -> Self:
        """Scores with these sums, in the order of the fields."""

    @abstractmethod
    def sums(self) -> tuple[float, ...]:
        """Count and sums, in the order of the fields."""

    @abstractmethod
    def add(self, other: Self) -> None:
        """Add what `other` counted."""


@dataclass(slots=True)
class ClassScores(Scores):
    """Scores of predictions."""

    log_loss: float = 0.0
    correct: int = 0

    @classmethod
    def of(cls, count: float, *sums: float) -> Self:
        log_loss, correct, *_ = sums
        return cls(int(count), log_loss, int(correct))

    def sums(self) -> tuple[float, ...]:
        return self.count, self.log_loss, self.correct

    def add(self, other: Self) -> None:
        self.count += other.count
        self.log_loss += other.log_loss
        self.correct += other.correct


@dataclass(slots=True)
class NumberScores(Scores):
    """Scores of estimates."""

    squared_error: float = 0.0
    absolute_error: float = 0.0
    covered: int = 0
    """Labels from the 5 % to the 95 % quantile."""

    @classmethod
    def of(cls, count: float, *sums: float) -> Self:
        squared_error, absolute_error, covered = sums
        return cls(int(count), squared_error, absolute_error, int(covered))

    def sums(self) -> tuple[float, ...]:
        return self.count, self.squared_error, self.absolute_error, self.covered

    def add(self, other: Self) -> None:
        self.count += other.count
        self.squared_error += other.squared_error
        self.absolute_error += other.absolute_error
        self.covered += other.covered

    def score(self, estimate: Estimate) -> bool:
        """Add an estimate; returns whether there was anything to compare."""
        if estimate.label is None or estimate.prediction is None or not estimate.quantiles or estimate.loss is None:
            return False
        self.count += 1
        self.squared_error += estimate.loss
        self.absolute_error += abs(estimate.label - estimate.prediction)
        self.covered += estimate.quantiles[0] <= estimate.label <= estimate.quantiles[-1]
        return True


class RecentLosses(NamedTuple):
    """Recent mean losses of a model's forecasts; NaN before its first label."""

    calibrated: float
    trees: float
    """Of the trees alone."""
    baseline: float
    """Of a forecast that knows the labels alone."""


class Figures(NamedTuple):
    """One model in numbers."""

    samples: int
    nodes: int
    depth: float
    memory_bytes: int
    scores: Scores
    losses: RecentLosses | None = None
    """None where its forest does not keep them."""
    auc: float = math.nan
    """How well its last forecasts ranked, NaN where that is not known."""
    swaps: int | None = None
    """Trees that it has replaced; None where it is not known, or its forest does not adapt."""
    feature_weights: Mapping[str, float] = MappingProxyType({})
    """The largest ones; none where `swaps` is None."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One record to publish."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
