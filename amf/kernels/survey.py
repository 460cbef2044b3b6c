"""What trees look like and what their forecasts rest on, in the mean over the samples that they have learned."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from amf.jit.decorators import called, index
from amf.kernels.aggregation import chain_odds, stop_probability
from amf.memory.arena import CHILD, COUNT, FEATURE, N_CUTS, ODDS, ROOT, row_of
from amf.statistics.interface import Statistics


class Found(NamedTuple):
    """What is found, float64, by one look at each node; all 0 before."""

    usage: Any
    """(d,), for each feature the share of a tree's samples' posterior that goes on at a split on it, (samples below the
    split / samples) * P(the pruning reaches it and goes on), summed over its splits and over trees."""
    depths: Any
    """(3,), the mean depth of a sample's leaf and at which the averaged prunings end for it, sums over trees; the
    largest depth."""
    counts: Any
    """(2,), trees that are not empty, and leaves."""
    lifetimes: Any
    """(n_trees,), of what forecasts see of each tree, be it asked or not; 0 of an empty one."""


def make_survey(statistics: Statistics, *, aggregates: bool) -> Any:
    """The survey of one kind of statistics and of trees, a function for kernels; arguments: see composition.py."""
    hides, lifetime_of = statistics.hides, statistics.lifetime_of

    @called
    def look(nodes, tree, root, rules, lifetime, found):
        """Add one tree, which is not empty."""
        room = np.intp(nodes.used[tree])
        # Of nodes that are to be looked at: depth and cuts above; the probability that a pruning goes there.
        rows, places, reaches, length = np.empty(room, np.uint64), np.zeros((room, 2), np.int64), np.ones(room), 1
        rows[0], samples, passed = root, max(nodes.ints[root * nodes.words + COUNT], 1), 0
        while length > 0:
            length -= 1
            here, depth, cuts = rows[length] * nodes.words, places[length, 0], places[length, 1]
            child, count = index(nodes.ints[here + CHILD]), nodes.ints[here + COUNT]
            if child == index(0):
                found.counts[1] += 1.0
                found.depths[2] = max(found.depths[2], np.float64(depth))
                continue
            passed += count
            # Nodes that stand for a single cell, as most systems' do, have no cuts counted.
            n_cells, stop = max(nodes.ints[here + N_CUTS] - cuts, 1), 0.0
            if hides(nodes, here, rules, lifetime):
                stop = 1.0
            elif aggregates:
                stop = stop_probability(chain_odds(nodes.reals[here // index(2) + ODDS], n_cells))
            goes_on = reaches[length] * (1.0 - stop)
            found.usage[nodes.ints[here + FEATURE]] += count / samples * goes_on
            found.depths[1] += count / samples * goes_on
            for side in range(2):
                rows[length], reaches[length] = child + index(side), goes_on
                places[length, 0], places[length, 1] = depth + 1, nodes.ints[here + N_CUTS]
                length += 1
        found.depths[0] += passed / samples
        found.counts[0] += 1.0

    @called
    def survey(trees, asked, found):
        """Look at all nodes of the trees that are asked, bool (n_trees,)."""
        nodes, n_trees = trees.nodes, index(trees.nodes.used.shape[0])
        for tree in range(n_trees):
            if nodes.used[tree] > ROOT:
                root = row_of(ROOT, tree, n_trees)
                found.lifetimes[tree] = lifetime_of(nodes, root, trees.rules)
                if asked[tree]:
                    look(nodes, tree, root, trees.rules, found.lifetimes[tree], found)

    return survey
