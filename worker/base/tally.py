"""Figures of answers, for the metrics: of one model in a turn, of a batch, of all that is committed together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worker.base.records import ClassScores, NumberScores


@dataclass(slots=True)
class Tally:
    """What some events were answered and taught, in figures."""

    predicted: int = 0
    learned: int = 0
    classes: ClassScores = field(default_factory=ClassScores)
    numbers: NumberScores = field(default_factory=NumberScores)
    depths: list[NDArray[np.float64]] = field(default_factory=list)
    """Depth of the leaf of each predicted event, mean over trees."""
    weighted_depth: float = 0.0
    """Sum over the predicted events of the mean depth at which the averaged prunings end."""
    confidences: list[float] = field(default_factory=list)
    """Of forecasts of classes that came with a label, the probability of the likeliest one."""
    hits: list[bool] = field(default_factory=list)
    """Whether the label was that class."""

    def add(self, later: Tally) -> None:
        """Add the figures of the events after these."""
        self.predicted += later.predicted
        self.learned += later.learned
        self.classes.add(later.classes)
        self.numbers.add(later.numbers)
        self.depths += later.depths
        self.weighted_depth += later.weighted_depth
        self.confidences += later.confidences
        self.hits += later.hits

    def join_depths(self) -> None:
        """Make the depths one array: of a thousand models they are a thousand, and a histogram takes one by one."""
        if self.depths:
            self.depths = [np.concatenate(self.depths)]
