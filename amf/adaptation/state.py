"""The state of a forest that adapts (adaptation/): a float64 array and its parts, empty in a forest that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.adaptation.univariate import N_BOUNDS, N_CELLS, N_GROUPS, N_RECENT
from amf.inputs.scalars import LARGEST_NUMBER
from amf.jit.decorators import called

BEGINS, WATCHES, SUSPECTS, COMPARES = 0.0, 1.0, 2.0, 3.0
"""Phases of a forest: whether it rehearses, looks for a change, tries whether there has been one, or has new trees that
forecast in turn with the old ones (change_detection.py)."""
SILENT, STANDING_BY, ACTIVE = 0.0, 1.0, 2.0
"""Roles of trees: in the background, too young or too far behind to forecast; there, but forecasting; active."""

_REHEARSED = 512
"""Samples of which trees are made once more, at most."""
_SHARE_OF_BYTES = 16
"""The samples that are kept for rehearsals take no more than this part of `max_bytes`."""
LARGEST_RATIO = 8.0
"""A single step counts no more than this ratio of forecasts: one label must not decide everything."""
LAST_LOSSES = 16.0
"""Samples after which a loss counts 1 / e where new trees are compared with old ones."""
MEMORY = 6.0
"""Reviews after which a loss counts 1 / e."""
_LARGEST_LOSS = (2.1 * LARGEST_NUMBER) ** 2
"""Of numbers, of which it is the squared error; the logarithm of a probability is far smaller."""
_MOST_STEPS = 1e30
"""More than any number of samples in any number of trees can make."""
_BY_FEATURE = ("tree_gains", "weights", "gains", "table", "bounds", "kept_labels", "kept")
"""The parts of the state that grow when features come, or with the room for samples: all others stay as they are."""


class Terms(NamedTuple):
    """On which a forest adapts."""

    n_background: int
    """Trees that are not active in the beginning."""
    review_every: int
    """Labelled samples between two reviews."""
    most_kept: int
    """Samples that trees may learn once more, at most."""


NEVER = Terms(0, 1, 0)
"""Those of a forest that does not adapt."""


class State(NamedTuple):
    """The parts of the state of n trees and d features, views of float64."""

    tree_gains: Any
    """(n * 3 * d,), of each tree since the last review: d sums of what splits gained, d sums of the probabilities that
    a pruning goes that far, d sums of the squares of what was gained."""
    weights: Any
    """(d,), of features in the rate of cuts, which do not change between reviews."""
    gains: Any
    """(3 * d,), the same sums over all trees, the older ones for less."""
    table: Any
    """(d * N_CELLS,), of each feature the counts of labels in its bins (univariate.py), the older ones for less."""
    bounds: Any
    """(d * N_BOUNDS,), between the bins of each feature."""
    losses: Any
    """(n,), sums of the losses of the forecasts of trees, the older ones for less."""
    judged: Any
    """(n,), sums of the weights of these losses."""
    spreads: Any
    """(n,), sums of the squares of these losses less the mean of those of the active trees, the older ones for less."""
    births: Any
    """(n,), labelled samples before the first one of each tree."""
    roles: Any
    """(n,)"""
    swaps: Any
    """(1,), trees that were started anew since others forecast better."""
    beginning: Any
    """(1,), labelled samples before the first one that is kept."""
    phase: Any
    """(1,), whether the forest begins, watches itself, suspects that it is out of date, or compares
    (change_detection.py)."""
    current: Any
    """(1,), sum of the mean losses of the active trees since the last review."""
    usual: Any
    """(3,), mean and variance of such losses a sample between two reviews, and how many reviews they are of."""
    excess: Any
    """(1,), by how much such losses exceed what is allowed, in all, since the first kept sample, while it watches."""
    suspected: Any
    """(1,), sum of the mean losses of the active trees since as many samples were kept as half of those of the next
    trial of background trees, where samples are kept."""
    lag: Any
    """(1,), sum of what new trees lose more than old ones, the older samples for less, while it compares."""
    to_be_active: Any
    """(1,), trees that are active but for a while after a comparison that the old ones have won."""
    groups: Any
    """(N_GROUPS,), what parts labels into groups (univariate.py)."""
    recent: Any
    """(N_RECENT,), the last labels, that of sample k at place k modulo N_RECENT."""
    kept_labels: Any
    """(r,), of the samples that are kept, where there is room for r."""
    kept: Any
    """(r * d,), the values of these samples, as they came."""


def _make_state_of(part: Any) -> Callable[[Any, int, int], State]:
    """The function that takes the state to pieces, by (flat, start, length) -> (a piece, where it ends)."""

    def state_of(flat: Any, n_trees: int, n_features: int) -> State:
        """The parts of the state, which are all empty in a forest that does not adapt."""
        n, d = n_trees, n_features
        tree_gains, at = part(flat, 0, 3 * n * d)
        weights, at = part(flat, at, d)
        gains, at = part(flat, at, 3 * d)
        table, at = part(flat, at, N_CELLS * d)
        bounds, at = part(flat, at, N_BOUNDS * d)
        losses, at = part(flat, at, n)
        judged, at = part(flat, at, n)
        spreads, at = part(flat, at, n)
        births, at = part(flat, at, n)
        roles, at = part(flat, at, n)
        swaps, at = part(flat, at, 1)
        beginning, at = part(flat, at, 1)
        phase, at = part(flat, at, 1)
        current, at = part(flat, at, 1)
        usual, at = part(flat, at, 3)
        excess, at = part(flat, at, 1)
        suspected, at = part(flat, at, 1)
        lag, at = part(flat, at, 1)
        to_be_active, at = part(flat, at, 1)
        groups, at = part(flat, at, N_GROUPS)
        recent, at = part(flat, at, N_RECENT)
        n_rows = max(flat.shape[0] - at, 0) // (d + 1)
        kept_labels, at = part(flat, at, n_rows)
        kept, at = part(flat, at, n_rows * d)
        return State(
            tree_gains, weights, gains, table, bounds, losses, judged, spreads, births, roles, swaps, beginning, phase,
            current, usual, excess, suspected, lag, to_be_active, groups, recent, kept_labels, kept,
        )  # fmt: skip

    return state_of


def _cut(flat: Any, start: Any, length: Any) -> Any:
    return flat[start : start + length], start + length


def _measure(flat: Any, start: Any, length: Any) -> Any:
    return length, start + length


state_of, _lengths_of = _make_state_of(_cut), _make_state_of(_measure)


def new_trees_forecast(state: State) -> bool:
    """Whether those trees are active that began anew last, in place of the old ones."""
    return bool(state.phase[0] == COMPARES and state.lag[0] <= 0.0)


def most_old(n_trees: Any) -> Any:
    """Trees that stay as they are while new ones are compared with them, at most."""
    return n_trees - n_trees // 2


def most_kept(n_features: int, max_bytes: int) -> int:
    """Samples that are kept for rehearsals, at most."""
    return min(_REHEARSED, max_bytes // _SHARE_OF_BYTES // (8 * (n_features + 1)))


@lru_cache
def _size_without_rows(n_trees: int, n_features: int) -> int:
    return sum(_lengths_of(np.empty(0), n_trees, n_features))  # with room for no rows


def size_of(n_trees: int, n_features: int, n_rows: int) -> int:
    """Numbers in the state with room for so many samples."""
    return _size_without_rows(n_trees, n_features) + n_rows * (n_features + 1)


def room_in(flat: NDArray[np.float64], n_trees: int, n_features: int) -> int:
    """For how many samples there is room in the state, 0 in a forest that does not adapt."""
    if not flat.shape[0]:
        return 0
    return max(int(flat.shape[0]) - size_of(n_trees, n_features, 0), 0) // (n_features + 1)


def fresh_state(n_trees: int, terms: Terms) -> NDArray[np.float64]:
    """State of a forest that has no features yet; empty where it does not adapt."""
    if terms is NEVER:
        return np.empty(0)
    flat, n_background = np.zeros(size_of(n_trees, 0, 0)), terms.n_background
    state = state_of(flat, n_trees, 0)
    # All trees begin alike: those in the background know no less than the others.
    state.roles[:] = [ACTIVE] * (n_trees - n_background) + [STANDING_BY] * n_background
    state.to_be_active[0] = n_trees - n_background
    return flat


def with_features(
    flat: NDArray[np.float64], n_trees: int, known: int, like: Sequence[int | None], n_samples: int, n_rows: int
) -> NDArray[np.float64]:
    """The state after so many labelled samples with more features, and with room for so many kept samples.

    Nothing is known of the features yet but what Scaling.grow says of `like`. Samples for which there is no room are
    lost, the last ones first.
    """
    d = known + len(like)
    grown = np.zeros(size_of(n_trees, d, n_rows))
    new, old = state_of(grown, n_trees, d), state_of(flat, n_trees, known)
    new.tree_gains.reshape(3 * n_trees, d)[:, :known] = old.tree_gains.reshape(3 * n_trees, known)
    new.gains.reshape(3, d)[:, :known] = old.gains.reshape(3, known)
    new.weights[known:] = 1.0
    for name in ("weights", "table", "bounds"):
        part = getattr(old, name)
        getattr(new, name)[: part.shape[0]] = part
    for name in State._fields:
        if name not in _BY_FEATURE:
            getattr(new, name)[:] = getattr(old, name)
    there = min(n_samples - int(old.beginning[0]), n_rows, old.kept_labels.shape[0])
    new.kept_labels[:there] = old.kept_labels[:there]
    rows = new.kept.reshape(n_rows, d)[:there]
    rows[:, :known] = old.kept.reshape(old.kept_labels.shape[0], known)[:there]
    for column, sibling in enumerate(like, known):
        rows[:, column] = np.nan if sibling is None else np.where(np.isnan(rows[:, sibling]), np.nan, 0.0)
    return grown


def is_sound(state: State, terms: Terms, n_samples: int, moves: NDArray[np.int64], n_classes: int | None) -> bool:
    """Whether samples could have left this state. n_classes: None where labels are numbers."""
    n_background, review_every, _ = terms
    n_trees, last = state.roles.shape[0], n_samples - n_samples % review_every
    births, roles, varied = state.births, state.roles, max(int(np.count_nonzero(moves)), 1)
    checks = (
        _are_gains(state.tree_gains.reshape(n_trees, 3, -1)),
        _are_gains(state.gains.reshape(1, 3, -1)),
        (state.weights > 0.0) & (state.weights <= 1.001 * varied),
        (state.table >= 0.0) & (state.table <= n_samples),
        np.isfinite(state.bounds),
        _are_groups(state.groups, n_classes),
        _are_sums(state.losses, state.judged, _LARGEST_LOSS),
        (state.judged >= 0.0) & (state.judged <= 1.001 * MEMORY * review_every),
        _are_sums(state.spreads, state.judged, _LARGEST_LOSS**2),
        (births >= 0.0) & (births <= last) & (births % review_every == 0.0),
        (roles == SILENT) | (roles == STANDING_BY) | (roles == ACTIVE),
        (births == 0.0) | (births < last) | (roles == SILENT),
        state.to_be_active == n_trees - n_background,
        _are_roles(roles, n_trees - n_background, state),
        (state.swaps >= np.count_nonzero(births)) & (state.swaps <= n_trees * (n_samples // review_every)),
        _is_whole(state.swaps),
        _is_phase(state, n_background, review_every, last),
        _are_sums(state.current, n_samples - last, _LARGEST_LOSS),
        _are_sums(state.usual, 1.0, np.array([_LARGEST_LOSS, _LARGEST_LOSS**2, n_samples])),
        _are_sums(state.excess, n_samples, _LARGEST_LOSS),
        (state.excess == 0.0) | (state.phase == WATCHES),
        _are_sums(state.suspected, n_samples, _LARGEST_LOSS),
        np.abs(state.lag) <= 1.001 * LAST_LOSSES * _LARGEST_LOSS,
        (state.lag == 0.0) | (state.phase == COMPARES),
        _are_labels(state.recent, n_classes),
        _are_labels(state.kept_labels, n_classes),
        ~np.isinf(state.kept),
    )
    return all(check if isinstance(check, bool) else check.all() for check in checks)


def _are_roles(roles: NDArray[np.float64], to_be_active: int, state: State) -> bool:
    """Whether as many trees may be active, and others stand by."""
    n_trees, active, phase = roles.shape[0], int(np.count_nonzero(roles == ACTIVE)), state.phase[0]
    old = min(to_be_active, most_old(n_trees))
    if phase == COMPARES:
        new = roles == (ACTIVE if new_trees_forecast(state) else SILENT)
        began_together = bool(np.all(state.births[new] == state.beginning))
        return np.count_nonzero(new) == n_trees - old and not np.any(roles == STANDING_BY) and began_together
    # Only a comparison that the old trees have won leaves fewer, and without background trees there is none.
    has_compared = phase != BEGINS and to_be_active < n_trees
    return bool((old if has_compared else to_be_active) <= active <= to_be_active)


def _is_phase(state: State, n_background: int, review_every: int, last: int) -> bool:
    """Whether a forest of which this was the last review may be in its phase since its beginning."""
    beginning, phase = float(state.beginning[0]), state.phase[0]
    if not (0.0 <= beginning <= last and beginning % review_every == 0.0):
        return False
    if phase == BEGINS:
        return bool(np.all(state.births >= beginning))
    if phase == WATCHES:
        # Samples are kept while losses exceed the usual one, which only a forest with background trees looks at.
        exceeds = bool(state.excess[0] > 0.0)
        return n_background > 0 and beginning < last if exceeds else beginning == last
    if phase == COMPARES:
        return n_background > 0 and beginning < last - review_every
    return bool(phase == SUSPECTS and n_background > 0 and beginning < last)


def _are_gains(sums: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether (n, 3, d) are sums as those of `tree_gains`."""
    gained, steps, squares = sums[:, 0], sums[:, 1], sums[:, 2]
    most = 1.001 * LARGEST_RATIO
    are: NDArray[np.bool_] = (steps >= 0.0) & (steps < _MOST_STEPS)
    return are & (gained >= -1.001 * steps) & (gained <= most * steps) & _are_sums(squares, steps, most * most)


def _are_sums(values: NDArray[np.float64], weights: Any, largest: Any) -> NDArray[np.bool_]:
    """Of each whether it is a sum of numbers from 0 to `largest`, whose weights have this sum, but for rounding."""
    sums: NDArray[np.bool_] = (values >= 0.0) & (values <= 1.001 * largest * weights)
    return sums


def _is_whole(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    whole: NDArray[np.bool_] = values == np.floor(values)
    return whole


def _are_groups(values: NDArray[np.float64], n_classes: int | None) -> NDArray[np.bool_]:
    """Of each whether it is a bound between numbers, or the number of a class plus one or nothing yet."""
    return _are_labels(values, None if n_classes is None else n_classes + 1)


def _are_labels(values: NDArray[np.float64], n_classes: int | None) -> NDArray[np.bool_]:
    """Of each whether it is a label, or the zero that stands where there is none yet."""
    labels: NDArray[np.bool_] = np.abs(values) <= LARGEST_NUMBER
    if n_classes is not None:
        labels = (values >= 0.0) & (values < max(n_classes, 1)) & (values == np.floor(values))
    return labels


state_of_compiled = called(_make_state_of(called(_cut)))
new_trees_forecast_compiled, most_old_compiled = called(new_trees_forecast), called(most_old)
"""As kernels call them: what is compiled for kernels cannot be called from Python."""
