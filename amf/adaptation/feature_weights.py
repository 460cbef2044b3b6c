"""How often each feature is cut in an adaptive forest: as far as it tells of labels.

A feature tells of labels alone, or together with others. What it tells alone is counted in a table of bins
(univariate.py), which finds it within a hundred samples, and leaves nothing of what may be chance. What it tells where
others have parted the samples already show the trees: where a sample goes from a node to its child, the split of the
node has gained e / e' - 1; e is the forecast of the label by the child, e' what the node would have said without the
split, both made before the label was counted. That is what a bet of 1 on the child's forecast wins at the odds of its
parent's: a fair bet, which wins nothing in the mean where the split is no use, however few labels the child has seen,
and chi^2(e, e') > 0 where it does. (The mean of log(e / e') is then less than nothing, by an amount that depends on how
many labels were seen: of a feature that tells something only beside others it is so for thousands of samples.) No win
counts more than 7, so that no label decides everything. The sum over all steps on a feature, each weighed by the
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
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amf.adaptation.state import LARGEST_RATIO
from amf.adaptation.univariate import Kind, gain_of
from amf.jit.decorators import called, index, inlined
from amf.memory.arena import FEATURE
from amf.memory.paths import head_at

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


@called
def remember_gains(nodes, path, numbers, gains, tree, n_features):
    """Add what the splits on a path gained with a label to the sums of a tree (State.tree_gains)."""
    given, stopping = numbers.given, numbers.stopping
    at, reach = index(3) * tree * n_features, 1.0
    for k in range(index(1), path.length):
        reach *= 1.0 - stopping[k - index(1)]
        by = at + index(nodes.ints[head_at(nodes, path, k - index(1)) + FEATURE])
        ratio = given[k] / given[k - index(1)]
        # Where neither density is more than nothing their ratio is NaN, which fails all comparisons.
        gained = reach * (min(ratio, LARGEST_RATIO) - 1.0) if ratio >= 0.0 else 0.0
        gains[by] += gained
        gains[by + n_features] += reach
        gains[by + index(2) * n_features] += gained * gained


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
