"""Features as the trees see them: centred float32, and the weight of each feature in the rate of cuts.

Moves. What a feature is like shows where it moves: in labelled rows whose value differs from the one before, missing
ones left out. A move is a pair of values, before and after. The subsample of a feature is at most sixteen of its moves,
evenly spaced over all of them: however long a feature rests, at first, in between or most of the time, as many zeros
do, its rest counts no more than the rows in which something happens. Pairs, since every second value of a feature that
switches to and fro is the same.

Weights. A weight multiplies the extension of a box in its feature: weight 1 / spread is feature scaling that never
touches a stored box or threshold. The spread is robust and deterministic: the range of all values seen, or five times
the distance between the first and ninth decile of the subsample where that is smaller (of uniform or normal values the
range is the smaller one, of values with a far outlier it is not). A weight is computed again at moves 1, 3, 7 and 15
of the feature, and then with each that enters the subsample, which is whenever they have become 6 to 12 % more; before
the row of that move is learned. So it follows from the labelled rows alone, whatever the batches.

Centre. A feature is stored as float32 after an origin has been subtracted in float64, which at first is its first
value: seconds since the epoch keep their fractions. float32 has 24 bits, and each doubling of the distance between the
origin and the values costs one of them. If the shortest interval with more than half of the subsample is more than 64
times its length away from the origin, because the first values were outliers or the feature has left for elsewhere, the
origin moves there once the row is learned, and all bounds and thresholds with it. Of the first two values, which say
nothing of such an interval, a much smaller second one becomes the origin. A move keeps the order of all numbers, but
those that differed by less than the steps of float32 at their distance from the new origin become equal. So a feature
is seen in steps of at most 2**-18 of the interval in which most of its moves are; of another place, so far away that
these steps are coarse for it, the fine structure is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.geometry.boxes import LARGEST, padded_width
from amf.jit.decorators import called, inlined, kernel

PAIRS = 16
"""Moves in a full subsample."""
_LARGEST_SPREAD = 2.0**101
_LARGEST_WEIGHT = 2.0**100
_FAR = 64.0
"""Distance of the origin, in lengths of the interval with half of the values, beyond which it moves."""
_FARTHEST = 2.0**600
"""By which trees move at most with an origin: far beyond all boxes, and a number still times any slope of a cut, which
is 2**200 at most."""


class Features(NamedTuple):
    """What is known of features, as kernels see it: the arrays of Scaling."""

    origin: Any
    lowest: Any
    highest: Any
    last: Any
    moves: Any
    strides: Any
    pairs: Any
    weights: Any
    n_labelled: Any
    adaptive: Any
    """bool: whether features are weighted."""


class Scaling:
    """Per-feature state of a forest; only labelled rows change it.

    values: float64 (4, d), of each feature the origin, the lowest and the highest value, and the last one; all four are
    NaN before the first value. counts: int64 (2, d), the moves, and the strides, powers of two that follow from them.
    pairs: float64 (d, 32), the subsample: every `stride`-th move, before and after. weights: float32
    (padded_width(d),). n_labelled: int64 (1,), labelled rows.
    """

    # Of a hundred thousand forests each object counts.
    __slots__ = ("adaptive", "counts", "fixed", "n_labelled", "pairs", "values", "weights")

    def __init__(self, *, adaptive: bool, fixed: bool = False) -> None:
        """adaptive: whether features are weighted. fixed: whether values are taken as they are; then nothing adapts."""
        self.adaptive = adaptive
        self.fixed = fixed
        self.values, self.counts = np.empty((4, 0)), np.empty((2, 0), np.int64)
        self.pairs = np.empty((0, 0 if fixed else 2 * PAIRS))
        self.weights = np.empty(0, np.float32)
        self.n_labelled = np.zeros(1, np.int64)

    @property
    def origin(self) -> Any:
        """What is subtracted from the values of each feature, float64 (d,): a view, as those of the next ones."""
        return self.values[0]

    @property
    def lowest(self) -> Any:
        """float64 (d,)"""
        return self.values[1]

    @property
    def highest(self) -> Any:
        """float64 (d,)"""
        return self.values[2]

    @property
    def last(self) -> Any:
        """float64 (d,)"""
        return self.values[3]

    @property
    def moves(self) -> Any:
        """How often the value of each feature was another one than before, int64 (d,)."""
        return self.counts[0]

    @property
    def strides(self) -> Any:
        """Of the moves of each feature one in so many is in the subsample, int64 (d,)."""
        return self.counts[1]

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        of_moves = self.counts.nbytes + self.pairs.nbytes
        return self.values.nbytes + of_moves + self.weights.nbytes + self.n_labelled.nbytes

    def copy(self) -> Scaling:
        """A copy of the state of all features, in memory of its own."""
        twin = Scaling.__new__(Scaling)
        twin.adaptive, twin.fixed = self.adaptive, self.fixed
        twin.values, twin.counts, twin.pairs = self.values.copy(), self.counts.copy(), self.pairs.copy()
        twin.weights, twin.n_labelled = self.weights.copy(), self.n_labelled.copy()
        return twin

    def grow(self, like: Sequence[int | None]) -> None:
        """Add features, one for each entry of `like`.

        None: nothing has been seen of it yet. A column: the new one was 0 in every sample that had a value of that one.
        """
        known, n_features = self.n_features, self.n_features + len(like)
        values, counts = np.full((4, n_features), np.nan), np.zeros((2, n_features), np.int64)
        values[:, :known], counts[:, :known] = self.values, self.counts
        counts[1, known:] = 1
        self.values, self.counts = values, counts
        self.pairs = _longer(self.pairs, n_features)
        self.weights = _longer(self.weights, padded_width(n_features))
        self.weights[known:n_features] = 1.0
        if self.fixed:
            self.origin[known:] = 0.0
        for column, sibling in enumerate(like, known):
            if sibling is not None and not np.isnan(self.last[sibling]):
                self.values[:, column] = 0.0


def _longer(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """A copy with so many rows, the new ones 0."""
    grown = np.zeros((rows, *array.shape[1:]), array.dtype)
    grown[: array.shape[0]] = array
    return grown


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
def strides_of(moves):
    """Of all moves of each feature, int64 (d,), one in so many is in the subsample."""
    strides = np.empty(moves.shape[0], np.int64)
    for j in range(moves.shape[0]):
        strides[j] = stride_of(moves[j])
    return strides


@inlined
def stride_of(moves):
    """The smallest power of two of which PAIRS cover so many moves."""
    stride = np.int64(1)
    while PAIRS * stride < moves:
        stride *= 2
    return stride


@called
def centre(x, start, stop, origin, rows, first):
    """Rows [start, stop) of x, float64 (n, d), as the trees take them: float32, from `first` of `rows` on."""
    for i in range(start, stop):
        row = first + i - start
        for j in range(x.shape[1]):
            # A value of a feature that no labelled row has shown yet is missing: no tree can ask for it.
            shifted = x[i, j] - origin[j]
            clipped = np.float32(min(max(shifted, -LARGEST), LARGEST))
            rows[row, j] = clipped if shifted == shifted else np.float32(np.nan)
        for j in range(x.shape[1], rows.shape[1]):
            rows[row, j] = np.float32(np.nan)


@called
def observe(x, labelled, start, features):
    """Note the rows from `start` on, up to the next one that changes a weight, or with the one that strays too far.

    Returns (place of the first row that is not noted, whether an origin has to move). The weights follow from the rows
    up to the one that changes them: they must not know of the rows after it.
    """
    origin, lowest, highest, last, moves, strides, pairs, weights, n_labelled, adaptive = features
    for i in range(start, x.shape[0]):
        if not labelled[i]:
            continue
        for j in range(last.shape[0] if adaptive and i > start else 0):
            value = x[i, j]
            if _enters(value, j, last, moves, strides) and _due(moves[j] + 1):
                subsample = pairs[j : j + 1].copy()
                stride = _keep(subsample, np.int64(0), moves[j], strides[j], last[j], value)
                extent = max(highest[j], value) - min(lowest[j], value)
                if _weight_of(in_order(subsample, np.int64(0), moves[j] + 1, stride), extent) != weights[j]:
                    return i, False
        n_labelled[0] += 1
        far = False
        for j in range(last.shape[0]):
            value = x[i, j]
            if value != value or value == last[j]:
                continue
            if last[j] != last[j]:
                origin[j] = lowest[j] = highest[j] = last[j] = value
                continue
            lowest[j], highest[j] = min(lowest[j], value), max(highest[j], value)
            enters = _enters(value, j, last, moves, strides)
            if enters:
                strides[j] = _keep(pairs, j, moves[j], strides[j], last[j], value)
            moves[j] += 1
            last[j] = value
            if enters:
                values = in_order(pairs, j, moves[j], strides[j])
                far |= _home_of(values, origin[j]) != origin[j]
                if adaptive and _due(moves[j]):
                    weights[j] = _weight_of(values, highest[j] - lowest[j])
        if far:
            return i + 1, True
    return x.shape[0], False


@called
def recentre(features):
    """Move each origin that is far from the values; returns by how much, for `shift`: float64 (d,), numbers."""
    origin, moves = features.origin, features.moves
    shifts = np.zeros(origin.shape[0])
    for j in range(origin.shape[0]):
        if moves[j] > 0:
            home = _home_of(in_order(features.pairs, j, moves[j], features.strides[j]), origin[j])
            shifts[j] = min(max(home - origin[j], -_FARTHEST), _FARTHEST)
            origin[j] = home
    return shifts


@inlined
def _enters(value, j, last, moves, strides):
    """Whether a value is a move of feature j, and one that the subsample takes in."""
    return value == value and value != last[j] and last[j] == last[j] and moves[j] & (strides[j] - 1) == 0


@inlined
def _due(moves):
    """Whether so many moves ask for another weight, if the last of them entered the subsample."""
    return moves >= PAIRS or moves & (moves + 1) == 0


@called
def _keep(pairs, j, move, stride, before, after):
    """Take a move into the subsample of a feature, of which a full one drops every second; returns its stride."""
    if move == PAIRS * stride:
        stride *= 2
        for k in range(2 * PAIRS):
            pairs[j, k] = pairs[j, 2 * k - k % 2] if k < PAIRS else 0.0
    at = 2 * (move // stride)
    pairs[j, at], pairs[j, at + 1] = before, after
    return stride


@called
def in_order(pairs, j, moves, stride):
    """The values of a subsample in order, after so many moves, one in `stride` of which is in it."""
    values = np.empty(2 * ((moves - 1) // stride + 1))
    for k in range(values.shape[0]):
        at = k
        while at > 0 and values[at - 1] > pairs[j, k]:
            values[at] = values[at - 1]
            at -= 1
        values[at] = pairs[j, k]
    return values


@called
def _weight_of(values, extent):
    """1 / robust spread. values: those of the subsample in order. extent: the range of all values."""
    # Deciles by the nearest rank, so that they are values of the sample and not sums that could round.
    last = values.shape[0] - 1
    spread = min(extent, 5.0 * (values[last - last // 10] - values[last // 10]), _LARGEST_SPREAD)
    return np.float32(min(1.0 / spread, _LARGEST_WEIGHT))


@called
def _home_of(values, origin):
    """Where the origin should be: where it is, unless that is far from most values, which are given in order."""
    last = values.shape[0] - 1
    if last == 1:
        other = values[0] if values[1] == origin else values[1]
        return other if abs(other) * _FAR < abs(origin) else origin
    # No value is that of more than half of the subsample, so that the interval has a length.
    half, first = last // 2 + 1, 0
    for k in range(last + 1 - half):
        if values[k + half] - values[k] < values[first + half] - values[first]:
            first = k
    home = values[first + half // 2]
    return home if abs(home - origin) > _FAR * (values[first + half] - values[first]) else origin
