"""What nodes remember of labels, and what they say of them: what a walk (walk.py) asks of classes, or of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amf.jit.decorators import index, inlined
from amf.memory.paths import head_at, row_at


@inlined
def every_leaf(nodes, here, rules, label):
    """Whether this leaf may split for the label, where each of them may."""
    return True


@inlined
def _expect_nothing(nodes, path, rules, first, second, label, given):
    """Likelihoods of a label where nothing follows from them: no node pauses for it, and none is stopped at."""
    for k in range(path.length):
        given[k] = 0.0


@inlined
def _charge_nothing(rules, first, second, likelihood, label):
    """Likelihood of a label at a fresh leaf where nothing follows from it."""
    return 1.0


@inlined
def _say_the_same(rules, value, above):
    """What an empty leaf says where there are none."""
    return above


@inlined
def _hides_nothing(nodes, here, rules, lifetime):
    """Whether a node hides what is below it, where none does."""
    return False


@inlined
def _never(nodes, root, rules):
    """Lifetime of what forecasts see of a tree, where they see all of it."""
    return np.inf


class Statistics(NamedTuple):
    """What nodes remember of labels, and what they say of them: functions for kernels.

    rules is a tuple of what the kind of label wants to know; for `path` see paths.py. Those with a default can be left
    out where nothing is averaged over prunings.
    """

    rules_of: Callable[..., Any]
    """(numbers) -> rules, of the words of a forest (binding.py) as float64."""
    derive: Callable[..., Any]
    """(nodes, path, rules, first, second): derive two numbers a node from its statistics."""
    predict: Callable[..., Any]
    """(nodes, path, rules, first, second, stops, fresh, forecasts, tree, i): make the tree's forecast of the shares of
    the nodes, `stops`, and of what branches off above them, `fresh`. Both may be used up."""
    update: Callable[..., Any]
    """(nodes, here, rules, label): count the label at a node."""
    halve: Callable[..., Any]
    """(nodes, tree, rules): halve the counts of a tree (halving.py)."""
    forecast_of: Callable[..., Any]
    """(nodes, here, rules, first, second, value, above, k) -> one number of what the node at place k of a path says by
    itself. value: which one. above: what its parent says."""
    may_split: Callable[..., Any] = every_leaf
    """(nodes, here, rules, label) -> whether this leaf may split for the label."""
    forecast_of_empty: Callable[..., Any] = _say_the_same
    """(rules, value, above) -> that of an empty leaf."""
    likelihoods: Callable[..., Any] = _expect_nothing
    """(nodes, path, rules, first, second, label, given): each node's own forecast of the label."""
    likelihood_of_empty: Callable[..., Any] = _charge_nothing
    """(rules, first, second, likelihood, label) -> that of a fresh leaf, of its parent's: what it is charged."""
    hides: Callable[..., Any] = _hides_nothing
    """(nodes, here, rules, lifetime) -> whether to forecasts this node is a leaf: what is below it is hidden."""
    lifetime_of: Callable[..., Any] = _never
    """(nodes, root, rules) -> lifetime of what forecasts see of the tree with this root."""


def make_shown(statistics: Statistics) -> Any:
    """The function that tells how many nodes of a path forecasts are made of, for kernels: the others are hidden."""
    hides, lifetime_of = statistics.hides, statistics.lifetime_of

    @inlined
    def shown(nodes, path, rules):
        if path.length > index(0):
            lifetime = lifetime_of(nodes, row_at(path, index(0)), rules)
            for k in range(path.length):
                if hides(nodes, head_at(nodes, path, k), rules, lifetime):
                    return k + index(1)
        return path.length

    return shown


def without_prunings(statistics: Statistics) -> Statistics:
    """Statistics of trees that are not averaged over prunings: no likelihood decides anything."""
    return statistics._replace(likelihoods=_expect_nothing, likelihood_of_empty=_charge_nothing)
