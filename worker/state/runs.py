"""Events of a batch on their way through a forest, and what became of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from worker.base.records import Answer, ClassScores, Event, Reject, Scores
from worker.base.tally import Tally
from worker.base.terms import KindChange
from worker.state.targets import NO_LABEL, Answered, ForecastColumns


class Run(NamedTuple):
    """Accepted events on their way through a forest."""

    rows: list[int]
    """Positions in the batch."""
    events: list[Event]
    cells: list[Collection[Any]]
    """Their features as Columns takes them."""
    codes: list[int]
    """Of their labels, as the target gives them."""

    @property
    def n_labelled(self) -> int:
        """How many of them are learned."""
        return len(self.codes) - self.codes.count(NO_LABEL)

    def part(self, part: slice) -> Run:
        """The run of some of the events."""
        return Run(self.rows[part], self.events[part], self.cells[part], self.codes[part])


class Applied:
    """What became of events in a batch, of one model or of several of one kind, and figures for the metrics."""

    __slots__ = ("explain", "kind_changes", "outcomes", "scores", "tally")

    def __init__(self, n: int, scores: type[Scores], explain: int = 0) -> None:
        self.explain = explain
        """How many features are to be named with each forecast that moved it most."""
        self.outcomes: list[Answer | Reject | None] = [None] * n
        """Event by event; None where the event was only learned."""
        self.kind_changes: list[tuple[int, str | None, KindChange]] = []
        """Position of the event, and the feature of which it is the first of another kind."""
        self.tally = Tally()
        self.scores: Scores = self.tally.classes if scores is ClassScores else self.tally.numbers
        """Those of the tally that labels of this kind have."""

    def answered(self, places: Iterable[int], answered: Answered, forecasts: ForecastColumns) -> None:
        """Take in what is answered to the events at these places, of which the forests said this."""
        for place, answer in zip(places, answered.answers, strict=True):
            self.outcomes[place] = answer
        tally = self.tally
        tally.predicted += len(answered.answers)
        tally.depths.append(forecasts.depth)
        tally.weighted_depth += sum(forecasts.weighted_depth)
        tally.confidences += answered.confidences
        tally.hits += answered.hits
        sums = (reduce(add, column, 0.0) for column in answered.scores)
        self.scores.add(type(self.scores).of(len(answered.scored), *sums))
