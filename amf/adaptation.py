"""What an adaptive forest learns of its features and of its trees: which features tell of labels, which trees are out
of date.

Feature weights. A feature tells of labels alone, or together with others. What it tells alone is counted in a table of
bins (univariate.py), which finds it within a hundred samples, and leaves nothing of what may be chance. What it tells
where others have parted the samples already show the trees: where a sample goes from a node to its child, the split of
the node has gained log(e / e'); e is the forecast of the label by the child, e' what the node would have said without
the split, both made before the label was counted. The sum of these logarithms over all steps on a feature, each
weighed by the posterior probability that a pruning goes that far, is what its splits have gained. A feature that tells
nothing gains less than nothing, since its splits part the labels and leave each child with fewer. The weight of a
feature in the rate of new cuts is

    w = floor + (1 - floor) d (a / sum of a + b / sum of b) / 2
    a = (what it gains alone) ** (1/4),    b = (max(sum of its splits' gains, 0) / (steps + p)) ** (1/4)

where d are the features of which two values were seen, and p are 30 steps a tree, so that one step decides nothing. If
all a are 0, or all b, the others count alone; if both are, all weights are 1. The floor is what all features have
alike: those that tell nothing share a twentieth of the rate of cuts, however many they are. The power is small since a
feature whose splits tell little by themselves may be what others need. The weight of a feature multiplies that of
scaling.py. The mean over the d features is 1. Sums and counts shrink by 3 % at each review, so that weights follow
changes.

Rehearsals. The cuts near the root are made of the first samples, when nobody knows what matters, and no later cut mends
them. So the first samples are kept, as they came. At reviews 1, 2, 4, 8 and so on, as long as all samples are still
there, all trees start anew and learn them once more under the weights of today.

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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf._kernel import called, index, inlined
from amf.arena import FEATURE, ROOT, row_of
from amf.elementary import log
from amf.labels import LARGEST_NUMBER
from amf.univariate import N_BOUNDS, N_CELLS, N_LABEL_BOUNDS, N_RECENT, Kind, gain_of

SILENT, STANDING_BY, ACTIVE = 0.0, 1.0, 2.0
"""Roles of trees: in the background, too young or too far behind to forecast; there, but forecasting; active."""

_FLOOR = 0.05
"""Share of the weights that all features have alike: what tells nothing today may do so tomorrow."""
_PRIOR_STEPS = 30.0
"""Steps without any gain that are added to those of each feature, for each tree."""
_KEPT = 0.97
"""What a review keeps of the gains and counts before."""
_REHEARSED = 512
"""Samples of which trees are made once more, at most."""
_LEAST_SUM = 1e-300
"""By which is divided where a sum is nothing."""
_SHARE_OF_BYTES = 16
"""The samples that are kept for rehearsals take no more than this part of `max_bytes`."""
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
    table: Any
    """(d * N_CELLS,), of each feature the counts of labels in its bins (univariate.py), the older ones for less."""
    bounds: Any
    """(d * N_BOUNDS,), between the bins of each feature."""
    losses: Any
    """(n,), sums of the losses of the forecasts of trees, the older ones for less."""
    judged: Any
    """(n,), sums of the weights of these losses."""
    births: Any
    """(n,), labelled samples before the first one of each tree."""
    roles: Any
    """(n,)"""
    swaps: Any
    """(1,), trees that were started anew to stand by."""
    label_bounds: Any
    """(N_LABEL_BOUNDS,), between the groups of labels that are numbers."""
    recent: Any
    """(N_RECENT,), the last labels, that of sample k at place k modulo N_RECENT."""
    kept_labels: Any
    """(r,), of the first r samples."""
    kept: Any
    """(r * d,), the values of these samples, as they came."""


def state_of(flat: Any, n_trees: int, n_features: int) -> State:
    """The parts of the state, which are all empty in a forest that does not adapt."""
    n, d = n_trees, n_features
    features, table, trees = 2 * n * d, 2 * n * d + 3 * d, 2 * n * d + (3 + N_CELLS + N_BOUNDS) * d
    labels = trees + 4 * n + 1
    kept = labels + N_LABEL_BOUNDS + N_RECENT
    rows = kept + max(flat.shape[0] - kept, 0) // (d + 1)
    return State(
        flat[:features],
        flat[features : features + d],
        flat[features + d : features + 2 * d],
        flat[features + 2 * d : table],
        flat[table : table + N_CELLS * d],
        flat[table + N_CELLS * d : trees],
        flat[trees : trees + n],
        flat[trees + n : trees + 2 * n],
        flat[trees + 2 * n : trees + 3 * n],
        flat[trees + 3 * n : trees + 4 * n],
        flat[trees + 4 * n : labels],
        flat[labels : labels + N_LABEL_BOUNDS],
        flat[labels + N_LABEL_BOUNDS : kept],
        flat[kept:rows],
        flat[rows:],
    )


def n_kept(n_features: int, max_bytes: int) -> int:
    """Samples that are kept for rehearsals."""
    return min(_REHEARSED, max_bytes // _SHARE_OF_BYTES // (8 * (n_features + 1)))


def _empty_state(n_trees: int, n_features: int, max_bytes: int) -> NDArray[np.float64]:
    n, d = n_trees, n_features
    of_features, of_trees = (2 * n + 3 + N_CELLS + N_BOUNDS) * d, 4 * n + 1
    of_samples = N_LABEL_BOUNDS + N_RECENT + n_kept(d, max_bytes) * (d + 1)
    return np.zeros(of_features + of_trees + of_samples)


def fresh_state(n_trees: int, n_background: int, max_bytes: int) -> NDArray[np.float64]:
    """State of a forest that has no features yet."""
    flat = _empty_state(n_trees, 0, max_bytes)
    # All trees begin alike: those in the background know no less than the others.
    state_of(flat, n_trees, 0).roles[:] = [ACTIVE] * (n_trees - n_background) + [STANDING_BY] * n_background
    return flat


def with_features(
    flat: NDArray[np.float64], n_trees: int, known: int, like: Sequence[int | None], max_bytes: int
) -> NDArray[np.float64]:
    """The state with more features, of which nothing is known yet, or what Scaling.grow says of `like`."""
    d = known + len(like)
    grown = _empty_state(n_trees, d, max_bytes)
    new, old = state_of(grown, n_trees, d), state_of(flat, n_trees, known)
    new.tree_gains.reshape(2 * n_trees, d)[:, :known] = old.tree_gains.reshape(2 * n_trees, known)
    new.weights[known:] = 1.0
    for name in ("weights", "gains", "steps", "table", "bounds"):
        part = getattr(old, name)
        getattr(new, name)[: part.shape[0]] = part
    for name in ("losses", "judged", "births", "roles", "swaps", "label_bounds", "recent"):
        getattr(new, name)[:] = getattr(old, name)
    n_rows = new.kept_labels.shape[0]
    new.kept_labels[:] = old.kept_labels[:n_rows]
    rows = new.kept.reshape(n_rows, d)
    rows[:, :known] = old.kept.reshape(old.kept_labels.shape[0], known)[:n_rows]
    for column, sibling in enumerate(like, known):
        rows[:, column] = np.nan if sibling is None else np.where(np.isnan(rows[:, sibling]), np.nan, 0.0)
    return grown


def is_sound(
    state: State,
    n_background: int,
    review_every: int,
    n_samples: int,
    moves: NDArray[np.int64],
    n_classes: int | None,
) -> bool:
    """Whether samples could have left this state. n_classes: None where labels are numbers."""
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
        (state.table >= 0.0) & (state.table <= n_samples),
        np.isfinite(state.bounds),
        np.abs(state.label_bounds) <= LARGEST_NUMBER,
        (state.losses >= 0.0) & (state.losses < np.inf),
        (state.judged >= 0.0) & (state.judged <= 1.001 * _MEMORY * review_every),
        (births >= 0.0) & (births <= last) & (births % review_every == 0.0),
        (roles == SILENT) | (roles == STANDING_BY) | (roles == ACTIVE),
        (births == 0.0) | (births < last) | (roles == SILENT),
        np.count_nonzero(roles == ACTIVE) == n_trees - n_background,
        (state.swaps >= np.count_nonzero(births)) & (state.swaps <= n_trees * (n_samples // review_every)),
        state.swaps == np.floor(state.swaps),
        _are_labels(state.recent, n_classes),
        _are_labels(state.kept_labels, n_classes),
        ~np.isinf(state.kept),
    )
    return all(bool(np.all(check)) for check in checks)


def _are_labels(values: NDArray[np.float64], n_classes: int | None) -> NDArray[np.bool_]:
    """Of each whether it is a label, or the zero that stands where there is none yet."""
    labels: NDArray[np.bool_] = np.abs(values) <= LARGEST_NUMBER
    if n_classes is not None:
        labels = (values >= 0.0) & (values < max(n_classes, 1)) & (values == np.floor(values))
    return labels


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


@inlined
def restart(nodes, used, state):
    """Leave all trees without nodes, and all of them alike, as at the beginning."""
    for tree in range(index(used.shape[0])):
        _clear(nodes, used, tree)
        state.losses[tree] = state.judged[tree] = state.births[tree] = 0.0
        state.roles[tree] = max(state.roles[tree], STANDING_BY)


@called
def replace_trees(nodes, used, state, n_samples, review_every):
    """Let trees have new roles."""
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
def gather_gains(state):
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


def weighing_of(kind: Kind) -> Any:
    """The function that weighs features by what they tell of labels of this kind; for kernels."""
    statistic = kind.statistic

    @called
    def weigh_features(state, moves):
        """Let features have new weights, and forget a little. moves: of each feature (scaling.py)."""
        prior, alone, by_splits, n_varied = _PRIOR_STEPS * state.roles.shape[0], 0.0, 0.0, 0.0
        gains = np.zeros((2, moves.shape[0]))
        for j in range(moves.shape[0]):
            if moves[j] > 0:
                found, freedom = statistic(state.table, j)
                gains[0, j] = math.sqrt(math.sqrt(gain_of(found, freedom, state.table, j)))
                gains[1, j] = math.sqrt(math.sqrt(max(state.gains[j], 0.0) / (state.steps[j] + prior)))
                alone += gains[0, j]
                by_splits += gains[1, j]
                n_varied += 1.0
        # Where one of the two has found nothing yet, the other one decides.
        decisive = 1.0 if alone == 0.0 or by_splits == 0.0 else 2.0
        nothing = alone == 0.0 and by_splits == 0.0
        for j in range(moves.shape[0]):
            state.weights[j] = 1.0
            if moves[j] > 0 and not nothing:
                share = gains[0, j] / max(alone, _LEAST_SUM) + gains[1, j] / max(by_splits, _LEAST_SUM)
                state.weights[j] = _FLOOR + (1.0 - _FLOOR) * n_varied * (share / decisive)
        for k in range(state.table.shape[0]):
            state.table[k] *= _KEPT

    return weigh_features


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
