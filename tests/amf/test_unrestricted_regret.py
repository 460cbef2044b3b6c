"""The regret of amf.UnrestrictedAMFClassifier on real data: every sample of small sets and of large ones
(algorithms.md C.6).

Nothing of the recursion of the kernels is used: weights come from the counts of the nodes alone, which hold forecasters
of Krichevsky and Trofimov.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from cube import KT
from trees import n_cuts_of, trees_of

import amf
from tests.datasets import LARGE, SHIPPED, in_unit_cube, load

SETS = [*SHIPPED, *(pytest.param(name, marks=pytest.mark.full) for name in LARGE)]


@cache
def learned(name: str, n_estimators: int):
    """The trees of a forest that has learned a whole set, each with its `chains`, and the cumulative log-loss."""
    x, y = load(name)
    x = in_unit_cube(x)
    forest = amf.UnrestrictedAMFClassifier(n_estimators, classes=range(int(y.max()) + 1), seed=7, max_bytes=10**9, **KT)
    table = forest.predict_learn(x, y)
    trees = trees_of(forest)
    cells = [chains(tree, n_cuts) for tree, n_cuts in zip(trees, n_cuts_of(forest), strict=True)]
    return list(zip(trees, cells, strict=True)), float(-np.log(table[np.arange(len(y)), y]).sum())


def log_rising(base: float, most: int) -> np.ndarray:
    """log of base (base + 1) ... (base + n - 1) for n = 0 .. most."""
    return np.concatenate([[0.0], np.cumsum(np.log(base + np.arange(most)))])


def node_losses(counts: np.ndarray) -> np.ndarray:
    """Cumulative log-loss of each node on its own samples: the closed form of Krichevsky-Trofimov."""
    n, k = counts.sum(axis=1), counts.shape[1]
    most = int(n.max())
    return log_rising(k / 2, most)[n] - log_rising(0.5, most)[counts].sum(axis=1)


def best_constant_losses(counts: np.ndarray) -> np.ndarray:
    """Log-loss of the best constant forecast of each node for its own samples."""
    n = counts.sum(axis=1, keepdims=True)
    return -(counts * np.log(np.maximum(counts, 1) / n)).sum(axis=1)


def chains(tree, n_cuts) -> np.ndarray:
    """Cells of the partition that each inner node stands for: the cuts since its parent's, its own included."""
    above = np.zeros_like(n_cuts)
    for side in (0, 1):
        above[tree.child[tree.inner] + side] = n_cuts[tree.inner]
    return np.where(tree.child > 0, n_cuts - above, 0)


def bottom_up(tree) -> list[int]:
    """Inner rows, each after those below it."""
    order, waiting = [], [0]
    while waiting:
        row = waiting.pop()
        if tree.child[row]:
            order.append(row)
            waiting += [int(tree.child[row]), int(tree.child[row]) + 1]
    return order[::-1]


def log_averaged_weight(tree, cells) -> float:
    """log of the root's averaged weight. Of a chain of c cells each stops with probability 1/2: 1 - 2**-c in all."""
    weight = -node_losses(tree.counts)
    averaged = weight.copy()
    for row in bottom_up(tree):
        below = averaged[tree.child[row]] + averaged[tree.child[row] + 1]
        passes = -int(cells[row]) * math.log(2)
        averaged[row] = np.logaddexp(math.log1p(-math.exp(passes)) + weight[row], passes + below)
    return float(averaged[0])


@pytest.mark.parametrize("name", SETS)
def test_the_log_loss_on_real_data_is_minus_the_log_of_the_averaged_weight(name):
    ((tree, cells),), loss = learned(name, 1)
    assert loss == pytest.approx(-log_averaged_weight(tree, cells), rel=1e-9)
    assert len(tree.leaves) > 100


@pytest.mark.parametrize("name", SETS)
def test_the_log_loss_on_real_data_is_below_the_bound_of_every_pruning(name):
    """Of the best one, found from the leaves upwards. A pruning that ends in a chain ends best in its first cell."""
    ((tree, cells),), loss = learned(name, 1)
    n, k = tree.counts.sum(axis=1), tree.counts.shape[1]
    exact = node_losses(tree.counts)
    with_constants = best_constant_losses(tree.counts) + (k - 1) / 2 * np.log(4 * n)
    assert (exact <= with_constants + 1e-9).all()
    for own in (exact, with_constants):
        best = own.copy()
        for row in bottom_up(tree):
            below = best[tree.child[row]] + best[tree.child[row] + 1]
            best[row] = min(math.log(2) + own[row], cells[row] * math.log(2) + below)
        assert loss <= best[0] * (1 + 1e-12)


@pytest.mark.parametrize("name", SETS)
def test_the_log_loss_on_real_data_is_below_the_bound_of_every_time_pruning(name):
    """At each time at which samples part, the tree without later cuts, pruned to the first cells of its chains."""
    ((tree, cells),), loss = learned(name, 1)
    n, k = tree.counts.sum(axis=1), tree.counts.shape[1]
    ends = np.where(tree.child > 0, math.log(2), 0.0)  # a leaf of the tree itself is not charged
    for own in (node_losses(tree.counts), best_constant_losses(tree.counts) + (k - 1) / 2 * np.log(4 * n)):
        bound = own + ends
        inner = tree.inner[np.argsort(tree.time[tree.inner])]
        left = tree.child[inner]
        steps = bound[left] + bound[left + 1] + cells[inner] * math.log(2) - bound[inner]
        bounds = bound[0] + np.concatenate([[0.0], np.cumsum(steps)])
        assert len(bounds) > 100
        assert (loss <= bounds * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", SETS)
def test_the_log_loss_of_a_forest_is_at_most_the_mean_of_its_trees(name):
    trees, loss = learned(name, 3)
    losses = [-log_averaged_weight(tree, cells) for tree, cells in trees]
    assert loss <= np.mean(losses)
    assert len({*losses}) == 3
