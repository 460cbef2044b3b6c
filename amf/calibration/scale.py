"""What values of late are like, of a feature or of labels: how far one is from usual is how it enters linear models.

A scale is N_SCALE numbers: that of values, those before one first moved being one, the first of them, the mean less
this, the mean absolute deviation from it, the last value. The deviation is that of values that differ from the one
before: as long as a feature rests, it tells nothing of how far a value is from usual, and of one that is mostly 0 the
others count as much as they do. First values are soon forgotten, be they outliers, and later ones count eight
deviations at most: a share of values that stand for missing ones must not make all others alike. Values are taken from
the first one on: an offset changes nothing.
"""

from __future__ import annotations

from amf.jit.decorators import index, inlined

N_SCALE = 5
VALUES, FIRST, MEAN, DEVIATION, LAST = (index(row) for row in range(N_SCALE))
NEVER_NEGATIVE = int(VALUES), int(DEVIATION)
"""Places of what is never negative, among the numbers of a scale."""
_FURTHEST_COUNTED = 8.0
"""Deviations that a value counts at most where mean and deviation follow it."""
_FEW = 3.0
"""Values after which the deviation is known well enough for that, and begins to be a mean of several: the n-th value
moves both by 3 / n, so that the first ones count the least."""
MOST_VALUES = 1500.0
"""Values that count as so many, which move mean and deviation by 1 / 500."""
_RESTED = 2.0**-150
"""Of a distance, a deviation that would take tens of thousands of values to follow it, and is replaced."""
FARTHEST = 2.0**600
"""By which a mean moves at most, and the largest deviation, so that sums stay finite."""


@inlined
def note(value, state, at, stride):
    """Take one value, which may be NaN, into a scale: N_SCALE numbers, the first at this place, each so far from the
    one before."""
    n_values, first = state[at + VALUES * stride], state[at + FIRST * stride]
    mean, deviation, last = state[at + MEAN * stride], state[at + DEVIATION * stride], state[at + LAST * stride]
    is_value = value == value
    first = value if is_value and n_values == 0.0 else first
    beside = value - first - mean
    counts = is_value and (n_values > 1.0 or (n_values == 1.0 and beside != 0.0))
    moves = counts and value != last
    n_values = min(n_values + 1.0, MOST_VALUES) if counts else max(n_values, 1.0) if is_value else n_values
    is_bounded = n_values > _FEW and deviation > _RESTED * abs(beside)
    most = min(_FURTHEST_COUNTED * deviation, FARTHEST) if is_bounded else FARTHEST
    beside, rate = min(max(beside, -most), most), min(_FEW / n_values, 1.0)
    state[at + VALUES * stride], state[at + FIRST * stride] = n_values, first
    state[at + MEAN * stride] = mean + rate * beside if counts else mean
    state[at + DEVIATION * stride] = deviation + rate * (abs(beside) - deviation) if moves else deviation
    state[at + LAST * stride] = value if is_value else last


@inlined
def mean_of(state, at):
    """The mean of the values of a scale whose numbers lie side by side, from this place on."""
    return state[at + FIRST] + state[at + MEAN]
