"""The kinds of metrics: the series of each, by the values of their labels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
L = TypeVar("L", bound=tuple[Any, ...])
V = TypeVar("V")
W = TypeVar("W")

MOST_WAITING = 16_384
"""Observations that wait to be counted."""


class Waiting(Generic[W]):
    """Observations that are counted together: when somebody looks, or when they are many.

    After a batch has gone through its forests nothing of this is in the caches of the processor, so that each of the
    steps of counting takes longer than its work on the observations of one batch. Any thread may call.
    """

    def __init__(self, count: Callable[[list[W]], None]) -> None:
        """`count` takes what has waited, in the order in which it came."""
        self._count = count
        self._lock = threading.Lock()
        self._parts: list[W] = []
        self._n = 0

    def add(self, part: W, n: int) -> None:
        """Have a part of n observations wait. Nobody may change it any more."""
        with self._lock:
            self._parts.append(part)
            self._n += max(n, 1)  # a part of none takes room, too
        if self._n >= MOST_WAITING:
            self.settle()

    def settle(self) -> None:
        """Count what waits."""
        with self._lock:
            parts, self._parts, self._n = self._parts, [], 0
            if parts:
                self._count(parts)


class Family(Generic[P, L, V]):
    """The series of one metric: label values -> value.

    The labels are a named tuple, so that their names, number and types are checked wherever a value is given. Any
    thread may write and read: a value is never changed in place, and the lock is taken once per batch and family.
    """

    kind: str

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str) -> None:
        self.labels = tuple(get_type_hints(labels))
        self.unit = unit
        self.sentence = sentence
        self._key = labels
        self._lock = threading.Lock()
        self._series: dict[L, V] = {}
        self.waiting: Waiting[Any] | None = None
        """What has been observed and is not in the series yet."""

    def series(self) -> dict[L, V]:
        """A copy of all series as of now."""
        self._settle()
        with self._lock:
            return self._series.copy()

    def replace(self, series: Mapping[L, V]) -> None:
        """Make these all the series there are, in one step; the others are gone from the next scrape on."""
        self._settle()
        with self._lock:
            self._series = dict(series)

    def forget(self, label: str, values: Collection[object]) -> None:
        """Remove the series with one of these values of the label; a family without that label stays as it is.

        It goes through all series: many values are better given at once.
        """
        if label in self.labels:
            self._settle()
            place = self.labels.index(label)
            with self._lock:
                self._series = {labels: kept for labels, kept in self._series.items() if labels[place] not in values}

    def _settle(self) -> None:
        if self.waiting is not None:
            self.waiting.settle()


class Gauge(Family[P, L, float]):
    """A number that goes up and down. It has no series until it is set: a zero would be a claim."""

    kind = "gauge"

    def set(self, value: float, /, *args: P.args, **kwargs: P.kwargs) -> None:
        key = self._key(*args, **kwargs)
        with self._lock:
            self._series[key] = value


class Cumulative(Family[P, L, V]):
    """What only grows. Series known beforehand start at zero, so that their first increase is seen as one."""

    zero: V

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str) -> None:
        super().__init__(labels, unit, sentence)
        # One series where there is no label, one per combination of literals, none where a label is any text or number.
        values_known = [get_args(hint) for hint in get_type_hints(labels).values()]
        key: Callable[..., L] = labels
        self._series = {key(*values): self.zero for values in product(*values_known)}


class Counter(Cumulative[P, L, float]):
    """A number of things that happened."""

    kind = "counter"
    zero = 0

    def add(self, amount: float, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if amount < 0:
            raise ValueError(f"a counter only grows: cannot add {amount}")
        key = self._key(*args, **kwargs)
        with self._lock:
            self._series[key] = self._series.get(key, self.zero) + amount

    def add_all(self, amounts: Mapping[L, int]) -> None:
        """Add to several series that are there."""
        with self._lock:
            self._series.update({key: self._series[key] + amount for key, amount in amounts.items()})


class Summary(Cumulative[P, L, tuple[float, int]]):
    """Sum and number of observations: their mean over any stretch of time."""

    kind = "summary"
    zero = (0.0, 0)

    def add(self, total: float, count: int, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add `count` observations whose sum is `total`."""
        key = self._key(*args, **kwargs)
        with self._lock:
            old_total, old_count = self._series.get(key, self.zero)
            self._series[key] = old_total + total, old_count + count

    def add_all(self, observed: Mapping[L, tuple[float, int]]) -> None:
        """Add sums and numbers of observations to several series that are there."""
        with self._lock:
            for key, (total, count) in observed.items():
                old_total, old_count = self._series[key]
                self._series[key] = old_total + total, old_count + count


class Histogram(Cumulative[P, L, tuple[NDArray[np.int64], float]]):
    """Number of observations per bucket, and their sum. The bounds are inclusive; the last bucket takes the rest."""

    kind = "histogram"

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str, buckets: Sequence[float]) -> None:
        self.buckets = np.array(buckets, dtype=np.float64)
        self.zero = (np.zeros(len(buckets) + 1, dtype=np.int64), 0.0)
        super().__init__(labels, unit, sentence)
        self._parts = self.waiting = Waiting(self._count)

    def observe(self, values: Sequence[float] | NDArray[np.float64], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add the observations (n,)."""
        self._parts.add((self._key(*args, **kwargs), np.asarray(values, np.float64)), len(values))

    def _count(self, parts: Sequence[tuple[L, NDArray[np.float64]]]) -> None:
        by_key: dict[L, list[NDArray[np.float64]]] = {}
        for key, values in parts:
            by_key.setdefault(key, []).append(values)
        for key, of_key in by_key.items():
            values = np.concatenate(of_key)
            counts = np.bincount(self.buckets.searchsorted(values), minlength=len(self.buckets) + 1)
            with self._lock:
                old_counts, old_total = self._series.get(key, self.zero)
                self._series[key] = old_counts + counts, old_total + float(values.sum())


AnyFamily: TypeAlias = Gauge[..., Any] | Counter[..., Any] | Summary[..., Any] | Histogram[..., Any]
