"""The figures of a pass over rows, counted row by row in memory that does not grow with the rows.

What a model is worth shows beside a baseline that knows the labels alone, and knows them all from the start: always the
commonest class with the share of each class as its probability, or always the mean.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from amf import class_text
from worker.base.records import ClassScores, Estimate, NumberScores, Prediction

_MOST_WINDOWS = 60
FEWEST_ROWS = 20
_MOST_PAIRS = 2000
_FEWEST_OF_FIFTHS = 500
N_BINS = 10


class Curve:
    """Means over windows of rows: few windows at first, then each of twice as many rows, so that they stay few."""

    def __init__(self) -> None:
        self._width = 1
        self._windows: list[tuple[float, int]] = []
        self._sum, self._n = 0.0, 0

    def add(self, value: float) -> None:
        self._sum, self._n = self._sum + value, self._n + 1
        if self._n < self._width:
            return
        self._windows.append((self._sum, self._n))
        self._sum, self._n = 0.0, 0
        if len(self._windows) == 2 * _MOST_WINDOWS:
            pairs = zip(self._windows[::2], self._windows[1::2], strict=True)
            self._windows = [(a + b, n + m) for (a, n), (b, m) in pairs]
            self._width *= 2

    def points(self) -> list[tuple[int, float]]:
        """The last row of each window, counted from 1, and the mean over the window."""
        windows = [*self._windows, (self._sum, self._n)] if self._n else self._windows
        together = max(math.ceil(len(windows) / _MOST_WINDOWS), math.ceil(FEWEST_ROWS / self._width))
        points, row = [], 0
        starts = list(range(0, len(windows), together))
        # A few rows at the end are no window of their own: their mean would be chance.
        if len(starts) > 1 and sum(n for _, n in windows[starts[-1] :]) < together * self._width / 2:
            starts.pop()
        for start, stop in zip(starts, [*starts[1:], len(windows)], strict=True):
            part = windows[start:stop]
            n = sum(n for _, n in part)
            row += n
            points.append((row, sum(total for total, _ in part) / n))
        return points

    def running(self) -> list[tuple[int, float]]:
        """The rows of `points`, and the mean over all rows up to each of them."""
        points, total, before = [], 0.0, 0
        for row, mean in self.points():
            total, before = total + mean * (row - before), row
            points.append((row, total / row))
        return points


class Sample:
    """Some rows of numbers out of many, evenly spread: every k-th, k doubling while there are too many."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._every, self._seen = 1, 0

    def add(self, *row: float) -> None:
        if self._seen % self._every == 0:
            self.rows.append(row)
        self._seen += 1
        if len(self.rows) > _MOST_PAIRS:
            self.rows = self.rows[::2]
            self._every *= 2


class Bin(NamedTuple):
    """Forecasts that are about equally sure: how many, how sure, and how many of them came true."""

    n: int
    mean_probability: float
    share_true: float


class Share(NamedTuple):
    """Of labels that came true of a quantile. Where many are alike, such as zeros, one that is right has less of them
    below it than was said, and more up to it."""

    below: float
    up_to: float

    def distance(self, said: float) -> float:
        """How far they are from what was said."""
        return max(self.below - said, said - self.up_to, 0.0)


class Fifth(NamedTuple):
    """A fifth of the estimates."""

    smallest: float
    largest: float
    shares: Sequence[Share]
    """Of labels for each of the QUANTILES."""


def calibration_error(bins: Iterable[Bin]) -> float | None:
    """Mean distance between what was said and what came true, over all forecasts."""
    bins = list(bins)
    total = sum(each.n for each in bins)
    return sum(each.n * abs(each.mean_probability - each.share_true) for each in bins) / total if total else None


@dataclass(slots=True)
class _Scored:
    """Scores of the rows that came with a label, and means of them, None where there is none."""

    classes: ClassScores = field(default_factory=ClassScores)
    numbers: NumberScores = field(default_factory=NumberScores)

    @property
    def log_loss(self) -> float | None:
        return _mean(self.classes.log_loss, self.classes.count)

    @property
    def accuracy(self) -> float | None:
        return _mean(self.classes.correct, self.classes.count)

    @property
    def rmse(self) -> float | None:
        return _mean(self.numbers.squared_error, self.numbers.count, math.sqrt)


@dataclass(slots=True)
class ModelFigures(_Scored):
    """Those of one model key."""

    rows: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    """Class -> its rows."""
    mean: float = 0.0
    """Of the labels that are numbers and were scored."""
    squares: float = 0.0
    """Sum of the squared distances of those labels from their mean."""
    nodes: int = 0
    depth: float = 0.0
    """Mean depth of a learned row."""

    def score_number(self, estimate: Estimate) -> bool:
        """Add an estimate; returns whether there was anything to compare."""
        if not self.numbers.score(estimate):
            return False
        assert estimate.label is not None
        step = estimate.label - self.mean
        self.mean += step / self.numbers.count
        self.squares += step * (estimate.label - self.mean)
        return True

    @property
    def entropy(self) -> float:
        """Sum of the losses of the class frequencies, each known from the start."""
        total = self.labels.total()
        return sum(n * math.log(total / n) for n in self.labels.values())


class FeatureFigures(NamedTuple):
    """A feature of all models together; what they tell of it is weighed by the labels that each learned."""

    name: str
    share: float
    """Of what the forecasts rest on."""
    weight: float | None
    """In the rate of cuts, 1 in the mean; None where no model adapts."""
    moved: float | None
    """How much it moved a forecast of late, without the sign, in probability or in the label's unit; None where none is
    explained (output.explain)."""


class Baseline(NamedTuple):
    """How good it is to say the same of every row of a model."""

    says: str
    log_loss: float | None
    accuracy: float | None
    rmse: float | None


@dataclass(slots=True)
class Report(_Scored):
    """Figures of a pass. Depths are of every forecast."""

    rows: int = 0
    labelled: int = 0
    std: float = 0.0
    """Mean standard deviation of the scored estimates."""
    rejects: Counter[str] = field(default_factory=Counter)
    first_rejects: dict[str, str] = field(default_factory=dict)
    """Code -> the first row that was refused under it, and why."""
    auc: float | None = None
    """Area under the ROC curve where there are two classes."""
    average_precision: float | None = None
    """Of the same class."""
    positive: str | None = None
    """The class whose probability `auc` ranks by: the rarer of the two, of equal ones the greater text."""
    roc: Sequence[tuple[float, float]] = ()
    """Points of the curve: share of the other class, share of the positive one above a threshold."""
    precision_recall: Sequence[tuple[float, float]] = ()
    """Share of the positive class that is above a threshold, and share of it among what is above."""
    calibration: Sequence[Bin] = ()
    """Of the positive class where there are two, else of the likeliest."""
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(class, predicted class) -> rows."""
    below: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Labels below each of the QUANTILES."""
    up_to: list[int] = field(default_factory=lambda: [0, 0, 0])
    """The same, and those that are the quantile."""
    estimates: Sample = field(default_factory=Sample)
    """Of some rows the label, the estimate and its quantiles."""
    loss_curve: Curve = field(default_factory=Curve)
    error_curve: Curve = field(default_factory=Curve)
    """Squared errors."""
    by_model: dict[str, ModelFigures] = field(default_factory=dict)
    features: list[FeatureFigures] = field(default_factory=list)
    """The one that forecasts rest on most first."""
    swaps: int | None = None
    """Trees that were replaced; None where no model adapts."""
    depth: float = 0.0
    """Mean depth of the leaf of a row."""
    weighted_depth: float = 0.0
    """Mean of the posterior mean depth at which the averaged prunings end."""
    models: int = 0
    nodes: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    """Whether there are rows that were not looked at."""
    notes: list[str] = field(default_factory=list)
    """What was odd, in sentences."""
    _sure: list[list[float]] = field(default_factory=lambda: [[0, 0.0, 0] for _ in range(N_BINS)])

    def score_class(self, prediction: Prediction, model: ModelFigures) -> None:
        """Add a prediction that has a label."""
        assert prediction.label is not None
        assert prediction.loss is not None
        label = class_text(prediction.label)
        said = None if prediction.prediction is None else class_text(prediction.prediction)
        for scores in (self.classes, model.classes):
            scores.count += 1
            scores.log_loss += prediction.loss
            scores.correct += said == label
        model.labels[label] += 1
        self.loss_curve.add(prediction.loss)
        if said is not None:
            self.confusion[label, said] += 1
            sure = max(prediction.probabilities)
            bin_ = self._sure[min(int(sure * N_BINS), N_BINS - 1)]
            bin_[0], bin_[1], bin_[2] = bin_[0] + 1, bin_[1] + sure, bin_[2] + (said == label)

    def score_number(self, estimate: Estimate, model: ModelFigures) -> None:
        """Add an estimate that has a label."""
        self.numbers.score(estimate)
        if not model.score_number(estimate):
            return
        assert estimate.label is not None
        assert estimate.prediction is not None
        assert estimate.loss is not None
        self.std += estimate.std or 0.0
        for place, quantile in enumerate(estimate.quantiles or ()):
            self.below[place] += estimate.label < quantile
            self.up_to[place] += estimate.label <= quantile
        self.error_curve.add(estimate.loss)
        self.estimates.add(estimate.label, estimate.prediction, *(estimate.quantiles or ()))

    def coverage_by_size(self) -> list[Fifth]:
        """What came true of each quantile, by how large the estimate was; none of few rows."""
        rows = sorted(self.estimates.rows, key=lambda row: row[1])
        bounds = [round(part * len(rows) / 5) for part in range(6)]
        fifths = [rows[start:stop] for start, stop in pairwise(bounds)] if len(rows) >= _FEWEST_OF_FIFTHS else []
        places = range(2, 2 + len(self.below))
        return [
            Fifth(part[0][1], part[-1][1], [_share([(row[0], row[place]) for row in part]) for place in places])
            for part in fifths
        ]

    def coverage_by_quantile(self) -> list[Share]:
        """What came true of each quantile, over all rows."""
        n = self.numbers.count
        return [Share(below / n, up_to / n) for below, up_to in zip(self.below, self.up_to, strict=True)]

    def confidence(self) -> list[Bin]:
        """How often the likeliest class was right, by how likely it was said to be."""
        return [Bin(int(n), total / n, hits / n) for n, total, hits in self._sure if n]

    @property
    def is_scored(self) -> bool:
        """Whether any forecast met a label."""
        return bool(self.classes.count or self.numbers.count)

    @property
    def mae(self) -> float | None:
        return _mean(self.numbers.absolute_error, self.numbers.count)

    @property
    def coverage(self) -> float | None:
        """Share of the labels from the 5 % to the 95 % quantile."""
        return _mean(self.numbers.covered, self.numbers.count)

    @property
    def labels(self) -> Counter[str]:
        """How often each class was the label, over all models."""
        return _labels_of(self.by_model.values())

    @property
    def positive_share(self) -> float:
        """Share of the positive class among the labels: the precision of forecasts that tell nothing."""
        return self.labels[self.positive or ""] / self.classes.count

    def baseline_ranking(self) -> tuple[float, float]:
        """AUC and average precision where each model says its own share of the positive class of every row.

        That tells models apart, and so ranks their rows, without a look at any feature.
        """
        by_share: defaultdict[float, list[int]] = defaultdict(lambda: [0, 0])
        for model in self.by_model.values():
            if n := model.labels.total():
                own = model.labels[self.positive or ""]
                of_share = by_share[own / n]
                of_share[0], of_share[1] = of_share[0] + own, of_share[1] + n - own
        others_below = self.classes.count - self.labels[self.positive or ""]
        wins, hits, own_above, above = 0.0, 0.0, 0, 0
        for _, (own, others) in sorted(by_share.items(), reverse=True):
            others_below -= others
            own_above, above = own_above + own, above + own + others
            wins += own * (others_below + others / 2)
            hits += own * own_above / above
        return wins / (own_above * (above - own_above)), hits / own_above

    @property
    def baseline(self) -> Baseline:
        """What to compare with: the best that can be said without a look at the features, model by model."""
        return baseline_of(list(self.by_model.values()))


def _share(pairs: Sequence[tuple[float, float]]) -> Share:
    """Of pairs of a label and a quantile."""
    return Share(fmean(label < quantile for label, quantile in pairs), fmean(a <= b for a, b in pairs))


def _labels_of(models: Iterable[ModelFigures]) -> Counter[str]:
    labels = Counter[str]()
    for model in models:
        labels.update(model.labels)
    return labels


def baseline_of(models: Sequence[ModelFigures]) -> Baseline:
    """The baseline of some models."""
    labels = _labels_of(models)
    n = labels.total()
    n_numbers = sum(model.numbers.count for model in models)
    one = len(models) == 1
    says = []
    if n:
        says.append(f"always {labels.most_common(1)[0][0]}" if one else "always the commonest class of each model")
    if n_numbers:
        says.append("always the mean" if one else "always the mean of each model")
    return Baseline(
        "; ".join(says),
        _mean(sum(model.entropy for model in models), n),
        _mean(sum(max(model.labels.values(), default=0) for model in models), n),
        _mean(sum(model.squares for model in models), n_numbers, math.sqrt),
    )


def _mean(total: float, count: int, scale: Callable[[float], float] = float) -> float | None:
    return scale(total / count) if count else None
