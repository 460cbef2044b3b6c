"""A slow, readable calibration of forecasts of numbers.

A forest that is calibrated blends its trees' average over prunings with their leaves and with the mean of labels, as
would have been best so far, adds what that was off of late where it helps, and shares of the differences to a linear
model of the features, to one of their squares, and to one of splines of them (reference_stacking.py), where that helps,
and stretches its intervals until 5 % of the labels fall below and 5 % above. What it publishes stays where labels are,
if that is better.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from reference_stacking import LinearModel, Scale

TAIL = 0.05
WIDEST = 5.0
MOST_MISSED = 6


class Outlook(NamedTuple):
    """What trees say at a sample: mean over prunings and forecast of the leaf, both from `origin`, and the variance.

    `origin` is the mean of all labels. Differences from it are exactly 0 where all nodes forecast the same.
    """

    origin: float
    mean: float
    leaf: float
    variance: float


@dataclass
class Blend:
    """The forest's forecast: leaf + a * (mean over prunings - leaf) + b * (mean of labels - leaf).

    The weights a, b are those that would have been best of late: least squares over the forest's own past forecasts,
    b within bounds, and then the a that is best beside it, within bounds, too. Where the first difference has hardly
    varied they are 1 and 0; where both have varied in step, b is 0.

    A row counts 1 / e after 2048 later ones, and is divided by 16 usual squared errors of the mean over prunings and
    its own one: that bounds what one label does. A squared error counts in the usual one as 16 of those at most, and as
    much in the lasting one, a mean in which it counts 1 / e after 16384 later ones. Where MOST_MISSED labels in a row
    were outside of the quantiles, the usual one is at least that.
    In the mean a label counts 1 / e after 1024 later ones, once there are so many.
    """

    moments: np.ndarray = field(default_factory=lambda: np.zeros((2, 3)))  # both differences with both and the label
    usual: float = 0.0
    lasting: float = 0.0
    n: int = 0
    mean: float = 0.0

    def count(self, y: float) -> None:
        self.n += 1
        self.mean += (y - self.mean) / min(self.n, 1024)

    def differences(self, outlook: Outlook) -> np.ndarray:
        return np.array([outlook.mean - outlook.leaf, self.mean - outlook.origin - outlook.leaf])

    def weights(self) -> tuple[float, float]:
        (aa, ar, ay), (_, rr, ry) = self.moments
        if aa <= 1e-12 * rr:
            return 1.0, 0.0
        rest = rr - ar / aa * ar
        b = min(max((ry - ar / aa * ay) / rest, -0.5), 1.0) if rest > 1e-6 * rr else 0.0
        return min(max((ay - b * ar) / aa, -1.0), 1.0), b

    def forecast(self, outlook: Outlook) -> float:
        return outlook.origin + outlook.leaf + float(np.dot(self.weights(), self.differences(outlook)))

    def learn(self, outlook: Outlook, y: float, missed: int = 0) -> None:
        """missed: how many labels in a row were outside of the quantiles."""
        numbers = np.array([outlook.origin + outlook.mean, outlook.origin + outlook.leaf, self.mean])
        rounding = 1e-18 * float(numbers @ numbers)
        differences = self.differences(outlook)
        differences[differences**2 <= 1e-10 * rounding] = 0.0
        products = np.outer(differences, [*differences, y - outlook.origin - outlook.leaf])
        error = (y - outlook.origin - outlook.mean) ** 2
        divisor = 16 * self.usual + error + rounding
        self.moments = (1 - 1 / 2048) * self.moments + products / (divisor or 1.0)
        if self.usual == 0:
            self.usual = self.lasting = error
            return
        error = min(error, 16 * self.usual)
        self.lasting += max(1 / max(self.n, 1), 1 / 16384) * (error - self.lasting)
        self.usual += (error - self.usual) / 32
        if missed >= MOST_MISSED:
            self.usual = max(self.usual, self.lasting)


@dataclass
class Worth:
    """What a correction is worth: the share of it that would have been best of late, and whether that surely helped.

    A sum over labels in which one counts 1 / e after 512 later ones; a label's part is divided by 16 usual squared
    errors and its own one."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(6))
    """Of products with the next error, of squares, of gains and of squared gains; of the last two those over some 16
    labels."""

    @property
    def share(self) -> float:
        product, square = self.sums[:2]
        return min(max(product / square, 0.0), 1.0) if square > 0 else 0.0

    @property
    def sure_gain(self) -> float:
        (gain, squares), (late_gain, late_squares) = self.sums[2:4], self.sums[4:]
        if late_gain < -(1 + 1e-9) * math.sqrt(late_squares):
            return -1.0
        return float(gain - (1 + 1e-9) * math.sqrt(squares))

    def learn(self, correction: float, error: float, weight: float) -> None:
        correction = correction if abs(correction) > 1e-10 * abs(error) else 0.0
        gain = weight * (error**2 - (error - self.share * correction) ** 2)
        news = [weight * correction * error, weight * correction**2, gain, gain**2, gain, gain**2]
        self.sums = (1 - 1 / np.array([512, 512, 512, 512, 16, 16])) * self.sums + news


@dataclass
class Recent:
    """A mean of recent errors, in which one of more than 64 usual ones counts as those, and what it is worth."""

    rate: float
    mean: float = 0.0
    worth: Worth = field(default_factory=Worth)

    def learn(self, error: float, usual: float) -> None:
        weight, bound = 1 / (16 * usual + error**2), 64 * math.sqrt(usual)
        self.mean = min(max(self.mean, -bound), bound)
        self.worth.learn(self.mean, error, weight)
        self.mean += self.rate * (min(max(error, -bound), bound) - self.mean)


@dataclass
class Drift:
    """What the blend was off of late: of three means of errors the one that surely has helped most, or none."""

    means: list[Recent] = field(default_factory=lambda: [Recent(1 / 2), Recent(1 / 8), Recent(1 / 64)])

    def forecast(self) -> float:
        best = max(self.means, key=lambda each: each.worth.sure_gain)
        return best.worth.share * best.mean if best.worth.sure_gain > 0 else 0.0

    def learn(self, error: float, usual: float) -> None:
        for each in self.means if usual > 0 else ():
            each.learn(error, usual)


@dataclass
class Bounds:
    """All labels; what the quantiles of 5 and 95 % have lost of late, as they are and bounded by the extremes of these
    labels; and the shares of labels of late that were beyond all before them."""

    labels: list[float] = field(default_factory=list)
    losses: np.ndarray = field(default_factory=lambda: np.zeros((2, 2)))
    beyond: np.ndarray = field(default_factory=lambda: np.zeros(2))

    @property
    def extremes(self) -> tuple[float, float]:
        labels = self.labels or [0.0]
        return min(labels), max(labels)

    def apply(self, forecast: float) -> float:
        """The forecast within the extremes, on each side on which the quantile has lost a twentieth less so, and on
        which no more than a twentieth of the labels is new."""
        below, above = (self.losses[:, 1] < 0.95 * self.losses[:, 0]) & (self.beyond < TAIL)
        least, greatest = self.extremes
        return min(max(forecast, least if below else -math.inf), greatest if above else math.inf)

    def judge(self, low: float, high: float, y: float) -> None:
        low_within, high_within = np.clip([low, high], *self.extremes)
        lost = [[pinball(y - low, TAIL), pinball(y - low_within, TAIL)]]
        lost.append([pinball(y - high, 1 - TAIL), pinball(y - high_within, 1 - TAIL)])
        self.losses = (1 - 1 / 256) * self.losses + lost
        least, greatest = self.extremes
        self.beyond += (np.array([y < least, y > greatest]) - self.beyond) / 64


def last_blocks(labels: list[float], size: int) -> list[float]:
    """Those of the last block of so many that is full, and of the one that is not."""
    return labels[max((len(labels) - 1) // size - 1, 0) * size :]


def pinball(above: float, share: float) -> float:
    """Loss of a quantile of this share by how far the label is above it."""
    return max(share * above, (share - 1) * above)


@dataclass
class Layer(ABC):
    """What a model says beside a forecast of numbers, and what the difference is worth."""

    bounds: Bounds
    worth: Worth = field(default_factory=Worth)

    @abstractmethod
    def by_model(self, x: np.ndarray, forecast: float) -> float:
        """What the model says by itself."""

    def correction(self, x: np.ndarray, forecast: float, usual: float) -> float:
        """usual: squared error, of which 64 roots are most that is corrected. Never out of the labels of late."""
        bound, difference = 64 * math.sqrt(usual), self.by_model(x, forecast) - forecast
        if labels := last_blocks(self.bounds.labels, 2048):
            difference = max(difference, min(min(labels) - forecast, 0))
            difference = min(difference, max(max(labels) - forecast, 0))
        return min(max(difference, -bound), bound)

    def forecast(self, x: np.ndarray, forecast: float, usual: float) -> float:
        share = self.worth.share if self.worth.sure_gain > 0 else 0.0
        return forecast + share * self.correction(x, forecast, usual)

    def learn(self, x: np.ndarray, forecast: float, y: float, usual: float, weight: float) -> None:
        self.worth.learn(self.correction(x, forecast, usual), y - forecast, weight)

    @abstractmethod
    def note(self, x: np.ndarray, y: float, share: float, usual: float, median: float) -> None:
        """Every label, also one before which there was no forecast. share: what it counts, 1 at most. usual: the
        squared error with it. median: of labels before it."""


@dataclass
class Stack(Layer):
    """A linear model of a forest's forecast and of the features."""

    linear: LinearModel = field(default_factory=lambda: LinearModel(1))
    labels: Scale = field(default_factory=Scale)

    def by_model(self, x: np.ndarray, forecast: float) -> float:
        return float(forecast + (self.linear.trust - 1) * self.labels.off(forecast) + self.linear.response(x)[0])

    def learn(self, x: np.ndarray, forecast: float, y: float, usual: float, weight: float) -> None:
        super().learn(x, forecast, y, usual, weight)
        unit = math.sqrt(usual)
        error = min(max((y - self.by_model(x, forecast)) / unit, -4.0), 4.0)
        self.linear.learn(x, np.array([error]), -error * self.labels.off(forecast) / unit, unit=unit)

    def note(self, x: np.ndarray, y: float, share: float, usual: float, median: float) -> None:
        self.linear.note(x)
        self.labels.learn(y)


@dataclass
class Ridge(Layer):
    """Weighted least squares on all rows, of which each label leaves .999 of the weights, with a penalty of .3 rows on
    each feature in standard deviations, less of it the more the model explains, solved anew now and then. A value is no
    further from the mean than it would be if all others were the mean. The first 256 features count. Errors that fall
    to a 32nd take the weights along, and a model that lost twice as much of late as the median of labels keeps one
    row's worth of them. Means and deviations are those of the rows that have a value."""

    n_features: int = 0
    penalty: float = 0.3
    least_deviation: float = 0.0

    def __post_init__(self) -> None:
        self.n_columns = self.count_columns()
        self.n_rows, self.total = 0, 0.0
        self.seen, self.with_label = np.zeros((2, self.n_columns))
        self.moments = np.zeros((self.n_columns, self.n_columns))
        self.due, self.most_usual = 0, 0.0
        self.first = np.full(self.n_columns, math.nan)
        self.centre, self.variances, self.slopes, self.furthest = np.zeros((4, self.n_columns))
        self.level = math.nan
        self.lost, self.lost_by_labels = 0.0, 0.0

    def count_columns(self) -> int:
        return min(self.n_features, 256)

    def row(self, x: np.ndarray) -> np.ndarray:
        return x[: self.n_columns]

    def off(self, x: np.ndarray) -> np.ndarray:
        """How far values are from the mean; a missing one is the mean, as is one of a feature that never came."""
        off = self.row(x) - self.first - self.centre
        return np.where(np.isnan(off), 0.0, off)

    def by_model(self, x: np.ndarray, forecast: float) -> float:
        if math.isnan(self.level):
            return forecast
        return float(self.level + self.slopes @ np.clip(self.off(x), -self.furthest, self.furthest))

    def note(self, x: np.ndarray, y: float, share: float, usual: float, median: float) -> None:
        self.first = np.where(np.isnan(self.first), self.row(x), self.first)
        if self.total > 0:
            self.judge(x, y, median)
        off, had = self.off(x), ~np.isnan(self.row(x))
        if self.n_rows >= 8:
            bound = np.where(self.variances > 0, 64 * np.sqrt(self.variances), math.inf)
            off = np.clip(off, -bound, bound)
        self.n_rows += 1
        # Rows with 32 times the errors of now count the less.
        self.most_usual = max(self.most_usual, usual)
        kept = min(1024 * usual / self.most_usual, 1) if usual > 0 and self.n_rows <= 2000 else 1.0
        self.most_usual *= kept
        for name in ("total", "seen", "with_label", "moments"):
            setattr(self, name, 0.999 * kept * getattr(self, name))
        self.total, self.seen = self.total + share, self.seen + share * had
        parts = np.divide(share * had, self.seen, out=np.zeros(self.n_columns), where=self.seen > 0)
        level = self.level if self.n_rows > 1 else y
        of_label = (y - level) * math.sqrt(share * (1 - share / self.total))
        self.centre, self.level = self.centre + parts * off, level + share / self.total * (y - level)
        off = off * np.sqrt(share * (1 - parts))
        self.moments, self.with_label = self.moments + np.outer(off, off), self.with_label + off * of_label
        own = np.diag(self.moments)
        self.variances = np.divide(own, self.seen, out=np.zeros(self.n_columns), where=self.seen > 0)
        if self.n_rows >= self.due:
            self.due = self.n_rows + min(max(self.n_rows // 16, 1), 64)
            self.solve()

    def judge(self, x: np.ndarray, y: float, median: float) -> None:
        self.lost_by_labels = self.lost_by_labels * 255 / 256 + abs(y - median)
        lost = min(abs(y - self.by_model(x, math.nan)), self.lost_by_labels / 64)
        self.lost = self.lost * 255 / 256 + lost
        if self.is_settled() and self.lost > 2 * self.lost_by_labels:
            self.lost, self.lost_by_labels, self.most_usual, self.worth = 0.0, 0.0, 0.0, Worth()
            self.n_rows, self.due, total = 1, 1, self.total
            for name in ("total", "seen", "with_label", "moments"):
                setattr(self, name, getattr(self, name) / total)

    def is_settled(self) -> bool:
        """Columns that have never had a value do not count."""
        return self.total > 64 + np.count_nonzero(self.seen)

    def unexplained(self) -> float:
        """Once there are enough rows the penalty is the part of it that the model's squared loss is of the labels'."""
        if not self.is_settled() or self.lost_by_labels == 0:
            return 1.0
        return min(self.lost / self.lost_by_labels, 1.0) ** 2

    def solve(self) -> None:
        deviations = np.sqrt(self.variances)
        varies = deviations > 0
        deviations = np.maximum(deviations, self.least_deviation)
        self.slopes, self.furthest = np.zeros(self.n_columns), np.sqrt(self.seen) * deviations
        units = deviations[varies]
        penalty = self.penalty * self.unexplained()
        moments = self.moments[varies][:, varies] / np.outer(units, units) + penalty * np.eye(varies.sum())
        self.slopes[varies] = np.linalg.solve(moments, self.with_label[varies] / units) / units


@dataclass
class Surface(Ridge):
    """The same on the first eight features as they enter linear models, and on the products of any two of them, be they
    one and the same. A column whose deviation is less than 1 is penalised as if it were."""

    penalty: float = 4.0
    least_deviation: float = 1.0

    def __post_init__(self) -> None:
        self.n_features = min(self.n_features, 8)
        super().__post_init__()
        self.scales = [Scale() for _ in range(self.n_features)]
        self.first = np.zeros(self.n_columns)

    def count_columns(self) -> int:
        return self.n_features * (self.n_features + 3) // 2

    def row(self, x: np.ndarray) -> np.ndarray:
        entered = [
            scale.of(float(value)) if value == value else math.nan for scale, value in zip(self.scales, x, strict=False)
        ]
        products = [left * right for place, left in enumerate(entered) for right in entered[: place + 1]]
        return np.array([*entered, *products])

    def note(self, x: np.ndarray, y: float, share: float, usual: float, median: float) -> None:
        super().note(x, y, share, usual, median)
        for scale, value in zip(self.scales, x, strict=False):
            scale.learn(float(value))


@dataclass
class Median:
    """A median of numbers that come one by one, and their deviation from it, by which one of them moves both.

    It begins with the first number, or with 0, and the deviation with the first number that is off.
    """

    begins_at_0: bool = False
    centre: float = 0.0
    deviation: float = 0.0

    def __post_init__(self) -> None:
        self.is_new = not self.begins_at_0

    def learn(self, y: float) -> None:
        if self.is_new:
            self.is_new, self.centre = False, y
        if self.deviation == 0:
            self.deviation = abs(y - self.centre)
            return
        miss, step = y - self.centre, self.deviation / 16
        self.centre = y if abs(miss) <= step else self.centre + math.copysign(step, miss)
        self.deviation += (min(abs(miss), 4 * self.deviation) - self.deviation) / 16


@dataclass
class Quantiles:
    """Logs of the factors by which the distances from the forecast down and up to a quantile are stretched; the
    distance from the forecast to the median in units of the scale; and what this median, the forecast moved by the
    median of its errors, and the median of the labels alone have lost of late, of which the best one is the median.
    Log of the factor by which the variance is the square of the scale, and what that square typically is.

    Where the scale is more than 32 usual errors the median is that of the labels alone, and nothing is learned of the
    three. From the MOST_MISSED-th label in a row outside on, each undoes 1 of what was narrowed on its side."""

    n: int = 0
    missed: int = 0
    """Labels in a row outside."""
    down: float = 0.0
    up: float = 0.0
    middle: float = 0.0
    losses: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    errors: Median = field(default_factory=lambda: Median(begins_at_0=True))
    labels: Median = field(default_factory=Median)
    factor: float = 0.0
    typical: float = 0.0
    bounds: Bounds = field(default_factory=Bounds)

    def tails(self, forecast: float, scale: float) -> tuple[float, float]:
        furthest = NormalDist().inv_cdf(1 - TAIL) * scale
        return forecast - furthest * math.exp(self.down), forecast + furthest * math.exp(self.up)

    def medians(self, forecast: float, scale: float) -> list[float]:
        low, high = self.tails(forecast, scale)
        return [
            min(max(forecast + self.middle * scale, low), high),
            forecast + self.errors.centre,
            self.labels.centre,
        ]

    def stretched(self, forecast: float, scale: float, usual: float = math.inf) -> tuple[float, float, float]:
        """Those of 5, 50 and 95 % without bounds: the tails give way to the median. usual: squared error."""
        low, high = self.tails(forecast, scale)
        median = min(zip(self.losses, self.medians(forecast, scale), strict=True), key=lambda each: each[0])[1]
        if scale**2 > 1024 * usual:
            median = self.labels.centre
        return min(low, median), median, max(high, median)

    def three(self, forecast: float, scale: float, usual: float = math.inf) -> tuple[float, float, float]:
        """Those of 5, 50 and 95 %."""
        low, median, high = map(self.bounds.apply, self.stretched(forecast, scale, usual))
        return low, median, high

    def quantile(self, forecast: float, scale: float, probability: float) -> float:
        """Half of a normal distribution on each side of the median, with the tails where they are."""
        low, median, high = self.three(forecast, scale)
        step = NormalDist().inv_cdf(probability) / NormalDist().inv_cdf(1 - TAIL)
        return median + step * (median - low if probability < 0.5 else high - median)

    def std(self, forecast: float, scale: float, usual: float = math.inf) -> float:
        """At least that of a label which is one of three: a tail's quantile a twentieth of the time, or the mean."""
        low, _, high = self.three(forecast, scale, usual)
        mean = self.bounds.apply(forecast)
        implied = TAIL * ((mean - low) ** 2 + (high - mean) ** 2)
        return max(scale * math.exp(self.factor / 2), math.sqrt(implied))

    def learn(self, forecast: float, scale: float, y: float, usual: float = math.inf) -> None:
        """A label outside widens its side, one inside narrows it by 1/19 of that: at rest one in twenty is outside. One
        above the median moves that up, one below down: at rest as many are above as below."""
        low, _, high = self.stretched(forecast, scale, usual)
        medians = self.medians(forecast, scale)
        if scale**2 <= 1024 * usual:
            errors = [abs(y - median) for median in medians]
            self.losses = [(1 - 1 / 64) * loss + error for loss, error in zip(self.losses, errors, strict=True)]
        self.errors.learn(y - forecast)
        if scale == 0:
            return
        self.bounds.judge(low, high, y)
        if self.typical == 0:
            self.typical = scale**2
        step, most = max(2 / (self.n + 20), 1 / 512), 16 * self.typical
        weight = min(scale**2, most) / self.typical
        error = min((y - forecast) ** 2, 2**14 * usual)
        move = step * weight * (error / (scale**2 * math.exp(self.factor)) - 1)
        self.factor = min(max(self.factor + min(move, 1), -10), 10)
        self.typical += step * (min(scale**2, most) - self.typical)
        step, small = max(20 / (self.n + 20), 0.05), max(5 / (self.n + 20), 0.02)
        self.down = min(max(self.down + step * ((y < low) - TAIL), -WIDEST), WIDEST)
        self.up = min(max(self.up + step * ((y > high) - TAIL), -WIDEST), WIDEST)
        side = float(y > medians[0]) - float(y < medians[0])
        self.middle = min(max(self.middle + small * side / 2, -WIDEST), WIDEST)
        self.n += 1
        self.missed = 0 if low <= y <= high else self.missed + 1
        if self.missed >= MOST_MISSED:
            if y < low and self.down < 0.0:
                self.down = min(self.down + 1.0, 0.0)
            if y > high and self.up < 0.0:
                self.up = min(self.up + 1.0, 0.0)
