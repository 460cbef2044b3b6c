"""The way of a sample down a tree, for kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from amf.jit.decorators import called, inlined


class Path(NamedTuple):
    """Rows of nodes in the block (arena.py), the root's first: rows[start : start + length]. Place k is depth k.

    A sample goes down several trees at a time, so that their paths share an array.
    """

    rows: Any
    """uint64, flat."""
    start: Any
    length: Any
    """Nodes, 0 in an empty tree."""


class PathNumbers(NamedTuple):
    """Room for numbers of each node of a path: float64 arrays, by place."""

    first: Any
    second: Any
    """Those that statistics derive (statistics/interface.py)."""
    odds: Any
    """Of stopping at an inner node (aggregation.py)."""
    stopping: Any
    """The probability of that, if the node is reached."""
    stops: Any
    """The share of a node's own forecast in that of the tree (modes.py)."""
    fresh: Any
    """The share of the empty leaf that branches off above the node."""
    given: Any
    """Likelihood of the label."""
    extensions: Any
    """Rates at which the sample is parted from the nodes (descent.py)."""


class Scratch(NamedTuple):
    """Room for the paths of a sample in several trees, and for what is worked out on one of them."""

    rows: Any
    """uint64, flat: `depth` words for each path."""
    depth: Any
    lengths: Any
    """uint64, nodes of each path."""
    turns: Any
    """uint64, used while the sample is on its way."""
    numbers: PathNumbers


@called
def scratch_of(n_paths, depth):
    """Room for so many paths of so many nodes."""
    n = np.empty((8, depth))
    numbers = PathNumbers(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    lengths, turns = np.empty(n_paths, np.uint64), np.empty(n_paths, np.uint64)
    return Scratch(np.empty(n_paths * depth, np.uint64), depth, lengths, turns, numbers)


@inlined
def row_at(path, k):
    """Row of the node at this place."""
    return path.rows[path.start + k]


@inlined
def head_at(nodes, path, k):
    """First word of the head of the node at this place."""
    return path.rows[path.start + k] * nodes.words


@inlined
def upper_part(path, length):
    """The path down to its first `length` nodes."""
    return Path(path.rows, path.start, length)
