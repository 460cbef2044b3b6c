"""What an adaptive forest learns of its features and of its trees: which features tell of labels, which trees are out
of date.

Feature weights. A feature tells of labels alone, or together with others. What it tells alone is counted in a table of
bins (univariate.py), which finds it within a hundred samples, and leaves nothing of what may be chance. What it tells
where others have parted the samples already show the trees: where a sample goes from a node to its child, the split of
the node has gained e / e' - 1; e is the forecast of the label by the child, e' what the node would have said without
the split, both made before the label was counted. That is what a bet of 1 on the child's forecast wins at the odds of
its parent's: a fair bet, which wins nothing in the mean where the split is no use, however few labels the child has
seen, and chi^2(e, e') > 0 where it does. (The mean of log(e / e') is then less than nothing, by an amount that depends
on how many labels were seen: of a feature that tells something only beside others it is so for thousands of samples.)
No win counts more than 7, so that no label decides everything. The sum over all steps on a feature, each weighed by the
posterior probability that a pruning goes that far, in the mean over trees and less its standard error, is what its
splits have gained, or nothing where it is less than nothing. The weight of a feature in the rate of new cuts is

    w = 1 - l + l d (a / sum of a + b / sum of b) / 2,    l = (1 - .5 / d) e^2 / (e^2 + 16^2)
    a = (what it gains alone, a label) ** (1/4),    b = (what its splits have gained / (steps + p)) ** (1/2)

where d are the features of which two values were seen, and p are 30 steps a tree, so that one step decides nothing. If
all a are 0, or all b, the others count alone. What is learned counts by the evidence e there is for it, in nats: what
features gain alone, in all, and half of what their splits have gained. A handful of labels of a rare class are no
evidence, however many samples there were. With much of it uninformative features get half of the cuts that
one feature has in the plain forest, all together and however many they are. The powers are small since a feature whose
splits tell little by themselves may be what others need. The weight of a feature multiplies that of scaling.py. The
mean over the d features is 1. Sums and counts shrink by 3 % at each review, so that weights follow changes.

Rehearsals. The cuts near the root are made of the first samples, when it is not known what matters, and no later cut
mends them. So the first samples are kept, and all trees learn them once more under the weights of later (rehearsal.py).
Where a forest finds itself out of date, it begins anew, with the samples since then for its first ones, unless what it
knew proves to be of use after all (change_detection.py).

Background trees. Some of the trees stand by. Trees are judged by the recent loss of their own forecasts. A background
tree whose loss is below the mean of the active trees, and surely below that of the active tree of the largest loss,
becomes active; that one starts anew in the background, under the weights of today. Surely is by 1.6 standard errors, of
what the losses of both are off the mean of the active trees, sample by sample: chance makes one tree better than
another all the time. Where the last 64 labels are alike, which have less than .8 of the entropy of those in the table,
it has to be below .9 of their entropy as well: a tree that was born while one class came all the time is right until
others come back, and knows nothing of them. Forecasts are those of the active trees and of all background trees that
are not far behind: no tree that knows something is left out, and none that is young spoils anything.

All of it happens in reviews, which follow every so many labelled samples (`review_every`), and sums over trees are
always added in their order: so it is a function of the samples, whatever the batches and the threads are.

The state is that of state.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amf.adaptation.state import ACTIVE, LARGEST_RATIO, MEMORY, SILENT, STANDING_BY, most_old_compiled
from amf.adaptation.univariate import Kind, gain_of
from amf.jit.decorators import called, index, inlined
from amf.memory.arena import FEATURE, ROOT, row_of

_ALIKE = 0.5
"""Of the sum of all weights, d, what all features share alike at least: what is no use today may be of use tomorrow."""
EVIDENCE = 16.0
"""Nats of labels that decide on a whole forest, and at which what is learned of features counts half of the most."""
_PRIOR_STEPS = 30.0
"""Steps without any gain that are added to those of each feature, for each tree."""
KEPT = 0.97
"""What a review keeps of the gains and counts before."""
_NATS = 0.5
"""Of evidence, for each unit that splits gain: log(1 + x) is x - x^2 / 2, and in the mean x^2 is x here."""
_LEAST_SUM = 1e-300
"""By which is divided where a sum is nothing."""
_SURE = 1.6
"""Standard errors by which the loss of a tree has to be less than that of another one."""
_YOUTH = 2.0
"""Reviews before which a tree that was started anew is not judged."""
_NEARLY = 1.3
"""A background tree forecasts while its loss is less than that of the active trees, times this."""


@called
def remember_gains(nodes, path, start, length, given, stopping, gains, tree, n_features):
    """Add what the splits on a path gained with a label to the sums of a tree (State.tree_gains).

    given: forecasts of the label by the nodes. stopping: probabilities of stopping at the inner ones.
    """
    at, reach = index(3) * tree * n_features, 1.0
    for k in range(index(1), length):
        reach *= 1.0 - stopping[k - index(1)]
        by = at + index(nodes.ints[path[start + k - index(1)] * nodes.words + FEATURE])
        ratio = given[k] / given[k - index(1)]
        # Where neither density is more than nothing their ratio is NaN, which fails all comparisons.
        gained = reach * (min(ratio, LARGEST_RATIO) - 1.0) if ratio >= 0.0 else 0.0
        gains[by] += gained
        gains[by + n_features] += reach
        gains[by + index(2) * n_features] += gained * gained


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
def restart(nodes, used, state, tree):
    """Leave a tree without nodes, as if it were about to learn the first of the kept samples."""
    _clear(nodes, used, tree)
    forget_losses(state, tree)
    state.births[tree] = state.beginning[0]


@inlined
def _is_surely_better(state, tree, other):
    """Whether the losses of a tree are less than those of another one by more than chance."""
    spread = state.spreads[tree] / max(state.judged[tree], 1.0) + state.spreads[other] / max(state.judged[other], 1.0)
    off = _loss(state, other) - _loss(state, tree)
    return off * math.sqrt(min(state.judged[tree], state.judged[other])) > _SURE * math.sqrt(spread)


@called
def replace_trees(nodes, used, state, n_samples, review_every, trivial):
    """Let trees have new roles. trivial: the loss below which background trees know more than the last labels."""
    n_trees, old_enough, first = index(used.shape[0]), _YOUTH * review_every, float(n_samples)
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
                _clear(nodes, used, worst)
    mean, _ = _loss_of_active(state)
    for tree in range(n_trees):
        if state.roles[tree] != ACTIVE:
            # The samples on which a tree was tried in vain are no reason to ask it.
            is_known = state.judged[tree] > 0.0 and _is_mature(state, tree, first, n_samples, old_enough)
            state.roles[tree] = STANDING_BY if is_known and _loss(state, tree) <= _NEARLY * mean else SILENT
            if state.roles[tree] == STANDING_BY and _n_active(state) < state.to_be_active[0]:
                state.roles[tree] = ACTIVE


@inlined
def _n_active(state):
    n = 0
    for tree in range(state.roles.shape[0]):
        n += state.roles[tree] == ACTIVE
    return n


@called
def set_aside(state):
    """Let no more than half of all trees be active, those of the least losses."""
    for _ in range(_n_active(state) - most_old_compiled(state.roles.shape[0])):
        _, worst = _loss_of_active(state)
        state.roles[worst] = SILENT


@called
def give_up_background(nodes, used, state, n_samples):
    """Start the background trees anew. No loss so far says anything of later ones."""
    for tree in range(index(used.shape[0])):
        forget_losses(state, tree)
        if state.roles[tree] != ACTIVE:
            _clear(nodes, used, tree)
            state.births[tree] = n_samples
            state.swaps[0] += 1.0


@inlined
def _is_mature(state, tree, first, n_samples, old_enough):
    """Whether a tree may be judged: one that began with the first ones is as old as any."""
    return state.births[tree] == first or n_samples - state.births[tree] >= old_enough


@inlined
def gather_gains(state):
    """Move the gains of the trees, in their order, to those of the forest."""
    n = state.gains.shape[0]
    for k in range(n):
        state.gains[k] *= KEPT
        for tree in range(state.roles.shape[0]):
            state.gains[k] += state.tree_gains[tree * n + k]
            state.tree_gains[tree * n + k] = 0.0


def make_weigh_features(kind: Kind) -> Any:
    """The function that weighs features by what they tell of labels of this kind; for kernels."""
    statistic = kind.statistic

    @called
    def weigh_features(state, moves):
        """Let features have new weights, and forget a little. moves: of each feature (scaling.py)."""
        d, n_trees = moves.shape[0], float(state.roles.shape[0])
        alone, by_splits, n_varied, evidence = 0.0, 0.0, 0.0, 0.0
        gains = np.zeros((2, d))
        for j in range(d):
            if moves[j] > 0:
                found, freedom = statistic(state.table, j)
                gained, n_labels = gain_of(found, freedom, state.table, j)
                gains[0, j] = math.sqrt(math.sqrt(gained / n_labels))
                # The trees learn the same labels: the error of their mean is as large as that of one of them.
                error = math.sqrt(n_trees * state.gains[2 * d + j])
                of_splits = max(state.gains[j] - error, 0.0) / n_trees
                gains[1, j] = math.sqrt(of_splits / (state.gains[d + j] / n_trees + _PRIOR_STEPS))
                evidence += gained + _NATS * of_splits
                alone += gains[0, j]
                by_splits += gains[1, j]
                n_varied += 1.0
        # Where one of the two has found nothing yet, the other one decides.
        decisive = 1.0 if alone == 0.0 or by_splits == 0.0 else 2.0
        squared = evidence * evidence
        learned = (1.0 - _ALIKE / max(n_varied, 1.0)) * squared / (squared + EVIDENCE * EVIDENCE)
        for j in range(d):
            state.weights[j] = 1.0
            if moves[j] > 0 and evidence > 0.0:
                share = gains[0, j] / max(alone, _LEAST_SUM) + gains[1, j] / max(by_splits, _LEAST_SUM)
                state.weights[j] = (1.0 - learned) + learned * n_varied * (share / decisive)
        for k in range(state.table.shape[0]):
            state.table[k] *= KEPT

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
