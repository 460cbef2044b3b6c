"""How a forecast is shared out over the nodes of a path, and over the leaves that the sample could have made.

EXISTING: the tree as it is ([AMF] Alg. 3). SAMPLED: the tree into which the sample has been inserted for the moment,
with random numbers of its own ([AMF] Alg. 6, with the averaged weights brought up to date). EXPECTED: the exact mean of
SAMPLED. In each of them a forecast is a sum over the nodes of the path: `stops` is the share of the node's own
forecast, `fresh` that of the empty leaf which branches off above it.
"""

from __future__ import annotations

import numpy as np

from amf.geometry.samples import value_of
from amf.jit.decorators import called, index, inlined
from amf.jit.elementary import expm1, log1p
from amf.jit.rng import GOLDEN, mix, to_unit
from amf.memory.arena import TIME
from amf.memory.paths import head_at
from amf.params import MODES

EXISTING, SAMPLED, EXPECTED = map(MODES.index, ("existing", "sampled", "expected"))


@inlined
def share_out(mode, draw, nodes, path, first, numbers):
    """Fill `stops` and `fresh`; returns (depth at which the sample ends, weighted depth).

    Of the numbers `stopping` is there, and of the nodes from place `first` on, outside of which the sample lies,
    `extensions`. draw: uniform on [0, 1), for SAMPLED.
    """
    stops, fresh, leaf = numbers.stops, numbers.fresh, path.length - index(1)
    reach, weighted_depth = 1.0, 0.0
    for k in range(leaf):
        stops[k] = reach * numbers.stopping[k]
        fresh[k] = 0.0
        reach *= 1.0 - numbers.stopping[k]
        weighted_depth += reach
    stops[leaf] = reach
    fresh[leaf] = 0.0
    depth = np.float64(leaf)
    # A sample does not branch off where its extension is zero, which it is of a value that no sample has shown before:
    # such a value may not even show in how a sum is rounded.
    while mode != EXISTING and first < path.length and numbers.extensions[first] == 0.0:
        first += index(1)
    if mode != EXISTING and first < path.length:
        if mode == SAMPLED:
            depth = _branch_off(draw, nodes, path, first, numbers)
        else:
            depth = _expect(nodes, path, first, numbers)
        weighted_depth = 0.0
        for k in range(path.length):
            weighted_depth += stops[k] * k + fresh[k] * (k + 1.0)
    return depth, weighted_depth


@called
def _branch_off(draw, nodes, path, first, numbers):
    """The shares in a tree where the sample branches off at one node; returns its depth there."""
    extensions, stops, fresh, leaf = numbers.extensions, numbers.stops, numbers.fresh, path.length - index(1)
    budget = -log1p(-draw)
    reach = 1.0
    for k in range(first):
        reach -= stops[k]
    for k in range(first, path.length):
        splits = k == leaf and extensions[k] > 0.0
        if k != leaf:
            hazard = extensions[k] * _lifetime(nodes, path, k)
            splits = budget < hazard
            budget -= hazard
        if splits:
            stop = 0.5 * reach if k == leaf else stops[k]
            total = 1.0 - 0.5 * reach + stop
            for j in range(k):
                stops[j] /= total
            stops[k] = stop / total
            fresh[k] = 0.5 * reach / total
            for j in range(k + index(1), path.length):
                stops[j] = 0.0
            return k + 1.0
        reach -= stops[k]
    return np.float64(leaf)


@called
def _expect(nodes, path, first, numbers):
    """The mean of the shares over all the places where the sample can branch off; returns its mean depth."""
    extensions, stops, fresh, leaf = numbers.extensions, numbers.stops, numbers.fresh, path.length - index(1)
    branch, reaches = np.empty(path.length), np.empty(path.length)
    reach, remaining, depth = 1.0, 1.0, 0.0
    for k in range(first):
        reach -= stops[k]
    for k in range(first, path.length):
        reaches[k] = reach
        leaves = 1.0 if extensions[k] > 0.0 else 0.0
        if k != leaf:
            leaves = -expm1(-extensions[k] * _lifetime(nodes, path, k))
        stop = 0.5 * reach if k == leaf else stops[k]
        branch[k] = remaining * leaves / (1.0 - 0.5 * reach + stop)
        depth += remaining * leaves * (k + 1.0)
        remaining *= 1.0 - leaves
        reach -= stops[k]
    above = remaining
    for j in range(path.length):
        k = leaf - j
        if k < first:
            stops[k] *= above
            continue
        stop = 0.5 * reaches[k] if k == leaf else stops[k]
        stops[k] = stops[k] * above + branch[k] * stop
        fresh[k] = 0.5 * branch[k] * reaches[k]
        above += branch[k]
    return depth + remaining * leaf


@inlined
def _lifetime(nodes, path, k):
    """Time between the birth and the split of an inner node."""
    birth = 0.0
    if k > index(0):
        birth = nodes.reals[head_at(nodes, path, k - index(1)) // index(2) + TIME]
    return nodes.reals[head_at(nodes, path, k) // index(2) + TIME] - birth


@called
def draw_of(word, boxes, low, sample):
    """Uniform on [0, 1) of a state of a tree's generator, which does not advance, and of the values of a row.

    Values of features that the root, whose box begins at `low`, has not seen yet do not count: they may not show yet.
    """
    row = np.uint64(0)
    for j in range(sample.n_features):
        value = np.float32(value_of(sample, j) + np.float32(0.0))  # -0 is 0
        if value == value and boxes[low + j] == boxes[low + j]:
            row = mix((row + GOLDEN) ^ (np.uint64(j) << np.uint64(32) | np.uint64(value.view(np.uint32))))
    return to_unit(mix(word ^ row))
