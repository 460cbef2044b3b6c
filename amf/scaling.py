"""Features as the trees see them: centred float32, and the weight of each feature in the rate of cuts.

Centre. A feature is stored as float32 after its first value has been subtracted in float64: seconds since the epoch
keep their fractions, and the trees never learn of the shift.

Weights. A weight multiplies the extension of a box in its feature: weight 1 / spread is feature scaling that never
touches a stored box or threshold. The spread is robust and deterministic: the range of all values seen, or five times
the distance between the first and ninth decile of an evenly spaced subsample where that is smaller and not zero (of
uniform or normal values the range is the smaller one, of values with a far outlier it is not). Weights change when a
feature that was constant moves for the first time and when the number of labelled samples reaches a power of two, both
before that sample is learned; between two such samples they are constant, whatever the batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf._kernel import inlined, kernel
from amf.boxes import padded

SUBSAMPLE = 64
# Values are clipped here after centring, so that no difference of two of them overflows float32.
LARGEST = np.float32(2.0**100)
_LARGEST_WEIGHT = 2.0**100


class Scaling:
    """Per-feature state of a forest; only labelled rows change it.

    origin: float64 (d,), first finite value, NaN before. lowest, highest: float32 (d,), range of centred values, NaN
    before the first. weights: float32 (padded(d),). subsample: float32 (64, d), the first `n_kept` rows hold every
    `stride`-th labelled row.
    """

    def __init__(self, n_features: int, *, adaptive: bool) -> None:
        self.adaptive = adaptive
        self.origin = np.full(n_features, np.nan)
        self.lowest = np.full(n_features, np.nan, np.float32)
        self.highest = np.full(n_features, np.nan, np.float32)
        self.weights = np.zeros(padded(n_features), np.float32)
        self.weights[:n_features] = 1.0
        self.subsample = np.zeros((SUBSAMPLE if adaptive else 0, n_features), np.float32)
        self.counters = np.array([0, 1, 0], np.int64)  # rows kept, stride, labelled rows seen
        self.complete = True  # no labelled row lacked a value; a function of the boxes, so no part of the bytes

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.origin.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        arrays = (self.origin, self.lowest, self.highest, self.weights, self.subsample)
        return sum(array.nbytes for array in arrays)

    def grow(self, n_features: int) -> None:
        """Add features of which nothing has been seen yet."""
        more = n_features - self.n_features
        self.complete = self.complete and self.counters[2] == 0
        nothing = np.full(more, np.nan)
        self.origin = np.concatenate([self.origin, nothing])
        self.lowest = np.concatenate([self.lowest, nothing.astype(np.float32)])
        self.highest = np.concatenate([self.highest, nothing.astype(np.float32)])
        rows = np.full((self.subsample.shape[0], more), np.nan, np.float32)
        rows[self.counters[0] :] = 0.0  # rows not kept yet are zero in every column: equal states, equal bytes
        self.subsample = np.ascontiguousarray(np.hstack([self.subsample, rows]))
        weights = np.zeros(padded(n_features), np.float32)
        weights[: n_features - more] = self.weights[: n_features - more]
        weights[n_features - more : n_features] = 1.0
        self.weights = weights

    def centre(self, x: NDArray[Any], y: NDArray[np.int32]) -> NDArray[np.float32]:
        """Rows as the trees take them: float32 (n, padded(d)), padding NaN. Labelled rows set missing origins."""
        centred = np.empty((x.shape[0], self.weights.shape[0]), np.float32)
        self.complete &= _centre(x, y, self.origin, centred)
        return centred

    def observe(self, x: NDArray[np.float32], y: NDArray[np.int32], start: int) -> int:
        """Take note of the rows [start, stop) about to be learned, refresh the weights for them, and return stop."""
        stop, refresh = _observe(x, y, start, self.adaptive, self.lowest, self.highest, self.subsample, self.counters)
        if refresh:
            self._refresh()
        return int(stop)

    def _refresh(self) -> None:
        ranges = self.highest.astype(np.float64) - self.lowest
        kept = self.subsample[: self.counters[0]].astype(np.float64)
        spread = np.where(np.isnan(ranges), 0.0, ranges)
        ordered = np.sort(kept, axis=0)  # NaN last
        present = np.sum(~np.isnan(kept), axis=0)
        columns = np.arange(self.n_features)
        # Deciles by the nearest rank, so that they are values of the sample and not sums that could round.
        low = ordered[np.maximum(present - 1, 0) // 10, columns]
        high = ordered[np.maximum(present - 1, 0) - np.maximum(present - 1, 0) // 10, columns]
        deciles = np.where(present > 0, 5.0 * (high - low), 0.0)
        spread = np.where(deciles > 0.0, np.minimum(spread, deciles), spread)
        weights = np.ones(self.n_features)
        np.divide(1.0, spread, out=weights, where=spread > 0.0)
        self.weights[: self.n_features] = np.minimum(weights, _LARGEST_WEIGHT)


@kernel
def first_infinite(x):
    """Flat position of the first infinite number of x (n, d), -1 where there is none."""
    n, d = x.shape
    for i in range(n):
        found = False
        for j in range(d):
            found |= abs(x[i, j]) == np.inf
        if found:
            for j in range(d):
                if abs(x[i, j]) == np.inf:
                    return i * d + j
    return -1


@kernel
def _centre(x, y, origin, centred):
    """Fill `centred`; returns whether no labelled row lacks a value."""
    complete = True
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            value = np.float64(x[i, j])
            complete &= value == value or y[i] < 0
            if value == value and origin[j] != origin[j] and y[i] >= 0:
                origin[j] = value
            # A value of a feature that no labelled row has shown yet is missing: no tree can ask for it.
            shifted = np.float32(min(max(value - origin[j], -LARGEST), LARGEST))
            centred[i, j] = shifted if value == value and origin[j] == origin[j] else np.float32(np.nan)
        for j in range(x.shape[1], centred.shape[1]):
            centred[i, j] = np.float32(np.nan)
    return complete


@kernel
def _observe(x, y, start, adaptive, lowest, highest, subsample, counters):
    """Rows until the weights have to change: (stop, whether they change for the row at `start`).

    A row that changes them is a segment of its own: the weights must not know of the rows after it.
    """
    for i in range(start, x.shape[0]):
        if y[i] < 0:
            continue
        seen = counters[2] + 1
        changes = False
        if adaptive:
            changes = seen & (seen - 1) == 0
            for j in range(lowest.shape[0]):
                changes |= lowest[j] == highest[j] and (x[i, j] < lowest[j] or x[i, j] > highest[j])
            if changes and i > start:
                return i, False
            for j in range(lowest.shape[0]):
                value = x[i, j]
                if value == value:
                    if not (lowest[j] <= value):
                        lowest[j] = value
                    if not (highest[j] >= value):
                        highest[j] = value
            keep(x, i, subsample, counters)
        counters[2] = seen
        if changes:
            return i + 1, True
    return x.shape[0], False


@inlined
def keep(x, i, subsample, counters):
    """Every stride-th row enters the subsample; a full subsample drops every second row and doubles the stride."""
    if counters[2] % counters[1] != 0:
        return
    room, n_features = subsample.shape
    if counters[0] == room:
        for k in range(room):
            for j in range(n_features):
                subsample[k, j] = subsample[2 * k, j] if k < room // 2 else np.float32(0.0)
        counters[0] = room // 2
        counters[1] *= 2
        if counters[2] % counters[1] != 0:
            return
    for j in range(n_features):
        subsample[counters[0], j] = x[i, j]
    counters[0] += 1
