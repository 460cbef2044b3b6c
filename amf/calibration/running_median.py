"""The median of numbers that come one by one, and the typical distance from it, neither of which an outlier moves far.

state, from `at` on: the median, and the mean absolute deviation from it.
"""

from __future__ import annotations

from amf.jit.decorators import index, inlined

_FASTEST = 1.0 / 16.0
"""Of the deviation what a number moves the median by, and what a deviation moves that."""
_FURTHEST = 4.0
"""Deviations that the deviation of one number counts at most."""


@inlined
def follow_median(value, state, at):
    """Move a median, at this place of the state, and the deviation from it, neither of which an outlier moves far."""
    miss = value - state[at]
    if state[at + index(1)] == 0.0:
        # No number was off so far: this one tells how far they are.
        state[at + index(1)] = abs(miss)
        return
    step = _FASTEST * state[at + index(1)]
    state[at] = value if abs(miss) <= step else state[at] + step if miss > 0.0 else state[at] - step
    state[at + index(1)] += _FASTEST * (min(abs(miss), _FURTHEST * state[at + index(1)]) - state[at + index(1)])
