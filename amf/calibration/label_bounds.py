"""Forecasts of numbers that go no further than labels do.

A spread is alike on both sides, and labels may not be: counts and amounts end at 0. So the extremes of the last 256 to
512 labels are bounds of all that is published, each where the quantile on its side has lost less of late with it, as
quantiles lose (pinball loss), and where no more labels of late were beyond it than may be beyond the quantile: of a
counter each one is. Extremes are exact, block by block: ones that decay would leave out what labels come back to again
and again.

state, from `at` on: N_BOUNDS numbers: the least label of the block of labels that is not full yet, and of the one
before it, and the greatest ones; the losses of late of the lower quantile as it is and as it is bounded, and of the
upper one; the shares of late of labels below and above those before them.
"""

from __future__ import annotations

import numpy as np

from amf.jit.decorators import index, inlined

N_EXTREMES, N_LOST, N_SHARES = 4, 4, 2
N_BOUNDS = N_EXTREMES + N_LOST + N_SHARES

_BEFORE, _BOUNDED = index(1), index(1)
"""Behind an extreme that of the block before; behind the loss of a quantile as it is that as it is bounded."""
_GREATEST, _LOWER, _UPPER, _BELOW, _ABOVE = map(index, (2, 4, 6, 8, 9))
_BLOCK = 256.0
_BETTER = 0.95
"""Of what a quantile has lost as it is, what it may have lost at most as it is bounded to be taken so."""
_KEPT = 1.0 - 1.0 / 256.0
"""What is left of these losses at the next label."""
_FASTEST_SHARE = 1.0 / 64.0
"""What a label moves the shares by."""


@inlined
def extremes_of(state, at):
    """The least and the greatest of the labels of late."""
    return min(state[at], state[at + _BEFORE]), max(state[at + _GREATEST], state[at + _GREATEST + _BEFORE])


@inlined
def within_labels(number, state, at):
    """The number, no further out than labels of late."""
    least, greatest = extremes_of(state, at)
    return min(max(number, least), greatest)


@inlined
def bounds_of(share, state, at):
    """Between which forecasts stay: the least and the greatest label of late, each where that is a bound of labels, of
    which this share may be beyond it, and where the quantile on its side has lost less with it; else infinite."""
    least, greatest = extremes_of(state, at)
    is_lower_better = state[at + _LOWER + _BOUNDED] < _BETTER * state[at + _LOWER] and state[at + _BELOW] < share
    is_upper_better = state[at + _UPPER + _BOUNDED] < _BETTER * state[at + _UPPER] and state[at + _ABOVE] < share
    return least if is_lower_better else -np.inf, greatest if is_upper_better else np.inf


@inlined
def follow_bounds(label, low, high, share, state, at):
    """Take in what the quantiles of this share and of 1 - share have lost, as they are and bounded, and what was beyond
    all labels before it."""
    _lose(label - low, share, state, at + _LOWER)
    _lose(label - within_labels(low, state, at), share, state, at + _LOWER + _BOUNDED)
    _lose(label - high, 1.0 - share, state, at + _UPPER)
    _lose(label - within_labels(high, state, at), 1.0 - share, state, at + _UPPER + _BOUNDED)
    least, greatest = extremes_of(state, at)
    state[at + _BELOW] += _FASTEST_SHARE * ((1.0 if label < least else 0.0) - state[at + _BELOW])
    state[at + _ABOVE] += _FASTEST_SHARE * ((1.0 if label > greatest else 0.0) - state[at + _ABOVE])


@inlined
def _lose(above, share, state, at):
    """Take in one loss of a quantile, by how far the label is above it."""
    state[at] = _KEPT * state[at] + max(share * above, (share - 1.0) * above)


@inlined
def follow_extremes(label, n_before, state, at, block=_BLOCK):
    """Take one label into the extremes of its block of so many. n_before: how many labels came before it."""
    if n_before == 0.0:
        state[at] = state[at + _BEFORE] = state[at + _GREATEST] = state[at + _GREATEST + _BEFORE] = label
    elif n_before % block == 0.0:
        state[at + _BEFORE], state[at + _GREATEST + _BEFORE] = state[at], state[at + _GREATEST]
        state[at] = state[at + _GREATEST] = label
    state[at] = min(state[at], label)
    state[at + _GREATEST] = max(state[at + _GREATEST], label)
