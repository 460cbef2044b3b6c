"""Forecasts of numbers that go no further than labels do.

A spread is alike on both sides, and labels may not be: counts and amounts end at 0. So the least and the greatest label
so far are bounds of all that is published, each where the quantile on its side has lost less of late with it, as
quantiles lose (pinball loss), and where no more labels of late were beyond all before them than may be beyond the
quantile: of a counter each one is. Labels of late alone would be no bounds: a regime that features tell of may be
another one than that of the last labels.

state, from `at` on: N_BOUNDS numbers: the least and the greatest label; the losses of late of the lower quantile as it
is and as it is bounded, and of the upper one; the shares of late of labels below and above all before them.
"""

from __future__ import annotations

import numpy as np

from amf.jit.decorators import index, inlined

N_ENDS, N_LOST, N_SHARES = 2, 4, 2
N_BOUNDS = N_ENDS + N_LOST + N_SHARES

_GREATEST, _LOWER, _UPPER, _BELOW, _ABOVE = map(index, (1, 2, 4, 6, 7))
_BOUNDED = index(1)
"""Behind the loss of a quantile as it is that as it is bounded."""
_BETTER = 0.95
"""Of what a quantile has lost as it is, what it may have lost at most as it is bounded to be taken so."""
_KEPT = 1.0 - 1.0 / 256.0
"""What is left of these losses at the next label."""
_FASTEST_SHARE = 1.0 / 64.0
"""What a label moves the shares by."""


@inlined
def within_labels(number, state, at):
    """The number, no further out than labels so far."""
    return min(max(number, state[at]), state[at + _GREATEST])


@inlined
def bounds_of(share, state, at):
    """Between which forecasts stay: the least and the greatest label, each where that is a bound of labels, of which
    this share may be beyond it, and where the quantile on its side has lost less with it; else infinite."""
    is_lower_better = state[at + _LOWER + _BOUNDED] < _BETTER * state[at + _LOWER] and state[at + _BELOW] < share
    is_upper_better = state[at + _UPPER + _BOUNDED] < _BETTER * state[at + _UPPER] and state[at + _ABOVE] < share
    return state[at] if is_lower_better else -np.inf, state[at + _GREATEST] if is_upper_better else np.inf


@inlined
def follow_bounds(label, low, high, share, state, at):
    """Take in what the quantiles of this share and of 1 - share have lost, as they are and bounded, and what was beyond
    all labels before it."""
    _lose(label - low, share, state, at + _LOWER)
    _lose(label - within_labels(low, state, at), share, state, at + _LOWER + _BOUNDED)
    _lose(label - high, 1.0 - share, state, at + _UPPER)
    _lose(label - within_labels(high, state, at), 1.0 - share, state, at + _UPPER + _BOUNDED)
    state[at + _BELOW] += _FASTEST_SHARE * ((1.0 if label < state[at] else 0.0) - state[at + _BELOW])
    state[at + _ABOVE] += _FASTEST_SHARE * ((1.0 if label > state[at + _GREATEST] else 0.0) - state[at + _ABOVE])


@inlined
def note_end(label, n_before, state, at):
    """Take one label into the least and the greatest one. n_before: how many labels came before it."""
    state[at] = label if n_before == 0.0 else min(state[at], label)
    state[at + _GREATEST] = label if n_before == 0.0 else max(state[at + _GREATEST], label)


@inlined
def _lose(above, share, state, at):
    """Take in one loss of a quantile, by how far the label is above it."""
    state[at] = _KEPT * state[at] + max(share * above, (share - 1.0) * above)
