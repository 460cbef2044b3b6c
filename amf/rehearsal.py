"""The samples of an adaptive forest as its reviews see them: counted in tables, and the first ones kept for rehearsals.

What both are good for says adaptation.py, whose state they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf._kernel import called, inlined
from amf.arena import ROOT
from amf.scaling import in_order
from amf.univariate import N_RECENT, Kind, bound_feature, bound_labels, count


def rows_before(rows: Any, n_samples: Any, n_labels: Any, review_every: Any, n_kept: Any) -> Any:
    """How many rows a tree with so many may have, but for two for each label, in a call that brings so many labels.

    Trees that rehearse have up to two rows for each sample so far. Numbers, or arrays one by one.
    """
    # The next review at which they do so has the next power of two for its number.
    _, digits = np.frexp(n_samples // review_every)
    rehearses = np.ldexp(review_every, digits) <= np.minimum(n_samples + n_labels, n_kept)
    return np.where(rehearses, np.maximum(rows, 2 * n_samples + int(ROOT)), rows)


@inlined
def is_due(state, n_samples, n_reviews):
    """Whether a review is one in which trees rehearse: its number is a power of two, and all samples are kept."""
    return n_samples <= state.kept_labels.shape[0] and n_reviews & (n_reviews - 1) == 0


@called
def kept_rows(state, n):
    """The values of the first n samples: a view (n, d)."""
    d = state.gains.shape[0]
    return state.kept[: n * d].reshape((n, d))


@called
def bound(state, features, n_samples):
    """Let the bins of features and the groups of labels have new bounds."""
    bound_labels(state.recent, n_samples, state.label_bounds)
    for j in range(state.gains.shape[0]):
        if features.moves[j] > 0:
            values = in_order(features.pairs, j, features.moves[j], features.strides[j])
            bound_feature(values, state.bounds, j)


def remember_of(kind: Kind) -> Any:
    """The function that takes in rows that were learned, for kernels."""
    group_of = kind.group

    @called
    def remember(state, x, labels, labelled, n_samples):
        """Count the labels of rows x, float64 (n, d), and keep the first ones. n_samples: labelled ones, with these."""
        d, sample = state.gains.shape[0], n_samples
        for i in range(x.shape[0]):
            sample -= labelled[i]
        for i in range(x.shape[0]):
            if labelled[i]:
                state.recent[sample % N_RECENT] = labels[i]
                if sample < state.kept_labels.shape[0]:
                    state.kept_labels[sample] = labels[i]
                    for j in range(d):
                        value = x[i, j]
                        state.kept[sample * d + j] = value if value == value else np.nan
                count(state.table, state.bounds, x, i, group_of(labels[i], state.label_bounds))
                sample += 1

    return remember


def recount_of(kind: Kind) -> Any:
    """The function that counts kept samples anew, in the bins of today; for kernels."""
    group_of = kind.group

    @called
    def recount(state, n):
        """Count the first n samples, and these alone."""
        state.table[:] = 0.0
        x = kept_rows(state, n)
        for i in range(n):
            count(state.table, state.bounds, x, i, group_of(state.kept_labels[i], state.label_bounds))

    return recount
