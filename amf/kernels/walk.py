"""Predict, then learn: samples through trees of boxes ([AMF] Alg. 4-6), whatever their labels are.

The structure of a tree follows from one exponential of rate 1 a sample. Going down, the sample can split off above a
node at rate `extension of the node's box` between the node's birth and its split; the rates along the path are one
inhomogeneous Poisson process, so its first arrival needs one draw for the whole path and not one a node: it is spent
as a budget. Forecasts of the sample are made by the tree as it was, the weights are updated in the tree as it becomes.

Samples come one by one, and each of them takes all trees in turn: trees are independent of each other, so that memory
is fetched for one while another one is looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from amf.adaptation.feature_weights import remember_gains
from amf.geometry.boxes import varied
from amf.geometry.interface import Geometry, become_root
from amf.geometry.samples import Sample, Weights
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import log1p
from amf.jit.rng import uniform
from amf.kernels.aggregation import fill_stopping, odds_of_split, revise
from amf.kernels.forgetting import make_keep_in_bounds
from amf.kernels.modes import EXISTING, SAMPLED, draw_of, share_out
from amf.memory.arena import ODDS, TIME, row_of
from amf.memory.paths import Path, head_at, row_at, scratch_of, upper_part
from amf.statistics.interface import Statistics, make_shown, without_prunings

LANES = index(16)
"""Trees that a sample descends in at a time."""
DEPTH = index(128)
"""Nodes of a path for which there is room at first."""
_LONG_PATH = index(128)
"""Nodes of a path beyond which its inner nodes split as in a tree that has room."""


class Growth(NamedTuple):
    """When nodes split, of those that a sample is outside of."""

    limit: Any
    """Rows that a tree may have; where it is 0 no node splits."""
    purity: Any
    """A leaf born before time purity / number of features in which samples differed splits also while it is pure."""
    pause: Any
    """An inner node does not split for a label for which its evidence is at least this."""
    full_pause: Any
    """The same in a tree with more than a quarter of the rows that are allowed, on paths that are not long."""
    lifetime: Any
    """No node splits at this time or later: that of the Mondrian process, inf in most systems."""


class Trees(NamedTuple):
    """The trees of a forest, as a walk needs them."""

    nodes: Any
    random: Any
    """uint64 (n_trees,), a word of each tree (rng.py)."""
    rules: Any
    """Those of the statistics, see `Statistics.rules_of`."""
    growth: Any
    mode: Any
    """See modes.py."""
    gains: Any
    """State.tree_gains of adaptation/state.py, empty where a forest does not adapt."""


class Batch(NamedTuple):
    """Rows as a walk takes them. Two rows of memory are free for each label in every tree, up to its limit."""

    x: Any
    """float32, flat: n samples of `stride` = padded(n_features) words, NaN where missing."""
    stride: Any
    n_features: Any
    weights: Any
    """float32, flat: `stride` before the first row, and for each segment."""
    ends: Any
    """Where segments end."""
    labels: Any
    """(n,)"""
    labelled: Any
    """bool (n,): a sample without a label changes nothing."""


class Said(NamedTuple):
    """What each tree says of a sample before it is learned; filled only where it is to be published."""

    forecasts: Any
    """float64 (n_trees, n, ...)."""
    depths: Any
    """float64 (n_trees, n, 2): where the sample ends, and its weighted depth ([AMF] Sec. 5.1)."""


@inlined
def _first_split(budget, leaf_splits, pure_until, pause, lifetime, nodes, path, outer, numbers):
    """(place on the path of the node above which the sample splits off, when), its length where there is none."""
    birth, leaf = 0.0, path.length - index(1)
    if outer > index(0):
        birth = nodes.reals[head_at(nodes, path, outer - index(1)) // index(2) + TIME]
    for k in range(outer, path.length):
        # A leaf's own split is still to come, at time inf.
        split_time = min(nodes.reals[head_at(nodes, path, k) // index(2) + TIME], lifetime)
        may_split = (leaf_splits or birth < pure_until) if k == leaf else numbers.given[k] < pause
        if may_split and numbers.extensions[k] > 0.0:
            hazard = numbers.extensions[k] * (split_time - birth)
            if budget < hazard:
                return k, min(birth + budget / numbers.extensions[k], split_time)
            budget -= hazard
        birth = split_time
    return path.length, 0.0


@inlined
def _pure_until(purity, nodes, root, n_features):
    """Before which time a leaf has to be born to split while all its labels agree.

    Features count in which samples differ. What a feature tells that is constant, or that no sample has shown yet, is
    nothing, and so it changes nothing.
    """
    if purity == 0.0:
        return 0.0
    low = root * nodes.width
    return purity / max(varied(nodes.boxes, low, low + nodes.width // index(2), n_features), index(1))


@inlined
def share_by_prunings(mode, draw, rules, nodes, path, outer, numbers):
    """How the average over prunings shares out a forecast, see `tree_kernels` of composition.py."""
    return share_out(mode, draw, nodes, path, outer, numbers)


def _make_insert(statistics: Statistics, geometry: Geometry) -> Any:
    """The function that adds a sample to the boxes and counts of a tree, for kernels."""
    likelihood_of_empty, update = statistics.likelihood_of_empty, statistics.update
    may_split, split, extend = statistics.may_split, geometry.split, geometry.extend

    @inlined
    def insert(trees, tree, path, outer, numbers, sample, weights, label):
        """Returns (nodes on the path that stay above the sample's own leaf, the averaged forecast of what is below)."""
        nodes, rules, growth, leaf = trees.nodes, trees.rules, trees.growth, path.length - index(1)
        draw = uniform(trees.random, tree)
        end, time = path.length, 0.0
        if growth.limit > index(0) and outer < path.length:
            leaf_splits = may_split(nodes, head_at(nodes, path, leaf), rules, label)
            if leaf_splits or growth.purity > 0.0 or outer < leaf:
                # Where samples lie ever further out, paths that only leaves prolong would be as long as trees large.
                is_scarce = index(4) * nodes.used[tree] > growth.limit and path.length <= _LONG_PATH
                pure_until = 0.0
                if not leaf_splits:
                    pure_until = _pure_until(growth.purity, nodes, row_at(path, index(0)), sample.n_features)
                end, time = _first_split(
                    -log1p(-draw), leaf_splits, pure_until, growth.full_pause if is_scarce else growth.pause,
                    growth.lifetime, nodes, path, outer, numbers,
                )  # fmt: skip
        for k in range(end):
            update(nodes, head_at(nodes, path, k), rules, label)
        extend(nodes, tree, path, outer, end, sample)
        if end == path.length:
            return leaf, numbers.given[leaf]
        row, pair = row_at(path, end), row_of(nodes.used[tree], tree, index(nodes.used.shape[0]))
        nodes.used[tree] += index(2)
        fresh = split(nodes, trees.random, tree, row, pair, time, sample, weights, numbers.extensions[end])
        odds, given = row * nodes.words // index(2) + ODDS, numbers.given[end]
        free = likelihood_of_empty(rules, numbers.first[end], numbers.second[end], given, label)
        nodes.reals[odds], below = odds_of_split(nodes.reals[odds], end == leaf, given, free)
        update(nodes, fresh * nodes.words, rules, label)
        update(nodes, row * nodes.words, rules, label)
        return end, below

    return insert


def _make_forecast(statistics: Statistics, share: Any) -> Any:
    """The function that makes the forecast of one tree, for kernels."""
    predict = statistics.predict

    @inlined
    def forecast(trees, tree, path, outer, numbers, sample, said, i):
        """Fill what the tree says of the sample, row `i`. path: the part that is shown."""
        nodes, rules = trees.nodes, trees.rules
        said.depths[tree, i, 0], said.depths[tree, i, 1] = 0.0, 0.0
        if path.length > index(0):
            draw = 0.0
            if trees.mode == SAMPLED:
                draw = draw_of(trees.random[tree], nodes.boxes, row_at(path, index(0)) * nodes.width, sample)
            said.depths[tree, i, 0], said.depths[tree, i, 1] = share(
                trees.mode, draw, rules, nodes, path, outer, numbers
            )
        predict(
            nodes, path, rules, numbers.first, numbers.second, numbers.stops, numbers.fresh, said.forecasts, tree, i
        )

    return forecast


def _make_learn(statistics: Statistics, geometry: Geometry, *, aggregates: bool) -> Any:
    """The function by which one tree learns a sample that has gone down it, for kernels."""
    likelihoods, update, insert = statistics.likelihoods, statistics.update, _make_insert(statistics, geometry)
    keep_in_bounds = make_keep_in_bounds(statistics.halve)

    @inlined
    def learn(trees, tree, path, outer, numbers, sample, weights, label):
        nodes, rules, root = trees.nodes, trees.rules, row_at(path, index(0))
        if path.length == index(0):
            become_root(nodes, tree, root, sample)
            update(nodes, root * nodes.words, rules, label)
            return
        likelihoods(nodes, path, rules, numbers.first, numbers.second, label, numbers.given)
        if trees.gains.shape[0] > 0:
            remember_gains(nodes, path, numbers, trees.gains, tree, sample.n_features)
        above, below = insert(trees, tree, path, outer, numbers, sample, weights, label)
        if aggregates:
            revise(nodes, upper_part(path, above), numbers, numbers.stops, below)
        keep_in_bounds(nodes, tree, root, trees.growth.limit, rules)

    return learn


def _make_visit(statistics: Statistics, share: Any, geometry: Geometry, *, aggregates: bool) -> Any:
    """The function by which one tree predicts, then learns a sample that has gone down it, for kernels."""
    derive, shown, outer_part = statistics.derive, make_shown(statistics), geometry.outer_part
    forecast, learn = _make_forecast(statistics, share), _make_learn(statistics, geometry, aggregates=aggregates)

    @inlined
    def visit(trees, tree, path, numbers, sample, before, by, learns, label, publish, said, i):
        """The sample is row `i`. before, by: the weights before it and with it."""
        nodes, mode = trees.nodes, trees.mode
        seen = upper_part(path, shown(nodes, path, trees.rules))
        derive(nodes, seen, trees.rules, numbers.first, numbers.second)
        outer = path.length
        if path.length > index(0):
            fill_stopping(aggregates, False, nodes, path, numbers)
        if path.length > index(0) and (learns or mode != EXISTING):
            # Nothing that a row brings along may show in its forecast, nor the weights that it changes.
            known = Weights(by.values, by.at if mode == EXISTING else before.at)
            outer = outer_part(nodes, tree, path, sample, known, numbers.extensions)
        if publish:
            forecast(trees, tree, seen, outer, numbers, sample, said, i)
        if learns:
            if mode != EXISTING and before.at != by.at:
                outer = outer_part(nodes, tree, path, sample, by, numbers.extensions)
            learn(trees, tree, path, outer, numbers, sample, by, label)

    return visit


def _make_pass_row(statistics: Statistics, share: Any, geometry: Geometry, *, aggregates: bool) -> Any:
    """The function that passes a sample through some trees, for kernels."""
    descend, visit = geometry.descend, _make_visit(statistics, share, geometry, aggregates=aggregates)

    @inlined
    def pass_row(trees, first_tree, lanes, batch, i, before, by, publish, said, scratch):
        """Whether there was room for the paths: else nothing has happened.

        The sample is row `i` of the batch. before, by: where the weights begin before it, and with it.
        """
        sample, learns = Sample(batch.x, i * batch.stride, batch.n_features), batch.labelled[i]
        wants_boxes = learns or trees.mode != EXISTING
        if not descend(trees.nodes, first_tree, lanes, sample, wants_boxes, scratch):
            return False
        for lane in range(lanes):
            visit(
                trees, first_tree + lane, Path(scratch.rows, lane * scratch.depth, scratch.lengths[lane]),
                scratch.numbers, sample, Weights(batch.weights, before), Weights(batch.weights, by),
                learns, batch.labels[i], publish, said, i,
            )  # fmt: skip
        return True

    return pass_row


def make_walk(statistics: Statistics, share: Any, geometry: Geometry, *, aggregates: bool) -> Any:
    """The walk for one kind of statistics and of trees, a function for kernels; arguments: see composition.py."""
    if not aggregates:
        statistics = without_prunings(statistics)
    pass_row = _make_pass_row(statistics, share, geometry, aggregates=aggregates)

    @called
    def walk(trees, first_tree, last_tree, batch, publish, said):
        """Pass the rows of a batch through the trees [first_tree, last_tree), one by one."""
        n, stride, ends, scratch = index(batch.labels.shape[0]), batch.stride, batch.ends, scratch_of(LANES, DEPTH)
        for block in range(first_tree, last_tree, LANES):
            lanes = min(LANES, last_tree - block)
            segment, before = 0, index(0)  # of the weights: before a row, and with it
            for i in range(n):
                by = index(segment + 1) * stride
                while not pass_row(trees, block, lanes, batch, i, before, by, publish, said, scratch):
                    scratch = scratch_of(LANES, index(2) * scratch.depth)
                before = by
                if segment < ends.shape[0] and i + index(1) == index(ends[segment]):
                    segment += 1

    return walk
