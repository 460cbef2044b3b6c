"""What a forest that adapts does every so many labelled samples (adaptation/)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amf.adaptation import change_detection, feature_weights, rehearsal, tree_roles
from amf.adaptation.state import (
    ACTIVE,
    BEGINS,
    COMPARES,
    SILENT,
    STANDING_BY,
    SUSPECTS,
    WATCHES,
    new_trees_forecast_compiled,
)
from amf.adaptation.univariate import N_RECENT, Kind
from amf.geometry.scaling import centre
from amf.jit.decorators import called, index
from amf.jit.linking import call_kernel
from amf.kernels.views import features_of, nodes_of, padded, weigh
from amf.memory.binding import MOST_KEPT, N_FEATURES, N_OUTPUTS, N_TREES, REVIEW_EVERY, WALK

_AT_ONCE = 16
"""Samples of which the forecasts of rehearsing trees are held at once."""


class Adapting(NamedTuple):
    """What forests that adapt know of labels."""

    loss_of: Callable[..., Any]
    """(forecasts, tree, i, label) -> the loss >= 0 of what a tree said of row i, for kernels."""
    kind: Kind
    """Of the labels."""


def _make_rehearse(loss_of: Any) -> Any:
    """The function by which trees learn kept samples, for kernels."""

    judge = tree_roles.make_judge(loss_of)

    @called
    def rehearse(words, state, first, last, n, labels):
        """Let trees [first, last) start anew and learn the n kept samples.

        Returns the mean loss of what they forecast of the second half, before they learned it.
        labels: any, of the type of theirs.
        """
        features, stride, n_trees = features_of(words), np.intp(padded(words[N_FEATURES])), np.intp(words[N_TREES])
        nodes, n_outputs = nodes_of(words), np.intp(words[N_OUTPUTS])
        for tree in range(first, last):
            tree_roles.restart(nodes, state, tree)
        x, rows = rehearsal.kept_rows(state, n), np.empty((n, stride), np.float32)
        centre(x, np.int64(0), n, features.origin, rows, np.int64(0))
        table, values, labelled = np.empty((2, stride), np.float32), np.empty(n, labels.dtype), np.ones(n, np.bool_)
        for row in range(2):
            weigh(features.weights, state.weights, table, row)
        for i in range(n):
            values[i] = state.kept_labels[i]
        said, way = np.empty(n_trees * _AT_ONCE * n_outputs), np.empty(n_trees * _AT_ONCE * 2)
        total = 0.0
        for start in range(0, n, _AT_ONCE):
            here = slice(start, min(start + _AT_ONCE, n))
            size = here.stop - here.start
            forecasts = said[: n_trees * size * n_outputs].reshape((n_trees, size, n_outputs))
            depths = way[: n_trees * size * 2].reshape((n_trees, size, 2))
            call_kernel(
                words[WALK],
                (
                    words, first, last, rows[here], table, np.full(1, size), values[here], labelled[here], True,
                    forecasts, depths,
                ),
            )  # fmt: skip
            for i in range(size):
                loss = judge(state, forecasts, i, values[start + i], first, last, words[REVIEW_EVERY])
                total += loss if start + i >= n // 2 else 0.0
        # What these samples say about the features has been counted before.
        state.tree_gains[:] = 0.0
        return total / (n - n // 2)

    return rehearse


def _make_rehearsals(rehearse: Any, kind: Kind) -> Any:
    """The functions by which all trees learn the kept samples, or the background trees alone, for kernels."""
    weigh_features, recount = feature_weights.make_weigh_features(kind), rehearsal.make_recount(kind)
    is_out_of_date = change_detection.make_is_out_of_date(kind)

    @called
    def learn_weights(state, features, n):
        """Let features have the weights that the n kept samples teach."""
        recount(state, n)
        weigh_features(state, features.moves)

    @called
    def rehearse_all(words, state, n, labels):
        """Let all trees learn the n kept samples once more, under the weights that these teach."""
        learn_weights(state, features_of(words), n)
        rehearse(words, state, index(0), words[N_TREES], n, labels)
        for tree in range(words[N_TREES]):
            state.roles[tree] = max(state.roles[tree], STANDING_BY)

    @called
    def try_anew(words, state, n, labels):
        """Whether background trees that start anew with the n kept samples are better than the active ones.

        All but these trees is as it was.
        """
        table, weights, gains = state.table.copy(), state.weights.copy(), state.gains.copy()
        state.gains[:] = 0.0
        learn_weights(state, features_of(words), n)
        total, n_background = 0.0, 0.0
        for tree in range(words[N_TREES]):
            if state.roles[tree] != ACTIVE:
                state.swaps[0] += state.births[tree] != state.beginning[0]
                total += rehearse(words, state, tree, tree + index(1), n, labels)
                n_background += 1.0
                state.roles[tree] = SILENT
                # These losses were judged beside nothing.
                tree_roles.forget_losses(state, tree)
        state.table[:], state.weights[:], state.gains[:] = table, weights, gains
        return is_out_of_date(state, total / n_background, n)

    return rehearse_all, try_anew


def _make_decide(try_anew: Any) -> Any:
    """The function by which a review decides whether new trees take the place of old ones, for kernels."""

    @called
    def decide(words, state, n, kept, labels, is_due, is_last, is_tried):
        """End a comparison, or try background trees that start anew: whether the whole forest begins anew.

        Arguments: those of `review`.
        """
        begins_anew = is_due and new_trees_forecast_compiled(state)
        if state.phase[0] == COMPARES and (begins_anew or is_last):
            change_detection.end_comparing(state)
            if not begins_anew:
                tree_roles.give_up_background(nodes_of(words), state, n)
        elif is_tried and try_anew(words, state, kept, labels):
            # Whatever has lasted that long is no burst.
            begins_anew = is_last
            if not is_last:
                tree_roles.set_aside(state)
                try_anew(words, state, kept, labels)
                change_detection.begin_to_compare(state)
        return begins_anew

    return decide


def _make_teach(rehearse_all: Any, kind: Kind) -> Any:
    """The function by which a review teaches a forest what has been learned since the last one, for kernels."""
    weigh_features, trivial = feature_weights.make_weigh_features(kind), kind.trivial

    @called
    def teach(words, state, n, kept, labels, is_due):
        """Let all trees rehearse, or features have new weights and trees new roles. Arguments: those of `review`."""
        if state.phase[0] == BEGINS and is_due:
            rehearse_all(words, state, kept, labels)
            return
        weigh_features(state, features_of(words).moves)
        if state.phase[0] != COMPARES:
            recent, every = state.recent[: min(n, np.int64(N_RECENT))], np.int64(words[REVIEW_EVERY])
            tree_roles.replace_trees(nodes_of(words), state, n, every, trivial(state.table, recent))

    return teach


@called
def _keep_or_let_go(state, n, kept, is_due, is_last, is_chance):
    """Let go of the kept samples where they are of no more use. Arguments: those of `review`."""
    is_usual = state.phase[0] == WATCHES and (state.excess[0] == 0.0 or is_last)
    if is_usual or (state.phase[0] == BEGINS and is_last):
        change_detection.keep_nothing(state, n)
    elif state.phase[0] == SUSPECTS and (is_last or is_chance):
        change_detection.stop_suspecting(state, n, kept // 2)
    elif state.phase[0] != BEGINS and is_due:
        state.suspected[0] = 0.0


def make_review_if_due(adapting: Adapting) -> Any:
    """The function that reviews a forest, for kernels."""
    kind = adapting.kind
    rehearse_all, try_anew = _make_rehearsals(_make_rehearse(adapting.loss_of), kind)
    decide, teach = _make_decide(try_anew), _make_teach(rehearse_all, kind)
    watch, bound = change_detection.make_watch(kind), rehearsal.make_bound(kind)

    @called
    def review(words, state, n, labels):
        """Review a forest that has learned n labelled samples. labels: any, of the type of theirs."""
        every, most = np.int64(words[REVIEW_EVERY]), np.int64(words[MOST_KEPT])
        kept, loss = n - np.int64(state.beginning[0]), state.current[0] / every
        feature_weights.gather_gains(state)
        bound(state, features_of(words), n)
        has_suspected = state.phase[0] == SUSPECTS
        if state.phase[0] == WATCHES:
            kept = watch(state, loss, every, most, kept)
        state.suspected[0] += state.current[0]
        state.current[0] = 0.0
        # Due: as many samples are kept as 1, 2, 4 ... reviews have. Last: no more will be kept when it is due again.
        is_due = rehearsal.is_due(kept, every, most)
        is_last = (is_due or kept > most) and 2 * kept > most
        # Chance: a single review was unusual, and the next one was not.
        is_chance = has_suspected and kept == 2 * every and not change_detection.is_still_unusual(state, loss)
        is_tried = state.phase[0] == SUSPECTS and is_due and kept > every and not is_chance
        if decide(words, state, n, kept, labels, is_due, is_last, is_tried):
            change_detection.begin(state)
        teach(words, state, n, kept, labels, is_due)
        _keep_or_let_go(state, n, kept, is_due, is_last, is_chance)

    @called
    def review_if_due(words, state, labels, labelled):
        """Review the forest if these rows, which end where a review is due, came that far."""
        learned, n = False, features_of(words).n_labelled[0]
        for i in range(labelled.shape[0]):
            learned |= labelled[i]
        if learned and n % np.int64(words[REVIEW_EVERY]) == 0:
            review(words, state, n, labels)

    return review_if_due
