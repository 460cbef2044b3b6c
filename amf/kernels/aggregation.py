"""Exact averaging over all prunings of a tree with one number per node: the odds of stopping there.

odds = w / (averaged weight of left * averaged weight of right); the posterior probability that a pruning which
reaches the node stops at it is odds / (1 + odds). It equals q of [AMF] Alg. 3, and the path sum of the forecasts with
these probabilities equals the average over all prunings with the prior 2**-(number of inner nodes) ([AMF] Eq. 21-27).
"""

from __future__ import annotations

from amf.jit.decorators import called, inlined
from amf.jit.elementary import power_of_two

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
