"""The forecast of a regression forest, made of what its trees say, by what came true of its earlier forecasts.

The mean is the least-squares blend, over the forest's own past, of the aggregate over prunings, the mean of the leaves
and the mean of all labels: on pure noise the last of them wins, on a series without noise the leaves, on most data the
aggregate. The spread is that of the mixture over prunings and trees, stretched below and above by factors that follow
the labels which fell outside of the 5 % and the 95 % quantile (adaptive conformal inference), so that these are what
they are called. Both are state of the forest and change with labelled rows only, one row after the other.
"""

from __future__ import annotations

import math

from amf._kernel import inlined, kernel
from amf.elementary import exp
from amf.systems.amf_regressor import AGGREGATE, LEAF, VARIANCE

# Sums over past rows with a = aggregate - leaf, r = mean of labels - leaf, g = label - leaf; mean and number of labels;
# logarithms of the stretches and the number of labels that they have followed.
_AA, _AR, _RR, _AG, _RG, _MEAN, _LABELS, _DOWN, _UP, _FOLLOWED = range(10)
N_OUTLOOK = 10
MEAN, BELOW, ABOVE = range(3)
"""What the forest says of a sample: its mean, and the standard deviations below and above it."""

_TAIL = 0.05
_TAIL_QUANTILE = 1.6448536269514722
_LARGEST_STRETCH = 5.0


@kernel
def look_out(forecasts, labels, labelled, blends, outlook, said):
    """Fill said: float64 (n, 3), from forecasts: float64 (n_trees, n, 3), and learn from the labels, row by row."""
    n_trees = forecasts.shape[0]
    for i in range(said.shape[0]):
        aggregate, leaf, variance = 0.0, 0.0, 0.0
        for tree in range(n_trees):
            aggregate += forecasts[tree, i, AGGREGATE]
            leaf += forecasts[tree, i, LEAF]
            variance += forecasts[tree, i, VARIANCE]
        aggregate /= n_trees
        leaf /= n_trees
        for tree in range(n_trees):
            beside = forecasts[tree, i, AGGREGATE] - aggregate
            variance += beside * beside
        spread = math.sqrt(variance / n_trees)
        mean = _blend(aggregate, leaf, outlook) if blends else aggregate
        said[i, MEAN] = mean
        said[i, BELOW] = spread * exp(outlook[_DOWN])
        said[i, ABOVE] = spread * exp(outlook[_UP])
        if labelled[i]:
            label = labels[i]
            if mean == mean:
                if spread > 0.0:
                    _stretch(label - mean, said[i, BELOW], said[i, ABOVE], outlook)
                _remember(aggregate - leaf, outlook[_MEAN] - leaf, label - leaf, outlook)
            outlook[_LABELS] += 1.0
            outlook[_MEAN] += (label - outlook[_MEAN]) / outlook[_LABELS]


@inlined
def _blend(aggregate, leaf, outlook):
    """Leaf + alpha (aggregate - leaf) + beta (mean of labels - leaf) with the best alpha and beta of the past."""
    # Sums that differ by rounding alone say nothing: the plain aggregate stands, or a blend of two.
    alpha, beta = 1.0, 0.0
    if outlook[_AA] > 1e-12 * outlook[_RR]:
        ratio = outlook[_AR] / outlook[_AA]
        rest = outlook[_RR] - ratio * outlook[_AR]
        if rest > 1e-6 * outlook[_RR]:
            beta = (outlook[_RG] - ratio * outlook[_AG]) / rest
        alpha = (outlook[_AG] - beta * outlook[_AR]) / outlook[_AA]
        alpha = min(max(alpha, -1.0), 1.0)
        beta = min(max(beta, -0.5), 1.0)
    return leaf + alpha * (aggregate - leaf) + beta * (outlook[_MEAN] - leaf)


@inlined
def _remember(a, r, g, outlook):
    outlook[_AA] += a * a
    outlook[_AR] += a * r
    outlook[_RR] += r * r
    outlook[_AG] += a * g
    outlook[_RG] += r * g


@inlined
def _stretch(miss, below, above, outlook):
    """Follow one label: a miss widens its side, a hit narrows both a little, so that a twentieth misses each."""
    gain = max(20.0 / (outlook[_FOLLOWED] + 20.0), _TAIL)
    under = 1.0 if miss < -_TAIL_QUANTILE * below else 0.0
    over = 1.0 if miss > _TAIL_QUANTILE * above else 0.0
    outlook[_DOWN] = min(max(outlook[_DOWN] + gain * (under - _TAIL), -_LARGEST_STRETCH), _LARGEST_STRETCH)
    outlook[_UP] = min(max(outlook[_UP] + gain * (over - _TAIL), -_LARGEST_STRETCH), _LARGEST_STRETCH)
    outlook[_FOLLOWED] += 1.0
