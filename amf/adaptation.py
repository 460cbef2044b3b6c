"""What an adaptive forest learns of its features and of its trees: which features tell of labels, which trees are out
of date.

Feature weights. Where a sample goes from a node to its child, the split of the node has gained log(e / e'): e is the
forecast of the label by the child, e' what the node would have said without the split, both made before the label was
counted. The mean of these logarithms over all steps on a feature, each weighed by the posterior probability that a
pruning goes that far, is what the feature is worth. A feature that tells nothing gains less than nothing, since its
splits part the labels and leave each child with fewer. The weight of a feature in the rate of new cuts is

    w = floor + (1 - floor) * d * gain^(1/4) / sum of gain^(1/4),    gain = max(sum of gains + p m, 0) / (steps + p)

where d are the features of which two values were seen, m is the mean gain of a step in the forest, gains below zero
counted as zero, and p are 30 steps a tree: of what was hardly tried yet nothing bad is said. The power is small since
a feature whose splits tell little by themselves may be what others need. The weight of a feature multiplies that of
scaling.py. The mean over the d features is 1, and so are all weights where nothing has gained. Sums over all trees
shrink by 3 % at each review, so that weights follow changes.

Background trees. Some of the trees stand by. Trees are judged by the recent loss of their own forecasts. A background
tree whose loss is below the mean of the active trees becomes active, and the active tree of the largest loss starts
anew in the background, under the weights of today. Forecasts are those of the active trees and of all background trees
that are not far behind: no tree that knows something is left out, and none that is young spoils anything.

All of it happens in reviews, which follow every so many labelled samples (`review_every`), and sums over trees are
always added in their order: so it is a function of the samples, whatever the batches and the threads are.

The state is one float64 array, see State; it is empty in a forest that does not adapt.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf._kernel import called, index, inlined
from amf.arena import FEATURE, ROOT, row_of
from amf.elementary import log

SILENT, STANDING_BY, ACTIVE = 0.0, 1.0, 2.0
"""Roles of trees: in the background, too young or too far behind to forecast; there, but forecasting; active."""

_FLOOR = 0.05
"""Share of the weights that all features have alike: what tells nothing today may do so tomorrow."""
_PRIOR_STEPS = 30.0
"""Steps of the mean gain that are added to those of each feature, for each tree."""
_KEPT = 0.97
"""What a review keeps of the gains before."""
_LARGEST_RATIO = 64.0
"""A single step counts no more than this ratio of forecasts: one label must not decide everything."""
_MEMORY = 6.0
"""Reviews after which a loss counts 1 / e."""
_YOUTH = 2.0
"""Reviews before which a tree that was started anew is not judged."""
_NEARLY = 1.3
"""A background tree forecasts while its loss is less than that of the active trees, times this."""


class State(NamedTuple):
    """The parts of the state of n trees and d features, views of float64."""

    tree_gains: Any
    """(n * 2 * d,), of each tree since the last review: d sums of weighted gains, d sums of their weights."""
    weights: Any
    """(d,), of features in the rate of cuts, which do not change between reviews."""
    gains: Any
    """(d,), sums of weighted gains over all trees, the older ones for less."""
    steps: Any
    """(d,), sums of the weights of these gains."""
    losses: Any
    """(n,), sums of the losses of the forecasts of trees, the older ones for less."""
    judged: Any
    """(n,), sums of the weights of these losses."""
    births: Any
    """(n,), labelled samples before the first one of each tree."""
    roles: Any
    """(n,)"""
    swaps: Any
    """(1,), trees that were started anew."""


def state_of(flat: Any, n_trees: int, n_features: int) -> State:
    """The parts of the state, which are all empty in a forest that does not adapt."""
    n, d = n_trees, n_features
    features, trees = 2 * n * d, 2 * n * d + 3 * d
    return State(
        flat[:features],
        flat[features : features + d],
        flat[features + d : features + 2 * d],
        flat[features + 2 * d : trees],
        flat[trees : trees + n],
        flat[trees + n : trees + 2 * n],
        flat[trees + 2 * n : trees + 3 * n],
        flat[trees + 3 * n : trees + 4 * n],
        flat[trees + 4 * n :],
    )


def size_of(n_trees: int, n_features: int) -> int:
    """Numbers in the state."""
    return 2 * n_trees * n_features + 3 * n_features + 4 * n_trees + 1


def fresh_state(n_trees: int, n_background: int) -> NDArray[np.float64]:
    """State of a forest that has no features yet."""
    flat = np.zeros(size_of(n_trees, 0))
    # All trees begin alike: those in the background know no less than the others.
    state_of(flat, n_trees, 0).roles[:] = [ACTIVE] * (n_trees - n_background) + [STANDING_BY] * n_background
    return flat


def with_features(flat: NDArray[np.float64], n_trees: int, known: int, n_features: int) -> NDArray[np.float64]:
    """The state with more features, of which nothing is known yet."""
    grown = np.zeros(size_of(n_trees, n_features))
    new, old = state_of(grown, n_trees, n_features), state_of(flat, n_trees, known)
    new.tree_gains.reshape(2 * n_trees, n_features)[:, :known] = old.tree_gains.reshape(2 * n_trees, known)
    new.weights[known:] = 1.0
    for name in ("weights", "gains", "steps"):
        getattr(new, name)[:known] = getattr(old, name)
    for name in ("losses", "judged", "births", "roles", "swaps"):
        getattr(new, name)[:] = getattr(old, name)
    return grown


def is_sound(state: State, n_background: int, review_every: int, n_samples: int, moves: NDArray[np.int64]) -> bool:
    """Whether samples could have left this state."""
    n_trees, last = state.roles.shape[0], n_samples - n_samples % review_every
    births, roles, varied = state.births, state.roles, max(int(np.count_nonzero(moves)), 1)
    of_trees = state.tree_gains.reshape(n_trees, 2, -1)
    largest = 1.001 * math.log(_LARGEST_RATIO)
    checks = (
        np.abs(of_trees[:, 0]) <= largest * of_trees[:, 1],
        (of_trees[:, 1] >= 0.0) & (of_trees[:, 1] < np.inf),
        (state.weights > 0.0) & (state.weights <= 1.001 * varied),
        np.abs(state.gains) <= largest * state.steps,
        (state.steps >= 0.0) & (state.steps < np.inf),
        (state.losses >= 0.0) & (state.losses < np.inf),
        (state.judged >= 0.0) & (state.judged <= 1.001 * _MEMORY * review_every),
        (births >= 0.0) & (births <= last) & (births % review_every == 0.0),
        (roles == SILENT) | (roles == STANDING_BY) | (roles == ACTIVE),
        (births == 0.0) | (births < last) | (roles == SILENT),
        np.count_nonzero(roles == ACTIVE) == n_trees - n_background,
        (state.swaps >= np.count_nonzero(births)) & (state.swaps <= n_trees * (n_samples // review_every)),
        state.swaps == np.floor(state.swaps),
    )
    return all(bool(np.all(check)) for check in checks)


parts = called(state_of)
"""`state_of` as kernels call it."""


@called
def remember_gains(nodes, path, start, length, given, stopping, gains, tree, n_features):
    """Add what the splits on a path gained with a label to the sums of a tree (State.tree_gains).

    given: forecasts of the label by the nodes. stopping: probabilities of stopping at the inner ones.
    """
    at, reach = index(2) * tree * n_features, 1.0
    for k in range(index(1), length):
        reach *= 1.0 - stopping[k - index(1)]
        by = at + index(nodes.ints[path[start + k - index(1)] * nodes.words + FEATURE])
        ratio = given[k] / given[k - index(1)]
        # A ratio of densities may be anything, NaN included, which fails all comparisons.
        ratio = ratio if ratio > 1.0 / _LARGEST_RATIO else 1.0 / _LARGEST_RATIO
        gains[by] += reach * log(min(ratio, _LARGEST_RATIO))
        gains[by + n_features] += reach


@inlined
def judge(state, tree, loss, review_every):
    """Take in the loss of a tree's forecast; NaN, where it could make none, counts for nothing."""
    if loss == loss:
        kept = 1.0 - 1.0 / (_MEMORY * review_every)
        state.losses[tree] = kept * state.losses[tree] + loss
        state.judged[tree] = kept * state.judged[tree] + 1.0


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


@called
def review(nodes, used, state, moves, n_samples, review_every):
    """Let features have new weights, and trees new roles. moves: of each feature (scaling.py)."""
    _gather_gains(state)
    _weigh_features(state, moves)
    n_trees, old_enough = index(used.shape[0]), _YOUTH * review_every
    for tree in range(n_trees):
        if state.roles[tree] != ACTIVE and _is_mature(state, tree, n_samples, old_enough):
            mean, worst = _loss_of_active(state)
            if _loss(state, tree) < mean:
                state.roles[tree], state.roles[worst] = ACTIVE, SILENT
                state.losses[worst] = state.judged[worst] = 0.0
                state.births[worst] = n_samples
                state.swaps[0] += 1.0
                _clear(nodes, used, worst)
    mean, _ = _loss_of_active(state)
    for tree in range(n_trees):
        if state.roles[tree] != ACTIVE:
            near = _is_mature(state, tree, n_samples, old_enough) and _loss(state, tree) <= _NEARLY * mean
            state.roles[tree] = STANDING_BY if near else SILENT


@inlined
def _is_mature(state, tree, n_samples, old_enough):
    """Whether a tree may be judged: one that began with the forest is as old as any."""
    return state.births[tree] == 0.0 or n_samples - state.births[tree] >= old_enough


@inlined
def _gather_gains(state):
    """Move the gains of the trees, in their order, to those of the forest."""
    d = state.gains.shape[0]
    for j in range(d):
        state.gains[j] *= _KEPT
        state.steps[j] *= _KEPT
    for tree in range(state.roles.shape[0]):
        at = 2 * tree * d
        for j in range(d):
            state.gains[j] += state.tree_gains[at + j]
            state.steps[j] += state.tree_gains[at + d + j]
            state.tree_gains[at + j] = state.tree_gains[at + d + j] = 0.0


@inlined
def _weigh_features(state, moves):
    gained, steps, prior = 0.0, 0.0, _PRIOR_STEPS * state.roles.shape[0]
    for j in range(moves.shape[0]):
        gained += max(state.gains[j], 0.0)
        steps += state.steps[j]
    expected = prior * (gained / steps) if steps > 0.0 else 0.0
    total, n_varied = 0.0, 0.0
    for j in range(moves.shape[0]):
        if moves[j] > 0:
            gain = max(state.gains[j] + expected, 0.0) / (state.steps[j] + prior)
            state.weights[j] = math.sqrt(math.sqrt(gain))
            total += state.weights[j]
            n_varied += 1.0
    for j in range(moves.shape[0]):
        if moves[j] > 0 and total > 0.0:
            state.weights[j] = _FLOOR + (1.0 - _FLOOR) * n_varied * (state.weights[j] / total)
        else:
            state.weights[j] = 1.0


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
def _clear(nodes, used, tree):
    """Leave a tree without nodes."""
    for number in range(ROOT, used[tree]):
        row = row_of(number, tree, index(used.shape[0]))
        for word in range(nodes.words):
            nodes.ints[row * nodes.words + word] = 0
        for word in range(nodes.width):
            nodes.boxes[row * nodes.width + word] = 0.0
    used[tree] = ROOT
