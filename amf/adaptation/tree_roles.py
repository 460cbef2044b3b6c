"""Which trees of an adaptive forest forecast, which stand by, and which start anew.

Some of the trees stand by. Trees are judged by the recent loss of their own forecasts. A background tree whose loss is
below the mean of the active trees, and surely below that of the active tree of the largest loss, becomes active; that
one starts anew in the background, under the weights of today. Surely is by 1.6 standard errors, of what the losses of
both are off the mean of the active trees, sample by sample: chance makes one tree better than another all the time.
Where the last 64 labels are alike, which have less than .8 of the entropy of those in the table, it has to be below .9
of their entropy as well: a tree that was born while one class came all the time is right until others come back, and
knows nothing of them. Forecasts are those of the active trees and of all background trees that are not far behind: no
tree that knows something is left out, and none that is young spoils anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amf.adaptation.state import ACTIVE, MEMORY, SILENT, STANDING_BY, most_old_compiled
from amf.jit.decorators import called, index, inlined
from amf.memory.arena import ROOT, row_of

_SURE = 1.6
"""Standard errors by which the loss of a tree has to be less than that of another one."""
_YOUTH = 2.0
"""Reviews before which a tree that was started anew is not judged."""
_NEARLY = 1.3
"""A background tree forecasts while its loss is less than that of the active trees, times this."""


@called
def of_forecasting_trees(table, roles):
    """The numbers that forecasting trees say, of float64 (n_trees, n, k); those of the other trees are written over."""
    chosen = 0
    for tree in range(table.shape[0]):
        if roles[tree] != SILENT:
            if chosen < tree:
                for i in range(table.shape[1]):
                    for k in range(table.shape[2]):
                        table[chosen, i, k] = table[tree, i, k]
            chosen += 1
    return table[:chosen]


def make_judge(loss_of: Any) -> Any:
    """The function that takes in the losses of trees, for kernels. loss_of: see Adapting of reviews.py."""

    @called
    def judge(state, forecasts, i, label, first, last, review_every):
        """Take in what trees [first, last) forecast of row i.

        Returns the mean loss of the active ones of them, or of all where none is active. A loss that is NaN, where a
        tree could make no forecast, counts for nothing.
        """
        total, count, of_active, n_active = 0.0, 0.0, 0.0, 0.0
        losses = np.empty(last - first)
        for tree in range(first, last):
            loss = loss_of(forecasts, tree, i, label)
            losses[tree - first] = loss
            if loss == loss:
                total += loss
                count += 1.0
                if state.roles[tree] == ACTIVE:
                    of_active += loss
                    n_active += 1.0
        mean = of_active / n_active if n_active > 0.0 else total / max(count, 1.0)
        kept = 1.0 - 1.0 / (MEMORY * review_every)
        for tree in range(first, last):
            loss = losses[tree - first]
            if loss == loss:
                state.losses[tree] = kept * state.losses[tree] + loss
                state.judged[tree] = kept * state.judged[tree] + 1.0
                state.spreads[tree] = kept * state.spreads[tree] + (loss - mean) * (loss - mean)
        return mean

    return judge


@inlined
def forget_losses(state, tree):
    """Let nothing be known of what a tree said."""
    state.losses[tree] = state.judged[tree] = state.spreads[tree] = 0.0


@inlined
def restart(nodes, state, tree):
    """Leave a tree without nodes, as if it were about to learn the first of the kept samples."""
    _clear(nodes, tree)
    forget_losses(state, tree)
    state.births[tree] = state.beginning[0]


@inlined
def _is_surely_better(state, tree, other):
    """Whether the losses of a tree are less than those of another one by more than chance."""
    spread = state.spreads[tree] / max(state.judged[tree], 1.0) + state.spreads[other] / max(state.judged[other], 1.0)
    off = _loss(state, other) - _loss(state, tree)
    return off * math.sqrt(min(state.judged[tree], state.judged[other])) > _SURE * math.sqrt(spread)


@called
def replace_trees(nodes, state, n_samples, review_every, trivial):
    """Let trees have new roles. trivial: the loss below which background trees know more than the last labels."""
    n_trees, old_enough, first = index(nodes.used.shape[0]), _YOUTH * review_every, float(n_samples)
    for tree in range(n_trees):
        first = min(first, state.births[tree])
    for tree in range(n_trees):
        if state.roles[tree] != ACTIVE and _is_mature(state, tree, first, n_samples, old_enough):
            mean, worst = _loss_of_active(state)
            loss = _loss(state, tree)
            if loss < min(mean, trivial) and _is_surely_better(state, tree, worst):
                state.roles[tree], state.roles[worst] = ACTIVE, SILENT
                forget_losses(state, worst)
                state.births[worst] = n_samples
                state.swaps[0] += 1.0
                _clear(nodes, worst)
    mean, _ = _loss_of_active(state)
    for tree in range(n_trees):
        if state.roles[tree] != ACTIVE:
            # The samples on which a tree was tried in vain are no reason to ask it.
            is_known = state.judged[tree] > 0.0 and _is_mature(state, tree, first, n_samples, old_enough)
            state.roles[tree] = STANDING_BY if is_known and _loss(state, tree) <= _NEARLY * mean else SILENT
            if state.roles[tree] == STANDING_BY and n_active(state) < state.to_be_active[0]:
                state.roles[tree] = ACTIVE


@inlined
def n_active(state):
    """How many trees are active."""
    n = 0
    for tree in range(state.roles.shape[0]):
        n += state.roles[tree] == ACTIVE
    return n


@called
def set_aside(state):
    """Let no more than half of all trees be active, those of the least losses."""
    for _ in range(n_active(state) - most_old_compiled(state.roles.shape[0])):
        _, worst = _loss_of_active(state)
        state.roles[worst] = SILENT


@called
def give_up_background(nodes, state, n_samples):
    """Start the background trees anew. No loss so far says anything of later ones."""
    for tree in range(index(nodes.used.shape[0])):
        forget_losses(state, tree)
        if state.roles[tree] != ACTIVE:
            _clear(nodes, tree)
            state.births[tree] = n_samples
            state.swaps[0] += 1.0


@inlined
def _is_mature(state, tree, first, n_samples, old_enough):
    """Whether a tree may be judged: one that began with the first ones is as old as any."""
    return state.births[tree] == first or n_samples - state.births[tree] >= old_enough


@inlined
def _loss(state, tree):
    return state.losses[tree] / max(state.judged[tree], 1.0)


@inlined
def _loss_of_active(state):
    """(mean loss of the active trees, the one of the largest, ties to the first)."""
    worst: Any = index(0)
    total, n_active, largest = 0.0, 0.0, -1.0
    for tree in range(index(state.roles.shape[0])):
        if state.roles[tree] == ACTIVE:
            loss = _loss(state, tree)
            total += loss
            n_active += 1.0
            if loss > largest:
                worst, largest = tree, loss
    return total / n_active, worst


@inlined
def _clear(nodes, tree):
    """Leave a tree without nodes."""
    for number in range(ROOT, nodes.used[tree]):
        row = row_of(number, tree, index(nodes.used.shape[0]))
        for word in range(nodes.words):
            nodes.ints[row * nodes.words + word] = 0
        for word in range(nodes.width):
            nodes.boxes[row * nodes.width + word] = 0.0
    nodes.used[tree] = ROOT
