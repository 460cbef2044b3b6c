"""A row of features with their squares and the products of any two of them, of which a linear model is a surface.

Such are an optimum between too little and too much, and an effect that another feature changes: a tree learns them cell
by cell. The terms of a feature stand together: the feature, then its products with each of those before it and with
itself; so those of later features come behind. Of more than eight features the first eight are used, which have 44.
"""

from __future__ import annotations

import numpy as np

from amf.calibration.ridge import Penalty
from amf.jit.decorators import index, inlined

_MOST_FEATURES = 8
"""For whose terms a state of 9 kB is kept, by which ten trees that have learned 20 rows take a sixth more memory; for
ten features it would be a third."""

PENALTY = Penalty(rows=4.0, least_deviation=1.0)
"""Features are in units of their deviations: of one that is new, or hardly ever off its mean, few rows tell much."""


def n_terms(n_features: int) -> int:
    """Of so many features."""
    n_used = min(n_features, _MOST_FEATURES)
    return n_used * (n_used + 3) // 2


@inlined
def n_terms_of(n_features):
    """`n_terms`, in kernels."""
    n_used = min(n_features, index(_MOST_FEATURES))
    return n_used * (n_used + index(3)) // index(2)


@inlined
def fill_terms(x, i, entered, terms):
    """Fill terms, float64 (n_terms,), be there none of them, with those of row i: NaN where a feature is missing.
    entered: float64, begins with the features as they enter linear models."""
    n_terms, at, j = index(terms.shape[0]), index(0), index(0)
    while at < n_terms:
        terms[at] = entered[j] if x[i, j] == x[i, j] else np.nan
        for k in range(j + index(1)):
            terms[at + index(1) + k] = terms[at] * terms[n_terms_of(k)]
        at += j + index(2)
        j += index(1)


@inlined
def share_out(effects, moves):
    """Add to moves (d, 1) the effects of terms, those of a product half to each of its features."""
    at, j = index(0), index(0)
    while at < index(effects.shape[0]):
        moves[j, 0] += effects[at]
        for k in range(j + index(1)):
            half = 0.5 * effects[at + index(1) + k]
            moves[j, 0] += half
            moves[k, 0] += half
        at += j + index(2)
        j += index(1)
