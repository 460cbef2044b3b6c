"""Exact averaging over all prunings of a tree with one number per node: the odds of stopping there.

odds = w / (averaged weight of left * averaged weight of right); the posterior probability that a pruning which
reaches the node stops at it is odds / (1 + odds). It equals q of [AMF] Alg. 3, and the path sum of the forecasts with
these probabilities equals the average over all prunings with the prior 2**-(number of inner nodes) ([AMF] Eq. 21-27).
"""

from __future__ import annotations

import numpy as np

from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import power_of_two
from amf.memory.arena import N_CUTS, ODDS
from amf.memory.paths import head_at

# The odds of a node that has seen a million samples can leave the range of float64; beyond these bounds the
# probability of stopping is 0 or 1 to the last bit anyway.
SMALLEST_ODDS = 1e-250
LARGEST_ODDS = 1e250


@inlined
def stop_probability(odds):
    """Posterior probability of stopping at an inner node, given that it is reached."""
    return odds / (1.0 + odds)


@inlined
def chain_odds(odds, n_cells):
    """Odds of stopping in one of several cells with the same forecast, of those of stopping in a single one.

    n_cells: >= 1, one below the other, of which only the last has samples on both sides of its cut
    (cell_walk.py).
    """
    # Beyond a thousand cells the chain is passed with probability 0 to the last bit, and a float64 would overflow.
    return clamped(odds * (power_of_two(min(n_cells, 1000)) - 1.0))


@inlined
def odds_of_split(odds, was_leaf, forecast, fresh_forecast):
    """A sample split a node: (odds of the new parent, averaged forecast that goes up).

    odds: those of the node before the sample. forecast: what the node gave to the label. fresh_forecast: what the
    fresh leaf is charged for its first sample (1: nothing).
    """
    weight = 1.0 if was_leaf else 2.0 * stop_probability(odds)
    return clamped(weight * forecast / fresh_forecast), 0.5 * (weight * forecast + fresh_forecast)


@inlined
def average(stop, forecast, from_below):
    """Averaged forecast of a label at an inner node: of its own and of the averaged one of its child on the path.

    stop: the probability of stopping at the node.
    """
    return stop * forecast + (1.0 - stop) * from_below


@inlined
def revised(odds, forecast, from_below):
    """Odds of an inner node after a label, to which it gave `forecast`, and its child on the path `from_below`."""
    return clamped(odds * forecast / from_below)


@inlined
def clamped(odds):
    """Keep odds finite and positive; NaN, of which all comparisons are false, becomes the smallest."""
    positive = odds if odds > SMALLEST_ODDS else SMALLEST_ODDS
    return positive if positive < LARGEST_ODDS else LARGEST_ODDS


@inlined
def cuts_above(nodes, path, k):
    """Cuts that have made the first cell of the node at this place of a path (cell_walk.py)."""
    return np.int64(nodes.ints[head_at(nodes, path, k - index(1)) + N_CUTS]) if k > index(0) else 0


@inlined
def fill_stopping(aggregates, in_chains, nodes, path, numbers):
    """Fill the odds of a single cell of the inner nodes of a path, and the probabilities of stopping there, or 0.

    in_chains: whether a node stands for several cells; else for one.
    """
    for k in range(path.length - index(1)):
        numbers.odds[k] = nodes.reals[head_at(nodes, path, k) // index(2) + ODDS]
    for k in range(path.length - index(1)):
        odds = numbers.odds[k]
        if in_chains:
            cuts = np.int64(nodes.ints[head_at(nodes, path, k) + N_CUTS])
            odds = chain_odds(odds, cuts - cuts_above(nodes, path, k))
        numbers.stopping[k] = stop_probability(odds) if aggregates else 0.0


@inlined
def revise(nodes, path, numbers, averaged, from_below):
    """The upward pass: new odds of the nodes of a path. from_below: averaged forecast of what is below these.

    averaged: float64, used up, as the odds among the numbers are.
    """
    odds, stopping, given = numbers.odds, numbers.stopping, numbers.given
    # In three loops, of which the middle one, with the division, takes several nodes at a time.
    for j in range(path.length):
        k = path.length - index(1) - j
        averaged[k] = from_below
        from_below = average(stopping[k], given[k], from_below)
    for k in range(path.length):
        odds[k] = revised(odds[k], given[k], averaged[k])
    for k in range(path.length):
        nodes.reals[head_at(nodes, path, k) // index(2) + ODDS] = odds[k]


@called
def mean_over_trees(forecasts, mean):
    """Mean of float64 (n_trees, n, k) over trees, always added in their order: threads must not change a bit."""
    n_trees = forecasts.shape[0]
    for i in range(mean.shape[0]):
        for k in range(forecasts.shape[2]):
            total = 0.0
            for tree in range(n_trees):
                total += forecasts[tree, i, k]
            mean[i, k] = total / n_trees
