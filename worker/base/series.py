"""The labels of metrics: what each may say, and which go together."""

from __future__ import annotations

from typing import Literal, NamedTuple

from worker.base.errors import StopCode
from worker.base.terms import Change, KindChange, State

Outcome = Literal["committed", "aborted", "unknown"]
Forecast = Literal["calibrated", "trees", "baseline"]
Verdict = Literal["useful", "useless"]
LoadSource = Literal["spill", "checkpoint"]


class Unlabelled(NamedTuple):
    """No labels: the family is one series."""


class Build(NamedTuple):
    version: str
    engine: str
    group: str
    topic: str


class ByCode(NamedTuple):
    code: str


class ByStopCode(NamedTuple):
    code: StopCode


class ByChange(NamedTuple):
    change: Change


class ByPartition(NamedTuple):
    partition: int


class ByInputPartition(NamedTuple):
    input_partition: int


class ByKindChange(NamedTuple):
    of: Literal["feature", "label"]
    change: KindChange


class BySource(NamedTuple):
    source: LoadSource


class ByPartitionState(NamedTuple):
    partition: int
    state: State


class ByOutcome(NamedTuple):
    outcome: Outcome


class ByModel(NamedTuple):
    model: str


class ByModelFeature(NamedTuple):
    model: str
    feature: str


class ByModelForecast(NamedTuple):
    model: str
    forecast: Forecast


Tenth = Literal["0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"]


class ByConfidence(NamedTuple):
    confidence: Tenth


class ByVerdict(NamedTuple):
    verdict: Verdict
