"""Features as the trees see them: centred float32, and the weight of each feature in the rate of cuts.

Centre. A feature is stored as float32 after its first value has been subtracted in float64: seconds since the epoch
keep their fractions, and the trees never learn of the shift.

Weights. A weight multiplies the extension of a box in its feature: weight 1 / spread is feature scaling that never
touches a stored box or threshold. The spread is robust and deterministic: the range of all values seen, or five times
the distance between the first and ninth decile of an evenly spaced subsample where that is smaller and not zero (of
uniform or normal values the range is the smaller one, of values with a far outlier it is not). The weight of a feature
changes when it moves for the first time, all weights when the number of labelled samples reaches a power of two, both
before that sample is learned; between two such samples they are constant, whatever the batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf._kernel import called, inlined, kernel
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

    def __init__(self, *, adaptive: bool) -> None:
        self.adaptive = adaptive
        self.origin = np.empty(0)
        self.lowest = np.empty(0, np.float32)
        self.highest = np.empty(0, np.float32)
        self.weights = np.empty(0, np.float32)
        self.subsample = np.empty((SUBSAMPLE if adaptive else 0, 0), np.float32)
        self.counters = np.array([0, 1, 0], np.int64)  # rows kept, stride, labelled rows seen

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.origin.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        arrays = (self.origin, self.lowest, self.highest, self.weights, self.subsample)
        return sum(array.nbytes for array in arrays)

    def copy(self) -> Scaling:
        """The same state in memory of its own."""
        twin = Scaling.__new__(Scaling)
        for name, value in vars(self).items():
            setattr(twin, name, value.copy() if isinstance(value, np.ndarray) else value)
        return twin

    def grow(self, like: Sequence[int | None]) -> None:
        """Add features, one for each entry of `like`.

        None: nothing has been seen of it yet. A column: the new one was 0 in every sample that had a value of that one.
        """
        known, more = self.n_features, len(like)
        n_features = known + more
        self.origin = _wider(self.origin, n_features, np.nan)
        self.lowest = _wider(self.lowest, n_features, np.nan)
        self.highest = _wider(self.highest, n_features, np.nan)
        self.subsample = _wider(self.subsample, n_features, np.nan)
        self.subsample[self.counters[0] :] = 0.0  # rows not kept yet are zero: equal states, equal bytes
        self.weights = _wider(self.weights[:known], padded(n_features), 0.0)
        self.weights[known:n_features] = 1.0
        for column, sibling in enumerate(like, known):
            if sibling is not None and not np.isnan(self.origin[sibling]):
                self.origin[column] = 0.0
                if self.adaptive:
                    self.lowest[column] = self.highest[column] = 0.0
                self.subsample[~np.isnan(self.subsample[:, sibling]), column] = 0.0

    def centre(self, x: NDArray[Any], labelled: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Rows as the trees take them: float32 (n, padded(d)), padding NaN. Labelled rows set missing origins."""
        centred = np.empty((x.shape[0], self.weights.shape[0]), np.float32)
        centre(x, labelled, self.origin, centred)
        return centred

    def observe(self, x: NDArray[np.float32], labelled: NDArray[np.bool_], start: int) -> int:
        """Take note of the rows [start, stop) about to be learned, refresh the weights for them, and return stop."""
        stop = observe(
            x, labelled, start, self.adaptive, self.lowest, self.highest, self.weights, self.subsample, self.counters
        )
        return int(stop)


def _wider(array: NDArray[Any], columns: int, value: float) -> NDArray[Any]:
    """A copy with so many columns, the new ones filled."""
    wide = np.empty((*array.shape[:-1], columns), array.dtype)
    wide[..., : array.shape[-1]] = array
    wide[..., array.shape[-1] :] = value
    return wide


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
def centre(x, labelled, origin, centred):
    """Fill `centred`: rows as the trees take them. Labelled rows set missing origins."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            value = np.float64(x[i, j])
            if value == value and origin[j] != origin[j] and labelled[i]:
                origin[j] = value
            # A value of a feature that no labelled row has shown yet is missing: no tree can ask for it.
            shifted = np.float32(min(max(value - origin[j], -LARGEST), LARGEST))
            centred[i, j] = shifted if value == value and origin[j] == origin[j] else np.float32(np.nan)
        for j in range(x.shape[1], centred.shape[1]):
            centred[i, j] = np.float32(np.nan)


@kernel
def observe(x, labelled, start, adaptive, lowest, highest, weights, subsample, counters):
    """Note the rows from `start` on, up to the next one that changes a weight; returns the place of that one.

    The weights follow from the rows up to the one that changes them: they must not know of the rows after it.
    """
    n_features = lowest.shape[0]
    moved = np.zeros(n_features, np.bool_)
    for i in range(start, x.shape[0]):
        if not labelled[i]:
            continue
        seen = counters[2] + 1
        if not adaptive:
            counters[2] = seen
            continue
        due = seen & (seen - 1) == 0
        changes = due
        for j in range(n_features):
            moved[j] = lowest[j] == highest[j] and (x[i, j] < lowest[j] or x[i, j] > highest[j])
            changes |= moved[j]
        if changes and i > start:
            return i
        for j in range(n_features):
            value = x[i, j]
            if value == value:
                if not (lowest[j] <= value):
                    lowest[j] = value
                if not (highest[j] >= value):
                    highest[j] = value
        keep(x, i, subsample, counters)
        counters[2] = seen
        for j in range(n_features if changes else 0):
            if due or moved[j]:
                weights[j] = weight_of(highest[j] - np.float64(lowest[j]), subsample, counters[0], j)
    return x.shape[0]


@called
def weight_of(extent, subsample, kept, j):
    """1 / robust spread of feature j, 1 where that is 0. extent: its range, NaN where it has none."""
    values = np.empty(kept)
    present = 0
    for k in range(kept):
        value = np.float64(subsample[k, j])
        if value == value:
            at = present
            while at > 0 and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
            present += 1
    spread = extent if extent > 0.0 else 0.0
    if present > 0:
        # Deciles by the nearest rank, so that they are values of the sample and not sums that could round.
        decile = (present - 1) // 10
        deciles = 5.0 * (values[present - 1 - decile] - values[decile])
        if deciles > 0.0:
            spread = min(spread, deciles)
    return np.float32(min(1.0 / spread, _LARGEST_WEIGHT)) if spread > 0.0 else np.float32(1.0)


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
