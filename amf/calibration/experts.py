"""A mixture of 31 experts: what is made of a mean over trees, in which classes, by how such forecasts did so far.

Each expert takes the mean for more or for less than it says:

    forecast(k) ~ prior(k) ** (1 - g) * mean(k) ** g

where `prior` are the class frequencies so far, `mean` is a power mean over trees of exponent 1, 1/2 or 1/4 (the smaller
the exponent, the more counts a tree that all but excludes a class), and the sharpness g is a quarter, a half, ..., two,
three or four. One more expert is the prior itself, g = 0. Of a class that is rare the plain mean, of exponent 1, may
tell most: there no share of the uniform distribution drowns what single trees say of it. The forest forecasts the
mixture of all experts with fixed shares [1]: the weights follow Bayes' rule, and with each label all experts share a
small part of them, so that another one can lead after a change. Its log-loss exceeds that of the best expert by at most
log(31) and the shares, 0.0005 a label, and that of a sequence of experts by about log(31 / 0.0005) for each change
between them.

Powers take square roots and products alone, so that their bits are those of IEEE arithmetic.

state: the weights of the experts, their sum 1.

[1] M. Herbster and M. Warmuth, Tracking the best expert, Machine Learning 32, 1998.
"""

from __future__ import annotations

import math

from amf.jit.decorators import index, inlined

N_MEANS = 3
"""Over trees: the plain one, which is what a forecast without calibration is, and those of exponents 1/2 and 1/4."""
N_EXPERTS = index(31)
_FINE = index(25)
"""Experts of a sharpness up to 2, which are quarters, and that of the prior; the last ones are whole numbers."""
_SHARE = 5e-4
"""What each label moves of the weights to all experts."""
_UNIFORM_SHARE = 1e-2
"""Of the uniform distribution in a tree's forecast, before a mean of small exponent: no tree may exclude a class."""
PRIOR_SHARE = 1e-3
"""Of the prior in a mean over trees: one unexpected label must not cost the forest all of its weight."""
_FIRST_OF_PRIOR = 0.2
"""Weight of the prior among the experts before there is a label."""
_LESS_FOR_A_QUARTER = 0.75
"""Of the weight of an expert before there is a label, what one has that is a quarter further from a sharpness of 1."""


def _first_weights() -> list[float]:
    """Weights of the experts before there is a label: of forests that know little the sharpest ones are often wrong."""
    quarters = (quarter for quarter in (*range(1, 9), 12, 16) for _ in range(N_MEANS))
    weights = [_LESS_FOR_A_QUARTER ** abs(quarter - 4) for quarter in quarters]
    return [_FIRST_OF_PRIOR, *((1.0 - _FIRST_OF_PRIOR) / sum(weights) * weight for weight in weights)]


FIRST_WEIGHTS = _first_weights()


@inlined
def means_over_trees(forecasts, i, means):
    """Fill means (3, K): the plain mean over trees, always added in their order, and those of exponents 1/2 and 1/4."""
    n_trees, n_classes = index(forecasts.shape[0]), index(forecasts.shape[2])
    uniform = _UNIFORM_SHARE / n_classes
    for k in range(n_classes):
        means[0, k] = means[1, k] = means[2, k] = 0.0
    for tree in range(n_trees):
        for k in range(n_classes):
            forecast = forecasts[tree, i, k]
            root = math.sqrt((1.0 - _UNIFORM_SHARE) * forecast + uniform)
            means[0, k] += forecast
            means[1, k] += root
            means[2, k] += math.sqrt(root)
    of_roots, of_fourth_roots = 0.0, 0.0
    for k in range(n_classes):
        means[0, k] /= n_trees
        means[1, k] *= means[1, k]
        means[2, k] *= means[2, k]
        means[2, k] *= means[2, k]
        of_roots += means[1, k]
        of_fourth_roots += means[2, k]
    for k in range(n_classes):
        means[1, k] /= of_roots
        means[2, k] /= of_fourth_roots


@inlined
def ask_experts(means, prior, experts, totals):
    """Fill experts (K, experts) with their forecasts up to a factor, and totals (experts,) with their sums."""
    for e in range(N_EXPERTS):
        totals[e] = 0.0
    for k in range(index(prior.shape[0])):
        powers = prior[k], prior[k], prior[k]
        steps = _step(means[0, k], prior[k]), _step(means[1, k], prior[k]), _step(means[2, k], prior[k])
        experts[k, 0] = prior[k]
        for e in range(index(1), N_EXPERTS, index(N_MEANS)):
            for _ in range(index(1) if e < _FINE else index(4)):
                powers = powers[0] * steps[0], powers[1] * steps[1], powers[2] * steps[2]
            experts[k, e], experts[k, e + index(1)], experts[k, e + index(2)] = powers
        for e in range(N_EXPERTS):
            totals[e] += experts[k, e]


@inlined
def _step(mean, prior):
    """Fourth root of how many times more likely than by the prior a class is by a mean over trees."""
    return math.sqrt(math.sqrt((mean + PRIOR_SHARE * (prior - mean)) / prior))


@inlined
def judge_experts(label, mixture, experts, shares, state):
    """Weigh the experts by one label, to which their mixture gave this probability."""
    for e in range(N_EXPERTS):
        weight = shares[e] * experts[label, e] / mixture
        state[e] = weight + _SHARE * (1.0 / N_EXPERTS - weight)


@inlined
def sharpness_of(state):
    """That of the experts, in the mean."""
    quarters, mean = index(0), 0.0
    for e in range(index(1), N_EXPERTS, index(N_MEANS)):
        quarters += index(1) if e < _FINE else index(4)
        for each in range(e, e + index(N_MEANS)):
            mean += 0.25 * quarters * state[each]
    return mean
