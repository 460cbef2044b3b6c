"""The samples of an adaptive forest as its reviews see them: counted in tables, and the first ones kept for rehearsals.

The first samples are kept, as they came. At reviews 1, 2, 4, 8 and so on, as long as all samples are still there, the
trees start anew and learn them once more under the weights of today. They are judged by what they forecast on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.adaptation.univariate import N_RECENT, Kind, bound_feature, count
from amf.geometry.scaling import in_order
from amf.jit.decorators import called, inlined
from amf.memory.arena import ROOT

_LEAST_ROOM = 16


def rows_before(rows: Any, n_labels: Any, review_every: Any, kept: Any, most_kept: Any) -> Any:
    """How many rows a tree with so many may have, but for two for each label, in a call that brings so many labels.

    Trees that rehearse have up to two rows for each of the kept samples, of which there are so many. Numbers, or
    arrays one by one.
    """
    # The first kept samples may be left out on the way (change_detection.py): any review may be one at which they do
    # so.
    is_reviewed = kept % review_every + n_labels >= review_every
    rehearses = is_reviewed & (np.minimum(kept + n_labels, most_kept) >= review_every) & (most_kept > 0)
    return np.where(rehearses, np.maximum(rows, 2 * np.minimum(kept, most_kept) + int(ROOT)), rows)


def room_to_keep(n_samples: int, review_every: int, kept: int, most_kept: int) -> int:
    """For how many samples there should be room where so many are kept: at least for those between two reviews."""
    wanted = max(kept, min(n_samples, review_every), _LEAST_ROOM)
    return min(1 << (wanted - 1).bit_length(), most_kept)


def lacks_room(room: Any, n_labels: Any, kept: Any, most_kept: Any) -> Any:
    """Whether so many labels may bring samples to keep for which there is no room. Numbers, or arrays one by one."""
    return room < np.minimum(kept + n_labels, most_kept)


def has_room_to_spare(room: Any, review_every: Any, kept: Any) -> Any:
    """Whether there is room for far more samples than are kept. Numbers, or arrays one by one."""
    return room > 2 * np.maximum(np.maximum(kept, review_every), _LEAST_ROOM)


@inlined
def is_due(n, review_every, most_kept):
    """Whether a review with so many kept samples is one in which trees rehearse: 1, 2, 4 ... reviews, and all kept."""
    turns = n // review_every
    return n <= most_kept and turns & (turns - 1) == 0


@called
def kept_rows(state, n):
    """The values of the first n samples: a view (n, d)."""
    d = state.weights.shape[0]
    return state.kept[: n * d].reshape((n, d))


def make_bound(kind: Kind) -> Any:
    """The function that lets the bins of features and the groups of labels have new bounds, for kernels."""
    part = kind.part

    @called
    def bound(state, features, n_samples):
        """Let them have those of today."""
        part(state.recent, n_samples, state.groups)
        for j in range(state.weights.shape[0]):
            if features.moves[j] > 0:
                values = in_order(features.pairs, j, features.moves[j], features.strides[j])
                bound_feature(values, state.bounds, j)

    return bound


def make_remember(kind: Kind) -> Any:
    """The function that takes in rows that were learned, for kernels."""
    group_of = kind.group

    @called
    def remember(state, x, labels, labelled, n_samples):
        """Count the labels of rows x, float64 (n, d), and keep those for which there is room.

        n_samples: labelled ones, with these.
        """
        d, sample = state.weights.shape[0], n_samples
        for i in range(x.shape[0]):
            sample -= labelled[i]
        for i in range(x.shape[0]):
            if labelled[i]:
                state.recent[sample % N_RECENT] = labels[i]
                at = sample - np.int64(state.beginning[0])
                if at < state.kept_labels.shape[0]:
                    state.kept_labels[at] = labels[i]
                    for j in range(d):
                        value = x[i, j]
                        state.kept[at * d + j] = value if value == value else np.nan
                low, high = group_of(labels[i], state.groups)
                count(state.table, state.bounds, x, i, low, high)
                sample += 1

    return remember


def make_recount(kind: Kind) -> Any:
    """The function that counts kept samples anew, in the bins of today; for kernels."""
    group_of = kind.group

    @called
    def recount(state, n):
        """Count the first n samples, and these alone."""
        state.table[:] = 0.0
        x = kept_rows(state, n)
        for i in range(n):
            low, high = group_of(state.kept_labels[i], state.groups)
            count(state.table, state.bounds, x, i, low, high)

    return recount
