"""Whether the world has changed so much that a forest had better begin anew.

Trees never forget, and background trees replace them one by one, which takes a thousand samples after an abrupt change.
So a forest watches the loss of its active trees. It is in one of four phases:

BEGINS: it keeps its first samples, and rehearses (rehearsal.py). This ends with the last rehearsal.

WATCHES: of the mean loss between two reviews it knows the mean and the variance of earlier reviews, the older ones for
less. By how much it exceeds the mean and one standard deviation is summed up (a cumulative sum [1]); a sum below zero
is none, and no samples are kept then. The samples of the reviews that are summed up are kept, and where the sum exceeds
2.5 standard deviations, and the losses speak for a change by 16 nats, the forest suspects that the world has changed
with the first of them; or with the last review alone, where that adds as much by itself. So a change that doubles the
loss is seen at the next review as a rule, and one that adds a third to it some reviews later. Until then these losses,
too, are taken for usual, each a little. Where all samples that are ever kept do not suffice, the sum begins anew. Of
eight reviews at least the loss has to be known before. A change of noise alone looks the same, and may be taken for one
of the world.

SUSPECTS: if a single review was enough, and the loss until the next one exceeds the usual one by no more than 2
standard deviations, it was chance, or has passed. Else the background trees start anew when two, four, eight times as
many samples are kept as there are between reviews, and learn the kept samples alone, under the weights that these alone
teach. If they forecast the second half of them better than the active trees did, by a tenth of the loss and by 16 nats,
then what the others knew before was worth less than nothing of late. If they never do, the forest watches again, and
takes the loss for usual. While one class comes all the time, a tree that knows no other is right without a look at the
features: where labels are alike (univariate.py) that is no reason to forget the other classes.

COMPARES: a burst of wrong labels looks like a change while it lasts. So the better half of the trees, but no more than
the active ones, stay as they are and go on learning, and all others start anew with the kept samples. After each label
those of the two forecast that have lost less lately, where a loss counts 1 / e after 16 samples: when a burst is over,
the old trees are heard again within some ten samples. If the new ones forecast at a later review with twice or four
times as many samples, the forest begins anew with all that are kept. If they do not when no more are kept, they start
anew in the background, and the old trees go on; others become active as soon as they stand by. Where it takes all the
samples that are ever kept to find new trees better, the forest begins anew at once.

A forest without background trees watches nothing. A forest that does begin anew keeps its calibration, which follows
changes by itself.

[1] E. S. Page, Continuous inspection schemes, Biometrika 41, 1954.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amf.adaptation.feature_weights import EVIDENCE, KEPT
from amf.adaptation.state import (
    ACTIVE,
    BEGINS,
    COMPARES,
    LAST_LOSSES,
    SILENT,
    SUSPECTS,
    WATCHES,
    new_trees_forecast_compiled,
)
from amf.adaptation.tree_roles import n_active
from amf.adaptation.univariate import Kind
from amf.jit.decorators import called, inlined

_ALLOWED, _UNUSUAL = 1.0, 2.5
"""Standard deviations by which the loss between two reviews may exceed the usual one, and the sum of what is beyond."""
_DEVIATIONS_AFTER = 2.0
"""By which it has to exceed the usual one after a single review at which it did."""
_LEAST_REVIEWS = 8.0
"""Reviews of which the usual loss has to be the mean before another one can be unusual."""
_BETTER = 0.9
"""A background tree is better than the active ones if its loss is less than theirs times this."""
_SURPRISE = 0.5
"""Weight of a loss that was taken for a change and is none in the usual loss."""


@inlined
def _take_for_usual(state, loss, rate):
    off = loss - state.usual[0]
    state.usual[0] += rate * off
    state.usual[1] = (1.0 - rate) * (state.usual[1] + rate * off * off)
    state.usual[2] += 1.0


@inlined
def _keep_the_last(state, kept, n):
    """Of so many kept samples only the last n stay."""
    d, first = state.weights.shape[0], kept - n
    if first > 0:
        for i in range(kept):
            state.kept_labels[i] = state.kept_labels[first + i] if i < n else 0.0
        for k in range(kept * d):
            state.kept[k] = state.kept[first * d + k] if k < n * d else 0.0
        state.beginning[0] += first


def make_watch(kind: Kind) -> Any:
    """The function that suspects changes, for kernels."""
    nats = kind.nats

    @inlined
    def watch(state, loss, review_every, most_kept, kept):
        """Suspect a change, or take the mean loss since the last review for a usual one.

        kept: samples that are. Returns how many of them still are.
        """
        known, has_background = state.usual[2], False
        for tree in range(state.roles.shape[0]):
            has_background |= state.roles[tree] != ACTIVE
        usual, deviation = state.usual[0], math.sqrt(state.usual[1])
        allowed = usual + _ALLOWED * deviation
        room = min(most_kept, state.kept_labels.shape[0])
        if kept > room:
            # Features came, and left room for fewer samples than are kept.
            state.excess[0] = 0.0
        elif has_background and known >= _LEAST_REVIEWS and 2 * review_every <= most_kept:
            if loss - allowed > _UNUSUAL * deviation:
                _keep_the_last(state, kept, review_every)
                kept, state.excess[0] = review_every, 0.0
            state.excess[0] = max(state.excess[0] + loss - allowed, 0.0)
        since = allowed + state.excess[0] * review_every / kept
        if state.excess[0] > _UNUSUAL * deviation and nats(since, usual, kept) >= EVIDENCE:
            state.phase[0], state.excess[0] = SUSPECTS, 0.0
        else:
            _take_for_usual(state, loss, max(1.0 / (known + 1.0), 1.0 - KEPT))
        return kept

    return watch


@inlined
def is_still_unusual(state, loss):
    """Whether what looked like a change between two reviews does so between the next two."""
    return loss > state.usual[0] + _DEVIATIONS_AFTER * math.sqrt(state.usual[1])


def make_is_out_of_date(kind: Kind) -> Any:
    """The function that tells whether a forest had better begin anew, for kernels."""
    nats, trivial = kind.nats, kind.trivial

    @inlined
    def is_out_of_date(state, loss, n):
        """Whether trees that knew the n kept samples alone, and have this mean loss, were better than active ones."""
        active = state.suspected[0] / (n // 2)
        is_better = loss < _BETTER * active and nats(active, loss, n // 2) >= EVIDENCE
        return is_better and loss < trivial(state.table, state.kept_labels[n // 2 : n])

    return is_out_of_date


@inlined
def keep_nothing(state, n_samples):
    """Watch from now on, after the samples so far. What was kept leaves no trace: the room for it may come and go."""
    n = min(n_samples - np.int64(state.beginning[0]), state.kept_labels.shape[0])
    for i in range(n):
        state.kept_labels[i] = 0.0
    for k in range(n * state.weights.shape[0]):
        state.kept[k] = 0.0
    state.phase[0], state.beginning[0] = WATCHES, n_samples
    state.excess[0] = state.suspected[0] = 0.0


@called
def stop_suspecting(state, n_samples, n):
    """There was no change, though the last n samples may have looked like one."""
    _take_for_usual(state, state.suspected[0] / n, _SURPRISE)
    keep_nothing(state, n_samples)


def make_compare(loss_of: Any) -> Any:
    """The function that takes in what new trees and old ones lose, for kernels. loss_of: see Adapting of reviews.py."""

    @called
    def compare(state, forecasts, i, label):
        """Compare what the trees forecast of row i."""
        of_active, n_active, of_others, n_others = 0.0, 0.0, 0.0, 0.0
        for tree in range(state.roles.shape[0]):
            loss = loss_of(forecasts, tree, i, label)
            if loss == loss and state.roles[tree] == ACTIVE:
                of_active += loss
                n_active += 1.0
            elif loss == loss:
                of_others += loss
                n_others += 1.0
        lag = 0.0
        if n_active > 0.0 and n_others > 0.0:
            lag = of_active / n_active - of_others / n_others
        return (1.0 - 1.0 / LAST_LOSSES) * state.lag[0] + (lag if new_trees_forecast_compiled(state) else -lag)

    return compare


@inlined
def let_the_better_forecast(state, lag):
    """Let those trees forecast that have lost less lately."""
    if (lag <= 0.0) != (state.lag[0] <= 0.0):
        _swap_roles(state)
    state.lag[0] = lag


@inlined
def _swap_roles(state):
    for tree in range(state.roles.shape[0]):
        state.roles[tree] = SILENT if state.roles[tree] == ACTIVE else ACTIVE


@called
def begin_to_compare(state):
    """Let the background trees, which are silent, forecast in place of the active ones."""
    state.phase[0], state.lag[0] = COMPARES, 0.0
    _swap_roles(state)


@called
def end_comparing(state):
    """Let the old trees be the active ones again."""
    if new_trees_forecast_compiled(state):
        _swap_roles(state)
    state.phase[0], state.lag[0] = SUSPECTS, 0.0


@called
def begin(state):
    """Let the kept samples be the first ones, after background trees were tried with them."""
    state.phase[0] = BEGINS
    state.usual[:] = 0.0
    state.gains[:] = 0.0
    n = n_active(state)
    state.swaps[0] += n
    for tree in range(state.roles.shape[0]):
        # All trees are about to learn the same samples.
        if state.roles[tree] != ACTIVE and n < state.to_be_active[0]:
            state.roles[tree] = ACTIVE
            n += 1
